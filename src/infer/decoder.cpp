#include "src/infer/decoder.hpp"

#include <algorithm>

namespace trireme::infer {

Decoder::Decoder(train::ParallelModel& model, std::int64_t texts, std::int64_t capacity)
    : model_(model),
      stage_(model.decoding_model(), texts, capacity, model.config().window.left),
      schedule_(parallel::make_forward_schedule(model.grid().pipeline_size(), 1, model.pipeline_layout().chunks)),
      executor_(model.backend(), *model.communicators().pipeline, stage_),
      memory_(model.backend()),
      host_memory_(model.backend().host_memory()),
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

ConstTensorView Decoder::logits() {
  const ConstTensorView shard = stage_.logits();
  if (!shard) return {};
  Communicator& group = *model_.communicators().tensor;
  Backend& backend = model_.backend();
  Stream& stream = backend.compute_stream();
  memory_.clear();
  host_memory_.clear();
  const std::int64_t ranks = group.size(), b = shard.shape()[0], rows = shard.shape()[1];
  const DType wide = accumulation_type(shard.dtype());
  ConstTensorView whole = shard;
  if (ranks > 1) {
    const TensorView parts = memory_.allocate(shard.dtype(), {ranks, b, rows});
    group.all_gather(stream, shard, parts).wait(stream);
    if (group.rank() != 0) return {};
    // Each text's parts of the vocabulary become neighbours.
    const TensorView joined = memory_.allocate(wide, {b, ranks * rows});
    backend.attention().copy_heads(stream, {ranks, b, 1, rows}, ConstHeads{parts, b * rows, rows, rows},
                                   Heads{joined, rows, ranks * rows, rows});
    whole = joined;
  } else if (shard.dtype() != wide) {
    const TensorView widened = memory_.allocate(wide, shard.shape());
    backend.elementwise().convert(stream, shard, widened);
    whole = widened;
  }
  if (!backend.memory_is_host()) {
    const TensorView host = host_memory_.allocate(wide, whole.shape());
    backend.copy_to_host(stream, whole, host);
    whole = host;
  }
  stream.synchronize();
  return whole;
}

void Decoder::run() {
  // The executor replaces its buffers when the shape changes: earlier runs must have finished with the old ones.
  if (stage_.boundary_shape(0) != last_shape_) model_.backend().compute_stream().synchronize();
  last_shape_ = stage_.boundary_shape(0);
  executor_.run(schedule_);
}

}  // namespace trireme::infer
