#include "src/data/tasks/squad.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/base/utf8.hpp"

namespace trireme::data {
namespace {

/// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0, end = 0;
};

/// Bytes of the characters [begin, end) of UTF-8 text; shorter at its end.
std::string_view characters_of(std::string_view text, std::int64_t begin, std::int64_t end) {
  const std::size_t first = skip_characters(text, 0, begin);
  return text.substr(first, skip_characters(text, first, end - begin) - first);
}

/// Returns the place of an answer in the context.
TextRange place_of(const SquadAnswer& answer, const std::string& context, const std::string& where) {
  TRIREME_CHECK(!answer.text.empty(), DataError, "{}: an answer is empty", where);
  const std::string_view found = characters_of(context, answer.start, answer.start + count_characters(answer.text));
  TRIREME_CHECK(found == answer.text, DataError,
                "{}: the answer '{}' is not at character {} of its context, where '{}' is", where,
                shortened(answer.text), answer.start, shortened(found));
  const auto begin = static_cast<std::size_t>(found.data() - context.data());
  return {begin, begin + found.size()};
}

}  // namespace

SquadExamples::SquadExamples(const SquadFile& file, const WordPieceTokenizer& tokenizer, const SquadOptions& options,
                             bool is_training, BadLines& bad)
    : file_(file), tokenizer_(tokenizer), options_(options) {
  TRIREME_CHECK(options.doc_stride > 0 && options.max_query_length >= 0, ConfigError,
                "a stride of {} tokens must be at least 1, and {} tokens of a question at least 0", options.doc_stride,
                options.max_query_length);
  std::unordered_set<std::string_view> ids;
  for (const SquadParagraph& paragraph : file.paragraphs) {
    const std::int64_t number = std::ssize(contexts_);
    contexts_.push_back(tokenizer.encode_with_offsets(paragraph.context));
    for (const SquadQuestion& question : paragraph.questions) {
      bad.attempt([&] {
        const std::string where = fmt::format("{}: question '{}'", file.path, shortened(question.id));
        TRIREME_CHECK(ids.insert(question.id).second, DataError, "{}: the id occurs twice", where);
        TRIREME_CHECK(!contexts_.back().empty(), DataError, "{}: the context is empty", where);
        add_question(question, number, where, is_training);
      });
    }
  }
}

void SquadExamples::add_question(const SquadQuestion& question, std::int64_t paragraph, const std::string& where,
                                 bool is_training) {
  TRIREME_CHECK(question.answers.empty() == question.is_impossible, DataError, "{}: {}", where,
                question.is_impossible ? "the question has answers, though it is called impossible"
                                       : "the question has no answer");
  const std::vector<TextToken>& context = contexts_[static_cast<std::size_t>(paragraph)];
  // Tokens of the context that the label touches.
  std::int64_t first_token = -1, last_token = -1;
  for (const SquadAnswer& answer : question.answers) {
    const TextRange place = place_of(answer, file_.paragraphs[static_cast<std::size_t>(paragraph)].context, where);
    if (&answer != &question.answers.front()) continue;
    for (std::size_t i = 0; i < context.size(); ++i) {
      if (context[i].begin >= place.end || context[i].end <= place.begin) continue;
      if (first_token < 0) first_token = static_cast<std::int64_t>(i);
      last_token = static_cast<std::int64_t>(i);
    }
    TRIREME_CHECK(first_token >= 0 || !is_training, DataError, "{}: the answer '{}' has no tokens", where,
                  shortened(answer.text));
  }

  Question made{&question, paragraph, {}, std::ssize(windows_), 0};
  tokenizer_.encode(question.question, made.tokens);
  if (std::ssize(made.tokens) > options_.max_query_length) {
    made.tokens.resize(static_cast<std::size_t>(options_.max_query_length));
  }
  const std::int64_t room = options_.sequence_length - std::ssize(made.tokens) - 3;
  TRIREME_CHECK(room > 0, DataError,
                "{}: beside its {} tokens a sample of <seq_length> {} has no room for the context. Try a greater "
                "<seq_length> or a smaller <max_query_length>",
                where, made.tokens.size(), options_.sequence_length);
  std::vector<SquadWindow> windows;
  bool holds_answer = false;
  for (std::int64_t first = 0;;) {
    SquadWindow window{std::ssize(questions_), first, std::min(std::ssize(context) - first, room), 0, 0};
    if (first_token >= first && last_token < first + window.tokens) {
      const std::int64_t shift = std::ssize(made.tokens) + 2 - first;
      window.start = static_cast<std::int32_t>(first_token + shift);
      window.end = static_cast<std::int32_t>(last_token + shift);
      holds_answer = true;
    }
    windows.push_back(window);
    if (first + window.tokens == std::ssize(context)) break;
    first += std::min(window.tokens, options_.doc_stride);
  }
  TRIREME_CHECK(!is_training || question.is_impossible || holds_answer, DataError,
                "{}: no window of {} tokens of the context holds the answer's {}. Try a greater <seq_length> or a "
                "smaller <doc_stride>",
                where, room, last_token - first_token + 1);
  made.windows = std::ssize(windows);
  windows_.insert(windows_.end(), windows.begin(), windows.end());
  questions_.push_back(std::move(made));
}

PackedPair SquadExamples::packed(const SquadWindow& window) const {
  const Question& question = questions_[static_cast<std::size_t>(window.question)];
  const std::vector<TextToken>& context = contexts_[static_cast<std::size_t>(question.context)];
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < window.tokens; ++i) {
    ids.push_back(context[static_cast<std::size_t>(window.first_token + i)].id);
  }
  return pack_pair(question.tokens, ids, options_.sequence_length, options_.tokens);
}

}  // namespace trireme::data
