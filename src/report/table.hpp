#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::report {

inline constexpr const char* dash = "\u2013";  ///< in a cell without a value

/// Row of a table: markup of its cells.
using Row = std::vector<std::string>;

/// Returns a table that scrolls separately if it is too wide. In a narrow window the cells of a row stand below one
/// another if there are more than two. The first cell of a row is its heading. `head` may be
/// empty. Columns after the first `text_columns` hold numbers, at the right.
std::string table_of(const Row& head, const std::vector<Row>& rows, std::size_t text_columns);

/// Returns a list that is closed, under a summary. `content` is markup.
std::string details_of(const std::string& summary, const std::string& content);

/// Returns "12 345 678", with spaces that do not break lines.
std::string grouped(std::int64_t number);

/// Returns "1 default" or "2 defaults".
std::string counted(std::int64_t count, std::string_view noun);

/// State of an attempt or of a checkpoint.
struct State {
  std::string_view css_class;  ///< "good", "paused", "bad" or "unknown"
  std::string text;
};

std::string badge(const State& state);

/// Returns the cell of a time: seconds since 1970, UTC.
std::string time_cell(std::optional<std::int64_t> time);

}  // namespace trireme::report
