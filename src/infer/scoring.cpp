#include "src/infer/scoring.hpp"

#include <algorithm>

#include "src/comm/host_collectives.hpp"
#include "src/train/batch_loader.hpp"

namespace trireme::infer {
namespace {

using data::ScoredTexts;
using data::TextScore;

void check(const train::ParallelModel& model, const ScoredTexts& texts) {
  TRIREME_CHECK(texts.sequence_length() <= model.execution().sequence_length, ShapeError,
                "a text of {} tokens for a model run at {}", texts.sequence_length(),
                model.execution().sequence_length);
  const auto check_id = [&](std::int32_t id) {
    TRIREME_CHECK(id >= 0 && id < model.config().vocabulary, DataError,
                  "token {} is not in the model's vocabulary of {}: the tokenizer is not the model's", id,
                  model.config().vocabulary);
  };
  check_id(texts.padding());
  for (std::int64_t i = 0; i < texts.size(); ++i) std::ranges::for_each(texts.ids(i), check_id);
}

/// Runs a model on batches of texts and sums their scores on the ranks that have the losses.
class Scorer {
 public:
  Scorer(train::ParallelModel& model, const ScoredTexts& texts)
      : model_(model),
        texts_(texts),
        // One micro-batch for each stage keeps the pipeline busy.
        micro_batches_(model.grid().pipeline_size()),
        grid_{model.execution().micro_batch_size, model.grid().data_size()},
        // All ranks of the last stage's tensor group have the same results.
        has_results_(model.communicators().pipeline->rank() + 1 == model.grid().pipeline_size() &&
                     model.communicators().tensor->rank() == 0),
        scores_(static_cast<std::size_t>(texts.size())),
        loader_(model.backend(), model.sequence_shard(), grid_.micro_batch_size, micro_batches_,
                model.execution().dtype),
        losses_(model.backend(), accumulation_type(model.execution().dtype), rows_of_all()),
        rivals_(model.backend(), accumulation_type(model.execution().dtype), rows_of_all()) {
    for (std::int64_t i = 0; i < texts.size(); ++i) {
      if (texts.scored(i) > 0) order_.push_back(i);
    }
    std::ranges::stable_sort(order_, std::greater{}, [&](std::int64_t i) { return texts.length(i); });
  }

  TextScores run(const std::function<void(std::int64_t, std::int64_t)>& progress) {
    const std::int64_t count = std::ssize(order_);
    const std::int64_t batch_size = micro_batches_ * grid_.data_parallel_size * grid_.micro_batch_size;
    TextScores result;
    const auto tokens_of = [&](std::int64_t begin, std::int64_t end) {
      std::int64_t sum = 0;
      for (std::int64_t i = begin; i < end; ++i) sum += texts_.length(order_[static_cast<std::size_t>(i)]);
      return sum;
    };
    const std::int64_t all_tokens = tokens_of(0, count);
    for (std::int64_t first = 0; first < count; first += batch_size) {
      run_batch(first, batch_size);
      result.tokens += tokens_of(first, std::min(first + batch_size, count));
      progress(result.tokens, all_tokens);
    }
    static_cast<void>(model_.take_global_loss_sums());  // discards the sums of these texts
    sum_over_ranks();
    result.scores = std::move(scores_);
    result.positions = positions_;
    return result;
  }

 private:
  /// Results of the longest micro-batches: [m, s b].
  Shape rows_of_all() const { return {micro_batches_, model_.sequence_shard().rows * grid_.micro_batch_size}; }

  void run_batch(std::int64_t first, std::int64_t batch_size) {
    std::vector<train::BatchLoader::Sample> samples =
        train::BatchLoader::samples_of_rank(first, 0, batch_size, model_.communicators().data->rank(), grid_);
    for (train::BatchLoader::Sample& sample : samples) {
      sample.index = sample.index < std::ssize(order_) ? order_[static_cast<std::size_t>(sample.index)] : -1;
    }
    std::vector<model::MicroBatch> batches =
        loader_.load(texts_, samples, {.length_multiple = model_.length_multiple()});
    for (std::int64_t j = 0; j < micro_batches_; ++j) {
      model::MicroBatch& batch = batches[static_cast<std::size_t>(j)];
      const Shape shape = batch.loss_weights.shape();
      batch.token_losses = losses_.view().rows(j, 1).flat(0, shape.numel());
      batch.rivals = rivals_.view().rows(j, 1).flat(0, shape.numel());
      if (has_results_) positions_ += shape.numel();
    }
    model_.run(std::move(batches), {});
    if (has_results_) collect(samples);
  }

  void collect(const std::vector<train::BatchLoader::Sample>& samples) {
    dispatch_float(losses_.view().dtype(), [&]<class T>() {
      std::vector<Accumulation<T>> losses(static_cast<std::size_t>(losses_.view().numel())), rivals(losses.size());
      Stream& stream = model_.backend().compute_stream();
      model_.backend().copy_to_host(stream, losses_.view(), TensorView(losses.data(), losses_.view().shape()));
      model_.backend().copy_to_host(stream, rivals_.view(), TensorView(rivals.data(), rivals_.view().shape()));
      stream.synchronize();
      for (std::int64_t i = 0; i < std::ssize(samples); ++i) {
        const std::int64_t index = samples[static_cast<std::size_t>(i)].index;
        if (index >= 0) add(i, index, losses, rivals);
      }
    });
  }

  /// Adds the tokens of sample `i` of this rank's batch, text `index`, to its score.
  template <class A>
  void add(std::int64_t i, std::int64_t index, const std::vector<A>& losses, const std::vector<A>& rivals) {
    const std::int64_t b = grid_.micro_batch_size, max_rows = model_.sequence_shard().rows;
    const parallel::SequenceShard shard = loader_.shard(i / b);
    const std::int64_t end = texts_.length(index), begin = end - texts_.scored(index);
    TextScore& score = scores_[static_cast<std::size_t>(index)];
    for (std::int64_t row = 0; row < shard.rows; ++row) {
      const std::int64_t position = shard.positions[row];
      if (position < begin || position >= end) continue;
      const auto at = static_cast<std::size_t>((i / b * max_rows + row) * b + i % b);
      const auto loss = static_cast<double>(losses[at]);
      score.loss += loss;
      score.squared_loss += loss * loss;
      if (rivals[at] != A{0}) ++score.wrong;
    }
  }

  /// Each text was scored on one data rank, by the context ranks that hold its positions.
  void sum_over_ranks() {
    std::vector<double> values;
    for (const TextScore& score : scores_) {
      values.insert(values.end(), {score.loss, score.squared_loss, static_cast<double>(score.wrong)});
    }
    values.push_back(static_cast<double>(positions_));
    all_reduce_numbers(model_.world(), values, ReduceOp::sum);
    positions_ = static_cast<std::int64_t>(values.back());
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      scores_[i] = {values[3 * i], values[3 * i + 1], static_cast<std::int64_t>(values[3 * i + 2])};
    }
  }

  train::ParallelModel& model_;
  const ScoredTexts& texts_;
  std::int64_t micro_batches_;
  data::SamplerGrid grid_;
  bool has_results_;
  std::vector<TextScore> scores_;
  std::int64_t positions_ = 0;       // on the ranks with results; at the end, the sum of all
  std::vector<std::int64_t> order_;  // texts to score, longest first
  train::BatchLoader loader_;
  Tensor losses_, rivals_;  // [m, s b] A
};

}  // namespace

TextScores score_texts(train::ParallelModel& model, const ScoredTexts& texts,
                       const std::function<void(std::int64_t, std::int64_t)>& progress) {
  check(model, texts);
  return Scorer(model, texts).run(progress);
}

}  // namespace trireme::infer
