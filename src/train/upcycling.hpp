#pragma once

#include <vector>

#include "src/checkpoint/state.hpp"
#include "src/model/model_config.hpp"

namespace trireme::train {

/// The dense model from whose weights a model with experts can start (sparse upcycling: Komatsuzaki et al. 2022,
/// arXiv:2212.05055): the same without experts. ConfigError, naming the option, if the experts are not blocks like the
/// dense ones, or if there is a shared expert.
model::ModelConfig dense_form(const model::ModelConfig& config);

/// The weights of a model with experts, as tensors of a checkpoint of its dense form: every expert takes the
/// feed-forward block of its layer. Routers are left out: they keep their initial values.
std::vector<checkpoint::StateTensor> tensors_of_dense_form(std::vector<checkpoint::StateTensor> weights);

}  // namespace trireme::train
