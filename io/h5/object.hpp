#pragma once

#include <hdf5.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "src/base/error.hpp"
#include "src/base/unique_handle.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme::io {

/// A call of the HDF5 library failed; the message carries the library's own text.
class Hdf5Error : public detail::ErrorOf<ExitCode::io> {
  using ErrorOf::ErrorOf;
};

/// A system call failed within the library: the file itself may be intact.
class Hdf5SystemError : public Hdf5Error {
  using Hdf5Error::Hdf5Error;
};

namespace h5 {

/// Initialises the library once per process, without plugins and without its exit handler, which can crash after a
/// failed write. Every wrapper below calls it.
void initialise();

/// Suppresses printing of the library's error stack during the object's lifetime; exceptions report errors instead.
class Silence {
 public:
  Silence();
  ~Silence();
  Silence& operator=(Silence&&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

/// Throws the error of the last library call, "cannot `action`: ...": an Hdf5SystemError with the system's reason, or
/// an EnvironmentError if that is a process limit. Otherwise throws an Hdf5Error with the library's error stack.
[[noreturn]] void fail(const std::string& action);

/// Runs `call` silently and returns its result; a negative one is thrown as an Hdf5Error "cannot `action()`: ...".
/// `action` builds the text lazily: nothing is formatted without an error.
template <class Action, class Call>
auto checked(const Action& action, const Call& call) {
  initialise();
  const Silence silence;
  const auto result = call();
  if (result < 0) fail(action());
  return result;
}

template <herr_t (*close_function)(hid_t)>
struct HandleTraits {
  using Handle = hid_t;
  static Handle null() { return H5I_INVALID_HID; }
  static void close(Handle handle) noexcept {
    const Silence silence;
    close_function(handle);
  }
};
using FileHandle = UniqueHandle<HandleTraits<H5Fclose>>;
using ObjectHandle = UniqueHandle<HandleTraits<H5Oclose>>;
using SpaceHandle = UniqueHandle<HandleTraits<H5Sclose>>;
using TypeHandle = UniqueHandle<HandleTraits<H5Tclose>>;
using AttributeHandle = UniqueHandle<HandleTraits<H5Aclose>>;
using PropertyHandle = UniqueHandle<HandleTraits<H5Pclose>>;

/// State of an open file, shared by its objects.
struct FileState {
  std::string path;
  std::int64_t size_bytes = 0;  ///< size of the file when it was opened; 0 in a file being written
  bool write_failed = false;    ///< the file is unusable, regardless of later results
};

/// A group or dataset: something with attributes.
class Object {
 public:
  Object(std::shared_ptr<FileState> file, std::string path, hid_t handle)
      : file_(std::move(file)), path_(std::move(path)), handle_(handle) {}

  /// "'/tokens' of corpus.h5", for messages.
  std::string description() const;

  /// Attributes are 64-bit integers or text of at most 65,000 bytes without NUL; each is written once.
  void write_attribute(const std::string& name, std::string_view text);
  void write_attribute(const std::string& name, std::int64_t value);
  bool has_attribute(const std::string& name) const;
  /// Throw DataError if the attribute is missing or of another kind.
  std::string text_attribute(const std::string& name) const;
  std::int64_t integer_attribute(const std::string& name) const;

 protected:
  hid_t handle() const { return handle_.get(); }
  FileState& file() const { return *file_; }
  /// Wraps `checked` for calls that write: a failure also marks the file as unusable.
  template <class Call>
  auto checked_write(const char* what, const Call& call) {
    return checked(
        [&] {
          file_->write_failed = true;
          return fmt::format("{} {}", what, description());
        },
        call);
  }
  template <class Call>
  auto checked_read(const char* what, const Call& call) const {
    return checked([&] { return fmt::format("{} {}", what, description()); }, call);
  }

 private:
  void write_attribute(const std::string& name, hid_t type, const void* value);
  std::shared_ptr<FileState> file_;
  std::string path_;
  ObjectHandle handle_;
};

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
  /// Writes consecutive rows, slices of the first dimension, from row `begin` on. The elements of `values`, of any
  /// shape, fill whole rows.
  void write_rows(std::int64_t begin, ConstTensorView values);
  /// File offset of the elements in bytes, for mapping them; -1 in an empty dataset.
  std::int64_t file_offset() const;

 private:
  void check_view(const ConstTensorView& values, bool fits) const;
  void read_dtype();
  void read_shape();
  void check_layout() const;
  DType dtype_ = DType::fp32;
  Shape shape_;
};

}  // namespace h5
}  // namespace trireme::io
