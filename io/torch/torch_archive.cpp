#include "io/torch/torch_archive.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "io/posix/file.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::io {

namespace {

constexpr std::uint32_t local_mark = 0x04034b50, entry_mark = 0x02014b50, end_mark = 0x06054b50,
                        end64_mark = 0x06064b50, locator_mark = 0x07064b50;
constexpr std::size_t end_bytes = 22, locator_bytes = 20, entry_bytes = 46, local_bytes = 30;
constexpr std::size_t max_comment_bytes = 65535;
constexpr std::uint32_t in_zip64 = 0xffffffff;
constexpr std::uint16_t zip64_field = 1;

struct Directory {
  std::uint64_t entries = 0, size_bytes = 0, begin = 0;
};

class ZipReader {
 public:
  ZipReader(std::span<const std::byte> bytes, const std::string& name)
      : bytes_(bytes), name_(name), reader_(name_, bytes) {}

  std::map<std::string, std::shared_ptr<StoredBytes>> read() {
    const Directory directory = find_directory();
    const std::uint64_t size = bytes_.size();
    require(directory.begin <= size && directory.size_bytes <= size - directory.begin &&
                directory.entries <= directory.size_bytes / entry_bytes,
            "its directory lies beyond its end");
    std::size_t at = directory.begin;
    for (std::uint64_t i = 0; i < directory.entries; ++i) at = read_entry(at);
    require(at == directory.begin + directory.size_bytes, "its directory has another size than its entries");
    return std::move(entries_);
  }

 private:
  void require(bool holds, const char* problem) const {
    TRIREME_CHECK(holds, DataError, "{}: {}: the archive is damaged or cut off", name_, problem);
  }
  template <class T>
  T at(std::size_t offset) const {
    return reader_.at<T>(offset, "a field of the archive's directory");
  }

  Directory find_directory() const {
    require(bytes_.size() >= end_bytes, "it is too short");
    const std::size_t last = bytes_.size() - end_bytes;
    const std::size_t first = last - std::min(last, max_comment_bytes);
    for (std::size_t end = last + 1; end-- > first;) {
      if (at<std::uint32_t>(end) != end_mark || at<std::uint16_t>(end + 20) != last - end) continue;
      Directory directory{at<std::uint16_t>(end + 10), at<std::uint32_t>(end + 12), at<std::uint32_t>(end + 16)};
      if (end < locator_bytes || at<std::uint32_t>(end - locator_bytes) != locator_mark) return directory;
      const auto end64 = at<std::uint64_t>(end - locator_bytes + 8);
      require(end64 < end && at<std::uint32_t>(end64) == end64_mark, "its zip64 record is missing");
      return {at<std::uint64_t>(end64 + 32), at<std::uint64_t>(end64 + 40), at<std::uint64_t>(end64 + 48)};
    }
    throw DataError("{}: the directory at the end of the archive is missing: the file was cut off", name_);
  }

  /// Reads the directory entry at `entry`. Returns the position of the next one.
  std::size_t read_entry(std::size_t entry) {
    require(at<std::uint32_t>(entry) == entry_mark, "a directory entry is malformed");
    const auto flags = at<std::uint16_t>(entry + 8), method = at<std::uint16_t>(entry + 10);
    const auto crc = at<std::uint32_t>(entry + 16);
    std::uint64_t stored = at<std::uint32_t>(entry + 20), size = at<std::uint32_t>(entry + 24),
                  local = at<std::uint32_t>(entry + 42);
    const std::size_t name_size = at<std::uint16_t>(entry + 28), extra_size = at<std::uint16_t>(entry + 30),
                      comment_size = at<std::uint16_t>(entry + 32);
    const std::size_t extra = entry + entry_bytes + name_size, next = extra + extra_size + comment_size;
    require(next <= bytes_.size(), "an entry of its directory is cut off");
    const std::string name(reinterpret_cast<const char*>(bytes_.data()) + entry + entry_bytes, name_size);
    read_zip64(extra, extra_size, {&size, &stored, &local});
    TRIREME_CHECK(method == 0 && (flags & 1) == 0 && stored == size, DataError,
                  "{}: the entry '{}' is compressed or encrypted, which torch.save never does", name_, shortened(name));
    require(local <= bytes_.size() && at<std::uint32_t>(local) == local_mark, "the header of an entry is missing");
    const std::uint64_t begin = local + local_bytes + at<std::uint16_t>(local + 26) + at<std::uint16_t>(local + 28);
    require(begin <= bytes_.size() && size <= bytes_.size() - begin, "an entry ends beyond its end");
    std::string full_name = fmt::format("{}: the entry '{}'", name_, shortened(name));
    TRIREME_CHECK(!entries_.contains(name), DataError, "{} occurs twice", full_name);
    entries_.emplace(name, std::make_shared<StoredBytes>(bytes_.subspan(begin, size), crc, std::move(full_name)));
    return next;
  }

  /// Reads the numbers too large for an entry from its extra fields, in this order.
  void read_zip64(std::size_t at_byte, std::size_t size, std::initializer_list<std::uint64_t*> numbers) const {
    const std::size_t end = at_byte + size;
    while (end - at_byte >= 4) {
      const auto kind = at<std::uint16_t>(at_byte);
      const std::size_t field = at<std::uint16_t>(at_byte + 2);
      at_byte += 4;
      require(field <= end - at_byte, "a field of an entry is cut off");
      if (kind == zip64_field) {
        std::size_t place = at_byte;
        for (std::uint64_t* number : numbers) {
          if (*number != in_zip64) continue;
          require(place + 8 <= at_byte + field, "a field of an entry is cut off");
          *number = at<std::uint64_t>(place);
          place += 8;
        }
      }
      at_byte += field;
    }
  }

  std::span<const std::byte> bytes_;
  std::string name_;
  ByteReader reader_;
  std::map<std::string, std::shared_ptr<StoredBytes>> entries_;
};

constexpr std::string_view storage_types[] = {"torch DoubleStorage", "torch FloatStorage", "torch BFloat16Storage",
                                              "torch HalfStorage",   "torch LongStorage",  "torch IntStorage"};
constexpr DType storage_dtypes[] = {DType::fp64, DType::fp32, DType::bf16, DType::fp16, DType::int64, DType::int32};
constexpr std::string_view small_storages[] = {"torch ByteStorage", "torch CharStorage", "torch BoolStorage"};

/// First number of a file of pickles, little-endian.
constexpr std::string_view magic_number("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Returns the type of a storage class; none if unknown.
std::optional<DType> storage_dtype(const PickleValue& type) {
  for (std::size_t i = 0; i < std::size(storage_types); ++i) {
    if (type.is_global(storage_types[i])) return storage_dtypes[i];
  }
  for (const std::string_view small : small_storages) {
    if (type.is_global(small)) return DType::uint8;
  }
  if (type.is_global("torch ShortStorage")) return DType::uint16;
  return std::nullopt;
}

/// Reference to tensor bytes: ("storage", class, key, device, elements).
struct StorageReference {
  DType dtype;
  std::string_view key;
  std::int64_t elements;
};

StorageReference reference_of(const PickleValue& value, const std::string& file, const std::string& what) {
  const auto require = [&](bool holds) {
    TRIREME_CHECK(holds, DataError, "{}: {} is not a tensor with a storage in this file, but {}", file, what,
                  value.description());
  };
  require(value.is(PickleKind::persistent));
  const PickleValue tuple = value.item(0);
  require(tuple.is(PickleKind::tuple) && tuple.size() >= 5 && tuple.item(0).is(PickleKind::text) &&
          tuple.item(0).text() == "storage" && tuple.item(2).is(PickleKind::text) &&
          tuple.item(4).is(PickleKind::integer) && tuple.item(4).integer() >= 0);
  TRIREME_CHECK(tuple.size() == 5 || tuple.item(5).is_none(), DataError, "{}: {} shares a part of another storage",
                file, what);
  const std::optional<DType> dtype = storage_dtype(tuple.item(1));
  TRIREME_CHECK(dtype, DataError, "{}: {} has {} as the class of its storage, which is not known", file, what,
                tuple.item(1).description());
  return {*dtype, tuple.item(2).text(), tuple.item(4).integer()};
}

}  // namespace

bool is_zip(std::span<const std::byte> bytes) {
  return bytes.size() >= sizeof local_mark && std::memcmp(bytes.data(), &local_mark, sizeof local_mark) == 0;
}

void StoredBytes::check() {
  if (crc32_ == 0) return;
  const auto found =
      static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes_.data()), bytes_.size()));
  TRIREME_CHECK(found == crc32_, DataError, "{} has the CRC-32 {:08x}, not {:08x}: it is damaged. Copy the file again",
                name_, found, crc32_);
  crc32_ = 0;  // once is enough
}

std::map<std::string, std::shared_ptr<StoredBytes>> stored_entries(std::span<const std::byte> bytes,
                                                                   const std::string& name) {
  return ZipReader(bytes, name).read();
}

Shape shape_of(const PickleValue& value, const std::string& file, const std::string& what) {
  PickleValue tuple = value;
  // torch.Size((1, 2)), or with its tuple as the state.
  if (tuple.calls("torch Size") && tuple.arguments().size() == 1) tuple = tuple.arguments().item(0);
  const bool is_list = tuple.is(PickleKind::tuple) || tuple.is(PickleKind::list);
  TRIREME_CHECK(is_list && tuple.size() <= Shape::max_rank, DataError,
                "{}: the sizes of {} are {}; there should be at most {} integers", file, what, tuple.description(),
                Shape::max_rank);
  std::vector<std::int64_t> extents;
  for (std::size_t i = 0; i < tuple.size(); ++i) {
    const PickleValue extent = tuple.item(i);
    TRIREME_CHECK(extent.is(PickleKind::integer) && extent.integer() >= 0, DataError,
                  "{}: a size of {} is {}, not a number of at least 0", file, what, extent.description());
    extents.push_back(extent.integer());
  }
  return Shape(std::span<const std::int64_t>(extents));
}

std::int64_t size_bytes_of(const Shape& shape, DType dtype, const std::string& file, const std::string& what) {
  std::int64_t product = static_cast<std::int64_t>(size_of(dtype));
  bool fits = true;
  // An extent of 0 makes the product 0, but must not hide one that does not fit.
  for (const std::int64_t extent : shape.extents()) {
    fits = fits && extent <= (std::int64_t{1} << 62) / std::max<std::int64_t>(product, 1);
    product = fits ? product * std::max<std::int64_t>(extent, 1) : product;
  }
  TRIREME_CHECK(fits, DataError, "{}: the sizes of {} are {}: they are damaged", file, what, to_string(shape));
  return std::ranges::find(shape.extents(), 0) == shape.extents().end() ? product : 0;
}

TorchArchive::TorchArchive(std::span<const std::byte> bytes, std::string name) : name_(std::move(name)) {
  if (is_zip(bytes)) {
    read_zip(bytes);
  } else {
    read_pickles(bytes);
  }
}

void TorchArchive::read_zip(std::span<const std::byte> bytes) {
  constexpr std::string_view pickle = "/data.pkl", order = "byteorder";
  auto entries = stored_entries(bytes, name_);
  const auto found =
      std::ranges::find_if(entries, [&](const auto& entry) { return std::string_view(entry.first).ends_with(pickle); });
  TRIREME_CHECK(found != entries.end(), DataError, "{} is a zip archive without data.pkl: torch.save did not write it",
                name_);
  const std::string prefix = found->first.substr(0, found->first.size() - pickle.size() + 1);
  if (const auto stated = entries.find(prefix + std::string(order)); stated != entries.end()) {
    stated->second->check();
    const std::string_view text = text_of(stated->second->bytes());
    TRIREME_CHECK(text == "little", DataError, "{} has numbers in the byte order '{}', not 'little'", name_,
                  shortened(text));
  }
  found->second->check();
  document_ = std::make_unique<PickleDocument>(text_of(found->second->bytes()), name_);
  const std::string folder = prefix + "data/";
  for (const auto& [entry, content] : entries) {
    if (entry.starts_with(folder)) storages_.emplace(entry.substr(folder.size()), content);
  }
}

void TorchArchive::read_pickles(std::span<const std::byte> bytes) {
  std::size_t at = 0;
  const auto next = [&] {
    auto document = std::make_unique<PickleDocument>(text_of(bytes.subspan(at)), name_);
    at += document->size_bytes();
    return document;
  };
  TRIREME_CHECK(!bytes.empty() && static_cast<unsigned char>(bytes[0]) == 0x80, DataError,
                "{} is neither a zip archive nor a pickle: torch.save did not write it", name_);
  const auto magic = next();
  TRIREME_CHECK(magic->root().is(PickleKind::bytes) && magic->root().text() == magic_number, DataError,
                "{} does not begin with the number of torch.save's files", name_);
  const auto version = next();
  TRIREME_CHECK(version->root().is(PickleKind::integer) && version->root().integer() == 1001, DataError,
                "{} has another version of torch.save's files than 1001", name_);
  const auto system = next();
  if (const auto little = system->root().find("little_endian")) {
    TRIREME_CHECK(little->is(PickleKind::boolean) && little->integer() == 1, DataError,
                  "{} has numbers in another byte order than little-endian", name_);
  }
  document_ = next();
  const auto keys = next();
  TRIREME_CHECK(keys->root().is(PickleKind::list), DataError, "{} has no list of its storages", name_);
  // A storage's element size is stated where it is referenced.
  std::map<std::string_view, DType> dtypes;
  for (std::uint32_t i = 0; i < document_->nodes().size(); ++i) {
    if (document_->nodes()[i].kind != PickleKind::persistent) continue;
    const StorageReference reference = reference_of({*document_, i}, name_, "a value");
    dtypes.emplace(reference.key, reference.dtype);
  }
  const ByteReader reader(name_, bytes);
  for (std::size_t i = 0; i < keys->root().size(); ++i) {
    const PickleValue key = keys->root().item(i);
    const auto dtype = key.is(PickleKind::text) ? dtypes.find(key.text()) : dtypes.end();
    TRIREME_CHECK(dtype != dtypes.end(), DataError, "{} has a storage that no tensor refers to", name_);
    const auto elements = reader.at<std::int64_t>(at, "the size of a storage");
    at += sizeof elements;
    const std::size_t element = size_of(dtype->second);
    TRIREME_CHECK(elements >= 0 && static_cast<std::uint64_t>(elements) <= (bytes.size() - at) / element, DataError,
                  "{}: a storage of {} elements ends beyond the end of the file: it was cut off", name_, elements);
    const std::size_t size = static_cast<std::size_t>(elements) * element;
    storages_.emplace(std::string(key.text()), std::make_shared<StoredBytes>(bytes.subspan(at, size), 0, ""));
    at += size;
  }
}

bool TorchArchive::is_tensor(const PickleValue& value) {
  return value.is(PickleKind::object) && (value.item(0).is_global("torch._utils _rebuild_tensor_v2") ||
                                          value.item(0).is_global("torch._utils _rebuild_tensor") ||
                                          value.item(0).is_global("torch._utils _rebuild_parameter"));
}

StoredTensor TorchArchive::tensor(const PickleValue& value, const std::string& what) const {
  PickleValue call = value;
  if (call.calls("torch._utils _rebuild_parameter") && call.arguments().size() >= 1) {
    call = call.arguments().item(0);
  }
  TRIREME_CHECK(is_tensor(call) && !call.calls("torch._utils _rebuild_parameter") && call.arguments().size() >= 4,
                DataError, "{}: {} is {}, not a tensor", name_, what, call.description());
  const PickleValue arguments = call.arguments();
  const StorageReference reference = reference_of(arguments.item(0), name_, what);
  const auto found = storages_.find(reference.key);
  TRIREME_CHECK(found != storages_.end(), DataError, "{}: the bytes '{}' of {} are missing", name_,
                shortened(reference.key), what);
  const auto element = static_cast<std::int64_t>(size_of(reference.dtype));
  const auto size_bytes = static_cast<std::int64_t>(found->second->bytes().size());
  TRIREME_CHECK(size_bytes % element == 0 && size_bytes / element == reference.elements, DataError,
                "{}: the bytes of {} are {}, but {} elements are stated: the file is damaged", name_, what, size_bytes,
                reference.elements);
  const Shape shape = shape_of(arguments.item(2), name_, what), strides = shape_of(arguments.item(3), name_, what);
  const std::int64_t count_bytes = size_bytes_of(shape, reference.dtype, name_, what);
  std::int64_t step = 1;
  bool contiguous = strides.rank() == shape.rank();
  for (int i = shape.rank() - 1; contiguous && count_bytes > 0 && i >= 0; --i) {
    contiguous = shape[i] == 1 || strides[i] == step;
    step *= shape[i];
  }
  TRIREME_CHECK(contiguous, DataError,
                "{}: {} has the strides {} at the sizes {}. Only contiguous tensors are read: save it again", name_,
                what, to_string(strides), to_string(shape));
  const PickleValue offset = arguments.item(1);
  TRIREME_CHECK(offset.is(PickleKind::integer) && offset.integer() >= 0 && offset.integer() <= size_bytes / element &&
                    count_bytes <= size_bytes - offset.integer() * element,
                DataError, "{}: {} lies beyond the end of its storage: the file is damaged", name_, what);
  return {reference.dtype, shape,
          found->second->bytes().subspan(static_cast<std::size_t>(offset.integer() * element),
                                         static_cast<std::size_t>(count_bytes)),
          found->second};
}

std::shared_ptr<const MappedFile> map_file(const std::string& path) {
  regular_file_size(path);
  return std::make_shared<const MappedFile>(path);
}

MappedArchive::MappedArchive(const std::string& path) : file(map_file(path)), archive(file->bytes(), path) {}

}  // namespace trireme::io
