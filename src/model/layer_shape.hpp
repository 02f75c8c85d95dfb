#pragma once

#include "src/backend/kernels/norm.hpp"
#include "src/model/gpt_config.hpp"
#include "src/tensor/memory.hpp"

namespace trireme::model {

/// Extents of one micro-batch in one transformer layer on one rank of a tensor group.
struct LayerShape {
  std::int64_t s = 0;        ///< sequence
  std::int64_t b = 0;        ///< micro-batch
  std::int64_t h = 0;        ///< hidden
  std::int64_t a_local = 0;  ///< heads of this rank
  std::int64_t d = 0;        ///< head size
  std::int64_t f_local = 0;  ///< feed-forward columns of this rank
  DType dtype = DType::fp32;

  /// Throws ConfigError where heads or feed-forward columns do not divide by `tensor_size`.
  static LayerShape of(const GptConfig& config, std::int64_t s, std::int64_t b, int tensor_size, DType dtype) {
    TRIREME_CHECK(config.heads % tensor_size == 0 && config.ffn_hidden % tensor_size == 0, ConfigError,
                  "{} attention heads and {} feed-forward columns do not split over {} tensor ranks; "
                  "--tensor-model-parallel-size must divide both",
                  config.heads, config.ffn_hidden, tensor_size);
    return {s,
            b,
            config.hidden,
            config.heads / tensor_size,
            config.hidden / config.heads,
            config.ffn_hidden / tensor_size,
            dtype};
  }

  std::int64_t rows() const { return s * b; }
  /// Columns of this rank's part of the attention's output.
  std::int64_t attention_columns() const { return a_local * d; }
  /// A tensor [s, b, columns] of the training type.
  TensorView allocate(Arena& arena, std::int64_t columns) const { return arena.allocate(dtype, {s, b, columns}); }
  NormStatistics allocate_statistics(Arena& arena) const {
    const DType type = accumulation_type(dtype);
    return {arena.allocate(type, {rows()}), arena.allocate(type, {rows()})};
  }
};

}  // namespace trireme::model
