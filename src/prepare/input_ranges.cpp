#include "src/prepare/input_ranges.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/hash.hpp"
#include "src/base/utf8.hpp"

namespace trireme::prepare {
namespace {

constexpr std::int64_t read_bytes = std::int64_t{1} << 16;
constexpr std::int64_t context_bytes = 4096;  // around a cut, for `can_cut`

std::string read_range(const InputFiles& files, const FileRange& range) {
  std::string bytes(static_cast<std::size_t>(range.end - range.begin), '\0');
  bytes.resize(files.open(range)->read(bytes.data(), bytes.size()));
  return bytes;
}

/// Returns the first byte from `at` on, 0 < at < size, where the text may be cut, or the forced cut; `size` if the text
/// ends first.
std::int64_t cut_of_text(const InputFiles& files, const std::string& path, std::int64_t at, std::int64_t size,
                         const TextReaderOptions& options, bool& forced) {
  const std::int64_t begin = std::max<std::int64_t>(0, at - context_bytes);
  const std::int64_t last = std::min(size, at + options.max_uncut_bytes);
  for (std::int64_t seen = at; seen < last;) {  // usually the first few bytes suffice
    const std::int64_t end = seen == at ? std::min(at + read_bytes, last) : last;
    const std::string text = read_range(files, {path, begin, std::min(end + context_bytes, size)});
    for (; seen < end; ++seen) {
      if (options.can_cut(text, static_cast<std::size_t>(seen - begin))) return seen;
    }
    if (end < last) continue;
    if (last == size) return size;
    forced = true;
    const auto min_cut = static_cast<std::size_t>(at - begin);
    return begin + static_cast<std::int64_t>(character_begin(text, static_cast<std::size_t>(last - begin), min_cut));
  }
  return size;
}

}  // namespace

std::vector<InputRange> cut_input(const Files& files, const std::vector<std::string>& paths,
                                  const TextReaderOptions& options, std::int64_t range_bytes,
                                  const std::string& purpose) {
  const TextReader checked(files, paths, options);  // finds unreadable input before any work is done
  const std::string head = fmt::format("{}\nkey {}\nUTF-8 {}\nrun {}\nline {}\n", purpose, options.json_key,
                                       options.check_utf8, options.max_uncut_bytes, options.max_bytes);
  std::vector<InputRange> ranges;
  std::string description;  // input of the digest
  InputRange range;
  const auto close = [&](InputRange next) {
    if (!range.files.empty()) {
      range.digest = digest(description.data(), description.size());
      ranges.push_back(std::move(range));
    }
    range = std::move(next);
    description = head;
  };
  close({});
  for (const std::string& path : paths) {
    const InputFileInfo file = files.inputs->inspect(path);
    const std::int64_t size = file.size_bytes;
    const bool is_json = holds_json(path, options.format);
    for (std::int64_t begin = 0, end = 0; begin == 0 || begin < size; begin = end) {
      end = size;
      InputRange next{.begins_inside_document = !is_json};
      const std::int64_t wanted = begin + range_bytes - range.bytes;
      if (!file.is_compressed && wanted < size) {
        bool forced = false;
        end = is_json ? line_begin(files, path, size, wanted)
                      : cut_of_text(*files.inputs, path, wanted, size, options, forced);
        next.forced_cuts = forced ? 1 : 0;
      }
      range.files.push_back({path, begin, end});
      range.bytes += end - begin;
      description += fmt::format("{} {} {} {}\n", file.identity, is_json ? "lines" : "text", begin, end);
      if (end < size) {
        close(next);
      } else if (range.bytes >= range_bytes) {
        close({});
      }
      if (size == 0) break;
    }
  }
  close({});
  return ranges;
}

}  // namespace trireme::prepare
