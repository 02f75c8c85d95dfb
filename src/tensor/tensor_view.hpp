#pragma once

#include <cstddef>

#include "src/tensor/dtype.hpp"
#include "src/tensor/shape.hpp"

namespace trireme {

/// Dense row-major tensor in memory owned elsewhere, on the host or the device. `Byte` is std::byte for writable
/// tensors and const std::byte for read-only ones. A default-constructed view is empty: "no tensor".
template <class Byte>
class BasicTensorView {
 public:
  BasicTensorView() = default;
  BasicTensorView(Byte* data, DType dtype, const Shape& shape) : data_(data), dtype_(dtype), shape_(shape) {}
  /// A view of a typed array.
  template <class T>
  requires(!std::is_same_v<std::remove_const_t<T>, std::byte>) BasicTensorView(T* data, const Shape& shape)
      : data_(reinterpret_cast<Byte*>(data)), dtype_(dtype_of<T>()), shape_(shape) {}
  /// Writable converts to read-only.
  operator BasicTensorView<const std::byte>() const { return {data_, dtype_, shape_}; }

  Byte* data() const { return data_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t numel() const { return shape_.numel(); }
  std::size_t size_bytes() const { return data_ == nullptr ? 0 : static_cast<std::size_t>(numel()) * size_of(dtype_); }
  explicit operator bool() const { return data_ != nullptr; }

  /// The elements as T, which must be the view's type.
  template <class T>
  auto as() const {
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    TRIREME_CHECK(dtype_ == dtype_of<T>(), ShapeError, "a {} tensor {} was read as {}", name_of(dtype_),
                  to_string(shape_), name_of(dtype_of<T>()));
    return reinterpret_cast<Element*>(data_);
  }

  /// The same elements under another shape of the same size.
  BasicTensorView reshape(const Shape& shape) const {
    TRIREME_CHECK(shape.numel() == numel(), ShapeError, "a tensor {} cannot be reshaped to {}", to_string(shape_),
                  to_string(shape));
    return {data_, dtype_, shape};
  }

  /// Rows [begin, begin + count) of the first dimension.
  BasicTensorView rows(std::int64_t begin, std::int64_t count) const {
    Shape shape = shape_;
    TRIREME_CHECK(shape.rank() > 0 && begin >= 0 && count >= 0 && begin + count <= shape[0], ShapeError,
                  "rows {} to {} of {}", begin, begin + count, to_string(shape_));
    const std::int64_t row_size = shape[0] == 0 ? 0 : numel() / shape[0];
    shape[0] = count;
    return {data_ + begin * row_size * static_cast<std::int64_t>(size_of(dtype_)), dtype_, shape};
  }

  /// Elements [begin, begin + count) in memory order, as a one-dimensional tensor.
  BasicTensorView flat(std::int64_t begin, std::int64_t count) const { return reshape({numel()}).rows(begin, count); }

 private:
  Byte* data_ = nullptr;
  DType dtype_ = DType::fp32;
  Shape shape_;
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

}  // namespace trireme
