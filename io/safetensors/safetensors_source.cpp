#include "io/safetensors/safetensors_source.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "io/json/json_text.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"
#include "src/base/shortened.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;

/// Accepts {"weight_map": {"TENSOR": "FILE", ...}, ...} and skips all other members.
class IndexHandler : public nlohmann::json_sax<json> {
 public:
  explicit IndexHandler(const std::string& path) : path_(path) {}
  std::map<std::string, std::string> finish() {
    TRIREME_CHECK(found_, DataError, "{} has no 'weight_map' of tensors and files", path_);
    return std::move(files_);
  }

  bool start_object(std::size_t) override {
    ++depth_;
    if (depth_ == 2 && wanted_) {
      TRIREME_CHECK(!found_, DataError, "{} has two members 'weight_map'", path_);
      found_ = inside_ = true;
    }
    return check(depth_ <= 2 || !inside_);
  }
  bool end_object() override {
    --depth_;
    inside_ = inside_ && depth_ >= 2;
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ == 1) wanted_ = name == "weight_map";
    if (inside_) tensor_ = name;
    return true;
  }
  bool string(std::string& file) override {
    if (!inside_) return check(!wanted_ || depth_ != 1);
    const bool plain = !file.empty() && file.size() <= 255 && file.find('/') == file.npos && file != "." &&
                       file != ".." && file.find('\0') == file.npos;
    TRIREME_CHECK(plain, DataError, "{} names a file '{}', which is not the name of a file beside it: refused", path_,
                  shortened(file));
    TRIREME_CHECK(files_.emplace(tensor_, file).second, DataError, "{} names the tensor '{}' twice", path_,
                  shortened(tensor_));
    return true;
  }
  bool start_array(std::size_t) override {
    ++depth_;
    return check(!inside_);
  }
  bool end_array() override { return --depth_, true; }
  bool null() override { return check(!inside_); }
  bool boolean(bool) override { return check(!inside_); }
  bool number_integer(std::int64_t) override { return check(!inside_); }
  bool number_unsigned(std::uint64_t) override { return check(!inside_); }
  bool number_float(double, const std::string&) override { return check(!inside_); }
  bool binary(json::binary_t&) override { return check(!inside_); }
  bool parse_error(std::size_t byte, const std::string&, const json::exception& error) override {
    throw DataError("{}:{}: not JSON: {}", path_, byte, json_fault(error.what()));
  }

 private:
  bool check(bool good) const {
    TRIREME_CHECK(good, DataError, "{}: 'weight_map' has something else than names of files", path_);
    return true;
  }
  const std::string& path_;
  int depth_ = 0;
  bool wanted_ = false, found_ = false, inside_ = false;
  std::string tensor_;
  std::map<std::string, std::string> files_;  // by tensor
};

}  // namespace

SafetensorsFile::SafetensorsFile(std::string path) : path_(std::move(path)) {
  const std::int64_t size_bytes = regular_file_size(path_);
  file_ = Descriptor(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  TRIREME_CHECK(file_, IoError, "cannot open {}: {}", path_, std::strerror(errno));
  TRIREME_CHECK(size_bytes >= safetensors_length_bytes, DataError,
                "{} has {} bytes: it was cut off, or is not a safetensors file", path_, size_bytes);
  std::uint64_t length = 0;
  read_at(file_.get(), path_, &length, sizeof length, 0);
  TRIREME_CHECK(length <= static_cast<std::uint64_t>(max_safetensors_header_bytes), DataError,
                "{} states a header of {} bytes, but the limit is {}: it is damaged, or not a safetensors file", path_,
                length, max_safetensors_header_bytes);
  const auto header_bytes = static_cast<std::int64_t>(length);
  TRIREME_CHECK(header_bytes <= size_bytes - safetensors_length_bytes, DataError,
                "{} states a header of {} bytes, but has only {}: it was cut off", path_, length, size_bytes);
  std::string text(length, '\0');
  read_at(file_.get(), path_, text.data(), text.size(), safetensors_length_bytes);
  data_offset_ = safetensors_length_bytes + header_bytes;
  header_ = parse_safetensors_header(text, size_bytes - data_offset_, path_);
}

void SafetensorsFile::read(std::int64_t begin, std::span<std::byte> out) const {
  read_at(file_.get(), path_, out.data(), out.size(), data_offset() + begin);
}

SafetensorsSource::SafetensorsSource(const std::string& path) : description_(path) {
  const std::string index = path + "/" + safetensors_index_name;
  const std::string single = path + "/" + safetensors_name;
  if (!is_folder(path + "/.")) {
    add_file(path);
  } else if (is_there(index)) {
    add_index(path, index);
  } else {
    TRIREME_CHECK(is_there(single), DataError,
                  "there is neither {} nor {} in {}: weights are read from safetensors files", safetensors_name,
                  safetensors_index_name, path);
    add_file(single);
  }
}

void SafetensorsSource::add_file(const std::string& path) {
  files_.emplace_back(path);
  for (const SafetensorsEntry& entry : files_.back().header().entries) {
    tensors_.push_back(entry.tensor);
    places_.push_back({files_.size() - 1, entry.begin});
  }
}

void SafetensorsSource::add_index(const std::string& folder, const std::string& path) {
  IndexHandler handler(path);
  json::sax_parse(read_whole_file(path, max_safetensors_header_bytes, Symlinks::follow), &handler);
  const std::map<std::string, std::string> files = handler.finish();
  std::set<std::string> names;
  for (const auto& [tensor, file] : files) names.insert(file);
  for (const std::string& name : names) {
    TRIREME_CHECK(is_there(folder + "/" + name), DataError, "{} names the file {}, which is not there", path, name);
    add_file(folder + "/" + name);
    for (const SafetensorsEntry& entry : files_.back().header().entries) {
      const auto found = files.find(entry.tensor.name);
      TRIREME_CHECK(found != files.end() && found->second == name, DataError, "{} has the tensor '{}', which {} {}",
                    files_.back().path(), shortened(entry.tensor.name), path,
                    found == files.end() ? "does not name" : "expects in " + found->second);
    }
  }
  if (tensors_.size() == files.size()) return;
  std::set<std::string_view> there;
  for (const exchange::ForeignTensor& tensor : tensors_) there.insert(tensor.name);
  for (const auto& [tensor, file] : files) {
    TRIREME_CHECK(there.contains(tensor), DataError, "{} expects the tensor '{}' in {}, which does not have it", path,
                  shortened(tensor), file);
  }
}

void SafetensorsSource::read(std::size_t tensor, std::int64_t first, std::span<std::byte> out) {
  const Place& place = places_[tensor];
  const SafetensorsFile& file = files_[place.file];
  const std::int64_t begin = place.begin + first * static_cast<std::int64_t>(size_of(tensors_[tensor].dtype));
  if (!prefetcher_.take(file.path(), file.data_offset() + begin, out)) file.read(begin, out);
}

void SafetensorsSource::prefetch(std::size_t tensor, std::int64_t first, std::int64_t count) {
  const Place& place = places_[tensor];
  const SafetensorsFile& file = files_[place.file];
  const auto element = static_cast<std::int64_t>(size_of(tensors_[tensor].dtype));
  prefetcher_.begin(file.path(), file.data_offset() + place.begin + first * element, count * element, Symlinks::follow);
}

}  // namespace trireme::io
