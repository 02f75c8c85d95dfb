#include <gtest/gtest.h>

#include <cmath>

#include "src/base/error.hpp"
#include "src/data/tasks/zero_shot/benchmark_texts.hpp"
#include "src/data/tasks/zero_shot/lambada.hpp"
#include "src/data/tasks/zero_shot/wikitext.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

using Ids = std::vector<std::int32_t>;

std::string text_of(const ScoredTexts& texts, std::int64_t index) {
  std::string text;
  for (const std::int32_t id : texts.ids(index)) text += id < 256 ? std::string(1, static_cast<char>(id)) : "|";
  return text;
}

TEST(Words, WhiteSpaceIsPythons) {
  EXPECT_EQ(stripped(" \u00a0\x1c a\u2009b \u3000\u0085\n"), "a\u2009b");
  EXPECT_EQ(stripped("\u200b a\u200b"), "\u200b a\u200b");  // a zero-width space is none
  EXPECT_EQ(stripped(" \t\u2028"), "");
  EXPECT_EQ(stripped(""), "");
  const WordExtent extent = word_extent(
      " ab \xff\u00a0"
      "c ");
  EXPECT_EQ(extent.first_word, 1);
  EXPECT_EQ(extent.last_word, 7);
  EXPECT_EQ(extent.end, 8);
}

TEST(Detokenizer, UndoesTheSpacesOfWikiText) {
  const auto wikitext = [](const char* text) { return detokenized(text, Detokenizer::wikitext); };
  EXPECT_EQ(wikitext(" = Title = \n"), " = Title =\n");
  EXPECT_EQ(wikitext("a guest @-@ star , 1 @,@ 000 @.@ 5"), "a guest-star, 1,000.5");
  EXPECT_EQ(wikitext("( a ( b ) c ) \" \n d \""), "(a ( b) c ) \"d\"");
  EXPECT_EQ(wikitext("/' 5/ /' 55/ /' /' 7/"), "/'[0-9]/ /' 55/ /'/'[0-9]/");
  EXPECT_EQ(wikitext("( \u00a0a\x1c)"), "(a)");
  EXPECT_EQ(wikitext("20 \u00b0 C N N"), "20\u00b0C 1 N");
  EXPECT_EQ(detokenized("does n't N", Detokenizer::ptb), "doesn't N");
  EXPECT_EQ(detokenized(" a , b", Detokenizer::lambada), " a , b");
}

TEST(Detokenizer, ComesFromThePath) {
  EXPECT_EQ(detokenizer_of("wiki/ptb.txt"), Detokenizer::ptb);
  EXPECT_EQ(detokenizer_of("/a/wiki.test.raw"), Detokenizer::wikitext);
  EXPECT_EQ(detokenizer_of("WIKI.txt"), Detokenizer::none);
}

TEST(OverlappingWindows, ScoreEachTokenButTheFirstOnce) {
  for (const std::int64_t tokens : {1, 2, 7, 8, 9, 10, 31}) {
    for (const std::int64_t overlap : {0, 1, 3, 7, 8}) {
      const ScoredTexts windows = overlapping_windows(Ids(static_cast<std::size_t>(tokens), 5), 8, overlap, 9);
      EXPECT_EQ(windows.scored(), tokens - 1) << tokens << " " << overlap;
    }
  }
}

TEST(WikiText, AdjustsThePerplexityToTheWords) {
  const auto tokenizer = make_byte_tokenizer();
  const WikiText set = make_wikitext(" a bc\n", Detokenizer::none, *tokenizer, 4, 4);
  EXPECT_EQ(set.original_tokens, 2);
  EXPECT_EQ(set.tokenized_tokens, 6);
  const TextScore scores[] = {{.loss = 3, .squared_loss = 5, .wrong = 4}, {.loss = 2, .squared_loss = 4, .wrong = 1}};
  const WikiTextResult result = result_of(set, scores);
  EXPECT_DOUBLE_EQ(result.loss.value, 1);
  EXPECT_DOUBLE_EQ(result.loss.standard_error, std::sqrt((9.0 - 5) / 4 / 5));
  EXPECT_DOUBLE_EQ(result.perplexity, std::exp(1));
  EXPECT_DOUBLE_EQ(result.adjusted_perplexity, std::exp(5));
  const WikiText word = make_wikitext("abc", Detokenizer::none, *tokenizer, 4, 4);
  EXPECT_TRUE(std::isinf(result_of(word, {scores, 1}).adjusted_perplexity));  // there is no other word
  const TextScore diverged[] = {{.loss = std::nan("")}};
  EXPECT_TRUE(std::isnan(result_of(set, diverged).perplexity));
}

TEST(Lambada, TakesTheLastTokenOrTheLastWord) {
  const auto tokenizer = make_byte_tokenizer();
  ScoredTexts examples(256);
  const auto add = [&](const char* text, LambadaTarget target) {
    add_lambada(text, target, *tokenizer, {8, false}, examples);
    return text_of(examples, examples.size() - 1) + "/" + std::to_string(examples.scored(examples.size() - 1));
  };
  EXPECT_EQ(add("a bc ", LambadaTarget::last_token), "a bc /1");
  EXPECT_EQ(add("a \n bc\n", LambadaTarget::last_word), "a bc/3");
  EXPECT_EQ(add("b", LambadaTarget::last_token), "b/0");
  EXPECT_EQ(add("b", LambadaTarget::last_word), " b/1");
  EXPECT_EQ(add("aa a", LambadaTarget::last_word), "aa a/2");
  EXPECT_EQ(examples.size(), 5);

  const TextScore scores[] = {{.loss = 1}, {.loss = 3, .wrong = 1}, {}, {.loss = 1}, {.loss = 2, .wrong = 2}};
  const LambadaResult result = result_of(examples, scores);
  EXPECT_EQ(result.correct, 3);
  EXPECT_EQ(result.unscored, 1);
  EXPECT_DOUBLE_EQ(result.accuracy.value, 0.6);
  EXPECT_DOUBLE_EQ(result.accuracy.standard_error, std::sqrt(0.6 * 0.4 / 4));
  EXPECT_DOUBLE_EQ(result.loss.value, 1);
}

TEST(ZeroShotTexts, BeginWithWhatTheTokenizerPutsThere) {
  const auto tokenizer = make_byte_tokenizer();
  tokenizer->set_special({.prefix = {256}});
  ScoredTexts examples(0);
  add_lambada("a bc", LambadaTarget::last_word, *tokenizer, {8, false}, examples);
  EXPECT_EQ(text_of(examples, 0), "|a bc");
  EXPECT_EQ(examples.scored(0), 3);
  EXPECT_THROW(add_lambada("", LambadaTarget::last_token, *tokenizer, {8, false}, examples), DataError);
  const WikiText text = make_wikitext(" a bc\n", Detokenizer::none, *tokenizer, 4, 4);
  EXPECT_EQ(text.tokenized_tokens, 6);
  EXPECT_EQ(text_of(text.windows, 0), "| a b");
  EXPECT_EQ(text.windows.scored(), 6);
}

TEST(Lambada, TruncatesLongTextsOnTheLeft) {
  const auto tokenizer = make_byte_tokenizer();
  ScoredTexts examples(256);
  add_lambada("one two three", LambadaTarget::last_word, *tokenizer, {8, true}, examples);
  EXPECT_EQ(text_of(examples, 0), "two three");
  EXPECT_EQ(examples.scored(0), 6);
  EXPECT_THROW(add_lambada("a too-long-a-word", LambadaTarget::last_word, *tokenizer, {8, true}, examples), DataError);
}

TaskDocument document(std::initializer_list<std::pair<const char*, const char*>> texts,
                      std::initializer_list<std::pair<const char*, std::vector<std::string>>> lists = {}) {
  TaskDocument result;
  for (const auto& [name, text] : texts) result.set(name, text);
  for (const auto& [name, list] : lists) result.fields[name] = {list, true};
  return result;
}

ChoiceExample example(const char* task, const TaskDocument& given) { return example_of(*find_benchmark(task), given); }

TEST(Benchmark, ScoresEachChoiceBehindItsQuestion) {
  const auto tokenizer = make_byte_tokenizer();
  BenchmarkTexts set(*find_benchmark("multiple_choice"), *tokenizer, {64, false});
  set.add(document({{"question", "q:  "}, {"answer", "1"}}, {{"choices", {"x", "\u00e9\u00e9\u00e9"}}}), "");
  set.add(document({{"question", ""}, {"answer", "A"}}, {{"choices", {"x", "yy"}}}), "");
  EXPECT_EQ(text_of(set.texts(), 0), "q:   x");
  EXPECT_EQ(set.texts().scored(0), 4);
  EXPECT_EQ(text_of(set.texts(), 3), "| yy");
  EXPECT_EQ(set.texts().scored(3), 3);
  EXPECT_THROW(set.add(document({{"question", "q"}, {"answer", "0"}}, {{"choices", {"x"}}}), ""), DataError);
  EXPECT_THROW(set.add(document({{"question", "q"}, {"answer", "0"}}, {{"choices", {"x", std::string(64, 'y')}}}), ""),
               DataError);

  // Sums favour the shorter choice of the first question, the mean over its 3 characters the longer one. Of equal
  // choices the first counts.
  const TextScore scores[] = {{.loss = 2}, {.loss = 3}, {.loss = 4}, {.loss = 4}};
  const BenchmarkResult result = set.result(scores, 0);
  ASSERT_EQ(result.metrics.size(), 2u);
  for (const BenchmarkMetric& metric : result.metrics) {
    EXPECT_DOUBLE_EQ(metric.value, 0.5) << metric.name;
    EXPECT_DOUBLE_EQ(metric.standard_error.value(), 0.5);
  }
  EXPECT_DOUBLE_EQ(result.loss.value, 3.5);
  const TextScore broken[] = {{.loss = std::nan("")}, {.loss = 3}, {.loss = 4}, {.loss = 4}};  // a wrong choice
  const BenchmarkResult none = set.result(broken, 0);
  for (const BenchmarkMetric& metric : none.metrics) {
    EXPECT_TRUE(std::isnan(metric.value)) << metric.name;
    EXPECT_FALSE(metric.standard_error);
  }
  EXPECT_TRUE(std::isnan(none.loss.value));
}

TEST(Benchmark, BeginsWithWhatTheTokenizerPutsThere) {
  const auto tokenizer = make_byte_tokenizer();
  tokenizer->set_special({.prefix = {256}});
  BenchmarkTexts set(*find_benchmark("multiple_choice"), *tokenizer, {64, false});
  for (const char* question : {"q:", ""}) {
    set.add(document({{"question", question}, {"answer", "1"}}, {{"choices", {"x", "yy"}}}), "");
  }
  EXPECT_EQ(text_of(set.texts(), 0), "|q: x");
  EXPECT_EQ(text_of(set.texts(), 3), "| yy");
  EXPECT_EQ(set.texts().scored(3), 3);
}

TEST(Benchmark, JoinsAndCleansThePartsOfHellaSwag) {
  const auto context_of = [](const char* activity, const char* a, const char* b) {
    const TaskDocument given =
        document({{"activity_label", activity}, {"ctx_a", a}, {"ctx_b", b}, {"label", "1"}}, {{"endings", {"x", "y"}}});
    return example("hellaswag", given).choices.front().context;
  };
  EXPECT_EQ(context_of("Rowing", "A man sits in a boat.", "the Man ROWS"),
            "Rowing: A man sits in a boat. The man rows");
  // Without a second half a space would be left at the end.
  EXPECT_EQ(context_of("Rowing", "A man rows.", ""), "Rowing: A man rows.");
  EXPECT_EQ(context_of("Home", "[header] How to row [title] Buy oars. [step] Go.", "[substeps] in a shop"),
            "Home: How to row. Buy oars. Go. in a shop");
  EXPECT_EQ(context_of("A", "[title] b", "c"), "A:. b C");
  EXPECT_EQ(context_of("A", "b [x", "]c [y\nz] d] [[e]"), "A: b c [y\nz] d] ");
  EXPECT_EQ(context_of("A", "b    c   d", "e"), "A: b  c  d E");  // in one pass
  EXPECT_EQ(context_of("A", "b", "\u00e9T\u00c9 \u039f\u03a3"), "A: b \u00c9t\u00e9 \u03bf\u03c2");
  EXPECT_EQ(context_of("A", "b", "\u01c6"), "A: b \u01c5");  // title case is not upper case

  const ChoiceExample cleaned =
      example("hellaswag", document({{"activity_label", "A"}, {"ctx_a", "b"}, {"ctx_b", "c"}, {"label", "2"}},
                                    {{"endings", {" a [step] b\n", "c [title] d", "e"}}}));
  EXPECT_EQ(cleaned.choices[0].text, " a b");
  EXPECT_EQ(cleaned.choices[1].text, " c. d");
  EXPECT_EQ(cleaned.answer, 2);
}

TEST(Benchmark, LettersTheChoicesOfMmlu) {
  std::vector<TaskDocument> read =
      documents_of_csv(" What? ,this,\"a \"\"b\"\",\nc\",B\n\nq,x,y,A\r\n", "f.csv", "high_school_art");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[1].where, "f.csv:4");
  EXPECT_EQ(read[1].text("answer"), "A");
  const ChoiceExample made = example("mmlu", read[0]);
  EXPECT_EQ(made.choices[1].context, "What?\nA. this\nB. a \"b\",\nc\nAnswer:");
  EXPECT_EQ(made.choices[1].text, " B");
  EXPECT_EQ(made.answer, 1);
  const std::string description =
      "The following are multiple choice questions (with answers) about high school art.\n\n";
  EXPECT_EQ(Shots(*find_benchmark("MMLU"), {}, 0, 1).before(read[0]), description);
  EXPECT_EQ(Shots(*find_benchmark("mmlu"), read, 1, 1).before(read[1]),
            description + made.choices[1].context + " B\n\n");
  EXPECT_THROW(Shots(*find_benchmark("mmlu"), read, 3, 1), ConfigError);
  EXPECT_THROW(documents_of_csv("a,b,c,\"d", "f.csv", ""), DataError);
  std::int64_t subjects = 0;
  for (const char* subject : {"anatomy", "virology", "sociology", "prehistory"})
    subjects += !mmlu_category(subject).empty();
  EXPECT_EQ(subjects, 4);
  EXPECT_EQ(mmlu_category("art"), "");
}

TEST(Benchmark, ReadsAnswersInEverySpelling) {
  const TaskDocument original =
      document({{"question.stem", "Who rows?"}, {"answerKey", "2 "}},
               {{"question.choices.text", {"a", "b"}}, {"question.choices.label", {"1", "2"}}});
  EXPECT_EQ(example("arc_easy", original).answer, 1);
  EXPECT_EQ(example("arc_easy", original).choices[0].context, "Question: Who rows?\nAnswer:");
  EXPECT_EQ(example("openbookqa", original).choices[0].context, "Who rows?");
  const TaskDocument blank =
      document({{"sentence", "The _ rows the boat. "}, {"option1", "man"}, {"option2", "dog"}, {"answer", "2"}});
  EXPECT_EQ(example("winogrande", blank).answer, 1);
  EXPECT_EQ(example("winogrande", blank).choices[1].context, "The dog");
  EXPECT_EQ(example("winogrande", blank).choices[1].text, " rows the boat.");
  EXPECT_THROW(
      example("winogrande", document({{"sentence", "no"}, {"option1", "a"}, {"option2", "b"}, {"answer", "1"}})),
      DataError);
  EXPECT_THROW(example("boolq", document({{"passage", "p"}, {"question", "q"}, {"label", "2"}})), DataError);
  EXPECT_EQ(example("lambada_openai", document({{"text", "one"}})).choices[0].text, " one");
}

TEST(Benchmark, CutsPagesIntoWindowsThatScoreEachTokenOnce) {
  const auto tokenizer = make_byte_tokenizer();
  BenchmarkTexts set(*find_benchmark("wikitext"), *tokenizer, {4, true});
  for (const TaskDocument& page : documents_of_pages("\n = A = \nab\n = = B = = \n", "f")) set.add(page, "");
  for (const TaskDocument& page : documents_of_pages("x\n = A = \n", "f")) set.add(page, "");
  ASSERT_EQ(set.size(), 3);
  EXPECT_EQ(text_of(set.texts(), 0), "| = A");
  EXPECT_EQ(set.texts().scored(), 19 + 1 + 6);  // " = A =\nab\n == B ==\n", "x", " = A =\n" without the spaces of ends
  std::vector<TextScore> scores(static_cast<std::size_t>(set.texts().size()), {.loss = 1});
  const BenchmarkResult result = set.result(scores, 0);
  EXPECT_DOUBLE_EQ(result.metrics[2].value, static_cast<double>(scores.size()) / (9 + 3 + 10 + 1 + 9) / std::log(2));
}

}  // namespace
}  // namespace trireme::data
