#pragma once

#include <array>
#include <utility>

#include "src/backend/kernels/gemm.hpp"

namespace trireme::io {

/// Names that transformers has for activations; the first one of each is written.
inline constexpr std::array<std::pair<const char*, Activation>, 4> huggingface_activations{
    {{"gelu_new", Activation::gelu_tanh},
     {"gelu_pytorch_tanh", Activation::gelu_tanh},
     {"gelu", Activation::gelu_erf},
     {"relu2", Activation::squared_relu}}};

}  // namespace trireme::io
