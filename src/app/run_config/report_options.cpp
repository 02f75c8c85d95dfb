#include "src/app/run_config/report_options.hpp"

#include <fmt/ranges.h>

#include <initializer_list>
#include <vector>

#include "src/base/parse_number.hpp"

namespace trireme::app {

void ReportOptions::declare(Options& options) {
  options.add_flag("log-throughput", &throughput,
                   "Add the MFU to the lines of the log, which have tokens and TFLOP/s in any case: the share of the "
                   "device's dense 16-bit peak that the model's FLOPs reach.");
  options.add(
      "mfu-peak", &peak_text_, "NAME|TFLOPS",
      "Peak of a rank's device for the MFU: a GPU's name, H100 for one, or 10^12 FLOPs a second. Default: by the "
      "GPU's name in bf16 and fp16, else none.");
  options.add_flag(
      "log-progress", &progress,
      "Add a line to progress.txt in the folder of --save at every start and checkpoint: date, SLURM's job, "
      "ranks, iteration, throughput of this job and of all, FLOPs, tokens.");
  options.add("timing-log-level", &timing_level, "0|1|2",
              "Log the times of an iteration's parts over the ranks, on GPUs by events of their streams. 1: pipeline, "
              "sums of gradients, norms, optimizer; 2: also forward, backward, samples and waits for stages.",
              between(0, 2));
  options.add_choice(
      "timing-log-option", &timing_option,
      {{"max", train::TimingOption::max}, {"minmax", train::TimingOption::minmax}, {"all", train::TimingOption::all}},
      "Ranks that --timing-log-level names, with their hosts: that with the greatest time, also that with "
      "the least, or all.");
  options.add_flag("log-straggler", &straggler,
                   "Log the rank and the host for which the others wait, and the share of their time: the rank whose "
                   "own work, the iteration less its waits for communication, is longest, beside the median's.");
  options.add("tensorboard-dir", &tensorboard.folder, "DIR",
              "Write event files for TensorBoard, under Megatron-LM's names: losses, learning rate, batch size, loss "
              "scale, gradient norm. A run that resumes removes later points first, so that no step occurs twice.");
  options.add("tensorboard-log-interval", &tensorboard.log_interval, "N", "Iterations between points.", at_least(1));
  options.add_flag(
      "log-timers-to-tensorboard", &tensorboard.timers,
      "Add the time of an iteration in seconds, the mean since the point before, with --log-throughput the "
      "TFLOP/s of a rank, and the times of --timing-log-level.");
  options.add_flag("log-memory-to-tensorboard", &tensorboard.memory,
                   "Add the bytes that rank 0 has allocated, now and at most so far.");
  options.add_flag("log-validation-ppl-to-tensorboard", &tensorboard.perplexity, "Add perplexities of evaluations.");
  options.add_flag("log-world-size-to-tensorboard", &tensorboard.world_size, "Add the number of ranks.");
  options.add_flag("no-log-loss-scale-to-tensorboard", &no_loss_scale_, "Leave out the loss scale.");
  options.add_flag("no-log-learning-rate-to-tensorboard,no-log-learnig-rate-to-tensorboard", &no_learning_rate_,
                   "Leave out the learning rate.");
  options.add_flag("profile", &profile,
                   "GPU: name forward, backward, optimizer and communication as NVTX ranges, and let a profiler record "
                   "some iterations: nsys profile -t cuda,nvtx --capture-range=cudaProfilerApi.");
  options.add("profile-step-start", &profile_start, "N", "Begin to record after iteration N.", at_least(0));
  options.add("profile-step-end", &profile_end, "N", "End after iteration N.", at_least(1));
  options.add("profile-ranks", &rank_texts_, "RANK ...", "Ranks that are recorded.");
}

void ReportOptions::settle(int ranks, bool cuda_graphs, Problems& problems) {
  tensorboard.learning_rate = !no_learning_rate_;
  tensorboard.loss_scale = !no_loss_scale_;
  tensorboard.throughput = throughput;
  if (!peak_text_.empty()) problems.attempt([&] { peak = train::parse_peak(peak_text_); });
  problems.expect(
      profile_start < profile_end,
      fmt::format("--profile-step-start {} must be less than --profile-step-end {}", profile_start, profile_end));
  for (const std::string& text : rank_texts_) {
    const int rank = parse_number<int>(text).value_or(-1);
    const bool is_rank = rank >= 0 && rank < ranks;
    problems.expect(is_rank, fmt::format("--profile-ranks {}: the ranks of this job are 0 to {}", text, ranks - 1));
    profile_ranks.push_back(rank);
  }
  problems.expect(!straggler || !cuda_graphs,
                  "--log-straggler and --cuda-graphs exclude each other: recorded waits cannot be timed");
}

std::string ReportOptions::idle(const Options& options, int ranks, bool saves) const {
  std::vector<std::string> lines;
  const auto check = [&](bool reads, std::initializer_list<const char*> names, const char* reason) {
    std::vector<std::string> given;
    for (const char* name : names) {
      if (!reads && options.given(name)) given.push_back(fmt::format("--{}", name));
    }
    if (!given.empty()) lines.push_back(fmt::format("{}: {}", fmt::join(given, ", "), reason));
  };
  check(!tensorboard.folder.empty(),
        {"tensorboard-log-interval", "log-timers-to-tensorboard", "log-memory-to-tensorboard",
         "log-validation-ppl-to-tensorboard", "log-world-size-to-tensorboard", "no-log-loss-scale-to-tensorboard",
         "no-log-learning-rate-to-tensorboard"},
        "without --tensorboard-dir there is nothing to write");
  check(saves, {"log-progress"}, "without --save there is no folder for progress.txt");
  check(timing_level > 0, {"timing-log-option"}, "without --timing-log-level there are no times to log");
  check(profile, {"profile-step-start", "profile-step-end", "profile-ranks"}, "without --profile nothing is recorded");
  check(ranks > 1, {"log-straggler"}, "one rank has nothing to wait for");
  return fmt::format("{}", fmt::join(lines, "; "));
}

}  // namespace trireme::app
