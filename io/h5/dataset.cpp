#include "io/h5/dataset.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "src/base/check.hpp"

namespace trireme::io::h5 {
static_assert(std::endian::native == std::endian::little, "files are little-endian and elements are never converted");

hid_t file_type(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return H5T_IEEE_F64LE;
    case DType::fp32:
      return H5T_IEEE_F32LE;
    case DType::int64:
      return H5T_STD_I64LE;
    case DType::int32:
      return H5T_STD_I32LE;
    case DType::uint32:
      return H5T_STD_U32LE;
    case DType::bf16:
    case DType::fp16:
    case DType::uint16:
      return H5T_STD_U16LE;
    case DType::uint8:
      return H5T_STD_U8LE;
  }
  return H5I_INVALID_HID;
}

Dataset::Dataset(std::shared_ptr<FileState> file, std::string path, hid_t handle)
    : Object(std::move(file), std::move(path), handle) {
  read_dtype();
  read_shape();
  check_layout();
}

void Dataset::read_dtype() {
  const TypeHandle type(checked_read("read the type of", [&] { return H5Dget_type(handle()); }));
  TRIREME_CHECK(H5Tget_order(type.get()) != H5T_ORDER_BE, DataError,
                "{} has big-endian byte order; this program reads and writes little-endian only", description());
  const std::string name = text_attribute("dtype");
  for (int i = 0; i <= static_cast<int>(DType::uint8); ++i) {
    dtype_ = static_cast<DType>(i);
    if (name_of(dtype_) == name && H5Tequal(type.get(), file_type(dtype_)) > 0) return;
  }
  throw DataError("{} is not an array of '{}', the type in its attribute, or this program does not support that type",
                  description(), name);
}

void Dataset::read_shape() {
  const SpaceHandle space(checked_read("read the shape of", [&] { return H5Dget_space(handle()); }));
  const int rank = checked_read("read the shape of", [&] { return H5Sget_simple_extent_ndims(space.get()); });
  TRIREME_CHECK(rank <= Shape::max_rank && H5Sget_simple_extent_type(space.get()) != H5S_NULL, DataError,
                "{} has {} dimensions; at most {} are possible here", description(), rank, Shape::max_rank);
  std::array<hsize_t, Shape::max_rank> extents{};
  if (rank > 0) {
    checked_read("read the shape of", [&] { return H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr); });
  }
  std::array<std::int64_t, Shape::max_rank> signed_extents{};
  std::int64_t size_bytes = static_cast<std::int64_t>(size_of(dtype_));
  for (int i = 0; i < rank; ++i) {
    signed_extents[i] = static_cast<std::int64_t>(extents[i]);
    TRIREME_CHECK(signed_extents[i] >= 0 && !__builtin_mul_overflow(size_bytes, signed_extents[i], &size_bytes),
                  DataError, "the size of {} overflows 64 bits: the file is damaged", description());
  }
  shape_ = Shape(std::span<const std::int64_t>(signed_extents.data(), static_cast<std::size_t>(rank)));
}

void Dataset::check_layout() const {
  const PropertyHandle properties(checked_read("read the layout of", [&] { return H5Dget_create_plist(handle()); }));
  TRIREME_CHECK(H5Pget_layout(properties.get()) == H5D_CONTIGUOUS && H5Pget_external_count(properties.get()) == 0 &&
                    H5Pget_nfilters(properties.get()) == 0,
                DataError, "{} is not stored as one contiguous piece inside the file, without filters: refused",
                description());
  if (numel() == 0) return;
  const std::int64_t size_bytes = numel() * static_cast<std::int64_t>(size_of(dtype_));
  const std::int64_t file_size = file().size_bytes;
  const std::int64_t offset = file_offset();
  TRIREME_CHECK(offset >= 0 && size_bytes <= file_size && offset <= file_size - size_bytes, DataError,
                "{} should be {} bytes from byte {}, but the file has only {}: it is damaged", description(),
                size_bytes, offset, file_size);
}

void Dataset::check_view(const ConstTensorView& values, bool fits) const {
  TRIREME_CHECK(fits && values.dtype() == dtype_ && (values || values.numel() == 0), ShapeError,
                "a {} {} array does not fit into {}, which is {} {}", name_of(values.dtype()),
                to_string(values.shape()), description(), name_of(dtype_), to_string(shape_));
}

void Dataset::write(ConstTensorView values) {
  check_view(values, values.shape() == shape_);
  transfer_flat(0, values, Direction::write);
}

void Dataset::read(TensorView values) const {
  check_view(values, values.shape() == shape_);
  transfer_flat(0, values, Direction::read);
}

void Dataset::write_flat(std::int64_t begin, ConstTensorView values) { transfer_flat(begin, values, Direction::write); }

void Dataset::read_flat(std::int64_t begin, TensorView values) const { transfer_flat(begin, values, Direction::read); }

void Dataset::write_box(const Box& box, ConstTensorView values) {
  check_view(values, values.shape() == box.extent);
  transfer_box(box, const_cast<std::byte*>(values.data()), values.numel(), Direction::write);
}

void Dataset::read_box(const Box& box, TensorView values) const {
  check_view(values, values.shape() == box.extent);
  transfer_box(box, values.data(), values.numel(), Direction::read);
}

// A flat range splits into a few boxes: at each position, the box of the slowest dimension whose rows start there and
// fit.
void Dataset::transfer_flat(std::int64_t begin, ConstTensorView values, Direction direction) const {
  const std::int64_t end = begin + values.numel();
  check_view(values, begin >= 0 && begin <= end && end <= numel());
  std::byte* data = const_cast<std::byte*>(values.data());
  if (shape_.rank() == 0 && end > begin) return transfer_box({}, data, 1, direction);
  for (std::int64_t position = begin; position < end;) {
    std::int64_t stride = numel();
    Box box{shape_, shape_};
    std::int64_t count = 0;
    for (int dimension = 0; dimension < shape_.rank(); ++dimension) {
      stride /= shape_[dimension];
      const std::int64_t coordinate = position / stride % shape_[dimension];
      box.offset[dimension] = coordinate;
      box.extent[dimension] = 1;
      if (count > 0) {  // inside the rows already chosen
        box.extent[dimension] = shape_[dimension];
      } else if (position % stride == 0 && end - position >= stride) {
        box.extent[dimension] = std::min((end - position) / stride, shape_[dimension] - coordinate);
        count = box.extent[dimension] * stride;
      }
    }
    transfer_box(box, data, count, direction);
    data += count * static_cast<std::int64_t>(size_of(dtype_));
    position += count;
  }
}

void Dataset::transfer_box(const Box& box, std::byte* data, std::int64_t numel, Direction direction) const {
  const int rank = shape_.rank();
  bool inside = box.offset.rank() == rank && box.extent.rank() == rank;
  std::array<hsize_t, Shape::max_rank> offset{}, extent{};
  for (int i = 0; inside && i < rank; ++i) {
    inside = box.offset[i] >= 0 && box.extent[i] >= 0 && box.extent[i] <= shape_[i] &&
             box.offset[i] <= shape_[i] - box.extent[i];
    offset[i] = static_cast<hsize_t>(box.offset[i]);
    extent[i] = static_cast<hsize_t>(box.extent[i]);
  }
  TRIREME_CHECK(inside, ShapeError, "the box {} at {} is not inside {} of shape {}", to_string(box.extent),
                to_string(box.offset), description(), to_string(shape_));
  if (numel == 0) return;
  const auto action = [&] {
    if (direction == Direction::write) file().write_failed = true;
    return fmt::format("{} {} elements of {}", direction == Direction::write ? "write" : "read", numel, description());
  };
  const hsize_t memory_extent = static_cast<hsize_t>(numel);
  const SpaceHandle memory(checked(action, [&] { return H5Screate_simple(1, &memory_extent, nullptr); }));
  const SpaceHandle space(checked(action, [&] { return H5Dget_space(handle()); }));
  if (rank > 0) {
    checked(action, [&] {
      return H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, offset.data(), nullptr, extent.data(), nullptr);
    });
  }
  const hid_t type = file_type(dtype_);
  checked(action, [&] {
    return direction == Direction::write ? H5Dwrite(handle(), type, memory.get(), space.get(), H5P_DEFAULT, data)
                                         : H5Dread(handle(), type, memory.get(), space.get(), H5P_DEFAULT, data);
  });
}

std::int64_t Dataset::file_offset() const {
  if (numel() == 0) return -1;
  initialise();
  const Silence silence;
  const haddr_t offset = H5Dget_offset(handle());
  if (offset == HADDR_UNDEF) fail(fmt::format("find where {} lies in the file", description()));
  return static_cast<std::int64_t>(offset);
}

}  // namespace trireme::io::h5
