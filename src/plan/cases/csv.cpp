#include "src/plan/cases/csv.hpp"

#include "src/base/check.hpp"

namespace trireme::plan {
namespace {

class CsvReader {
 public:
  CsvReader(const std::string& name, const std::string& text) : name_(name), text_(text) {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
  }

  std::vector<CsvRecord> read() {
    std::vector<CsvRecord> records;
    while (at_ < text_.size()) {
      CsvRecord record = next_record();
      if (record.fields.size() > 1 || !record.fields.front().empty()) records.push_back(std::move(record));
    }
    return records;
  }

 private:
  CsvRecord next_record() {
    CsvRecord record{line_, {}};
    while (true) {
      record.fields.push_back(at_ < text_.size() && text_[at_] == '"' ? quoted_field() : plain_field());
      if (at_ >= text_.size() || text_[at_] != ',') break;
      ++at_;
    }
    skip_end_of_line();
    return record;
  }

  std::string plain_field() {
    std::string field;
    while (at_ < text_.size() && text_[at_] != ',' && !at_end_of_line()) field += text_[at_++];
    return field;
  }

  std::string quoted_field() {
    const int first_line = line_;
    std::string field;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') {
        field += text_[at_];
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        field += text_[++at_];
      } else {
        ++at_;
        TRIREME_CHECK(at_ >= text_.size() || text_[at_] == ',' || at_end_of_line(), DataError,
                      "{}, line {}: text follows a quoted field; quotes inside a field are doubled", name_, line_);
        return field;
      }
    }
    throw DataError("{}, line {}: a quoted field is not closed", name_, first_line);
  }

  bool at_end_of_line() const {
    return text_[at_] == '\n' || (text_[at_] == '\r' && (at_ + 1 == text_.size() || text_[at_ + 1] == '\n'));
  }

  void skip_end_of_line() {
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size() && text_[at_] == '\n') ++at_;
    ++line_;
  }

  const std::string& name_;
  const std::string& text_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<CsvRecord> parse_csv(const std::string& name, const std::string& text) {
  return CsvReader(name, text).read();
}

}  // namespace trireme::plan
