#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "io/h5/object.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme::io::h5 {

/// The type of an element in the file and, there being no conversion, in memory.
hid_t file_type(DType dtype);

/// A dense array, contiguous in the file in row-major order. 16-bit floats are stored as unsigned integers, so the
/// library never converts an element; the attribute "dtype" distinguishes them.
class Dataset : public Object {
 public:
  /// A dataset that was just created.
  Dataset(std::shared_ptr<FileState> file, std::string path, hid_t handle, DType dtype, const Shape& shape)
      : Object(std::move(file), std::move(path), handle), dtype_(dtype), shape_(shape) {}
  /// A dataset found in a file. Throws DataError unless its type, shape, layout and offset are as `File` requires.
  Dataset(std::shared_ptr<FileState> file, std::string path, hid_t handle);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t numel() const { return shape_.numel(); }

  /// Writes all elements; dtype and shape must be the dataset's.
  void write(ConstTensorView values);
  void read(TensorView values) const;
  /// Writes elements [begin, begin + values.numel()) in row-major order, regardless of the shape of `values`.
  void write_flat(std::int64_t begin, ConstTensorView values);
  void read_flat(std::int64_t begin, TensorView values) const;
  /// The elements of `box`; `values` has its extents.
  void write_box(const Box& box, ConstTensorView values);
  void read_box(const Box& box, TensorView values) const;

  /// File offset of the elements in bytes, for mapping them; -1 in an empty dataset.
  std::int64_t file_offset() const;

 private:
  enum class Direction { read, write };
  void check_view(const ConstTensorView& values, bool fits) const;
  void transfer_flat(std::int64_t begin, ConstTensorView values, Direction direction) const;
  void transfer_box(const Box& box, std::byte* data, std::int64_t numel, Direction direction) const;
  void read_dtype();
  void read_shape();
  void check_layout() const;
  DType dtype_ = DType::fp32;
  Shape shape_;
};

}  // namespace trireme::io::h5
