#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/report/curve.hpp"
#include "src/report/scale.hpp"

namespace trireme::report {

/// Number that a run records for each iteration.
struct Quantity {
  std::string_view key;  ///< in the lines of metrics
  std::string_view title;
  std::string_view unit;
  Axis axis = Axis::fitted;
  bool always_shown = true;  ///< even if missing; otherwise only if it varies
};

enum QuantityIndex {
  lm_loss,
  sop_loss,
  learning_rate,
  grad_norm,
  tokens_per_second,
  tflops_per_rank,
  memory,
  loss_scale
};

/// All quantities, in the order of the page; the first are those of `QuantityIndex`.
inline constexpr auto quantities = std::to_array<Quantity>({
    {"lm_loss", "Training loss", "", Axis::decades},
    {"sop_loss", "Training loss of the segments' order", "", Axis::decades, false},
    {"learning_rate", "Learning rate", "", Axis::from_zero},
    {"grad_norm", "Gradient norm", "", Axis::decades},
    {"tokens_per_second", "Speed", "tokens/s", Axis::from_zero},
    {"tflops_per_rank", "Speed of a rank", "TFLOP/s", Axis::from_zero},
    {"peak_memory_bytes", "Memory of rank 0, greatest so far", "bytes", Axis::from_zero},
    {"loss_scale", "Loss scale", "", Axis::decades, false},
    {"params_norm", "Norm of the parameters", "", Axis::decades, false},
    {"num_zeros", "Gradients that are zero", "", Axis::from_zero, false},
    {"weight_decay", "Weight decay", "", Axis::from_zero, false},
    {"mtp_loss", "Training loss of further tokens", "", Axis::decades, false},
    {"balance_loss", "Balance loss of the experts", "", Axis::fitted, false},
    {"router_z_loss", "z-loss of the routers", "", Axis::decades, false},
    {"router_entropy", "Entropy of the routers, nats", "", Axis::fitted, false},
    {"max_expert_load", "Largest load of an expert, over the mean", "", Axis::from_zero, false},
    {"expert_entropy", "Least entropy of a layer's loads, over that of even ones", "", Axis::fitted, false},
    {"dropped_choices", "Choices of experts beyond the capacity", "", Axis::from_zero, false},
    {"exposed_communication_ms", "Exposed communication", "ms", Axis::from_zero, false},
});

/// Number that each layer with experts records: its key, and the head of its column.
struct LayerQuantity {
  std::string_view key, head;
};
inline constexpr auto layer_quantities = std::to_array<LayerQuantity>({
    {"balance_loss", "balance loss"},
    {"router_z_loss", "z-loss"},
    {"router_entropy", "router entropy"},
    {"max_expert_load", "largest load / mean"},
    {"expert_entropy", "entropy of loads"},
    {"dropped_choices", "dropped"},
});
/// Layer with experts in the last iteration.
struct ExpertLayer {
  std::int64_t layer = 0;
  std::array<std::optional<double>, layer_quantities.size()> values;
};

/// Value of an option in an attempt of a run.
struct OptionValue {
  std::string name;
  std::string value;
  bool given = false;  ///< on the command line or in a file; otherwise the default
  friend bool operator==(const OptionValue&, const OptionValue&) = default;
};

/// State of a job when it begins to train. Times are seconds since 1970, UTC.
struct AttemptStart {
  std::int64_t time = 0;
  std::int64_t began = 0;             ///< when its ranks started; 0: not recorded
  std::int64_t previous_written = 0;  ///< when the previous attempt last wrote metrics; 0: not recorded, or none
  double load_ms = 0;                 ///< part of the time from `began` to `time` in which it loaded a checkpoint
  std::string job;                    ///< SLURM's number; may be empty
  std::string host;                   ///< host of rank 0
  std::string version;
  std::string device;
  int ranks = 0;
  std::vector<std::pair<std::string, int>> axes;  ///< "tensor", 2, ...
  std::int64_t parameters = 0;
  double peak_tflops = 0;            ///< peak of a rank's device; 0: not known
  std::int64_t iteration = 0;        ///< iterations done before
  std::int64_t lost_iterations = 0;  ///< done by the previous attempt, after the checkpoint that this one loaded
  double lost_ms = 0;
  std::vector<OptionValue> options;
};

/// Time that an attempt spent so far while it did not train.
struct SpentTime {
  double saving_ms = 0;  ///< blocked by checkpoints
  double evaluating_ms = 0;
};

/// End of a job that could still report it.
struct AttemptEnd {
  std::int64_t time = 0;
  std::int64_t iteration = 0;  ///< iterations done
  int exit_code = 0;
  std::string reason;  ///< the error's text; empty if none
  SpentTime spent = {};
};

/// Checkpoint, recorded by an attempt at commit.
struct SaveNote {
  std::int64_t time = 0;
  std::int64_t iteration = 0;
  SpentTime spent = {};
};

/// Return to a checkpoint after a spike of the loss.
struct RewindNote {
  std::int64_t time = 0;
  std::int64_t iteration = 0;  ///< where the run goes on
  std::int64_t to = 0;         ///< iteration of the checkpoint
  double lost_ms = 0;          ///< time of the iterations between that this attempt did and no rewind lost before
};

/// One job of a run, as far as it was recorded.
struct Attempt {
  std::optional<AttemptStart> start;  ///< empty: it ended before training
  std::vector<SaveNote> saves;
  std::vector<RewindNote> rewinds;
  std::optional<AttemptEnd> end;
  SpentTime spent;                       ///< as last recorded
  std::optional<std::int64_t> job_time;  ///< when the batch file started it
  std::string job;
  std::optional<int> job_status;        ///< exit code that the batch file noted
  std::optional<std::int64_t> job_end;  ///< time of that note
};

/// Line that a batch file writes into the run folder: a start, or an end with its status.
struct JobNote {
  std::int64_t time = 0;
  std::string job;
  std::int64_t step = 0;      ///< newest checkpoint
  std::optional<int> status;  ///< set at an end
};

/// Merges the notes of batch files into the attempts recorded by the program: each start begins a time span, and an
/// attempt that began within it belongs to that job. A job without a recorded attempt becomes a separate one. `lives`
/// must be in order of time.
std::vector<Attempt> join_attempts(std::vector<Attempt> attempts, const std::vector<JobNote>& notes);

/// Checkpoint currently in the folder.
struct StoredStep {
  std::string name;
  std::optional<std::int64_t> iteration;
  std::int64_t size_bytes = 0;
  std::int64_t files = 0;
  std::string problem;  ///< empty: its manifest is intact
};

/// Result of an evaluation on the test split.
struct TestResult {
  std::int64_t iteration = 0;
  double loss = 0;
  /// BERT with a binary head: loss of the segments' order, and fraction whose order was recognised.
  std::optional<double> sop_loss = {}, sop_accuracy = {};
};

/// Texts that the model wrote at an iteration, one for each prompt.
struct SampleSet {
  struct Sample {
    std::string prompt, text;
  };
  std::int64_t iteration = 0;
  std::vector<Sample> samples;
};
/// Most sets that a run keeps. One more drops every second of them; the first stays, and the newest are the densest.
constexpr std::size_t max_sample_sets = 64;

/// Curves of the validation, by name of the set; the validation split is "".
using ValidationCurves = std::map<std::string, Curve>;

/// Figure that tasks measure while a model trains (`--eval-tasks`).
struct TaskQuantity {
  std::string_view key;  ///< in the lines of metrics, beside "eval_task"
  std::string_view title;
  bool is_fraction = false;  ///< shown in percent
};
inline constexpr auto task_quantities = std::to_array<TaskQuantity>({
    {"acc", "Accuracy on tasks", true},
    {"acc_norm", "Accuracy on tasks, normalised by length", true},
    {"perplexity", "Perplexity on tasks"},
    {"word_perplexity", "Perplexity of words on tasks"},
    {"byte_perplexity", "Perplexity of bytes on tasks"},
    {"bits_per_byte", "Bits per byte on tasks"},
});

/// Everything that a report shows of a run.
struct Run {
  std::string name;
  std::string metrics_path;          ///< empty: no metrics were found
  std::vector<std::string> sources;  ///< files and folders that may hold news of it
  std::optional<std::int64_t> last_written;
  std::vector<std::optional<Curve>> curves = std::vector<std::optional<Curve>>(quantities.size());
  ValidationCurves validation;                                    ///< losses
  ValidationCurves validation_sop_loss, validation_sop_accuracy;  ///< likewise the others of `measures`
  std::array<ValidationCurves, task_quantities.size()> tasks;     ///< by the name of the task
  std::optional<Curve> skipped;                                   ///< iterations without an update
  std::optional<TestResult> test;
  std::vector<ExpertLayer> expert_layers;
  std::vector<SampleSet> samples;  ///< from the first to the last
  std::int64_t first_iteration = 0, last_iteration = 0, consumed_samples = 0;
  std::int64_t iterations = 0;  ///< whose newest record is there
  std::int64_t skipped_updates = 0;
  std::int64_t not_finite = 0;           ///< losses
  double trained_ms = 0, tokens = 0;     ///< sums of these iterations
  double flops_per_rank = 0;             ///< 10^12
  std::int64_t repeated_iterations = 0;  ///< records replaced by a later one in the file
  double repeated_ms = 0;
  std::int64_t damaged_lines = 0, first_damaged_line = 0;
  std::vector<Attempt> attempts;
  std::vector<StoredStep> steps;
  std::vector<std::pair<std::string, std::string>> attributes;  ///< attributes of the newest checkpoint
  std::vector<std::string> notes;                               ///< further notes for the reader

  void add_samples(SampleSet set);
  /// The newest attempt with a start; null if none was recorded.
  const AttemptStart* newest_start() const;
  std::int64_t lost_iterations() const;
  double lost_ms() const;
  double mean_tokens_per_second() const { return trained_ms > 0 ? 1000 * tokens / trained_ms : 0; }
  double mean_tflops() const { return trained_ms > 0 ? 1000 * flops_per_rank / trained_ms : 0; }
};

/// Number that an evaluation measures.
struct Measure {
  std::string_view key;   ///< in the lines of metrics, after "valid_"
  std::string_view name;  ///< after "Validation" and "test"
  QuantityIndex beside;   ///< quantity after whose figure it is shown
  Axis axis = Axis::decades;
  bool is_fraction = false;  ///< shown in percent; the greatest is the best, otherwise the least
  ValidationCurves Run::*validation = nullptr;
  std::optional<double> (*test)(const TestResult&) = nullptr;
};

/// All measures. The first, which is always shown, is that of the training loss; BERT with a binary head has the
/// others.
inline constexpr auto measures = std::to_array<Measure>({
    {"loss", "loss", lm_loss, Axis::decades, false, &Run::validation,
     [](const TestResult& test) { return std::optional(test.loss); }},
    {"sop_loss", "loss of the segments' order", sop_loss, Axis::decades, false, &Run::validation_sop_loss,
     [](const TestResult& test) { return test.sop_loss; }},
    {"sop_accuracy", "accuracy of the segments' order", sop_loss, Axis::fitted, true, &Run::validation_sop_accuracy,
     [](const TestResult& test) { return test.sop_accuracy; }},
});

}  // namespace trireme::report
