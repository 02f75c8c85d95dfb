#pragma once

#include <string>

#include "src/selftest/report.hpp"

namespace trireme::io {

/// Returns {"passed", "nodes", "bad_nodes", "results": [{"check", "item", "verdict", "node", "rank", "value", "unit",
/// "expected", "detail"}]}. "expected" is the median of the ranks or the limit; null if none. Numbers that
/// are not finite are null.
std::string selftest_json(const selftest::Report& report);

}  // namespace trireme::io
