#include "io/h5/file.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::io::h5 {
namespace {

constexpr int max_depth = 32;
constexpr std::size_t max_object_count = 1'000'000;
constexpr std::size_t max_name_bytes = 255;
// Raw data and metadata begin at multiples of this, to align mapped elements.
constexpr hsize_t alignment_bytes = 64;

/// Properties for creating a file, group or dataset: no time stamp, so the same content gives the same bytes.
PropertyHandle creation_properties(hid_t property_class) {
  const auto action = [] { return std::string("set up the HDF5 library"); };
  PropertyHandle properties(checked(action, [&] { return H5Pcreate(property_class); }));
  checked(action, [&] { return H5Pset_obj_track_times(properties.get(), false); });
  return properties;
}

PropertyHandle access_properties() {
  const auto action = [] { return std::string("set up the HDF5 library"); };
  PropertyHandle properties(checked(action, [] { return H5Pcreate(H5P_FILE_ACCESS); }));
  // Closing a file also closes its objects, which ensures that it is closed even during stack unwinding.
  checked(action, [&] { return H5Pset_fclose_degree(properties.get(), H5F_CLOSE_STRONG); });
  checked(action, [&] { return H5Pset_libver_bounds(properties.get(), H5F_LIBVER_V110, H5F_LIBVER_V110); });
  checked(action, [&] { return H5Pset_alignment(properties.get(), 1, alignment_bytes); });
  // Writes small datasets immediately: a write error on close is easily lost.
  checked(action, [&] { return H5Pset_sieve_buf_size(properties.get(), 0); });
  // Lustre and NFS often have no locks; files are complete before they get their names, so none are needed.
  checked(action, [&] { return H5Pset_file_locking(properties.get(), false, true); });
  return properties;
}

}  // namespace

File File::create(const std::string& path) {
  initialise();  // before the library's constants below, which would initialise it their own way
  const auto action = [&] { return "create " + path; };
  const PropertyHandle creation = creation_properties(H5P_FILE_CREATE);
  const PropertyHandle access = access_properties();
  auto state = std::make_shared<FileState>();
  state->path = path;
  return File(std::move(state),
              checked(action, [&] { return H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()); }));
}

File File::open(const std::string& path, Symlinks symlinks) {
  auto state = std::make_shared<FileState>();
  state->path = path;
  state->size_bytes = regular_file_size(path, symlinks);
  const PropertyHandle access = access_properties();
  try {
    File file(std::move(state), checked([&] { return "open " + path; },
                                        [&] { return H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()); }));
    file.survey();
    return file;
  } catch (const Hdf5SystemError&) {
    throw;
  } catch (const Hdf5Error& error) {  // the file can be read: its content is damaged
    throw DataError(
        "{}; the file is damaged, incomplete or not an HDF5 file. If it is text, trireme corpus build makes a corpus "
        "of "
        "it",
        error.what());
  }
}

// Inspects every link before opening any object.
void File::survey() {
  struct Visit {
    std::vector<std::string> paths;
    std::string refused;
  } visit;
  const auto callback = [](hid_t, const char* name, const H5L_info_t* info, void* data) -> herr_t {
    auto& found = *static_cast<Visit*>(data);
    const std::string_view path(name);
    if (info->type != H5L_TYPE_HARD) {
      found.refused = "a soft or external link";
    } else if (std::ranges::count(path, '/') >= max_depth) {
      found.refused = "groups nested too deep";
    } else if (found.paths.size() >= max_object_count) {
      found.refused = "too many objects";
    } else if (!is_plain_name(path, max_name_bytes)) {
      found.refused = "a name with unusual characters or too long";
    } else {
      found.paths.push_back(fmt::format("/{}", path));
      return 0;
    }
    return 1;
  };
  checked([&] { return "list the objects of " + path(); },
          [&] { return H5Lvisit(handle_.get(), H5_INDEX_NAME, H5_ITER_NATIVE, callback, &visit); });
  TRIREME_CHECK(visit.refused.empty(), DataError, "{} holds {}: refused", path(), visit.refused);
  for (const std::string& object_path : visit.paths) {
    const ObjectHandle object(checked([&] { return fmt::format("open '{}' of {}", object_path, path()); },
                                      [&] { return H5Oopen(handle_.get(), object_path.c_str(), H5P_DEFAULT); }));
    const H5I_type_t type = H5Iget_type(object.get());
    TRIREME_CHECK(type == H5I_GROUP || type == H5I_DATASET, DataError,
                  "'{}' of {} is neither a group nor a dataset: refused", object_path, path());
    if (type == H5I_DATASET) dataset_paths_.push_back(object_path);
  }
  std::ranges::sort(dataset_paths_);
}

Object File::root() {
  return Object(
      state_, "/",
      checked([&] { return "open the root of " + path(); }, [&] { return H5Gopen2(handle_.get(), "/", H5P_DEFAULT); }));
}

/// Creates the missing groups above an object. The library could create them itself, but with time stamps.
void File::create_parents(const std::string& path) {
  for (std::size_t end = path.find('/', 1); end != path.npos; end = path.find('/', end + 1)) {
    const std::string group = path.substr(0, end);
    if (has(group)) continue;
    const PropertyHandle creation = creation_properties(H5P_GROUP_CREATE);
    const auto action = [&] {
      state_->write_failed = true;
      return fmt::format("create group '{}' in {}", group, state_->path);
    };
    const ObjectHandle created(checked(
        action, [&] { return H5Gcreate2(handle_.get(), group.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT); }));
  }
}

Dataset File::create_dataset(const std::string& path, DType dtype, const Shape& shape) {
  create_parents(path);
  const auto action = [&] {
    state_->write_failed = true;
    return fmt::format("create dataset '{}' in {}", path, state_->path);
  };
  std::array<hsize_t, Shape::max_rank> extents{};
  std::ranges::copy(shape.extents(), extents.begin());
  const SpaceHandle space(checked(action, [&] {
    return shape.rank() == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(shape.rank(), extents.data(), nullptr);
  }));
  const PropertyHandle creation = creation_properties(H5P_DATASET_CREATE);
  checked(action, [&] { return H5Pset_layout(creation.get(), H5D_CONTIGUOUS); });
  checked(action, [&] { return H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY); });
  checked(action, [&] { return H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER); });
  Dataset dataset(state_, path,
                  checked(action,
                          [&] {
                            return H5Dcreate2(handle_.get(), path.c_str(), file_type(dtype), space.get(), H5P_DEFAULT,
                                              creation.get(), H5P_DEFAULT);
                          }),
                  dtype, shape);
  dataset.write_attribute("dtype", name_of(dtype));
  return dataset;
}

bool File::has(const std::string& path) const {
  if (path == "/") return true;
  // Checks each parent in the path: the library fails if any before the last is missing.
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string parent = path.substr(0, end);
    if (checked([&] { return fmt::format("look for '{}' in {}", path, state_->path); },
                [&] { return H5Lexists(handle_.get(), parent.c_str(), H5P_DEFAULT); }) == 0) {
      return false;
    }
    if (end == std::string::npos) return true;
  }
}

Dataset File::dataset(const std::string& path) const {
  TRIREME_CHECK(has(path), DataError, "{} has no dataset '{}'", state_->path, path);
  return Dataset(state_, path,
                 checked([&] { return fmt::format("open dataset '{}' of {}", path, state_->path); },
                         [&] { return H5Dopen2(handle_.get(), path.c_str(), H5P_DEFAULT); }));
}

void File::close() {
  const auto action = [&] {
    state_->write_failed = true;
    return "finish " + state_->path;
  };
  checked(action, [&] { return H5Fflush(handle_.get(), H5F_SCOPE_LOCAL); });
  checked(action, [&] { return H5Fclose(handle_.release()); });
  TRIREME_CHECK(!state_->write_failed, Hdf5Error, "an earlier write to {} failed, so the file is incomplete",
                state_->path);
}

std::string library_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace trireme::io::h5
