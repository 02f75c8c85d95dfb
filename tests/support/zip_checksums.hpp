#pragma once

#include <string>
#include <string_view>

namespace trireme::test {

/// Returns files of torch.save without the CRC-32 of their entries, as torch writes them after
/// `set_crc32_options(False)`.
inline std::string without_checksums(std::string content) {
  constexpr std::string_view mark = "PK\1\2";  // begins an entry of the directory
  for (std::size_t at = content.find(mark); at != content.npos; at = content.find(mark, at + 1)) {
    if (at + 20 <= content.size()) content.replace(at + 16, 4, 4, '\0');
  }
  return content;
}

}  // namespace trireme::test
