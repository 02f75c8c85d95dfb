#pragma once

#include <memory>
#include <string_view>

#include "src/base/attributes.hpp"
#include "src/optim/adamw.hpp"
#include "src/optim/muon.hpp"
#include "src/optim/sgd.hpp"

namespace trireme::optim {

enum class OptimizerKind { adam, sgd, muon };
inline constexpr Choice<OptimizerKind> optimizer_kinds[] = {
    {"adam", OptimizerKind::adam}, {"sgd", OptimizerKind::sgd}, {"muon", OptimizerKind::muon}};
/// "adam", "sgd" or "muon".
std::string_view name_of(OptimizerKind kind);
inline constexpr Choice<MuonScale> muon_scales[] = {{"spectral", MuonScale::spectral},
                                                    {"unit_rms_norm", MuonScale::unit_rms_norm},
                                                    {"shape_scaling", MuonScale::shape_scaling}};
inline constexpr Choice<NewtonSchulzCoefficients> newton_schulz_coefficients[] = {
    {"quintic", NewtonSchulzCoefficients::quintic}, {"simple", NewtonSchulzCoefficients::simple}};

/// Settings of an optimizer. Those of another kind are not used.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adam;
  double weight_decay = 0.01;
  bool decays_all = false;  ///< biases and norms decay, too
  AdamWOptions adamw = {};
  SgdOptions sgd = {};
  MuonOptions muon = {};  ///< settings of matrices; `adamw` has those of the rest
  Offload offload = {};   ///< does not change the bits, and is not stored in checkpoints
};

/// Minimum of the bytes that the optimizer keeps per parameter in addition to the masters, in training of type `dtype`.
std::size_t moment_bytes(const OptimizerOptions& options, DType dtype);

/// Throws ConfigError if the optimizer cannot keep its state in host memory.
void check_offload(const OptimizerOptions& options);

/// Throws ConfigError for options out of range. `parameters` and the communicators of
/// `groups` must live longer.
std::unique_ptr<Optimizer> make_optimizer(Backend& backend, parallel::ParameterBuffer& parameters,
                                          std::vector<parallel::GradientGroup> groups, const OptimizerOptions& options);

/// The attributes "optimizer" and "training.*" of a checkpoint; those of another kind are left out.
Attributes attributes_of(const OptimizerOptions& options);
/// Kind of the optimizer whose state a checkpoint holds. CheckpointError if it is unknown.
OptimizerKind optimizer_from(const Attributes& attributes);

}  // namespace trireme::optim
