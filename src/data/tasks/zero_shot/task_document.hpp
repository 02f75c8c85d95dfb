#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// One example of a task, as its file has it.
struct TaskDocument {
  /// A text or a list of texts. Numbers are decimal; true is "1", false "0".
  struct Field {
    std::vector<std::string> texts;
    bool is_list = false;
    bool operator==(const Field&) const = default;
  };

  /// Members of an object are under "outer.inner"; those of a list of objects make one list. Null is absent.
  std::map<std::string, Field, std::less<>> fields;
  std::string where = {};  ///< "FILE:LINE", for messages

  void set(std::string name, std::string text) { fields[std::move(name)] = {{std::move(text)}, false}; }

  /// Returns the name of the first field of `names`, "a|b", that exists; empty if none does.
  std::string_view found(std::string_view names) const;
  /// Returns the text, or the list, under the first of `names`. DataError if there is none, or the field is of the
  /// other kind.
  const std::string& text(std::string_view names) const { return field(names, false).texts.front(); }
  const std::vector<std::string>& list(std::string_view names) const { return field(names, true).texts; }

 private:
  const Field& field(std::string_view names, bool is_list) const;
};

/// Reads the original files of MMLU, comma-separated values: question, choices and the letter of the answer, without a
/// header. Quotes enclose commas, line feeds and doubled quotes. The fields are those of the published JSON:
/// "question", "choices", "answer" and "subject". Throws DataError with file and line for a row of fewer than four
/// columns or an open quote.
std::vector<TaskDocument> documents_of_csv(std::string_view text, const std::string& path, const std::string& subject);

/// Makes a document with "text" of each line that is not blank.
std::vector<TaskDocument> documents_of_lines(std::string_view text, const std::string& path);

/// Cuts WikiText before each title of the first level, " = Title = ", into documents with "page": byte for byte the
/// published data set of documents. The last page may be blank.
std::vector<TaskDocument> documents_of_pages(std::string_view text, const std::string& path);

}  // namespace trireme::data
