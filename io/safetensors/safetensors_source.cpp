#include "io/safetensors/safetensors_source.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_set>

#include "io/json/json_text.hpp"
#include "io/json/weight_map.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::io {

namespace {

using nlohmann::json;

constexpr std::size_t max_name_bytes = 4096;
constexpr const char* metadata_key = "__metadata__";

/// Readable types of the format. Those of weights come first, under the names used for writing.
constexpr std::array<std::pair<std::string_view, DType>, 13> type_names{{{"F64", DType::fp64},
                                                                         {"F32", DType::fp32},
                                                                         {"BF16", DType::bf16},
                                                                         {"F16", DType::fp16},
                                                                         {"I64", DType::int64},
                                                                         {"I32", DType::int32},
                                                                         {"U32", DType::uint32},
                                                                         {"U16", DType::uint16},
                                                                         {"U8", DType::uint8},
                                                                         {"U64", DType::int64},
                                                                         {"I16", DType::uint16},
                                                                         {"I8", DType::uint8},
                                                                         {"BOOL", DType::uint8}}};

/// Accepts {"NAME": {"dtype": "F32", "shape": [...], "data_offsets": [begin, end]}, ..., "__metadata__": {...}} and
/// nothing else. Builds no tree: nesting cannot exhaust memory.
class HeaderHandler : public nlohmann::json_sax<json> {
 public:
  explicit HeaderHandler(const std::string& path) : path_(path) {}

  SafetensorsHeader finish() { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (level_ == Level::tensor_value || level_ == Level::numbers) refuse("an object");
    if (level_ == Level::file && !name_) {
      TRIREME_CHECK(!begun_, DataError, "{}: its header has two objects", path_);
      begun_ = true;
      return true;
    }
    require(level_ == Level::file, "an object");
    level_ = *name_ == metadata_key ? Level::metadata : Level::tensor;
    return true;
  }
  bool end_object() override {
    if (level_ == Level::tensor) {
      finish_tensor();
    } else if (level_ == Level::file) {
      return true;
    }
    level_ = Level::file;
    name_.reset();
    return true;
  }
  bool key(std::string& text) override {
    TRIREME_CHECK(text.size() <= max_name_bytes, DataError, "{}: a name of {} bytes, but the limit is {}", path_,
                  text.size(), max_name_bytes);
    if (level_ == Level::file) {
      TRIREME_CHECK(names_.insert(text).second, DataError, "{}: the header names '{}' twice", path_, shortened(text));
      name_ = text;
    } else if (level_ == Level::metadata) {
      TRIREME_CHECK(!header_.metadata.contains(text), DataError, "{}: the metadata name '{}' twice", path_,
                    shortened(text));
      metadata_name_ = text;
    } else {
      level_ = Level::tensor_value;
      field_ = text;
      TRIREME_CHECK(text == "dtype" || text == "shape" || text == "data_offsets", DataError,
                    "{}: the tensor '{}' has a field '{}'; there are dtype, shape and data_offsets", path_, tensor(),
                    shortened(text));
    }
    return true;
  }
  bool string(std::string& text) override {
    if (level_ == Level::metadata) {
      header_.metadata.emplace(metadata_name_, text);
      return true;
    }
    require(level_ == Level::tensor_value && field_ == "dtype" && !dtype_, "a string");
    const auto found =
        std::ranges::find(type_names, std::string_view(text), &std::pair<std::string_view, DType>::first);
    TRIREME_CHECK(found != type_names.end() && !text.empty(), DataError,
                  "{}: the tensor '{}' has the type '{}'; weights are F64, F32, BF16 or F16", path_, tensor(),
                  shortened(text));
    dtype_ = found->second;
    level_ = Level::tensor;
    return true;
  }
  bool start_array(std::size_t) override {
    require(level_ == Level::tensor_value && field_ != "dtype" && !numbers_of(), "a list");
    level_ = Level::numbers;
    numbers_of().emplace();
    return true;
  }
  bool number_unsigned(std::uint64_t number) override {
    require(level_ == Level::numbers, "a number");
    TRIREME_CHECK(number <= static_cast<std::uint64_t>(INT64_MAX) && numbers_of()->size() < Shape::max_rank, DataError,
                  "{}: the tensor '{}' has more than {} dimensions, or a number beyond 63 bits", path_, tensor(),
                  Shape::max_rank);
    numbers_of()->push_back(static_cast<std::int64_t>(number));
    return true;
  }
  bool end_array() override {
    level_ = Level::tensor;
    return true;
  }
  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool number_integer(std::int64_t) override { return refuse("a negative number"); }
  bool number_float(double, const std::string&) override { return refuse("a number that is not whole"); }
  bool binary(json::binary_t&) override { return refuse("binary data"); }
  bool parse_error(std::size_t byte, const std::string&, const json::exception& error) override {
    throw DataError("{}: byte {} of the header is not JSON: {}", path_, byte, json_fault(error.what()));
  }

 private:
  enum class Level { file, metadata, tensor, tensor_value, numbers };

  std::optional<std::vector<std::int64_t>>& numbers_of() { return field_ == "shape" ? shape_ : offsets_; }
  std::string tensor() const { return shortened(name_.value_or("")); }
  void require(bool good, const char* what) const {
    if (!good) refuse(what);
  }
  bool refuse(const char* what) const {
    if (!name_) throw DataError("{}: the header is {}, not an object of tensors", path_, what);
    throw DataError("{}: the header has {} in '{}', where none belongs, or a field occurs twice", path_, what,
                    tensor());
  }

  void finish_tensor() {
    TRIREME_CHECK(dtype_ && shape_ && offsets_ && offsets_->size() == 2, DataError,
                  "{}: the tensor '{}' lacks its dtype, its shape or its two data_offsets", path_, tensor());
    std::int64_t bytes = static_cast<std::int64_t>(size_of(*dtype_));
    bool fits = true;
    for (const std::int64_t extent : *shape_) fits = fits && !__builtin_mul_overflow(bytes, extent, &bytes);
    const std::int64_t begin = (*offsets_)[0], end = (*offsets_)[1];
    TRIREME_CHECK(fits && begin <= end && end - begin == bytes, DataError,
                  "{}: the tensor '{}' of shape [{}] has the bytes {} to {}, which is not its size", path_, tensor(),
                  fmt::join(*shape_, ", "), begin, end);
    header_.entries.push_back({{std::move(*name_), *dtype_, Shape(*shape_)}, begin, end});
    dtype_.reset();
    shape_.reset();
    offsets_.reset();
  }

  const std::string& path_;
  SafetensorsHeader header_;
  std::unordered_set<std::string> names_;
  Level level_ = Level::file;
  bool begun_ = false;
  std::optional<std::string> name_;  // tensor, or the key of the metadata
  std::string metadata_name_, field_;
  std::optional<DType> dtype_;
  std::optional<std::vector<std::int64_t>> shape_, offsets_;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, std::int64_t data_bytes, const std::string& path) {
  TRIREME_CHECK(text.starts_with('{'), DataError,
                "{}: its header does not begin with '{{': it is not a safetensors file", path);
  HeaderHandler handler(path);
  json::sax_parse(text, &handler);
  SafetensorsHeader header = handler.finish();
  std::ranges::sort(header.entries, {},
                    [](const SafetensorsEntry& entry) { return std::pair(entry.begin, entry.end); });
  std::int64_t next = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    TRIREME_CHECK(entry.begin == next, DataError,
                  "{}: the tensor '{}' begins at byte {}, but the one before ends at {}", path,
                  shortened(entry.tensor.name), entry.begin, next);
    next = entry.end;
  }
  TRIREME_CHECK(next == data_bytes, DataError,
                "{}: its tensors have {} bytes, but {} follow the header: it was cut off, or has bytes after its end",
                path, next, data_bytes);
  return header;
}

std::string safetensors_header(const std::vector<exchange::ForeignTensor>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += fmt::format("\"{}\":{}", metadata_key, json(metadata).dump());
  std::int64_t begin = 0;
  for (const exchange::ForeignTensor& tensor : tensors) {
    const auto type = std::ranges::find(type_names, tensor.dtype, &std::pair<std::string_view, DType>::second);
    const std::int64_t end = begin + tensor.shape.numel() * static_cast<std::int64_t>(size_of(tensor.dtype));
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", text.size() > 1 ? "," : "",
                        json(tensor.name).dump(), type->first, fmt::join(tensor.shape.extents(), ","), begin, end);
    begin = end;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

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
  } else if (is_there(single)) {  // first, as transformers does: its exports leave an index of earlier parts there
    add_file(single);
  } else {
    TRIREME_CHECK(is_there(index), DataError,
                  "there is neither {} nor {} in {}: weights are read from safetensors files", safetensors_name,
                  safetensors_index_name, path);
    add_index(path, index);
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
  const std::map<std::string, std::string> files =
      parse_weight_map(read_whole_file(path, max_safetensors_header_bytes, Symlinks::follow), path);
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
