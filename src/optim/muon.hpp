#pragma once

#include <array>

#include "src/optim/adamw.hpp"
#include "src/optim/newton_schulz.hpp"
#include "src/optim/whole_matrices.hpp"

namespace trireme::optim {

/// Factor of an orthogonalised [rows, columns] matrix.
enum class MuonScale {
  spectral,       ///< sqrt(max(rows, columns)), for learning rates like AdamW's (Liu et al. 2025, arXiv:2502.16982)
  unit_rms_norm,  ///< sqrt(rows / columns)
  shape_scaling   ///< sqrt(max(1, rows / columns))
};

struct MuonOptions {
  double momentum = 0.9;
  bool nesterov = false;
  NewtonSchulzOptions newton_schulz = {};
  MuonScale scale = MuonScale::spectral;
  double extra_scale = 1;
  bool split_qkv = true;  ///< queries, keys and values are separate matrices
};

/// Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon) in Megatron-LM's form, for the matrices inside the
/// model; AdamW for embeddings, output layers, norms and biases. With the gradient g and the momentum beta:
///
///   m = beta m + (1 - beta) g;  u = m, or with Nesterov's momentum (1 - beta) g + beta m
///   w = w (1 - rate decay) - rate scale NewtonSchulz(u)
///
/// NewtonSchulz runs on full matrices, however they are divided over ranks. The queries, keys and values of `attn.qkv`
/// and `attn.kv` are one matrix each, [heads head size, hidden]; SwiGLU's gate and up are one together.
class Muon final : public Optimizer {
 public:
  static constexpr std::array moment_names = {MomentSpec{"muon_m", true}, MomentSpec{"adamw_m"}, MomentSpec{"adamw_v"}};

  /// Throws ConfigError for options out of range, and for moments of 16 bits. `parameters` must live longer.
  Muon(Backend& backend, parallel::ParameterBuffer& parameters, std::vector<parallel::GradientGroup> groups,
       double weight_decay, const MuonOptions& options, const AdamWOptions& adamw);

 private:
  void update_ranges(const Update& update, const UpdateRanges& ranges, const Arrays& arrays) override;
  void update_matrices(const Update& update) override;

  MuonOptions options_;
  AdamWOptions adamw_;
  DType dtype_;  // type of the matrices that are orthogonalised
  WholeMatrices matrices_;
  NewtonSchulz newton_schulz_;
};

}  // namespace trireme::optim
