#include "src/report/table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/report/markup.hpp"
#include "src/report/time_text.hpp"

namespace trireme::report {

std::string table_of(const Row& head, const std::vector<Row>& rows, std::size_t text_columns) {
  const bool is_stacked = head.size() > 2;
  // Returns a cell. `scope` is that of a heading; the cells of a row have the head of their column.
  const auto cell = [&](const char* name, std::size_t column, std::string_view scope, const std::string& content) {
    std::vector<std::string> attributes;
    if (column >= text_columns) attributes.emplace_back(R"(class="number")");
    if (!scope.empty()) attributes.push_back(fmt::format("scope=\"{}\"", scope));
    if (is_stacked && scope != "col" && !head[column].empty()) {
      attributes.push_back(fmt::format("data-head=\"{}\"", escaped(head[column])));
    }
    return element(name, fmt::format("{}", fmt::join(attributes, " ")), content);
  };
  std::string body;
  if (!head.empty()) {
    std::string cells;
    for (std::size_t i = 0; i < head.size(); ++i) cells += cell("th", i, "col", escaped(head[i]));
    body += element("thead", "", element("tr", "", cells));
  }
  std::string lines;
  for (const Row& row : rows) {
    std::string cells;
    for (std::size_t i = 0; i < row.size(); ++i) {
      cells += i == 0 ? cell("th", i, "row", row[i]) : cell("td", i, "", row[i]);
    }
    lines += element("tr", "", cells);
  }
  body += element("tbody", "", lines);
  return element("div", is_stacked ? R"(class="wide stack")" : R"(class="wide")", element("table", "", body));
}

std::string details_of(const std::string& summary, const std::string& content) {
  return element("details", "", text_element("summary", "", summary) + content);
}

std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto i = static_cast<std::ptrdiff_t>(text.size()) - 3; i > (number < 0 ? 1 : 0); i -= 3) {
    text.insert(static_cast<std::size_t>(i), "\u202f");
  }
  return text;
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(count), noun, count == 1 ? "" : "s");
}

std::string badge(const State& state) {
  return element("span", fmt::format("class=\"state {}\"", state.css_class), escaped(state.text));
}

std::string time_cell(std::optional<std::int64_t> time) {
  return time ? text_element("span", "time", utc_text(*time)) : dash;
}

}  // namespace trireme::report
