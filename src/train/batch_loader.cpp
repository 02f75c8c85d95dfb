#include "src/train/batch_loader.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <numeric>

#include "src/base/signals.hpp"

namespace trireme::train {
namespace {

using data::SampleFields;
using data::SampleView;
using model::MicroBatch;

/// Writes a sample without loss.
void write_filler(const SampleView& sample) {
  std::ranges::fill(sample.tokens, 0);
  std::ranges::fill(sample.labels, -1);
  std::ranges::fill(sample.token_types, 0);
  std::ranges::fill(sample.positions, 0);
  std::ranges::fill(sample.first_visible, 0);
  std::ranges::fill(sample.length, static_cast<std::int32_t>(sample.tokens.size()));
  std::ranges::fill(sample.is_random, -1);
  std::ranges::fill(sample.span_end, -1);
  std::ranges::fill(sample.last_token, 0);
}

}  // namespace

std::vector<std::int64_t> longest_first(const data::SampleSource& source, std::int64_t first, std::int64_t count) {
  const std::int64_t each = source.fields().samples_per_label;
  std::vector<std::pair<std::int64_t, std::int64_t>> groups;  // length and first sample
  for (std::int64_t begin = first; begin < first + count; begin += each) {
    std::int64_t longest = 0;
    for (std::int64_t i = begin; i < begin + each; ++i) longest = std::max(longest, source.length(i));
    groups.emplace_back(longest, begin);
  }
  std::ranges::stable_sort(groups, std::greater(), [](const auto& group) { return group.first; });
  std::vector<std::int64_t> order;
  for (const auto& group : groups) {
    for (std::int64_t i = 0; i < each; ++i) order.push_back(group.second + i);
  }
  return order;
}

std::vector<BatchLoader::Field> BatchLoader::fields_of(const SampleFields& requested) {
  const bool selects = requested.predictions > 0;
  const Field all[] = {
      {"tokens", &SampleView::tokens, &MicroBatch::tokens},
      {"labels", &SampleView::labels, &MicroBatch::labels, nullptr, selects ? Extent::prediction : Extent::position},
      {"rows with labels", &SampleView::labels, &MicroBatch::predictions, nullptr, Extent::prediction_row},
      {"numbers of labels", &SampleView::labels, &MicroBatch::prediction_numbers, nullptr, Extent::prediction_number},
      {"token types", &SampleView::token_types, &MicroBatch::token_types, &SampleFields::token_types},
      {"positions", &SampleView::positions, &MicroBatch::positions, &SampleFields::positions},
      {"starts of documents", &SampleView::first_visible, &MicroBatch::first_visible, &SampleFields::first_visible},
      {"lengths", &SampleView::length, &MicroBatch::lengths, &SampleFields::length, Extent::sample},
      {"labels of the second segment", &SampleView::is_random, &MicroBatch::sample_labels, &SampleFields::is_random,
       Extent::label},
      {"last positions of answers", &SampleView::span_end, &MicroBatch::span_ends, &SampleFields::span_end,
       Extent::sample},
      {"positions of last tokens", &SampleView::last_token, &MicroBatch::last_rows, &SampleFields::last_token,
       Extent::row},
      {"tokens ahead", &SampleView::tokens, &MicroBatch::tokens_ahead, nullptr, Extent::ahead},
      {"labels ahead", &SampleView::labels, &MicroBatch::labels_ahead, nullptr, Extent::ahead},
  };
  std::vector<Field> fields;
  std::ranges::copy_if(all, std::back_inserter(fields), [&](const Field& field) {
    if (field.extent == Extent::ahead) return requested.ahead > 0;
    if (field.extent == Extent::prediction_row || field.extent == Extent::prediction_number) return selects;
    return field.requested == nullptr || requested.*field.requested;
  });
  return fields;
}

Shape BatchLoader::shape_of(const Field& field, std::int64_t rows) const {
  switch (field.extent) {
    case Extent::position:
    case Extent::prediction_number:
      return {rows, b_};
    case Extent::prediction:
    case Extent::prediction_row:
      return {predictions_of_batch(rows)};
    case Extent::label:
      return {labels_of_batch()};
    case Extent::ahead:
      return {requested_.ahead, rows, b_};
    case Extent::sample:
    case Extent::row:
      break;
  }
  return {b_};
}

std::vector<Tensor> BatchLoader::make_tensors(std::int64_t micro_batches) const {
  const std::int64_t s = shard_.rows;
  std::vector<Tensor> tensors;
  tensors.emplace_back(backend_, weight_type_, Shape{micro_batches, predictions_of_batch(s)});
  tensors.emplace_back(backend_, DType::int64, Shape{micro_batches, b_});
  if (requested_.is_random) tensors.emplace_back(backend_, weight_type_, Shape{micro_batches, labels_of_batch()});
  if (requested_.ahead > 0) {
    tensors.emplace_back(backend_, weight_type_, Shape{micro_batches, requested_.ahead * s * b_});
  }
  for (const Field& field : fields_) {
    tensors.emplace_back(backend_, DType::int32, Shape{micro_batches, shape_of(field, s).numel()});
  }
  return tensors;
}

BatchLoader::BatchLoader(Backend& backend, const parallel::SequenceShard& shard, std::int64_t b,
                         std::int64_t micro_batches, DType dtype, const SampleFields& requested)
    : backend_(backend),
      shard_(shard),
      b_(b),
      weight_type_(accumulation_type(dtype)),
      requested_(requested),
      fields_(fields_of(requested)),
      sets_{{backend, make_tensors(micro_batches)}, {backend, make_tensors(micro_batches)}},
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
  const std::int64_t max = sets_[0].tensors[weights_index].view().shape()[0];
  TRIREME_CHECK(samples % b_ == 0 && samples / b_ <= max, ShapeError,
                "{} samples do not fit into at most {} micro-batches of {}", samples, max, b_);
  TRIREME_CHECK(b_ % requested_.samples_per_label == 0, ConfigError,
                "<micro_batch_size> {} is not a multiple of the {} samples that share a label", b_,
                requested_.samples_per_label);
  const SampleFields supplied = request.source->fields();
  for (const Field& field : fields_) {
    TRIREME_CHECK(
        field.requested == nullptr || supplied.*field.requested, ConfigError,
        "loading a batch failed: the model needs {}, but these samples have none. Try data made for this model",
        field.name);
  }
}

std::int64_t BatchLoader::padded_length(std::int64_t longest, const Form& form) const {
  const std::int64_t multiple = form.length_multiple;
  if (multiple == 0) return shard_.sequence;
  return std::min((std::max<std::int64_t>(longest, 1) + multiple - 1) / multiple * multiple, shard_.sequence);
}

void BatchLoader::read(Set& set, const Request& request) const {
  // Reads all samples of a micro-batch in full, before its length is known. The device gets the rows of the shard, [s,
  // b], at the beginning of the memory for the longest micro-batch.
  SampleFields fields = requested_;
  const bool has_lengths = request.source->fields().length;
  fields.length = fields.length || (request.form.length_multiple > 0 && has_lengths);
  std::deque<data::SampleBuffer> buffers;
  for (std::int64_t i = 0; i < b_; ++i) buffers.emplace_back(shard_.sequence, fields);
  std::vector<std::int64_t> counted(request.samples.size() / static_cast<std::size_t>(b_));  // labels by micro-batch
  std::vector<double> weights(counted.size() * static_cast<std::size_t>(predictions_of_batch(shard_.rows)));
  std::vector<double> ahead_weights(request.samples.size() * static_cast<std::size_t>(shard_.rows * requested_.ahead));
  for (std::size_t f = 0; f < fields_.size() && requested_.predictions > 0; ++f) {
    const TensorView unused = set.copies.host(first_field_index() + f);
    std::fill_n(unused.as<std::int32_t>(), unused.numel(), fields_[f].extent == Extent::prediction ? 0 : -1);
  }
  set.sample_labels.clear();
  set.sequences.clear();
  set.unpadded_positions = 0;
  for (std::int64_t begin = 0; begin < std::ssize(request.samples); begin += b_) {
    std::int64_t longest = 0;
    for (std::int64_t i = 0; i < b_; ++i) {
      const SampleView& sample = buffers[static_cast<std::size_t>(i)].view();
      const std::int64_t index = request.samples[static_cast<std::size_t>(begin + i)].index;
      if (index < 0) {
        write_filler(sample);
        continue;
      }
      request.source->read(index, sample);
      const std::int64_t length = fields.length ? sample.length[0] : shard_.sequence;
      longest = std::max(longest, length);
      set.unpadded_positions += length;
    }
    const std::int64_t sequence = padded_length(longest, request.form);
    const parallel::SequenceShard shard = shard_.of_length(sequence);
    set.sequences.push_back(sequence);
    for (std::int64_t i = 0; i < b_; ++i) {
      const SampleView& sample = buffers[static_cast<std::size_t>(i)].view();
      const std::int64_t number = begin + i;
      set.copies.host(numbers_index).as<std::int64_t>()[number] =
          request.samples[static_cast<std::size_t>(number)].number;
      counted[static_cast<std::size_t>(begin / b_)] +=
          std::ranges::count_if(sample.labels, [](std::int32_t label) { return label >= 0; });
      for_each_prediction(number, shard, sample.labels, [&](std::int64_t at, std::int64_t row) {
        const auto position = static_cast<std::size_t>(shard.positions[row]);
        weights[static_cast<std::size_t>(at)] = sample.labels[position] >= 0 ? 1 : 0;
      });
      for_each_ahead(number, shard, [&](std::int64_t to, std::int64_t position, std::int64_t ahead) {
        const auto at = static_cast<std::size_t>(ahead);
        const bool counts = ahead >= 0 && sample.labels[at] >= 0 &&
                            (sample.first_visible.empty() || sample.first_visible[at] <= position);
        ahead_weights[static_cast<std::size_t>(to)] = counts ? 1 : 0;
      });
      write(set, number, shard, sample);
    }
  }
  set.counted_tokens = std::accumulate(counted.begin(), counted.end(), std::int64_t{0});
  write_weights(set, weights_index, std::move(weights), counted, request.form.average);
  if (requested_.ahead > 0) {
    write_weights(set, ahead_weights_index(), std::move(ahead_weights), counted, request.form.average);
  }
  if (!requested_.is_random) return;
  std::vector<double> sample_weights;
  std::vector<std::int64_t> counted_samples(counted.size());
  for (const std::int32_t label : set.sample_labels) {
    counted_samples[sample_weights.size() / static_cast<std::size_t>(labels_of_batch())] += label >= 0 ? 1 : 0;
    sample_weights.push_back(label >= 0 ? 1 : 0);
  }
  write_weights(set, sample_weights_index, std::move(sample_weights), counted_samples, request.form.average);
}

template <class Function>
void BatchLoader::for_each_prediction(std::int64_t i, const parallel::SequenceShard& shard,
                                      std::span<const std::int32_t> labels, const Function& function) const {
  const std::int64_t first = i / b_ * predictions_of_batch(shard_.rows),
                     of_sample = requested_.predictions_of(shard.rows);
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < shard.rows; ++row) {
    if (requested_.predictions == 0) {
      function(first + row * b_ + i % b_, row);
    } else if (labels[static_cast<std::size_t>(shard.positions[row])] >= 0) {
      TRIREME_CHECK(count < of_sample, ShapeError, "a sample has more than {} labels in {} positions", of_sample,
                    shard.rows);
      function(first + i % b_ * of_sample + count++, row);
    }
  }
}

template <class Function>
void BatchLoader::for_each_ahead(std::int64_t i, const parallel::SequenceShard& shard, const Function& function) const {
  const std::int64_t first = i / b_ * requested_.ahead * shard_.rows * b_ + i % b_;
  for (std::int64_t d = 0; d < requested_.ahead; ++d) {
    for (std::int64_t row = 0; row < shard.rows; ++row) {
      const std::int64_t position = shard.positions[row], ahead = position + d + 1;
      function(first + (d * shard.rows + row) * b_, position, ahead < shard.sequence ? ahead : -1);
    }
  }
}

void BatchLoader::write(Set& set, std::int64_t i, const parallel::SequenceShard& shard,
                        const SampleView& sample) const {
  const bool has_label = i % requested_.samples_per_label == 0;
  if (has_label) set.sample_labels.insert(set.sample_labels.end(), sample.is_random.begin(), sample.is_random.end());
  std::vector<std::pair<std::int64_t, std::int64_t>> predictions;  // index and row
  if (requested_.predictions > 0) {
    for_each_prediction(i, shard, sample.labels,
                        [&](std::int64_t at, std::int64_t row) { predictions.emplace_back(at, row); });
  }
  // Kernels look up every label, even if its weight is 0.
  for (const std::span<std::int32_t> labels : {sample.labels, sample.is_random, sample.span_end}) {
    std::ranges::transform(labels, labels.begin(), [](std::int32_t label) { return std::max(label, 0); });
  }
  const std::int64_t first = i / b_ * shard_.rows * b_ + i % b_;  // its row 0; the next rows follow b_ apart
  for (std::size_t f = 0; f < fields_.size(); ++f) {
    const std::span<const std::int32_t> values = sample.*fields_[f].of_sample;
    auto* const host = set.copies.host(first_field_index() + f).as<std::int32_t>();
    switch (fields_[f].extent) {
      case Extent::label:
        if (has_label) host[i / requested_.samples_per_label] = values[0];
        continue;
      case Extent::sample:
        host[i] = values[0];
        continue;
      case Extent::row:
        host[i] = static_cast<std::int32_t>(values[0] * b_ + i % b_);
        continue;
      case Extent::ahead:
        for_each_ahead(i, shard, [&](std::int64_t to, std::int64_t, std::int64_t ahead) {
          host[to] = ahead < 0 ? 0 : values[static_cast<std::size_t>(ahead)];
        });
        continue;
      case Extent::prediction:
        for (const auto& [at, row] : predictions) host[at] = values[static_cast<std::size_t>(shard.positions[row])];
        continue;
      case Extent::prediction_row:
        for (const auto& [at, row] : predictions) host[at] = static_cast<std::int32_t>(row * b_ + i % b_);
        continue;
      case Extent::prediction_number:
        for (const auto& [at, row] : predictions) {
          host[first + row * b_] = static_cast<std::int32_t>(at - i / b_ * predictions_of_batch(shard_.rows));
        }
        continue;
      case Extent::position:
        break;
    }
    for (std::int64_t row = 0; row < shard.rows; ++row) {
      host[first + row * b_] = values[static_cast<std::size_t>(shard.positions[row])];
    }
  }
}

void BatchLoader::write_weights(Set& set, std::size_t tensor, std::vector<double> weights,
                                const std::vector<std::int64_t>& counted, LossAverage average) const {
  if (average == LossAverage::micro_batch) {
    const std::size_t per_batch = weights.size() / counted.size();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (const std::int64_t labels = counted[i / per_batch]; labels > 0) weights[i] /= static_cast<double>(labels);
    }
  }
  dispatch_float(weight_type_, [&]<class T>() {
    std::ranges::transform(weights, set.copies.host(tensor).as<T>(), [](double weight) { return T(weight); });
  });
}

void BatchLoader::fill(Set& set, const Request& request) const {
  try {
    read(set, request);
  } catch (const DataError&) {
    request.source->check_unchanged();  // reports changed files as the cause
    throw;
  }
  request.source->check_unchanged();
}

void BatchLoader::upload(Set& set, const Request& request, Stream& stream) const {
  const auto samples = static_cast<std::int64_t>(request.samples.size());
  const std::int64_t rows = samples * shard_.rows;
  std::vector<std::int64_t> count = {samples / b_ * predictions_of_batch(shard_.rows), samples};
  if (requested_.is_random) count.push_back(samples / requested_.samples_per_label);
  if (requested_.ahead > 0) count.push_back(rows * requested_.ahead);
  for (const Field& field : fields_) count.push_back(samples / b_ * shape_of(field, shard_.rows).numel());
  set.copies.upload(stream, count);
}

void BatchLoader::end_reading() {
  if (reading_.valid()) failure_ = reading_.get();
}

std::vector<MicroBatch> BatchLoader::load(const data::SampleSource& source, const std::vector<Sample>& samples,
                                          const Form& form) {
  const Request request{&source, samples, form};
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
    sets_[current_].copies.wait();  // earlier copies may still be in flight
    fill(sets_[current_], request);
    upload(sets_[current_], request, stream);
  }

  const auto row_of = [&](std::size_t tensor, std::int64_t j, const Shape& shape) {
    return sets_[current_].tensors[tensor].view().rows(j, 1).flat(0, shape.numel()).reshape(shape);
  };
  std::vector<MicroBatch> batches(samples.size() / static_cast<std::size_t>(b_));
  for (std::int64_t j = 0; j < std::ssize(batches); ++j) {
    MicroBatch& batch = batches[static_cast<std::size_t>(j)];
    const std::int64_t s = shard(j).rows;
    batch.loss_weights = row_of(weights_index, j, {predictions_of_batch(s)});
    batch.samples = row_of(numbers_index, j, {b_});
    if (requested_.is_random) batch.sample_weights = row_of(sample_weights_index, j, {labels_of_batch()});
    if (requested_.ahead > 0) batch.ahead_weights = row_of(ahead_weights_index(), j, {requested_.ahead, s * b_});
    for (std::size_t f = 0; f < fields_.size(); ++f) {
      batch.*fields_[f].of_micro_batch = row_of(first_field_index() + f, j, shape_of(fields_[f], s));
    }
  }
  return batches;
}

void BatchLoader::read_ahead(const data::SampleSource& source, std::vector<Sample> samples, const Form& form) {
  end_reading();
  failure_ = nullptr;
  copied_ahead_ = false;
  ahead_ = {&source, std::move(samples), form};
  check(ahead_);
  Set& set = sets_[1 - current_];
  set.copies.wait();
  // The last use of the set's tensors is already enqueued.
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
