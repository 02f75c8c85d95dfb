#include "src/infer/decoder.hpp"

#include <algorithm>

namespace trireme::infer {

Decoder::Decoder(train::ParallelModel& model, std::int64_t texts, std::int64_t capacity)
    : model_(model),
      stage_(model.decoding_model(), texts, capacity, model.config().window.left),
      schedule_(parallel::make_forward_schedule(model.grid().pipeline_size(), 1, model.pipeline_layout().chunks)),
      executor_(model.backend(), *model.communicators().pipeline, stage_),
      memory_(model.backend()),
      texts_(static_cast<std::size_t>(texts)) {}

void Decoder::clear(std::int64_t text) {
  stage_.cut(text, 0);
  texts_[static_cast<std::size_t>(text)].clear();
}

void Decoder::copy(std::int64_t from, std::int64_t to) {
  stage_.copy_text(from, to);
  texts_[static_cast<std::size_t>(to)] = texts_[static_cast<std::size_t>(from)];
}

void Decoder::fill(std::int64_t text, const std::vector<std::int32_t>& tokens) {
  std::vector<std::int32_t>& cached = texts_[static_cast<std::size_t>(text)];
  std::int64_t held = std::min(std::ranges::mismatch(cached, tokens).in1 - cached.begin(), std::ssize(tokens) - 1);
  held -= held % model::DecodingStage::row_multiple(model_.stage().context());
  stage_.cut(text, held);
  stage_.begin_text(text, std::span(tokens).subspan(static_cast<std::size_t>(held)));
  cached = tokens;
  run();
}

void Decoder::step(const std::vector<std::int32_t>& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) texts_[i].push_back(tokens[i]);
  stage_.begin_step(tokens);
  run();
}

std::vector<std::vector<double>> Decoder::logits() {
  const ConstTensorView shard = stage_.logits();
  if (!shard) return {};
  Communicator& group = *model_.communicators().tensor;
  Backend& backend = model_.backend();
  Stream& stream = backend.compute_stream();
  const ArenaScope scope(memory_);
  const std::int64_t b = shard.shape()[0], rows = shard.shape()[1];
  const TensorView all = memory_.allocate(shard.dtype(), {group.size(), b, rows});
  group.all_gather(stream, shard, all).wait(stream);
  if (group.rank() != 0) return {};
  const TensorView wide = memory_.allocate(accumulation_type(shard.dtype()), all.shape());
  backend.elementwise().convert(stream, all, wide);
  std::vector<std::vector<double>> result(static_cast<std::size_t>(b));
  dispatch_float(wide.dtype(), [&]<class T>() {
    std::vector<Accumulation<T>> host(static_cast<std::size_t>(wide.numel()));
    backend.copy_to_host(stream, wide, TensorView(host.data(), wide.shape()));
    stream.synchronize();
    for (std::int64_t rank = 0, at = 0; rank < group.size(); ++rank) {
      for (std::vector<double>& of_text : result) {
        of_text.insert(of_text.end(), host.begin() + at, host.begin() + at + rows);
        at += rows;
      }
    }
  });
  for (std::vector<double>& of_text : result) of_text.resize(static_cast<std::size_t>(model_.vocabulary().size()));
  return result;
}

void Decoder::run() {
  // The executor replaces its buffers when the shape changes: earlier runs must have finished with the old ones.
  if (stage_.boundary_shape(0) != last_shape_) model_.backend().compute_stream().synchronize();
  last_shape_ = stage_.boundary_shape(0);
  executor_.run(schedule_);
}

}  // namespace trireme::infer
