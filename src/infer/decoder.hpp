#pragma once

#include <cstdint>
#include <vector>

#include "src/model/stage/decoding_stage.hpp"
#include "src/parallel/pipeline/executor.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::infer {

/// Runs new positions of texts through the pipeline, as a forward schedule of one micro-batch. Texts are numbered from
/// 0; their keys and values are cached.
class Decoder {
 public:
  /// The caches hold `capacity` positions of each of `texts` texts. `model` must live longer.
  Decoder(train::ParallelModel& model, std::int64_t texts, std::int64_t capacity);

  std::int64_t length(std::int64_t text) const { return stage_.length(text); }
  void clear(std::int64_t text);
  void copy(std::int64_t from, std::int64_t to);

  /// Replaces a text by `tokens`, at least one. Those at the beginning that the cache holds are not run again,
  /// except the last ones.
  void fill(std::int64_t text, const std::vector<std::int32_t>& tokens);
  /// Appends one token to each of the texts from 0 on.
  void step(const std::vector<std::int32_t>& tokens);

  /// Returns the next-token logits of each text of the last run, [texts, padded vocabulary] in host memory and in the
  /// accumulation type, on tensor rank 0 of the last stage; empty elsewhere. Valid until the next call. Collective over
  /// the tensor group.
  ConstTensorView logits();

 private:
  void run();

  train::ParallelModel& model_;
  model::DecodingStage stage_;
  parallel::Schedule schedule_;
  parallel::PipelineExecutor executor_;
  Shape last_shape_;
  Arena memory_, host_memory_;                    // logits on the device and the host
  std::vector<std::vector<std::int32_t>> texts_;  // the cached tokens of each
};

}  // namespace trireme::infer
