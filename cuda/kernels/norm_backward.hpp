#pragma once

#include "cuda/kernels/families.hpp"

namespace trireme::cuda {

/// NormKernels::normalise_backward of tensors that fit.
void norm_backward(Stream& stream, const Scratch& new_scratch, ConstTensorView dy, ConstTensorView x,
                   ConstTensorView weight, const NormStatistics& statistics, ConstTensorView residual_gradient,
                   TensorView dx, TensorView dweight, TensorView dbias);

}  // namespace trireme::cuda
