#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/report/page.hpp"

namespace trireme::report {

/// Row of a table: markup of its cells.
using Row = std::vector<std::string>;

/// Returns a table that scrolls separately if it is too wide. The first cell of a row is its heading. `head` may be
/// empty. Columns after the first `text_columns` hold numbers, at the right.
std::string table_of(const Row& head, const std::vector<Row>& rows, std::size_t text_columns);

/// Returns the rows that sum up a run: (heading, markup).
std::vector<std::pair<std::string, std::string>> summary_of(const Run& run);

/// Returns the section of a run: attempts, checkpoints, grid and configuration. `index` is its number on the page.
std::string section_of(const Run& run, std::size_t index, const Page& page);

}  // namespace trireme::report
