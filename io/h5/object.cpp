#include "io/h5/object.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <vector>

#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"

namespace trireme::io::h5 {

void initialise() {
  static const bool done = [] {
    H5dont_atexit();  // before any other use of the library, including its constants
    const Silence silence;
    H5open();
    H5PLset_loading_state(0);
    return true;
  }();
  static_cast<void>(done);
}

Silence::Silence() {
  H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}
Silence::~Silence() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }

namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and elements are never converted");

constexpr std::size_t max_text_bytes = 65000;  // an object header holds less than 64 KiB

/// The errno in a driver's message ("..., errno = 28, error message = ..."), or 0.
int errno_in(std::string_view text) {
  constexpr std::string_view mark = "errno = ";
  const std::size_t begin = text.find(mark);
  if (begin == text.npos) return 0;
  text.remove_prefix(begin + mark.size());
  return take_number<int>(text).value_or(0);
}

struct OpenAttribute {
  AttributeHandle attribute;
  TypeHandle type;
  std::size_t size_bytes;
};

OpenAttribute open_attribute(const Object& object, hid_t handle, const std::string& name) {
  TRIREME_CHECK(object.has_attribute(name), DataError,
                "{} has no attribute '{}': the file was not written by this program", object.description(), name);
  const auto action = [&] { return fmt::format("read attribute '{}' of {}", name, object.description()); };
  OpenAttribute opened;
  opened.attribute.reset(checked(action, [&] { return H5Aopen(handle, name.c_str(), H5P_DEFAULT); }));
  opened.type.reset(checked(action, [&] { return H5Aget_type(opened.attribute.get()); }));
  const SpaceHandle space(checked(action, [&] { return H5Aget_space(opened.attribute.get()); }));
  opened.size_bytes = H5Tget_size(opened.type.get());
  TRIREME_CHECK(H5Sget_simple_extent_type(space.get()) == H5S_SCALAR && opened.size_bytes <= max_text_bytes + 1,
                DataError, "attribute '{}' of {} is not one value of reasonable size", name, object.description());
  return opened;
}

}  // namespace

void fail(const std::string& action) {
  std::vector<std::string> stack;  // innermost first
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* error, void* data) -> herr_t {
        static_cast<std::vector<std::string>*>(data)->push_back(error->desc != nullptr ? error->desc : "?");
        return 0;
      },
      &stack);
  // The system's reason suffices: the library adds memory addresses and byte counts to it.
  for (const std::string& text : stack) {
    const int error = errno_in(text);
    if (meets_limit(error)) throw_system_error("cannot " + action, error);
    if (error != 0) throw Hdf5SystemError("cannot {}: {}", action, std::strerror(error));
  }
  if (stack.empty()) throw Hdf5Error("cannot {}: the HDF5 library gives no reason", action);
  if (stack.size() == 1) throw Hdf5Error("cannot {}: HDF5 reports {}", action, stack.front());
  throw Hdf5Error("cannot {}: HDF5 reports {} ({})", action, stack.back(), stack.front());
}

std::string Object::description() const { return fmt::format("'{}' of {}", path_, file_->path); }

void Object::write_attribute(const std::string& name, hid_t type, const void* value) {
  const SpaceHandle space(checked_write("describe an attribute of", [] { return H5Screate(H5S_SCALAR); }));
  const AttributeHandle attribute(checked_write("create an attribute of", [&] {
    return H5Acreate2(handle(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT);
  }));
  checked_write("write an attribute of", [&] { return H5Awrite(attribute.get(), type, value); });
}

void Object::write_attribute(const std::string& name, std::string_view text) {
  TRIREME_CHECK(text.size() <= max_text_bytes && text.find('\0') == text.npos, Hdf5Error,
                "attribute '{}' of {} has {} bytes or a NUL; longer or binary values belong into a dataset", name,
                description(), text.size());
  const TypeHandle type(checked_write("describe an attribute of", [] { return H5Tcopy(H5T_C_S1); }));
  checked_write("describe an attribute of", [&] { return H5Tset_size(type.get(), text.size() + 1); });
  checked_write("describe an attribute of", [&] { return H5Tset_cset(type.get(), H5T_CSET_UTF8); });
  write_attribute(name, type.get(), std::string(text).c_str());
}

void Object::write_attribute(const std::string& name, std::int64_t value) {
  write_attribute(name, H5T_STD_I64LE, &value);
}

bool Object::has_attribute(const std::string& name) const {
  return checked_read("look for an attribute of", [&] { return H5Aexists(handle(), name.c_str()); }) > 0;
}

std::string Object::text_attribute(const std::string& name) const {
  const OpenAttribute opened = open_attribute(*this, handle(), name);
  TRIREME_CHECK(H5Tget_class(opened.type.get()) == H5T_STRING && H5Tis_variable_str(opened.type.get()) == 0, DataError,
                "attribute '{}' of {} is not text of fixed length", name, description());
  std::string text(opened.size_bytes, '\0');
  checked_read("read an attribute of", [&] { return H5Aread(opened.attribute.get(), opened.type.get(), text.data()); });
  return text.substr(0, text.find('\0'));
}

std::int64_t Object::integer_attribute(const std::string& name) const {
  const OpenAttribute opened = open_attribute(*this, handle(), name);
  TRIREME_CHECK(H5Tequal(opened.type.get(), H5T_STD_I64LE) > 0, DataError,
                "attribute '{}' of {} is not a little-endian integer of 64 bits", name, description());
  std::int64_t value = 0;
  checked_read("read an attribute of", [&] { return H5Aread(opened.attribute.get(), H5T_STD_I64LE, &value); });
  return value;
}

hid_t file_type(DType dtype) {
  const hid_t types[] = {H5T_IEEE_F64LE, H5T_IEEE_F32LE, H5T_STD_U16LE, H5T_STD_U16LE, H5T_STD_I64LE,
                         H5T_STD_I32LE,  H5T_STD_U32LE,  H5T_STD_U16LE, H5T_STD_U8LE};  // in the order of DType
  return types[static_cast<int>(dtype)];
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
  if (numel() == 0) return;
  checked_write("write",
                [&] { return H5Dwrite(handle(), file_type(dtype_), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()); });
}

void Dataset::read(TensorView values) const {
  check_view(values, values.shape() == shape_);
  if (numel() == 0) return;
  checked_read("read",
               [&] { return H5Dread(handle(), file_type(dtype_), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()); });
}

void Dataset::write_rows(std::int64_t begin, ConstTensorView values) {
  const std::int64_t row = numel() == 0 || shape_.rank() == 0 ? 1 : numel() / shape_[0];
  const std::int64_t rows = values.numel() / row;
  check_view(values, shape_.rank() > 0 && values.numel() % row == 0 && begin >= 0 && begin <= shape_[0] - rows);
  if (rows == 0) return;
  std::array<hsize_t, Shape::max_rank> offset{static_cast<hsize_t>(begin)}, extent{};
  std::ranges::copy(shape_.extents(), extent.begin());
  extent[0] = static_cast<hsize_t>(rows);
  const SpaceHandle space(checked_write("write", [&] { return H5Dget_space(handle()); }));
  checked_write("write", [&] {
    return H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, offset.data(), nullptr, extent.data(), nullptr);
  });
  const SpaceHandle memory(
      checked_write("write", [&] { return H5Screate_simple(shape_.rank(), extent.data(), nullptr); }));
  checked_write("write", [&] {
    return H5Dwrite(handle(), file_type(dtype_), memory.get(), space.get(), H5P_DEFAULT, values.data());
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
