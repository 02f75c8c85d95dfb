#include "io/torch/zip_directory.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "io/posix/mapped_file.hpp"
#include "src/base/check.hpp"
#include "src/base/shortened.hpp"

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

}  // namespace trireme::io
