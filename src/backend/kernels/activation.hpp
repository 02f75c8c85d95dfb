#pragma once

namespace trireme {

/// GELU in its two forms, gelu_tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), gelu_erf: 0.5 x (1 + erf(x / sqrt
/// 2)); tanh(x); squared_relu: max(x, 0)^2 (So et al. 2021, arXiv:2109.08668); and silu: x / (1 + exp(-x)).
enum class Activation { none, gelu_tanh, gelu_erf, tanh, squared_relu, silu };

}  // namespace trireme
