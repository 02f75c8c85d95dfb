#pragma once

#include <cstdint>

#include "src/backend/kernels/gemm.hpp"

namespace trireme::model {

/// The shape of a GPT-2: pre-norm layers, learned positions, output head tied to the token embedding.
struct GptConfig {
  int layers = 12;
  std::int64_t hidden = 768;
  std::int64_t heads = 12;
  std::int64_t ffn_hidden = 3072;
  std::int64_t max_positions = 1024;
  std::int64_t vocabulary = 50257;  ///< true size, without padding
  Activation activation = Activation::gelu_tanh;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  double norm_epsilon = 1e-5;
};

/// Throws one ConfigError that lists everything that cannot work.
void validate(const GptConfig& config);

/// Parameters of the whole model at the true vocabulary: V h + S h + L (4 h^2 + 2 h f + 9 h + f) + 2 h. With f = 4 h
/// that is L (12 h^2 + 13 h) + V h + S h + 2 h.
std::int64_t parameter_count(const GptConfig& config);

/// Model FLOPs of one update on `batch` samples of `s` tokens, forward and backward, full (not causal) attention, no
/// recomputation counted: 72 B s L h^2 (1 + s / 6 h + V / 12 L h) for f = 4 h (Narayanan et al. 2021,
/// arXiv:2104.04473).
double model_flops(const GptConfig& config, std::int64_t batch, std::int64_t s);

}  // namespace trireme::model
