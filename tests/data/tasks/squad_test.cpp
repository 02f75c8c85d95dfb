#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "io/json/task_json.hpp"
#include "src/data/tasks/squad_answers.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::data {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr PairTokens pair_tokens{2, 3, 0};

const WordPieceTokenizer& tokenizer() {
  static const WordPieceTokenizer made(
      {{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "##d", "e", "."}, true});
  return made;
}

SquadQuestion question(std::string id, std::vector<SquadAnswer> answers) {
  SquadQuestion made{std::move(id), "a b c", answers.empty(), std::move(answers)};
  return made;
}

SquadFile file_of(std::string context, std::vector<SquadQuestion> questions, bool has_impossible = false) {
  return {"s.json", has_impossible, {{std::move(context), std::move(questions)}}};
}

TEST(SquadWindows, TokensOfTheAnswerOverlapIt) {
  // Tokens: e, [UNK], "c" "##d", ".", e. An accent and a character beyond the BMP precede the answers.
  const SquadFile file = file_of("\u00E9 \U0001F600 cd. e", {question("x", {{"d", 5}}), question("y", {{"cd. e", 4}})});
  BadLines bad;
  const SquadExamples examples(file, tokenizer(), {16, 128, 2, pair_tokens}, true, bad);
  ASSERT_EQ(examples.windows().size(), 2u);
  // [CLS] a b [SEP] e [UNK] c ##d . e [SEP]: the question is cut to two tokens.
  const PackedPair packed = examples.packed(examples.windows()[0]);
  EXPECT_THAT(packed.tokens, ElementsAre(2, 5, 6, 3, 10, 1, 7, 9, 11, 10, 3));
  EXPECT_THAT(packed.token_types, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_EQ(examples.windows()[0].start, 7);
  EXPECT_EQ(examples.windows()[0].end, 7);
  EXPECT_EQ(examples.windows()[1].start, 6);
  EXPECT_EQ(examples.windows()[1].end, 9);
}

TEST(SquadWindows, StartAStrideApartUntilTheContextEnds) {
  // Ten tokens; room for 8 - 1 - 3 = 4 of them.
  const SquadFile file = file_of("a b c d e a b c d e", {question("x", {{"a b", 10}})});
  BadLines bad;
  const auto windows_of = [&](std::int64_t stride) {
    const SquadExamples examples(file, tokenizer(), {8, stride, 1, pair_tokens}, false, bad);
    std::vector<std::vector<std::int64_t>> rows;
    for (const SquadWindow& w : examples.windows()) rows.push_back({w.first_token, w.tokens, w.start, w.end});
    return rows;
  };
  // Tokens 5 and 6 are at positions 3 + 5 - first.
  EXPECT_THAT(windows_of(3), ElementsAre(ElementsAre(0, 4, 0, 0), ElementsAre(3, 4, 5, 6), ElementsAre(6, 4, 0, 0)));
  EXPECT_THAT(windows_of(128), ElementsAre(ElementsAre(0, 4, 0, 0), ElementsAre(4, 4, 4, 5), ElementsAre(8, 2, 0, 0)));
}

TEST(SquadWindows, BadQuestionsAreErrorsOrSkippedAndCounted) {
  const auto message = [](const SquadFile& file, SquadOptions options = {16, 128, 64, pair_tokens}) {
    return test::message_of([&] {
      BadLines bad;
      SquadExamples(file, tokenizer(), options, true, bad);
    });
  };
  EXPECT_THAT(message(file_of("a b", {question("x", {{"b c", 2}})})), HasSubstr("where 'b' is"));
  EXPECT_THAT(message(file_of("a b", {question("x", {{"b", 99}})})), HasSubstr("not at character 99"));
  EXPECT_THAT(message(file_of("a b", {question("x", {{"", 1}})})), HasSubstr("an answer is empty"));
  EXPECT_THAT(message(file_of("a b", {question("x", {{"a", 0}}), question("x", {{"a", 0}})})),
              HasSubstr("id occurs twice"));
  EXPECT_THAT(message(file_of(" \n", {question("x", {})})), HasSubstr("the context is empty"));
  SquadQuestion contradiction = question("x", {{"a", 0}});
  contradiction.is_impossible = true;
  EXPECT_THAT(message(file_of("a", {contradiction})), HasSubstr("has answers, though it is called impossible"));
  contradiction = question("x", {});
  contradiction.is_impossible = false;
  EXPECT_THAT(message(file_of("a", {contradiction})), HasSubstr("the question has no answer"));
  EXPECT_THAT(message(file_of("a", {question("x", {{"a", 0}})}), {6, 128, 64, pair_tokens}),
              HasSubstr("a sample of <seq_length> 6 has no room for the context"));
  EXPECT_THAT(message(file_of("a b c d", {question("x", {{"a b c", 0}})}), {8, 1, 64, pair_tokens}),
              HasSubstr("no window of 2 tokens of the context holds the answer's 3"));
  BadLines skipping(true);
  const SquadFile file = file_of("a b", {question("x", {{"b", 1}}), question("y", {{"b", 2}})});
  const SquadExamples examples(file, tokenizer(), {16, 128, 64, pair_tokens}, true, skipping);
  EXPECT_EQ(examples.questions().size(), 1u);
  EXPECT_EQ(skipping.count(), 1);
}

class SquadPredictions : public ::testing::Test {
 protected:
  SquadPrediction predict(const SquadExamples& examples, const std::vector<std::vector<float>>& starts,
                          const std::vector<std::vector<float>>& ends) const {
    std::vector<SpanLogits> logits;
    for (std::size_t i = 0; i < starts.size(); ++i) logits.push_back({starts[i], ends[i]});
    return predict_answer(examples, 0, logits, options_);
  }
  SquadPredictionOptions options_;
  BadLines bad_;
};

TEST_F(SquadPredictions, TheBestSpanInTheContextIsCutOutOfIt) {
  // [CLS] a [SEP] A. cd [SEP]: the context is at positions 3 to 6.
  const SquadFile file = file_of("A. cd", {question("x", {{"A", 0}})});
  const SquadExamples examples(file, tokenizer(), {16, 128, 1, pair_tokens}, false, bad_);
  // The best start and end lie in the question; the next best pair is reversed.
  const SquadPrediction best = predict(examples, {{0, 9, 0, 1, 0, 5, 0, 0}}, {{0, 9, 0, 0, 6, 0, 4, 0}});
  EXPECT_EQ(best.text, "cd");  // 5 + 4 exceeds 1 + 6
  ASSERT_GE(best.n_best.size(), 2u);
  EXPECT_EQ(best.n_best[1].text, "A.");
  EXPECT_NEAR(best.n_best[0].probability / best.n_best[1].probability, std::exp(2.0), 1e-9);
  double sum = 0;
  for (const SquadCandidate& candidate : best.n_best) sum += candidate.probability;
  EXPECT_NEAR(sum, 1, 1e-12);
  options_.max_answer_length = 1;
  EXPECT_EQ(predict(examples, {{0, 0, 0, 1, 0, 5, 0, 0}}, {{0, 0, 0, 0, 6, 0, 4, 0}}).text, ".");  // 0 + 6 > 5 + 0
  options_.n_best = 1;  // the only pair is reversed
  EXPECT_EQ(predict(examples, {{0, 0, 0, 1, 0, 5, 0, 0}}, {{0, 0, 0, 0, 6, 0, 4, 0}}).text, "");
}

TEST_F(SquadPredictions, TheThresholdSelectsNoAnswer) {
  const SquadFile file = file_of("A. cd", {question("x", {})}, true);
  const SquadExamples examples(file, tokenizer(), {16, 128, 1, pair_tokens}, false, bad_);
  const std::vector<std::vector<float>> starts{{4, 0, 0, 3, 0, 0, 0, 0}}, ends{{4, 0, 0, 3, 0, 0, 0, 0}};
  SquadPrediction prediction = predict(examples, starts, ends);
  EXPECT_EQ(prediction.text, "");
  EXPECT_EQ(prediction.null_odds, 2);
  EXPECT_EQ(prediction.n_best[0].text, "");
  EXPECT_EQ(prediction.n_best[1].text, "A");
  options_.null_threshold = 2;  // not exceeded
  EXPECT_EQ(predict(examples, starts, ends).text, "A");
}

TEST_F(SquadPredictions, APositionCountsInTheWindowWithMostContext) {
  // Windows of 4 tokens, 2 apart: tokens 0-3, 2-5 and 4-6.
  const SquadFile file = file_of("a b c d e a b", {question("x", {})}, true);
  const SquadExamples examples(file, tokenizer(), {8, 2, 1, pair_tokens}, false, bad_);
  ASSERT_EQ(examples.windows().size(), 3u);
  // Token 3 has no token after it in window 0 and one before it in window 1, so it can start only there.
  std::vector<std::vector<float>> starts(3, std::vector<float>(8, 0)), ends = starts;
  starts[0][6] = 50;
  EXPECT_NE(predict(examples, starts, ends).n_best[0].text, "d");
  starts[1][4] = 20, ends[1][4] = 20;
  EXPECT_EQ(predict(examples, starts, ends).text, "d");
  // The null score is the minimum over the windows: 30 - 40 < 0.
  starts[0][0] = starts[1][0] = 30, starts[2][0] = 15;
  ends[0][0] = ends[1][0] = 30, ends[2][0] = 15;
  EXPECT_EQ(predict(examples, starts, ends).null_odds, -10);
}

TEST(SquadNormaliser, RemovesCasePunctuationArticlesAndWhiteSpaceInThisOrder) {
  EXPECT_EQ(normalized_answer("The  Quick\tBrown\n Fox"), "quick brown fox");
  EXPECT_EQ(normalized_answer("  A U.S.-led, (an) attack! "), "usled attack");
  EXPECT_EQ(normalized_answer("theatre another a1 a_b"), "theatre another a1 ab");  // the underscore is punctuation
  EXPECT_EQ(normalized_answer("a.b a. b"), "ab b");  // punctuation is removed before articles
  EXPECT_EQ(normalized_answer("t-h-e end"), "end");
  EXPECT_EQ(normalized_answer("the the"), "");
  EXPECT_EQ(normalized_answer("\u00C9A the\u00A0end an\u2013a"), "\u00E9a end \u2013");  // non-ASCII dashes stay
  EXPECT_EQ(normalized_answer("\u0391\u03A3 th\u00E9 \u0130"), "\u03B1\u03C2 th\u00E9 i\u0307");
}

TEST(SquadMetrics, FollowTheOfficialDefinitions) {
  const auto expect = [](std::string_view prediction, std::string_view answer, bool version_2, double exact,
                         double f1) {
    const AnswerScore score = score_answer(prediction, answer, version_2);
    EXPECT_EQ(score.exact, exact) << prediction << " / " << answer;
    EXPECT_THAT(score.f1, DoubleNear(f1, 1e-15)) << prediction << " / " << answer;
  };
  for (const bool version_2 : {false, true}) {
    expect("The Denver Broncos!", "denver broncos", version_2, 1, 1);
    expect("Broncos", "Denver Broncos", version_2, 0, 2.0 / 3);  // p = 1, r = 1/2
    expect("x y", "z", version_2, 0, 0);
    // Words count with multiplicity: "b" twice of three, p = 2/3, r = 2/4, f1 = 2 (1/3) / (7/6) = 4/7.
    expect("b b b", "b b c d", version_2, 0, 4.0 / 7);
    expect("", "x", version_2, 0, 0);
  }
  expect("the", "an", false, 1, 0);  // equal, but no common words
  expect("the", "an", true, 1, 1);
  expect("", "", true, 1, 1);
  expect("x", "", true, 0, 0);
}

constexpr const char* hand_made = R"({"version": "v2.0", "data": [{"title": "t", "paragraphs": [
  {"context": "In 1066 the Normans of \u00c9vreux, an old town, won.", "qas": [
    {"id": "q1", "question": "Who won?", "is_impossible": false,
     "answers": [{"text": "the Normans", "answer_start": 8}, {"text": "the Normans of \u00c9vreux", "answer_start": 8}]},
    {"id": "q2", "question": "When?", "is_impossible": false, "answers": [{"text": "1066", "answer_start": 3}]},
    {"id": "q3", "question": "Why?", "is_impossible": true, "answers": []},
    {"id": "q4", "question": "Where?", "is_impossible": true, "answers": []},
    {"id": "q5", "question": "Which?", "is_impossible": false, "answers": [{"text": "an", "answer_start": 31}]}
  ]}]}]})";

TEST(SquadMetrics, AverageOverQuestionsTheBestOfTheirAnswers) {
  BadLines bad;
  const SquadFile file = io::parse_squad(hand_made, "s.json", bad);
  EXPECT_TRUE(file.has_impossible);
  const SquadExamples examples(file, tokenizer(), {64, 128, 64, pair_tokens}, false, bad);
  const SquadScores scores = score_squad(
      examples, {{"q1", "Normans, of"}, {"q2", "1066."}, {"q3", ""}, {"q4", "Hastings"}, {"q5", "old town"}});
  // q1: exact 0. Against "normans": p 1/2, r 1, f1 2/3; against "normans of evreux": p 1, r 2/3, f1 4/5, the best.
  // q2: 1, 1. q3: both empty, 1, 1. q4: 0, 0. q5: the answer is empty without its article, the prediction not: 0, 0.
  EXPECT_EQ(scores.all.questions, 5);
  EXPECT_DOUBLE_EQ(scores.all.exact, 100 * 2.0 / 5);
  EXPECT_DOUBLE_EQ(scores.all.f1, 100 * (0.8 + 1 + 1) / 5);
  EXPECT_EQ(scores.with_answer.questions, 3);
  EXPECT_DOUBLE_EQ(scores.with_answer.exact, 100 * 1.0 / 3);
  EXPECT_DOUBLE_EQ(scores.with_answer.f1, 100 * 1.8 / 3);
  EXPECT_EQ(scores.without_answer.questions, 2);
  EXPECT_DOUBLE_EQ(scores.without_answer.exact, 50);
  // No prediction scores 0; "the" is an answer without words, as q5's.
  EXPECT_DOUBLE_EQ(score_squad(examples, {{"q5", "the"}}).all.f1, 20);
}

TEST(SquadFiles, MissingAndWrongMembersAreNamed) {
  const auto message = [](const std::string& text) {
    return test::message_of([&] {
      BadLines bad;
      io::parse_squad(text, "s.json", bad);
    });
  };
  const auto in_paragraph = [](const std::string& members) {
    return R"({"data": [{"paragraphs": [{)" + members + "}]}]}";
  };
  const auto in_question = [&](const std::string& members) {
    return in_paragraph(R"("context": "a b", "qas": [{)" + members + "}]");
  };
  EXPECT_THAT(message("{\n\"data\": [}"), HasSubstr("s.json: not JSON: parse error at line 2, column 10: "));
  EXPECT_EQ(message(R"({"data": {}})"), "s.json: \"data\" is an object instead of an array");
  EXPECT_EQ(message(in_paragraph(R"("qas": [])")), "s.json: \"data\"[0]: \"paragraphs\"[0]: there is no \"context\"");
  EXPECT_THAT(message(in_question("")), HasSubstr("\"qas\"[0]: there is no \"id\""));
  EXPECT_THAT(message(in_question(R"("id": "x", "question": "?", "answers": [{"text": "a"}])")),
              HasSubstr("question 'x': \"answers\"[0]: there is no \"answer_start\""));
  EXPECT_THAT(message(in_question(R"("id": "x", "question": "?", "answers": [{"text": "a", "answer_start": -1}])")),
              HasSubstr("\"answer_start\" is -1, but must be at least 0"));
  BadLines skipping(true);
  EXPECT_TRUE(io::parse_squad(in_question(R"("id": 1)"), "s.json", skipping).paragraphs[0].questions.empty());
  EXPECT_EQ(skipping.count(), 1);
}

TEST(SquadFiles, PredictionsAreInTheOfficialForm) {
  EXPECT_EQ(io::squad_predictions_json({{"b", "caf\u00E9"}, {"a", ""}}),
            "{\n    \"a\": \"\",\n    \"b\": \"caf\u00E9\"\n}\n");
  const SquadPrediction prediction{"x", {{"x", 1, 2, 1}}, 0};
  EXPECT_THAT(io::squad_n_best_json({{"q", prediction}}), HasSubstr("\"probability\": 1.0"));
}

}  // namespace
}  // namespace trireme::data
