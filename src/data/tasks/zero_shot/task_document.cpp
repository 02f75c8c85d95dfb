#include "src/data/tasks/zero_shot/task_document.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/data/tasks/task_text.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {

std::string_view TaskDocument::found(std::string_view names) const {
  for (const std::string_view name : split(names, '|')) {
    if (fields.contains(name)) return name;
  }
  return {};
}

const TaskDocument::Field& TaskDocument::field(std::string_view names, bool is_list) const {
  const std::string_view name = found(names);
  if (name.empty()) {
    std::string listed;
    for (const std::string_view each : split(names, '|')) {
      listed += fmt::format("{}'{}'", listed.empty() ? "" : " or ", each);
    }
    throw DataError("the object has no key {}", listed);
  }
  const Field& result = fields.find(name)->second;
  TRIREME_CHECK(result.is_list == is_list, DataError, "the value of '{}' is {}, not {}", name,
                result.is_list ? "a list" : fmt::format("\"{}\"", shortened(result.texts.front())),
                is_list ? "a list" : "a string");
  return result;
}

std::vector<TaskDocument> documents_of_csv(std::string_view text, const std::string& path, const std::string& subject) {
  std::vector<TaskDocument> documents;
  std::vector<std::string> row(1);
  std::int64_t line = 1, first_line = 1;
  const auto end_row = [&] {
    const bool is_blank = row.size() == 1 && row.front().empty();
    if (!is_blank) {
      constexpr std::size_t min_columns = 4;  // a question, two choices, the answer
      TaskDocument document{{}, fmt::format("{}:{}", path, first_line)};
      TRIREME_CHECK(row.size() >= min_columns, DataError,
                    "{}: {} columns instead of a question, its choices and the answer", document.where, row.size());
      document.set("question", row.front());
      document.set("answer", row.back());
      document.set("subject", subject);
      document.fields["choices"] = {{row.begin() + 1, row.end() - 1}, true};
      documents.push_back(std::move(document));
    }
    row.assign(1, "");
    first_line = line;
  };
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    line += c == '\n' ? 1 : 0;
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      row.back() += text[i++];
    } else if (c == '"' && (quoted || row.back().empty())) {
      quoted = !quoted;
    } else if (quoted || (c != ',' && c != '\n' && c != '\r')) {
      row.back() += c;
    } else if (c == ',') {
      row.emplace_back();
    } else if (c == '\n') {
      end_row();
    }
  }
  TRIREME_CHECK(!quoted, DataError, "{}:{}: the quote that opens in this row is not closed", path, first_line);
  end_row();
  return documents;
}

std::vector<TaskDocument> documents_of_lines(std::string_view text, const std::string& path) {
  std::vector<TaskDocument> documents;
  for (TextLines lines(text); lines.next();) {
    if (stripped(lines.line()).empty()) continue;
    documents.push_back({{}, fmt::format("{}:{}", path, lines.number())});
    documents.back().set("text", std::string(lines.line()));
  }
  return documents;
}

namespace {

/// Returns whether a line of WikiText is a title of the first level: deeper ones begin with "= = ".
bool is_title(std::string_view line) {
  const std::string joined = replaced(replaced(line, "= = =", "==="), "= =", "==");
  return stripped(joined).starts_with("= ") && stripped(joined).ends_with(" =");
}

}  // namespace

std::vector<TaskDocument> documents_of_pages(std::string_view text, const std::string& path) {
  std::vector<TaskDocument> documents;
  std::string page;
  std::int64_t line = 1, first_line = 1;
  const auto end_page = [&] {
    documents.push_back({{}, fmt::format("{}:{}", path, first_line)});
    documents.back().set("page", page);
    first_line = line;
  };
  bool is_first = true;
  for (std::size_t begin = 0; begin <= text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view current = text.substr(begin, end - begin);
    if (is_title(current)) {
      if (!stripped(page).empty()) end_page();
      page.clear();
      is_first = true;
    }
    if (!is_first) page += '\n';
    page += current;
    is_first = false;
    begin = end + 1;
  }
  end_page();
  return documents;
}

}  // namespace trireme::data
