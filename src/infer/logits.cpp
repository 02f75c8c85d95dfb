#include "src/infer/logits.hpp"

#include <algorithm>

#include "src/comm/host_collectives.hpp"
#include "src/train/batch_loader.hpp"

namespace trireme::infer {
namespace {

/// Elements gathered at a time: 32 MiB of fp64.
constexpr std::int64_t gathered_elements = 1 << 22;

class Collector {
 public:
  Collector(train::ParallelModel& model, const LogitsSink& sink)
      : model_(model),
        sink_(sink),
        b_(model.execution().micro_batch_size),
        rows_(model.sequence_shard().rows),
        loader_(model.backend(), model.sequence_shard(), b_, 1, model.execution().dtype) {
    if (!model.shard().last_stage) return;
    logits_ = Tensor(model.backend(), model.execution().dtype, {rows_ * b_, model.vocabulary().rows()});
    on_host_.resize(static_cast<std::size_t>(logits_.view().numel()));
  }

  /// Runs one micro-batch on each data rank, of the samples from `first` on.
  void run(const data::SampleSource& source, const std::vector<std::int64_t>& samples, std::int64_t first) {
    const int data_ranks = model_.grid().data_size();
    std::vector<train::BatchLoader::Sample> mine = train::BatchLoader::samples_of_rank(
        first, 0, b_ * data_ranks, model_.communicators().data->rank(), {b_, data_ranks});
    const std::int64_t end = std::min(first + b_ * data_ranks, std::ssize(samples));
    std::vector<std::int64_t> columns(static_cast<std::size_t>(end - first), -1);  // in this micro-batch
    for (std::int64_t j = 0; j < b_; ++j) {
      std::int64_t& index = mine[static_cast<std::size_t>(j)].index;
      if (index < end) columns[static_cast<std::size_t>(index - first)] = j;
      index = index < end ? samples[static_cast<std::size_t>(index)] : -1;
    }
    std::vector<model::MicroBatch> batches = loader_.load(source, mine);
    if (has_logits()) batches.front().logits = logits_;
    model_.run(std::move(batches), {});
    copy_to_host();
    for (std::int64_t i = first; i < end; ++i) {
      gather(samples[static_cast<std::size_t>(i)], columns[static_cast<std::size_t>(i - first)]);
    }
  }

 private:
  bool has_logits() const { return static_cast<bool>(logits_.view()); }
  void copy_to_host() {
    if (!has_logits()) return;
    dispatch_float(logits_.view().dtype(), [&]<class T>() {
      std::vector<T> copy(on_host_.size());
      Stream& stream = model_.backend().compute_stream();
      model_.backend().copy_to_host(stream, logits_.view(), TensorView(copy.data(), logits_.view().shape()));
      stream.synchronize();
      std::ranges::transform(copy, on_host_.begin(), [](T logit) { return static_cast<Accumulation<T>>(logit); });
    });
  }

  /// Delivers the logits of a sample, which is in column `j` of this rank's micro-batch, or on another rank if `j` is
  /// negative.
  void gather(std::int64_t sample, std::int64_t j) {
    const parallel::VocabularyPartition& vocabulary = model_.vocabulary();
    const std::int64_t s = model_.sequence_shard().sequence, v = vocabulary.size();
    const std::int64_t positions = std::clamp<std::int64_t>(gathered_elements / v, 1, s);
    for (std::int64_t begin = 0; begin < s; begin += positions) {
      const std::int64_t end = std::min(begin + positions, s);
      std::vector<double> part(static_cast<std::size_t>((end - begin) * v));
      for (std::int64_t row = 0; row < rows_ && j >= 0 && has_logits(); ++row) {
        const std::int64_t position = model_.sequence_shard().positions[row];
        if (position < begin || position >= end) continue;
        std::copy_n(on_host_.begin() + (row * b_ + j) * vocabulary.rows(), vocabulary.true_rows(),
                    part.begin() + (position - begin) * v + vocabulary.first());
      }
      all_reduce_numbers(model_.world(), part, ReduceOp::sum);  // other ranks contribute zeros
      sink_(sample, begin, part);
    }
  }

  train::ParallelModel& model_;
  const LogitsSink& sink_;
  std::int64_t b_;
  std::int64_t rows_;
  train::BatchLoader loader_;
  Tensor logits_;  // [s b, vocabulary rows] of this rank; empty except on the last stage
  std::vector<double> on_host_;
};

}  // namespace

void collect_logits(train::ParallelModel& model, const data::SampleSource& source,
                    const std::vector<std::int64_t>& samples, const LogitsSink& sink) {
  TRIREME_CHECK(model.config().predicts_tokens(), ConfigError, "this model has no logits of tokens");
  for (const std::int64_t sample : samples) {
    TRIREME_CHECK(sample >= 0 && sample < source.size(), ConfigError,
                  "<logits_samples> {} is not one of the {} samples, numbered from 0", sample, source.size());
  }
  Collector collector(model, sink);
  const std::int64_t at_once = model.execution().micro_batch_size * model.grid().data_size();
  for (std::int64_t first = 0; first < std::ssize(samples); first += at_once) collector.run(source, samples, first);
  static_cast<void>(model.take_global_loss_sums());  // discards the sums of these samples
}

}  // namespace trireme::infer
