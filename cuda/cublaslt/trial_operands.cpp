#include "cuda/cublaslt/trial_operands.hpp"

#include <algorithm>
#include <utility>

namespace trireme::cuda {
namespace {

constexpr std::size_t allocation_alignment = 256;

std::size_t matrix_bytes(const ProductShape& shape, std::int64_t rows, std::int64_t columns,
                         std::size_t element_bytes) {
  return static_cast<std::size_t>(rows * columns * std::max(shape.batch, 1)) * element_bytes;
}

}  // namespace

TrialOperands::TrialOperands(CudaStream& stream, DeviceMemory& memory, const ProductShape& shape,
                             const ProductOperands& operands)
    : a_bytes_(matrix_bytes(shape, shape.m, shape.k, operand_element_bytes(shape))),
      b_bytes_(matrix_bytes(shape, shape.k, shape.n, operand_element_bytes(shape))),
      d_bytes_(matrix_bytes(shape, shape.m, shape.n, size_of(shape.out))),
      aux_bytes_(operands.aux == nullptr ? 0 : matrix_bytes(shape, shape.m, shape.n, size_of(shape.in))),
      shift_(static_cast<std::size_t>(shape.alignment) % allocation_alignment),
      first_(operands),
      copy_bytes_(slot_bytes(a_bytes_) + slot_bytes(b_bytes_) + slot_bytes(d_bytes_) + slot_bytes(aux_bytes_)),
      copies_(stream.device().l2_bytes() / copy_bytes_) {
  const std::size_t copied_bytes = copies_ * copy_bytes_;
  memory_ = memory.allocate_on(stream, copied_bytes + (shape.accumulate ? slot_bytes(d_bytes_) : 0));
  if (shape.accumulate) first_.d = memory_.data() + copied_bytes + shift_;
  if (copies_ == 0) return;

  const auto copy_bytes = [&](void* to, const void* from, std::size_t size_bytes) {
    if (size_bytes == 0) return;
    stream.device().check(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, stream.handle()), "cudaMemcpyAsync");
    stream.device().launched(stream.handle(), "cudaMemcpyAsync");
  };
  const ProductOperands made = copy(0);
  copy_bytes(const_cast<void*>(made.a), operands.a, a_bytes_);
  copy_bytes(const_cast<void*>(made.b), operands.b, b_bytes_);
  copy_bytes(made.aux, operands.aux, aux_bytes_);
  // Each step doubles the copied bytes.
  for (std::size_t bytes = copy_bytes_; bytes < copied_bytes; bytes *= 2) {
    copy_bytes(memory_.data() + bytes, memory_.data(), std::min(bytes, copied_bytes - bytes));
  }
}

std::size_t TrialOperands::slot_bytes(std::size_t matrix_bytes) const {
  if (matrix_bytes == 0) return 0;
  return (matrix_bytes + shift_ + allocation_alignment - 1) / allocation_alignment * allocation_alignment;
}

ProductOperands TrialOperands::copy(std::size_t number) const {
  std::byte* free = memory_.data() + number * copy_bytes_;
  const auto place = [&](std::size_t bytes) { return std::exchange(free, free + slot_bytes(bytes)) + shift_; };
  ProductOperands operands = first_;
  operands.a = place(a_bytes_);
  operands.b = place(b_bytes_);
  operands.d = place(d_bytes_);
  if (aux_bytes_ > 0) operands.aux = place(aux_bytes_);
  return operands;
}

ProductOperands TrialOperands::next() {
  const std::size_t number = next_++ % (copies_ + 1);
  return number == 0 ? first_ : copy(number - 1);
}

}  // namespace trireme::cuda
