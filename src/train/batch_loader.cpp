#include "src/train/batch_loader.hpp"

#include <algorithm>
#include <numeric>

namespace trireme::train {

BatchLoader::BatchLoader(Backend& backend, std::int64_t s, std::int64_t b, std::int64_t micro_batches, DType dtype)
    : backend_(backend),
      s_(s),
      b_(b),
      weight_type_(accumulation_type(dtype)),
      ids_(backend, DType::int32, {micro_batches, s, b}),
      targets_(backend, DType::int32, {micro_batches, s, b}),
      weights_(backend, weight_type_, {micro_batches, s * b}),
      numbers_(backend, DType::int64, {micro_batches, b}) {}

std::vector<model::MicroBatch> BatchLoader::load(const data::SampleSource& source, const std::vector<Sample>& samples,
                                                 LossAverage average) {
  const auto count = static_cast<std::int64_t>(samples.size()) / b_;
  TRIREME_CHECK(count * b_ == static_cast<std::int64_t>(samples.size()) && count <= ids_.view().shape()[0], ShapeError,
                "{} samples do not make up to {} micro-batches of {}", samples.size(), ids_.view().shape()[0], b_);
  // Samples arrive one by one as [s + 1]; the device wants [s, b].
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(s_) + 1);
  std::vector<std::int32_t> ids(samples.size() * static_cast<std::size_t>(s_));
  std::vector<std::int32_t> targets(ids.size());
  std::vector<double> weights(ids.size());
  std::vector<std::int64_t> numbers(samples.size());
  std::vector<std::int64_t> counted(static_cast<std::size_t>(count));  // tokens of each micro-batch
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(samples.size()); ++i) {
    const Sample& sample = samples[static_cast<std::size_t>(i)];
    std::ranges::fill(tokens, 0);
    if (sample.index >= 0) source.read(sample.index, tokens);
    numbers[static_cast<std::size_t>(i)] = sample.number;
    for (std::int64_t t = 0; t < s_; ++t) {
      const auto place = static_cast<std::size_t>((i / b_ * s_ + t) * b_ + i % b_);
      const std::int32_t target = tokens[static_cast<std::size_t>(t) + 1];
      // A source may end a sample early by negative targets: nothing is predicted there.
      const bool counts = sample.index >= 0 && target >= 0;
      ids[place] = std::max(tokens[static_cast<std::size_t>(t)], 0);
      targets[place] = std::max(target, 0);
      weights[place] = counts ? 1 : 0;
      counted[static_cast<std::size_t>(i / b_)] += counts ? 1 : 0;
    }
  }
  counted_tokens_ = std::accumulate(counted.begin(), counted.end(), std::int64_t{0});
  if (average == LossAverage::micro_batch) {
    for (std::size_t place = 0; place < weights.size(); ++place) {
      const std::int64_t tokens_of_batch = counted[place / static_cast<std::size_t>(s_ * b_)];
      if (tokens_of_batch > 0) weights[place] /= static_cast<double>(tokens_of_batch);
    }
  }
  Stream& stream = backend_.compute_stream();
  const auto upload = [&](auto& host, const Tensor& device) {
    const TensorView part = device.view().flat(0, static_cast<std::int64_t>(host.size()));
    backend_.copy_from_host(stream, ConstTensorView(host.data(), part.shape()), part);
  };
  upload(ids, ids_);
  upload(targets, targets_);
  if (weight_type_ == DType::fp64) {
    upload(weights, weights_);
  } else {
    std::vector<float> rounded(weights.begin(), weights.end());
    upload(rounded, weights_);
  }
  upload(numbers, numbers_);
  stream.synchronize();  // the host arrays end here

  std::vector<model::MicroBatch> batches;
  for (std::int64_t j = 0; j < count; ++j) {
    batches.push_back({ids_.view().rows(j, 1).reshape({s_, b_}), targets_.view().rows(j, 1).reshape({s_, b_}),
                       weights_.view().rows(j, 1).reshape({s_ * b_}), numbers_.view().rows(j, 1).reshape({b_})});
  }
  return batches;
}

}  // namespace trireme::train
