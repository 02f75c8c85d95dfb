#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/dataset/python_random.hpp"
#include "src/data/tasks/zero_shot/task_document.hpp"

namespace trireme::data {

/// Kind of measurement on a task's examples.
enum class BenchmarkKind {
  choices,  ///< the choice of the largest log-probability, summed and per character
  word,     ///< accuracy of the tokens of one text, all together, and its perplexity
  pages     ///< perplexity of whole texts, per word and per byte
};

/// Choice of the examples that are shown before a question.
enum class ShotChoice {
  drawn,         ///< at random
  drawn_others,  ///< at random, without the question itself
  first          ///< the first ones of the file
};

/// A published task, in the definition of the Language Model Evaluation Harness (lm-eval 0.4.13).
///
/// Templates are texts with fields of a TaskDocument in braces: "{a|b}" is the first of these that exists, "{*}" the
/// choice. After a colon stands what is made of it: `strip`, `capitalize`, `spaces` for underscores, `lines` for the
/// lettered lines of a list; the text `before_blank` and `after_blank`, the sign _; `but_last` and `last`, the words
/// separated by spaces.
struct Benchmark {
  std::string_view name;
  BenchmarkKind kind = BenchmarkKind::choices;
  std::string_view prompt = {};            ///< template of the text before a continuation
  std::string_view continuation = " {*}";  ///< template of the scored text, or of the page
  /// A list's field; fields "a,b"; texts "=a,b"; or ":" and a list's field, whose choices are letters.
  std::string_view choices = {};
  std::string_view answer = {};           ///< field of the right choice: its number, its letter, or one of `labels`
  std::string_view labels = {};           ///< list of the choices' names, if any
  int first_number = 0;                   ///< number of the first choice
  std::string_view description = {};      ///< template of the text before everything, if its field exists
  bool is_cleaned = false;                ///< remove WikiHow's brackets from prompt and choices
  bool normalizes = true;                 ///< also reports the accuracy per character
  std::string_view split = "validation";  ///< evaluated part of the data set
  std::string_view shot_split = "train";  ///< part that the shown examples come from
  ShotChoice shots = ShotChoice::drawn_others;
  std::string_view shot_space = {};   ///< further text between a shown example's prompt and its answer
  std::string_view group_field = {};  ///< field by which the examples form tasks of their own
  double version = 1;
  bool is_published = true;  ///< false: any file of questions, in no one's definition
};

/// All tasks.
std::span<const Benchmark> benchmarks();
/// Returns the task of this name, in any case; null if there is none.
const Benchmark* find_benchmark(std::string_view name);

/// Returns the category of one of MMLU's 57 subjects: "stem", "other", "social_sciences" or "humanities"; empty for
/// another subject.
std::string_view mmlu_category(std::string_view subject);

/// A text that may follow another.
struct Continuation {
  std::string context, text;
  std::int64_t characters = 0;  ///< length of the choice, without the text around it
};

/// A question with its choices; for the kind `word`, the only text.
struct ChoiceExample {
  std::vector<Continuation> choices;
  std::int64_t answer = 0;
};

/// Makes an example of the kinds `choices` and `word`. Throws DataError if a field is missing or unusable, there are
/// fewer than two choices, one is empty, or the answer is none of them.
ChoiceExample example_of(const Benchmark& benchmark, const TaskDocument& document);

/// Returns the text of a document of the kind `pages`.
const std::string& page_of(const Benchmark& benchmark, const TaskDocument& document);

/// Makes the texts before the questions of a task: its description and examples with their answers. The draws are those
/// of lm-eval with the same seed, if the questions come in the order of the file, and the pool in that of its file.
class Shots {
 public:
  /// Throws ConfigError if the pool is too small for `count`.
  Shots(const Benchmark& benchmark, std::vector<TaskDocument> pool, std::int64_t count, std::uint64_t seed);
  /// Returns the text before a question.
  std::string before(const TaskDocument& document);

 private:
  std::vector<std::int64_t> choose(const TaskDocument& document);

  const Benchmark& benchmark_;
  std::vector<TaskDocument> pool_;
  std::int64_t count_;
  PythonRandom random_;
};

}  // namespace trireme::data
