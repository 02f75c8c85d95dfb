#include "cuda/kernels/product_task.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "cuda/kernels/epilogue.hpp"
#include "cuda/kernels/fp8.hpp"
#include "src/backend/kernels/shape_checks.hpp"

namespace trireme::cuda {
namespace {

bool is_weight_gradient(const ProductShape& shape) { return shape.fp8 ? shape.fp8->over_rows : shape.b_transposed; }

/// Forward epilogue that cuBLASLt can fuse: its GELU is the tanh form.
Epilogue linear_epilogue(const ProductTask& task) {
  if (task.activation == Activation::none) return task.bias == nullptr ? Epilogue::none : Epilogue::bias;
  if (task.activation != Activation::gelu_tanh) return Epilogue::none;
  if (task.pre_activation == nullptr) return task.bias == nullptr ? Epilogue::gelu : Epilogue::gelu_bias;
  return task.bias == nullptr ? Epilogue::gelu_aux : Epilogue::gelu_aux_bias;
}

void check_type(DType dtype) {
  TRIREME_CHECK(dtype != DType::fp64, ConfigError, "fp64 runs on the CPU backend alone: use <backend> cpu");
}

}  // namespace

ProductTask forward_task(ConstTensorView x, ConstTensorView w, ConstTensorView bias, Activation activation,
                         TensorView pre_activation, TensorView y) {
  check_linear(x, w, bias, pre_activation, y);
  check_type(x.dtype());
  ProductTask task;
  task.bias = bias.data();
  task.activation = activation;
  task.pre_activation = activation == Activation::none ? nullptr : pre_activation.data();
  task.shape = {.in = x.dtype(),
                .out = x.dtype(),
                .a_transposed = true,
                .b_transposed = false,
                .m = y.shape().back(),
                .n = rows_of(x.shape()),
                .k = x.shape().back(),
                .epilogue = linear_epilogue(task)};
  task.operands = {.a = w.data(), .b = x.data(), .d = y.data()};
  return task;
}

ProductTask input_task(ConstTensorView dy, ConstTensorView w, Activation activation, ConstTensorView pre_activation,
                       TensorView dx) {
  check_linear_backward_input(dy, w, activation, pre_activation, dx);
  check_type(dy.dtype());
  ProductTask task;
  task.kind = KernelKind::input_gradient;
  task.activation = activation;
  // cuBLASLt only reads it here.
  task.pre_activation = activation == Activation::none ? nullptr : const_cast<std::byte*>(pre_activation.data());
  task.shape = {.in = dy.dtype(),
                .out = dy.dtype(),
                .m = dx.shape().back(),
                .n = rows_of(dy.shape()),
                .k = dy.shape().back(),
                .epilogue = activation == Activation::gelu_tanh ? Epilogue::dgelu : Epilogue::none};
  task.operands = {.a = w.data(), .b = dy.data(), .d = dx.data()};
  return task;
}

ProductTask weight_task(ConstTensorView dy, ConstTensorView x, TensorView dw, TensorView dbias, ProductSum sum) {
  check_linear_backward_weight(dy, x, dw, dbias);
  check_type(dy.dtype());
  ProductTask task;
  task.kind = KernelKind::weight_gradient;
  task.dy = dy.data();
  task.dbias = dbias ? dbias.as<float>() : nullptr;
  task.shape = {.in = dy.dtype(),
                .out = DType::fp32,
                .a_transposed = false,
                .b_transposed = true,
                .m = x.shape().back(),
                .n = dy.shape().back(),
                .k = rows_of(dy.shape()),
                .accumulate = sum == ProductSum::add,
                .epilogue = dbias ? Epilogue::bias_gradient_b : Epilogue::none};
  task.operands = {.a = x.data(), .b = dy.data(), .d = dw.data()};
  return task;
}

ProductTask batched_task(const BatchedProduct& product, ConstTensorView a, ConstTensorView b, ConstTensorView c,
                         TensorView d) {
  check_batched(product, a, b, c, d);
  check_type(d.dtype());
  ProductTask task;
  task.shape = {.in = d.dtype(),
                .out = d.dtype(),
                .a_transposed = product.b_transposed,
                .b_transposed = product.a_transposed,
                .m = d.shape()[2],
                .n = d.shape()[1],
                .k = a.shape()[product.a_transposed ? 1 : 2],
                .batch = static_cast<std::int32_t>(d.shape()[0])};
  task.operands = {.a = b.data(),
                   .b = a.data(),
                   .d = d.data(),
                   .c = product.beta == 0 ? nullptr : c.data(),
                   .alpha = static_cast<float>(product.alpha),
                   .beta = static_cast<float>(product.beta)};
  return task;
}

int alignment_of(const ProductTask& task) {
  std::uintptr_t bits = 64;
  const ProductOperands& on = task.operands;
  for (const void* pointer : {on.a, on.b, static_cast<const void*>(on.d), on.c, task.bias,
                              static_cast<const void*>(task.pre_activation), static_cast<const void*>(task.dbias)}) {
    bits |= reinterpret_cast<std::uintptr_t>(pointer);
  }
  if (const ProductShape& shape = task.shape; shape.batch > 1) {
    const std::size_t in = size_of(shape.in), out = size_of(shape.out);
    bits |= static_cast<std::size_t>(shape.m * shape.k) * in | static_cast<std::size_t>(shape.k * shape.n) * in |
            static_cast<std::size_t>(shape.m * shape.n) * out;
  }
  return 1 << std::countr_zero(bits);
}

ProductShape class_of(ProductShape shape) {
  if (shape.batch > 0) return shape;
  std::int64_t& rows = is_weight_gradient(shape) ? shape.k : shape.n;
  const auto power_of_two = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(rows)));
  rows -= rows % std::max<std::int64_t>(1, power_of_two / 4);
  if (is_weight_gradient(shape)) shape.accumulate = true;
  return shape;
}

void run_epilogue(CudaStream& stream, DeviceMemory& memory, const ProductTask& task) {
  const ProductShape& shape = task.shape;
  if (task.kind == KernelKind::weight_gradient) {
    if (task.dbias == nullptr) return;
    if (task.sums != nullptr)
      return add_rows(stream, (shape.k + fp8_block - 1) / fp8_block, shape.n, task.sums, task.dbias);
    const Buffer scratch = memory.allocate_on(stream, column_sums_bytes(shape.k, shape.n));
    column_sums(stream, shape.in, shape.k, shape.n, task.dy, scratch.data(), task.dbias);
  } else if (task.kind == KernelKind::input_gradient) {
    if (task.activation == Activation::none) return;
    activation_backward(stream, shape.in, shape.m * shape.n, task.activation, task.pre_activation, task.operands.d);
  } else {
    if (task.bias == nullptr && task.activation == Activation::none) return;
    bias_activation(stream, shape.in, shape.n, shape.m, task.bias, task.activation, plain_result(task),
                    task.pre_activation != nullptr, task.operands.d);
  }
}

}  // namespace trireme::cuda
