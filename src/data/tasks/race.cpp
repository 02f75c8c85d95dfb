#include "src/data/tasks/race.hpp"

#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

/// Returns the right choices of all questions of an article: a line is accepted entirely or not at all.
std::vector<std::int32_t> checked_labels(const RaceArticle& article, const std::string& where) {
  TRIREME_CHECK(!stripped(article.article).empty(), DataError, "{}: the article is empty", where);
  const std::size_t questions = article.questions.size();
  TRIREME_CHECK(article.answers.size() == questions && article.options.size() == questions, DataError,
                "{}: {} questions, but {} answers and options for {}", where, questions, article.answers.size(),
                article.options.size());
  std::vector<std::int32_t> labels;
  for (std::size_t i = 0; i < questions; ++i) {
    const std::string& answer = article.answers[i];
    TRIREME_CHECK(answer.size() == 1 && answer[0] >= 'A' && answer[0] < 'A' + race_choices, DataError,
                  "{}: question {} has the answer '{}' instead of A, B, C or D", where, i + 1, shortened(answer));
    TRIREME_CHECK(std::ssize(article.options[i]) == race_choices, DataError,
                  "{}: question {} has {} options instead of {}", where, i + 1, article.options[i].size(),
                  race_choices);
    labels.push_back(answer[0] - 'A');
  }
  return labels;
}

std::string question_with_choice(const std::string& question, const std::string& choice) {
  if (question.find('_') == question.npos) return clean_text(question + ' ' + choice);
  std::string merged;
  for (const char c : question) merged += c == '_' ? choice : std::string(1, c);
  return clean_text(merged);
}

}  // namespace

void add_race(const TaskFile& file, const RaceParser& parse, const Tokenizer& tokenizer, std::int64_t max_qa_tokens,
              BadLines& bad, RaceExamples& examples) {
  std::vector<std::int32_t> ids;
  const auto encode = [&](const std::string& text) {
    ids.clear();
    tokenizer.encode(text, ids);
  };
  for (TextLines lines(file.text); lines.next();) {
    bad.attempt([&] {
      const std::string where = fmt::format("{}:{}", file.path, lines.number());
      const RaceArticle article = parse(lines.line(), where);
      const std::vector<std::int32_t> labels = checked_labels(article, where);
      RaceQuestion question;
      encode(clean_text(article.article));
      question.article = examples.lists.add(ids);
      for (std::size_t i = 0; i < labels.size(); ++i) {
        question.label = labels[i];
        for (std::size_t choice = 0; choice < question.choices.size(); ++choice) {
          encode(question_with_choice(article.questions[i], article.options[i][choice]));
          if (std::ssize(ids) > max_qa_tokens) ids.resize(static_cast<std::size_t>(max_qa_tokens));
          question.choices[choice] = examples.lists.add(ids);
        }
        examples.questions.push_back(question);
      }
    });
  }
}

PackedPair RaceSamples::packed(std::int64_t index) const {
  return examples_.packed(examples_.questions[static_cast<std::size_t>(index / race_choices)],
                          static_cast<std::size_t>(index % race_choices), packing().sequence_length, packing().tokens);
}

std::string race_predictions(std::span<const std::int32_t> classes) {
  std::string text = "index\tprediction\n";
  for (std::size_t i = 0; i < classes.size(); ++i)
    text += fmt::format("{}\t{}\n", i, static_cast<char>('A' + classes[i]));
  return text;
}

}  // namespace trireme::data
