#include "src/data/tasks/glue.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/base/utf8.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

using Columns = std::vector<std::string_view>;

constexpr std::array mnli_labels = {"contradiction", "entailment", "neutral"};

/// Reads the lines of one file.
class GlueReader {
 public:
  GlueReader(GlueTask task, const std::string& path) : task_(task), path_(path) {}

  void read_header(const Columns& columns) {
    const std::size_t count = columns.size();
    check(!whole_number(columns[0]),
          "the line is an example, number {}, but files of {} begin with a header. Put it back", columns[0],
          task_ == GlueTask::mnli ? "MNLI" : "QQP");
    if (task_ == GlueTask::mnli) {
      check(count >= 10, "the header has {} columns instead of 10 or more. Try a file of MNLI", count);
      examples_.is_test = count == 10;
    } else {
      check(count == 3 || count == 6, "the header has {} columns instead of 6, or 3 in a test. Try a file of QQP",
            count);
      examples_.is_test = count == 3;
    }
  }

  void read_line(const Columns& columns) {
    if (task_ == GlueTask::mnli) {
      check(columns.size() >= 10, "the line has {} columns instead of 10 or more", columns.size());
      const std::string_view label = examples_.is_test ? mnli_labels[0] : stripped(columns.back());
      const auto found = std::ranges::find(mnli_labels, label);
      check(found != mnli_labels.end(), "unknown label '{}' instead of contradiction, entailment or neutral",
            shortened(label));
      add(columns[0], columns[8], columns[9], static_cast<std::int32_t>(found - mnli_labels.begin()));
    } else if (examples_.is_test) {
      check(columns.size() == 3, "the line has {} columns instead of 3", columns.size());
      add(columns[0], columns[1], columns[2], 0);
    } else {
      read_qqp_training(columns);
    }
  }

  void at_line(std::int64_t number) { line_ = number; }
  GlueExamples finish() { return std::move(examples_); }

 private:
  template <class... Values>
  void check(bool good, fmt::format_string<Values...> format, Values&&... values) const {
    TRIREME_CHECK(good, DataError, "{}:{}: {}", path_, line_, fmt::format(format, std::forward<Values>(values)...));
  }

  void read_qqp_training(const Columns& columns) {
    check(columns.size() == 6, "the line has {} columns instead of 6. <on_bad_line> skip leaves such lines out",
          columns.size());
    const auto label = whole_number(columns[5]);
    check(label == 0 || label == 1, "unknown label '{}' instead of 0 or 1", shortened(columns[5]));
    add(columns[0], columns[3], columns[4], static_cast<std::int32_t>(*label));
  }

  void add(std::string_view column, std::string_view a, std::string_view b, std::int32_t label) {
    const auto number = whole_number(column);
    check(number.has_value(), "'{}' is not an example number", shortened(column));
    TextPair pair{*number, clean_text(stripped(a)), clean_text(stripped(b)), label};
    check(pair.id >= 0, "the example's number {} is negative", pair.id);
    check(!pair.a.empty(), "the first text is empty. <on_bad_line> skip leaves such lines out");
    check(!pair.b.empty(), "the second text is empty. <on_bad_line> skip leaves such lines out");
    examples_.pairs.push_back(std::move(pair));
  }

  GlueTask task_;
  const std::string& path_;
  std::int64_t line_ = 0;
  GlueExamples examples_;
};

}  // namespace

GlueExamples read_glue(GlueTask task, const TaskFile& file, BadLines& bad) {
  GlueReader reader(task, file.path);
  for (TextLines lines(file.text); lines.next();) {
    reader.at_line(lines.number());
    Columns columns = split(stripped(lines.line()), '\t');
    if (columns.empty()) columns.emplace_back();  // a blank line
    if (lines.number() == 1) {
      reader.read_header(columns);
      continue;
    }
    bad.attempt([&] {
      TRIREME_CHECK(is_utf8(lines.line()), DataError, "{}:{}: the line has bytes that are not UTF-8", file.path,
                    lines.number());
      reader.read_line(columns);
    });
  }
  return reader.finish();
}

std::string glue_label(GlueTask task, std::int32_t number) {
  return task == GlueTask::mnli ? mnli_labels.at(static_cast<std::size_t>(number)) : std::to_string(number);
}

std::string glue_predictions(GlueTask task, std::span<const std::int64_t> ids, std::span<const std::int32_t> classes) {
  std::string text = "index\tprediction\n";
  for (std::size_t i = 0; i < ids.size(); ++i) {
    text += fmt::format("{}\t{}\n", ids[i], glue_label(task, classes[i]));
  }
  return text;
}

PairSamples::PairSamples(const TaskPacking& packing, const Tokenizer& tokenizer, const std::vector<TextPair>& pairs)
    : TaskSamples(packing, 1) {
  std::vector<std::int32_t> ids;
  for (const TextPair& pair : pairs) {
    for (const std::string* text : {&pair.a, &pair.b}) {
      ids.clear();
      tokenizer.encode(*text, ids);
      texts_.add(ids);
    }
    labels_.push_back(pair.label);
  }
}

PackedPair PairSamples::packed(std::int64_t index) const {
  return pack_pair(texts_[2 * index], texts_[2 * index + 1], packing().sequence_length, packing().tokens);
}

}  // namespace trireme::data
