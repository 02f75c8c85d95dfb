#include "src/prepare/input_parts.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "io/posix/regular_file.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"

namespace trireme::io {
namespace {

constexpr std::int64_t read_bytes = std::int64_t{1} << 16;
constexpr std::int64_t context_bytes = 4096;  // round a cut: what `can_cut` may look at

std::string read_range(const std::string& path, std::int64_t begin, std::int64_t end) {
  std::string bytes(static_cast<std::size_t>(end - begin), '\0');
  bytes.resize(open_input(path, begin, end)->read(bytes.data(), bytes.size()));
  return bytes;
}

/// The first byte from `at` on, 0 < at < size, where the text may be cut, or the forced cut; `size` where the text ends
/// before.
std::int64_t text_cut(const std::string& path, std::int64_t at, std::int64_t size, const TextReaderOptions& options,
                      bool& forced) {
  const std::int64_t begin = std::max<std::int64_t>(0, at - context_bytes);
  const std::int64_t last = std::min(size, at + options.max_run_bytes);
  for (std::int64_t seen = at; seen < last;) {  // most often the first few bytes are enough
    const std::int64_t end = seen == at ? std::min(at + read_bytes, last) : last;
    const std::string text = read_range(path, begin, std::min(end + context_bytes, size));
    for (; seen < end; ++seen) {
      if (options.can_cut(text, static_cast<std::size_t>(seen - begin))) return seen;
    }
    if (end < last) continue;
    if (last == size) return size;
    std::size_t cut = static_cast<std::size_t>(last - begin);
    const std::size_t least = cut - std::min<std::size_t>(static_cast<std::size_t>(last - at), 3);
    while (cut > least && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
    forced = true;
    return begin + static_cast<std::int64_t>(cut);
  }
  return size;
}

/// Identity of a file: changes when the file changes.
std::string identity(const std::string& path) {
  struct stat status {};
  TRIREME_CHECK(stat(path.c_str(), &status) == 0, IoError, "cannot open {}: {}", path, std::strerror(errno));
  return fmt::format("{} {} {}.{:09}", std::filesystem::absolute(path).string(), status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

}  // namespace

std::vector<InputPart> cut_input(const std::vector<std::string>& paths, const TextReaderOptions& options,
                                 std::int64_t part_bytes, const std::string& purpose) {
  const TextReader checked(paths, options);  // finds what cannot be read before anything is done
  const std::string head = fmt::format("{}\nkey {}\nUTF-8 {}\nrun {}\nline {}\n", purpose, options.json_key,
                                       options.check_utf8, options.max_run_bytes, options.max_bytes);
  std::vector<InputPart> parts;
  std::string text;  // which the digest is of
  InputPart part;
  const auto close = [&](InputPart next) {
    if (!part.ranges.empty()) {
      part.digest = digest(text.data(), text.size());
      parts.push_back(std::move(part));
    }
    part = std::move(next);
    text = head;
  };
  close({});
  for (const std::string& path : paths) {
    const std::string file = identity(path);
    const std::int64_t size = regular_file_size(path);
    const bool is_json = holds_json(path, options.format);
    const bool can_cut = compression_of(path) == Compression::none;
    for (std::int64_t begin = 0, end = 0; begin == 0 || begin < size; begin = end) {
      end = size;
      InputPart next{.begins_inside_document = !is_json};
      const std::int64_t wanted = begin + part_bytes - part.bytes;
      if (can_cut && wanted < size) {
        bool forced = false;
        end = is_json ? line_begin(path, size, wanted) : text_cut(path, wanted, size, options, forced);
        next.cut_runs = forced ? 1 : 0;
      }
      part.ranges.push_back({path, begin, end});
      part.bytes += end - begin;
      text += fmt::format("{} {} {} {}\n", file, is_json ? "lines" : "text", begin, end);
      if (end < size) {
        close(next);
      } else if (part.bytes >= part_bytes) {
        close({});
      }
      if (size == 0) break;
    }
  }
  close({});
  return parts;
}

}  // namespace trireme::io
