#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/tasks/task_samples.hpp"
#include "src/data/tasks/task_text.hpp"
#include "src/data/tokenizer/wordpiece_tokenizer.hpp"

namespace trireme::data {

struct SquadAnswer {
  std::string text;
  std::int64_t start = 0;  ///< in characters of the context, as Python counts them
};

struct SquadQuestion {
  std::string id, question;
  bool is_impossible = false;        ///< the context has no answer
  std::vector<SquadAnswer> answers;  ///< empty if impossible
};

struct SquadParagraph {
  std::string context;
  std::vector<SquadQuestion> questions;
};

/// A file of SQuAD 1.1 (Rajpurkar et al. 2016) or 2.0 (2018).
struct SquadFile {
  std::string path;
  bool has_impossible = false;  ///< version 2.0
  std::vector<SquadParagraph> paragraphs;
};

/// Limits of samples of questions and contexts.
struct SquadOptions {
  std::int64_t sequence_length = 384;
  std::int64_t doc_stride = 128;       ///< tokens between window starts
  std::int64_t max_query_length = 64;  ///< tokens of a question; the rest is truncated
  PairTokens tokens;
};

/// Sample: [CLS] question [SEP] window of the context [SEP].
struct SquadWindow {
  std::int64_t question = 0;     ///< number in `SquadExamples`
  std::int64_t first_token = 0;  ///< index in the context
  std::int64_t tokens = 0;       ///< length of the window
  /// First and last position of the answer in the sample; both 0, [CLS]'s, where the window does not hold all of it.
  std::int32_t start = 0, end = 0;
};

/// Questions of a file with the tokens of question and context, and their samples.
class SquadExamples {
 public:
  struct Question {
    const SquadQuestion* question = nullptr;  ///< in the file
    std::int64_t context = 0;                 ///< number of the paragraph
    std::vector<std::int32_t> tokens;
    std::int64_t first_window = 0, windows = 0;
  };

  /// Windows start `doc_stride` tokens apart, until one reaches the end of the context. The label is the first of
  /// several answers. Throws DataError "path: question 'id': ..." through `bad` for an empty context, an id that occurs
  /// twice, an answer that is empty or does not match its offset, and a question whose answers contradict its
  /// "impossible" flag. Throws likewise if the sequence length leaves no room for the context, and with `is_training`
  /// if no window contains the answer. Keeps a reference to `file`.
  SquadExamples(const SquadFile& file, const WordPieceTokenizer& tokenizer, const SquadOptions& options,
                bool is_training, BadLines& bad);

  const SquadFile& file() const { return file_; }
  const std::vector<Question>& questions() const { return questions_; }
  const std::vector<SquadWindow>& windows() const { return windows_; }
  /// Tokens of a paragraph's context.
  const std::vector<TextToken>& context(std::int64_t paragraph) const {
    return contexts_[static_cast<std::size_t>(paragraph)];
  }

  /// Position in the sample of the window's first token of the context.
  std::int64_t context_position(const SquadWindow& window) const {
    return std::ssize(questions_[static_cast<std::size_t>(window.question)].tokens) + 2;
  }
  PackedPair packed(const SquadWindow& window) const;

 private:
  void add_question(const SquadQuestion& question, std::int64_t paragraph, const std::string& where, bool is_training);

  const SquadFile& file_;
  const WordPieceTokenizer& tokenizer_;
  SquadOptions options_;
  std::vector<std::vector<TextToken>> contexts_;
  std::vector<Question> questions_;
  std::vector<SquadWindow> windows_;
};

/// Windows of SQuAD's contexts.
class SquadSamples final : public TaskSamples {
 public:
  /// Keeps a reference to `examples`.
  SquadSamples(const TaskPacking& packing, const SquadExamples& examples)
      : TaskSamples(packing, 1), examples_(examples) {}
  std::int64_t size() const override { return std::ssize(examples_.windows()); }
  std::int32_t label(std::int64_t index) const override { return window(index).start; }

 private:
  const SquadWindow& window(std::int64_t index) const { return examples_.windows()[static_cast<std::size_t>(index)]; }
  PackedPair packed(std::int64_t index) const override { return examples_.packed(window(index)); }
  std::int32_t span_end(std::int64_t index) const override { return window(index).end; }
  const SquadExamples& examples_;
};

}  // namespace trireme::data
