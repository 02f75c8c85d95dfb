#include "src/plan/cases/csv.hpp"

#include <string_view>

#include "src/base/check.hpp"

namespace trireme::plan {
namespace {

bool take(std::string_view& text, std::string_view head) {
  if (!text.starts_with(head)) return false;
  text.remove_prefix(head.size());
  return true;
}

bool ends_field(std::string_view text) {
  return text.empty() || text.front() == ',' || text.front() == '\n' || text == "\r" || text.starts_with("\r\n");
}

std::string take_plain(std::string_view& text) {
  std::string field;
  for (; !ends_field(text); text.remove_prefix(1)) field += text.front();
  return field;
}

std::string take_quoted(const std::string& name, std::string_view& text, int& line) {
  const int first_line = line;
  std::string field;
  for (text.remove_prefix(1); !text.empty(); text.remove_prefix(1)) {
    if (text.front() == '\n') ++line;
    if (take(text, "\"") && !text.starts_with('"')) {
      TRIREME_CHECK(ends_field(text), DataError,
                    "{}, line {}: text follows a quoted field; quotes inside a field are doubled", name, line);
      return field;
    }
    field += text.front();
  }
  throw DataError("{}, line {}: a quoted field is not closed", name, first_line);
}

}  // namespace

std::vector<CsvRecord> parse_csv(const std::string& name, const std::string& text) {
  std::vector<CsvRecord> records;
  std::string_view left = text;
  take(left, "\xef\xbb\xbf");
  for (int line = 1; !left.empty(); ++line) {
    CsvRecord record{line, {}};
    do {
      record.fields.push_back(left.starts_with('"') ? take_quoted(name, left, line) : take_plain(left));
    } while (take(left, ","));
    take(left, "\r");
    take(left, "\n");
    if (record.fields.size() > 1 || !record.fields.front().empty()) records.push_back(std::move(record));
  }
  return records;
}

}  // namespace trireme::plan
