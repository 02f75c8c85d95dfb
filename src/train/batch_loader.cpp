#include "src/train/batch_loader.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "src/base/signals.hpp"

namespace trireme::train {

BatchLoader::Set::Set(Backend& backend, std::int64_t micro_batches, std::int64_t rows, std::int64_t b,
                      DType weight_type)
    : ids(backend, DType::int32, {micro_batches, rows, b}),
      targets(backend, DType::int32, {micro_batches, rows, b}),
      weights(backend, weight_type, {micro_batches, rows * b}),
      numbers(backend, DType::int64, {micro_batches, b}),
      copies(backend, {ids, targets, weights, numbers}) {}

BatchLoader::BatchLoader(Backend& backend, const parallel::SequenceShard& share, std::int64_t b,
                         std::int64_t micro_batches, DType dtype)
    : backend_(backend),
      share_(share),
      b_(b),
      weight_type_(accumulation_type(dtype)),
      sets_{Set(backend, micro_batches, share.rows, b, weight_type_),
            Set(backend, micro_batches, share.rows, b, weight_type_)},
      copying_(backend.make_stream()) {}

std::vector<BatchLoader::Sample> BatchLoader::samples_of_rank(std::int64_t first_index, std::int64_t first_number,
                                                              std::int64_t size, std::int64_t data_rank,
                                                              const data::SamplerGrid& grid) {
  std::vector<Sample> samples;
  const std::int64_t micro_batches = size / (grid.micro_batch_size * grid.data_parallel_size);
  for (std::int64_t j = 0; j < micro_batches; ++j) {
    const std::int64_t in_batch = data::first_sample(0, j, data_rank, grid);
    for (std::int64_t i = 0; i < grid.micro_batch_size; ++i) {
      samples.push_back({first_index + in_batch + i, first_number + in_batch + i});
    }
  }
  return samples;
}

void BatchLoader::check(const Request& request) const {
  const auto samples = static_cast<std::int64_t>(request.samples.size());
  const std::int64_t most = sets_[0].ids.view().shape()[0];
  TRIREME_CHECK(samples % b_ == 0 && samples / b_ <= most, ShapeError,
                "{} samples do not make up to {} micro-batches of {}", samples, most, b_);
}

void BatchLoader::read(Set& set, const Request& request) const {
  const std::vector<Sample>& samples = request.samples;
  // Samples arrive one by one and whole; the device gets the rows of the share, [s, b].
  const std::int64_t s = share_.rows;
  const data::SampleBuffer buffer(share_.sequence);
  const auto& [tokens, labels] = buffer.view();
  std::vector<double> weights(samples.size() * static_cast<std::size_t>(s));
  auto* const ids = set.copies.host(0).as<std::int32_t>();
  auto* const targets = set.copies.host(1).as<std::int32_t>();
  auto* const numbers = set.copies.host(3).as<std::int64_t>();
  std::vector<std::int64_t> counted(samples.size() / static_cast<std::size_t>(b_));  // tokens of each micro-batch
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(samples.size()); ++i) {
    const Sample& sample = samples[static_cast<std::size_t>(i)];
    if (sample.index >= 0) {
      request.source->read(sample.index, buffer.view());
    } else {
      std::ranges::fill(tokens, 0);
      std::ranges::fill(labels, -1);
    }
    numbers[i] = sample.number;
    counted[static_cast<std::size_t>(i / b_)] +=
        std::ranges::count_if(labels, [](std::int32_t label) { return label >= 0; });
    for (std::int64_t row = 0; row < s; ++row) {
      const auto place = static_cast<std::size_t>((i / b_ * s + row) * b_ + i % b_);
      const auto position = static_cast<std::size_t>(share_.positions[row]);
      ids[place] = tokens[position];
      targets[place] = std::max(labels[position], 0);
      weights[place] = labels[position] >= 0 ? 1 : 0;
    }
  }
  set.counted_tokens = std::accumulate(counted.begin(), counted.end(), std::int64_t{0});
  if (request.average == LossAverage::micro_batch) {
    for (std::size_t place = 0; place < weights.size(); ++place) {
      const std::int64_t tokens_of_batch = counted[place / static_cast<std::size_t>(s * b_)];
      if (tokens_of_batch > 0) weights[place] /= static_cast<double>(tokens_of_batch);
    }
  }
  dispatch_float(weight_type_, [&]<class T>() {
    std::ranges::transform(weights, set.copies.host(2).as<T>(), [](double weight) { return T(weight); });
  });
}

void BatchLoader::fill(Set& set, const Request& request) const {
  try {
    read(set, request);
  } catch (const DataError&) {
    request.source->check_unchanged();  // which is then the cause
    throw;
  }
  request.source->check_unchanged();
}

void BatchLoader::upload(Set& set, const Request& request, Stream& stream) const {
  const auto samples = static_cast<std::int64_t>(request.samples.size());
  const std::int64_t rows = samples * share_.rows;
  set.copies.upload(stream, {rows, rows, rows, samples});
}

void BatchLoader::end_reading() {
  if (reading_.valid()) failure_ = reading_.get();
}

std::vector<model::MicroBatch> BatchLoader::load(const data::SampleSource& source, const std::vector<Sample>& samples,
                                                 LossAverage average) {
  const Request request{&source, samples, average};
  Stream& stream = backend_.compute_stream();
  if (request == ahead_) {
    end_reading();
    ahead_ = {};
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    current_ = 1 - current_;
    if (copied_ahead_) {
      sets_[current_].copies.order_before(stream);
    } else {
      upload(sets_[current_], request, stream);
    }
  } else {
    check(request);
    sets_[current_].copies.wait();  // the samples before may still be on their way
    fill(sets_[current_], request);
    upload(sets_[current_], request, stream);
  }

  const Set& set = sets_[current_];
  const std::int64_t s = share_.rows, count = static_cast<std::int64_t>(samples.size()) / b_;
  std::vector<model::MicroBatch> batches;
  for (std::int64_t j = 0; j < count; ++j) {
    batches.push_back({set.ids.view().rows(j, 1).reshape({s, b_}), set.targets.view().rows(j, 1).reshape({s, b_}),
                       set.weights.view().rows(j, 1).reshape({s * b_}), set.numbers.view().rows(j, 1).reshape({b_})});
  }
  return batches;
}

void BatchLoader::read_ahead(const data::SampleSource& source, std::vector<Sample> samples, LossAverage average) {
  end_reading();
  failure_ = nullptr;
  copied_ahead_ = false;
  ahead_ = {&source, std::move(samples), average};
  check(ahead_);
  Set& set = sets_[1 - current_];
  set.copies.wait();
  // The last use of the set's tensors was enqueued before.
  copying_->wait(*backend_.compute_stream().record());
  reading_ = std::async(std::launch::async, [this, &set]() -> std::exception_ptr {
    try {
      use_alternate_signal_stack();
      fill(set, ahead_);
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  });
}

void BatchLoader::copy_ahead() {
  if (!reading_.valid() || reading_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  end_reading();
  if (failure_) return;
  upload(sets_[1 - current_], ahead_, *copying_);
  copied_ahead_ = true;
}

}  // namespace trireme::train
