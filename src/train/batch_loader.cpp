#include "src/train/batch_loader.hpp"

#include <algorithm>
#include <numeric>

namespace trireme::train {

BatchLoader::BatchLoader(Backend& backend, const parallel::SequenceShare& share, std::int64_t b,
                         std::int64_t micro_batches, DType dtype)
    : backend_(backend),
      share_(share),
      b_(b),
      weight_type_(accumulation_type(dtype)),
      ids_(backend, DType::int32, {micro_batches, share.rows, b}),
      targets_(backend, DType::int32, {micro_batches, share.rows, b}),
      weights_(backend, weight_type_, {micro_batches, share.rows * b}),
      numbers_(backend, DType::int64, {micro_batches, b}),
      copies_(backend, {ids_, targets_, weights_, numbers_}) {}

std::vector<model::MicroBatch> BatchLoader::load(const data::SampleSource& source, const std::vector<Sample>& samples,
                                                 LossAverage average) {
  const auto count = static_cast<std::int64_t>(samples.size()) / b_;
  TRIREME_CHECK(count * b_ == static_cast<std::int64_t>(samples.size()) && count <= ids_.view().shape()[0], ShapeError,
                "{} samples do not make up to {} micro-batches of {}", samples.size(), ids_.view().shape()[0], b_);
  // Samples arrive one by one, whole and with one token more; the device wants the rows of the share, [s, b].
  const std::int64_t s = share_.rows;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(share_.sequence) + 1);
  std::vector<double> weights(samples.size() * static_cast<std::size_t>(s));
  copies_.wait();  // the samples before may still be on their way
  auto* const ids = copies_.host(0).as<std::int32_t>();
  auto* const targets = copies_.host(1).as<std::int32_t>();
  auto* const numbers = copies_.host(3).as<std::int64_t>();
  std::vector<std::int64_t> counted(static_cast<std::size_t>(count));  // tokens of each micro-batch
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(samples.size()); ++i) {
    const Sample& sample = samples[static_cast<std::size_t>(i)];
    std::ranges::fill(tokens, 0);
    if (sample.index >= 0) source.read(sample.index, tokens);
    numbers[i] = sample.number;
    if (sample.index >= 0) {
      counted[static_cast<std::size_t>(i / b_)] +=
          std::ranges::count_if(tokens.begin() + 1, tokens.end(), [](std::int32_t target) { return target >= 0; });
    }
    for (std::int64_t row = 0; row < s; ++row) {
      const auto place = static_cast<std::size_t>((i / b_ * s + row) * b_ + i % b_);
      const auto position = static_cast<std::size_t>(share_.positions[row]);
      const std::int32_t target = tokens[position + 1];
      // A source may end a sample early by negative targets: nothing is predicted there.
      const bool counts = sample.index >= 0 && target >= 0;
      ids[place] = std::max(tokens[position], 0);
      targets[place] = std::max(target, 0);
      weights[place] = counts ? 1 : 0;
    }
  }
  counted_tokens_ = std::accumulate(counted.begin(), counted.end(), std::int64_t{0});
  if (average == LossAverage::micro_batch) {
    for (std::size_t place = 0; place < weights.size(); ++place) {
      const std::int64_t tokens_of_batch = counted[place / static_cast<std::size_t>(s * b_)];
      if (tokens_of_batch > 0) weights[place] /= static_cast<double>(tokens_of_batch);
    }
  }
  dispatch_float(weight_type_, [&]<class T>() {
    std::ranges::transform(weights, copies_.host(2).as<T>(), [](double weight) { return T(weight); });
  });
  const auto rows = static_cast<std::int64_t>(weights.size());
  copies_.upload(backend_.compute_stream(), {rows, rows, rows, static_cast<std::int64_t>(samples.size())});

  std::vector<model::MicroBatch> batches;
  for (std::int64_t j = 0; j < count; ++j) {
    batches.push_back({ids_.view().rows(j, 1).reshape({s, b_}), targets_.view().rows(j, 1).reshape({s, b_}),
                       weights_.view().rows(j, 1).reshape({s * b_}), numbers_.view().rows(j, 1).reshape({b_})});
  }
  return batches;
}

}  // namespace trireme::train
