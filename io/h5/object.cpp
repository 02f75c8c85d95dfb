#include "io/h5/object.hpp"

#include "src/base/check.hpp"

namespace trireme::io::h5 {
namespace {
constexpr std::size_t max_text_bytes = 65000;  // an object header holds less than 64 KiB
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

namespace {
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

}  // namespace trireme::io::h5
