#include "src/train/finetune/task_scoring.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/comm/host_collectives.hpp"
#include "src/train/batch_loader.hpp"

namespace trireme::train {
namespace {

/// Score of positions after a micro-batch's longest sample, which the model did not compute.
constexpr double unread_score = -std::numeric_limits<double>::infinity();

}  // namespace

bool TaskScores::are_finite() const {
  return std::isfinite(loss) && std::ranges::none_of(scores, [](double score) { return std::isnan(score); });
}

TaskScores score_samples(ParallelModel& model, const data::SampleSource& samples) {
  const ExecutionConfig& execution = model.execution();
  const model::ModelConfig& config = model.config();
  const std::int64_t choices = config.samples_per_label(), labels = samples.size() / choices;
  TaskScores result;
  const bool are_spans = config.output == model::ModelOutput::spans;
  const std::int64_t parts = are_spans ? 2 : 1;  // a row has first positions, then last ones
  result.columns = are_spans ? 2 * execution.sequence_length : config.classes;
  result.scores.resize(static_cast<std::size_t>(labels * result.columns));
  const std::vector<std::int64_t> order = longest_first(samples, 0, samples.size());

  // One micro-batch for each stage keeps the pipeline busy.
  const std::int64_t micro_batches = model.grid().pipeline_size();
  const data::SamplerGrid grid{execution.micro_batch_size, model.grid().data_size()};
  const std::int64_t batch_size = micro_batches * grid.data_parallel_size * grid.micro_batch_size;
  BatchLoader loader(model.backend(), model.sequence_shard(), grid.micro_batch_size, micro_batches, execution.dtype,
                     sample_fields(config));
  for (std::int64_t first = 0; first < samples.size(); first += batch_size) {
    std::vector<BatchLoader::Sample> mine =
        BatchLoader::samples_of_rank(first, 0, batch_size, model.communicators().data->rank(), grid);
    for (BatchLoader::Sample& sample : mine) {
      sample.index = sample.index < samples.size() ? order[static_cast<std::size_t>(sample.index)] : -1;
    }
    model.run(loader.load(samples, mine, {.length_multiple = model.length_multiple()}), {});
    const std::vector<double> scores = model.take_sample_scores();
    if (scores.empty()) continue;
    auto from = scores.begin();
    for (std::int64_t i = 0; i < std::ssize(mine); i += choices) {
      const std::int64_t index = mine[static_cast<std::size_t>(i)].index;
      const std::int64_t size = are_spans ? loader.shard(i / grid.micro_batch_size).sequence : config.classes;
      for (std::int64_t part = 0; part < parts; ++part, from += size) {
        if (index < 0) continue;
        const auto to = result.scores.begin() + index / choices * result.columns + part * result.columns / parts;
        std::fill(std::copy(from, from + size, to), to + result.columns / parts, unread_score);
      }
    }
  }
  result.loss = model.take_global_loss_sums().samples / static_cast<double>(std::max<std::int64_t>(labels, 1));
  constexpr std::int64_t piece = std::int64_t{1} << 24;
  for (std::int64_t at = 0; at < std::ssize(result.scores); at += piece) {
    const auto size = static_cast<std::size_t>(std::min(piece, std::ssize(result.scores) - at));
    std::span part(result.scores.data() + at, size);
    all_reduce_numbers(model.world(), part, ReduceOp::sum);
  }
  return result;
}

std::string to_bytes(const TaskScores& scores, const std::string& key) {
  std::string bytes = key + "\n";
  const auto append = [&](const void* from, std::size_t size) { bytes.append(static_cast<const char*>(from), size); };
  append(&scores.columns, sizeof scores.columns);
  append(&scores.loss, sizeof scores.loss);
  append(scores.scores.data(), scores.scores.size() * sizeof(double));
  return bytes;
}

std::optional<TaskScores> scores_from(std::string_view bytes, const std::string& key, std::int64_t labels) {
  static_assert(std::endian::native == std::endian::little);
  TaskScores scores;
  constexpr std::size_t head = sizeof scores.columns + sizeof scores.loss;
  if (!bytes.starts_with(key + "\n")) return std::nullopt;
  bytes.remove_prefix(key.size() + 1);
  if (bytes.size() < head) return std::nullopt;
  std::memcpy(&scores.columns, bytes.data(), sizeof scores.columns);
  std::memcpy(&scores.loss, bytes.data() + sizeof scores.columns, sizeof scores.loss);
  bytes.remove_prefix(head);
  const auto count = static_cast<std::int64_t>(bytes.size() / sizeof(double));
  if (bytes.size() % sizeof(double) != 0 || labels <= 0 || count % labels != 0 || scores.columns != count / labels) {
    return std::nullopt;
  }
  scores.scores.resize(static_cast<std::size_t>(count));
  std::memcpy(scores.scores.data(), bytes.data(), bytes.size());
  return scores;
}

void to_probabilities(TaskScores& scores) {
  const std::ptrdiff_t size = scores.columns;
  for (auto at = scores.scores.begin(); at != scores.scores.end(); at += size) {
    const double maximum = *std::max_element(at, at + size);
    double sum = 0;
    std::for_each(at, at + size, [&](double& score) { sum += score = std::exp(score - maximum); });
    std::for_each(at, at + size, [&](double& score) { score /= sum; });
  }
}

std::int64_t best_column(const TaskScores& scores, std::int64_t row) {
  const auto first = scores.scores.begin() + row * scores.columns;
  return std::max_element(first, first + scores.columns) - first;
}

namespace {

void measure_squad(const FinetuneTask& task, const data::SquadExamples& examples, const TaskScores& scores,
                   TaskResult& result) {
  const std::vector<float> logits(scores.scores.begin(), scores.scores.end());
  const auto positions = static_cast<std::size_t>(scores.columns / 2);
  std::map<std::string, std::string> texts;
  for (std::size_t i = 0; i < examples.questions().size(); ++i) {
    const data::SquadExamples::Question& question = examples.questions()[i];
    std::vector<data::SpanLogits> windows;
    for (std::int64_t w = question.first_window; w < question.first_window + question.windows; ++w) {
      const auto row = std::span(logits).subspan(static_cast<std::size_t>(w) * 2 * positions, 2 * positions);
      // Excludes padding after the sample.
      const data::SquadWindow& window = examples.windows()[static_cast<std::size_t>(w)];
      const auto length = static_cast<std::size_t>(examples.context_position(window) + window.tokens + 1);
      windows.push_back({row.first(length), row.subspan(positions, length)});
    }
    data::SquadPrediction prediction =
        data::predict_answer(examples, static_cast<std::int64_t>(i), windows, task.prediction);
    texts[question.question->id] = prediction.text;
    result.predictions.emplace(question.question->id, std::move(prediction));
  }
  result.squad = data::score_squad(examples, texts);
  result.all.total = result.squad->all.questions;
  result.all.score = result.squad->all.f1 / 100;
}

/// Measures `count` labels from `first`.
TaskResult::Figures figures_of(const FinetuneTask& task, const TaskSplit& split, const TaskResult& predicted,
                               std::int64_t first, std::int64_t count) {
  TaskResult::Figures result;
  result.total = count;
  data::ConfusionCounts counts;
  std::vector<double> labels, values;
  if (!task.is_regression()) result.correct = 0;
  for (std::int64_t i = first; i < first + count; ++i) {
    const std::int32_t label = split.samples->label(i);
    if (task.is_regression()) {
      labels.push_back(data::value_of_label(label));
      values.push_back(predicted.values[static_cast<std::size_t>(i)]);
      continue;
    }
    const std::int32_t prediction = predicted.classes[static_cast<std::size_t>(i)];
    *result.correct += prediction == label ? 1 : 0;
    counts.add(label == 1, prediction == 1);
  }
  for (const data::Metric metric : task.metrics()) {
    const double value = metric == data::Metric::accuracy   ? result.accuracy()
                         : metric == data::Metric::f1       ? counts.f1()
                         : metric == data::Metric::matthews ? counts.matthews()
                         : metric == data::Metric::pearson  ? data::pearson(values, labels)
                                                            : data::spearman(values, labels);
    result.metrics.emplace_back(metric, value);
    result.score += value / static_cast<double>(task.metrics().size());
  }
  return result;
}

}  // namespace

TaskResult measure(const FinetuneTask& task, const TaskSplit& split, const TaskScores& scores) {
  TaskResult result;
  if (split.squad) {
    measure_squad(task, *split.squad, scores, result);
    return result;
  }
  const std::int64_t labels = split.samples->labels();
  result.has_labels = split.has_labels;
  if (task.is_regression()) {
    result.values = scores.scores;
  } else {
    for (std::int64_t i = 0; i < labels; ++i) {
      result.classes.push_back(static_cast<std::int32_t>(best_column(scores, i)));
    }
  }
  result.all.total = labels;
  if (!split.has_labels) return result;
  result.all = figures_of(task, split, result, 0, labels);
  if (split.sets.size() < 2) return result;
  std::int64_t first = 0;
  for (const auto& [name, count] : split.sets) {
    result.sets.emplace_back(name, figures_of(task, split, result, first, count));
    first += count;
  }
  return result;
}

std::string TaskResult::text() const {
  if (!has_labels) return fmt::format("{} predictions", all.total);
  if (squad) return fmt::format("exact {:.2f}, F1 {:.2f} ({} questions)", squad->all.exact, squad->all.f1, all.total);
  std::string text;
  if (all.correct) text = fmt::format("accuracy {:.2f} % ({} of {})", 100 * all.accuracy(), *all.correct, all.total);
  for (const auto& [metric, value] : all.metrics) {
    if (metric == data::Metric::accuracy) continue;
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : ", ", text_of(metric), value);
  }
  return text;
}

}  // namespace trireme::train
