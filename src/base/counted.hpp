#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

/// Returns "1 rank" or "4 ranks" for the unit "rank", "2 batches" for "batch".
inline std::string counted(std::int64_t count, std::string_view unit) {
  return fmt::format("{} {}{}", count, unit, count == 1 ? "" : unit.ends_with("ch") ? "es" : "s");
}

}  // namespace trireme
