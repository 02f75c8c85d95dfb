#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "io/json/task_json.hpp"
#include "src/data/tasks/glue.hpp"
#include "src/data/tasks/race.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::data {
namespace {

using testing::HasSubstr;

TEST(TaskText, LinesEndAsInPython) {
  std::vector<std::string> lines;
  for (TextLines each("a\nb\r\nc\rd\n\ne"); each.next();) lines.emplace_back(each.line());
  EXPECT_EQ(lines, (std::vector<std::string>{"a", "b", "c", "d", "", "e"}));
  EXPECT_FALSE(TextLines("").next());
}

TEST(TaskText, IntegersMatchPython) {
  EXPECT_EQ(whole_number(" 12\u00A0"), 12);
  EXPECT_EQ(whole_number("+7"), 7);
  EXPECT_EQ(whole_number("-0"), 0);
  EXPECT_EQ(whole_number("1_000"), 1000);
  for (const char* text : {"", "-", "1_", "_1", "1__0", "1.0", "x1", "1 2", "--1", "99999999999999999999"}) {
    EXPECT_EQ(whole_number(text), std::nullopt) << text;
  }
}

TEST(Glue, BadLinesAreErrorsOrSkippedAndCounted) {
  const std::string header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n";
  const TaskFile file{"q.tsv",
                      header + "1\t1\t2\ta\tb\t1\n\n2\t1\t2\ta\tb\t2\n3\t1\t2\ta\xFF\tb\t0\n4\t1\t2\tc\td\t0\n"};
  BadLines stopping, skipping(true);
  EXPECT_EQ(test::message_of([&] { read_glue(*find_glue_task("QQP"), file, stopping); }),
            "q.tsv:3: the line has 1 columns instead of 6. <on_bad_line> skip leaves such lines out");
  const GlueExamples examples = read_glue(*find_glue_task("QQP"), file, skipping);
  ASSERT_EQ(examples.pairs.size(), 2u);
  EXPECT_EQ(examples.pairs[1].id, 4);
  EXPECT_EQ(skipping.count(), 3);
  EXPECT_THAT(skipping.messages(),
              testing::ElementsAre(HasSubstr("q.tsv:3: the line has 1 columns"), HasSubstr("q.tsv:4"),
                                   HasSubstr("q.tsv:5: the line has bytes that are not UTF-8")));
  BadLines bad;
  EXPECT_TRUE(read_glue(*find_glue_task("MNLI"), {"empty.tsv", ""}, bad).pairs.empty());
  for (const char* row : {"1\ttwo", "1\t1\t2\t \tb\t1", "1\t1\t2\ta\t\t1"}) {
    EXPECT_THAT(test::message_of([&] {
                  read_glue(*find_glue_task("QQP"), {"q.tsv", header + row + "\n"}, stopping);
                }),
                testing::AllOf(HasSubstr("q.tsv:2: "), HasSubstr("<on_bad_line> skip leaves such lines out")))
        << row;
  }
}

TEST(Glue, FilesWithoutTheirHeaderAreRefused) {
  BadLines bad;
  const auto message = [&](const GlueTask& task, const char* row) {
    return test::message_of([&] { read_glue(task, {"g.tsv", row}, bad); });
  };
  EXPECT_EQ(message(*find_glue_task("MNLI"), "0\tp\tq\tg\t(\t)\t(\t)\ta\tb\tneutral\n"),
            "g.tsv:1: the line is an example, number 0, but files of MNLI begin with a header. Put it back");
  EXPECT_THAT(message(*find_glue_task("QQP"), "17\t1\t2\ta\tb\t1\n"),
              HasSubstr("number 17, but files of QQP begin with"));
}

TEST(Glue, PredictionsOfMnliHaveItsNamesOfLabels) {
  EXPECT_EQ(glue_predictions(*find_glue_task("MNLI"), std::vector<std::int64_t>{7, 0, 9},
                             std::vector<std::int32_t>{0, 1, 2}, {}),
            "index\tprediction\n7\tcontradiction\n0\tentailment\n9\tneutral\n");
}

/// Returns the pairs of a file as "id:a|b=label" and spaces.
std::string pairs_of(const char* task, const std::string& text) {
  BadLines bad;
  std::string pairs;
  for (const TextPair& pair : read_glue(*find_glue_task(task), {"g.tsv", text}, bad).pairs) {
    pairs += fmt::format("{}:{}|{}={} ", pair.id, pair.a, pair.b, pair.label);
  }
  return pairs;
}

TEST(Glue, EachTaskHasItsColumns) {
  const std::string sentences = "index\tsentence1\tsentence2\tlabel\n";
  EXPECT_EQ(pairs_of("RTE", sentences + "4\ta\tb\tnot_entailment\n7\tc\td\tentailment\n"), "4:a|b=1 7:c|d=0 ");
  EXPECT_EQ(pairs_of("QNLI", "index\tquestion\tsentence\tlabel\n4\ta\tb\tnot_entailment\n"), "4:a|b=1 ");
  EXPECT_EQ(pairs_of("WNLI", sentences + "4\ta\tb\t1\n"), "4:a|b=1 ");
  EXPECT_EQ(pairs_of("RTE", "index\tsentence1\tsentence2\n4\ta\tb\n"), "4:a|b=0 ");
  EXPECT_EQ(pairs_of("MRPC", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t55\t66\ta\tb\n0\t7\t8\tc\td\n"),
            "0:a|b=1 1:c|d=0 ");
  EXPECT_EQ(pairs_of("MRPC", "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n9\t55\t66\ta\tb\n"), "9:a|b=0 ");
  EXPECT_EQ(pairs_of("SST-2", "sentence\tlabel\na b \t1\nc \t0\n"), "0:a b|=1 1:c|=0 ");
  EXPECT_EQ(pairs_of("SST-2", "index\tsentence\n3\ta\n"), "3:a|=0 ");
  EXPECT_EQ(pairs_of("CoLA", "gj04\t1\t\ta b .\ngj04\t0\t*\tc .\n"), "0:a b .|=1 1:c .|=0 ");
  EXPECT_EQ(pairs_of("CoLA", "index\tsentence\n3\ta\n"), "3:a|=0 ");
}

TEST(Glue, SimilaritiesAreNumbers) {
  const std::string columns = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2";
  const std::string header = columns + "\tscore\n", row = "\tg\tf\t2012\t8\tx\ty\ta\tb";
  const GlueTask& task = *find_glue_task("STS-B");
  BadLines bad;
  const GlueExamples examples =
      read_glue(task, {"s.tsv", header + "4" + row + "\t3.800\n7" + row + "\t-0\n9" + row + "\t5\n"}, bad);
  ASSERT_EQ(examples.pairs.size(), 3u);
  EXPECT_EQ(examples.pairs[0].a + examples.pairs[0].b, "ab");
  EXPECT_EQ(value_of_label(examples.pairs[0].label), double{3.8F});
  EXPECT_EQ(examples.pairs[1].label, 0);  // negative labels are none
  EXPECT_EQ(value_of_label(examples.pairs[2].label), 5);
  EXPECT_TRUE(read_glue(task, {"t.tsv", columns + "\n4" + row + "\n"}, bad).is_test);
  for (const char* label : {"5.001", "-1", "nan", "inf", "1,5", ""}) {
    EXPECT_THAT(test::message_of([&] {
                  read_glue(task, {"s.tsv", header + "4" + row + "\t" + label + "\t\n"}, bad);
                }),
                HasSubstr("s.tsv:2: "))
        << label;
  }
  EXPECT_EQ(test::message_of([&] {
              read_glue(task, {"s.tsv", header + "4" + row + "\t5.001\n"}, bad);
            }),
            "s.tsv:2: unknown label '5.001' instead of a number from 0 to 5");
  EXPECT_EQ(glue_predictions(task, std::vector<std::int64_t>{4}, {}, std::vector<double>{3.25}),
            "index\tprediction\n4\t3.25\n");
}

TEST(Metrics, CorrelationsMatchScipy) {
  // scipy.stats 1.17.1: pearsonr, spearmanr.
  const std::vector<double> x = {1, 2, 2, 4, 5.5, 0}, y = {2, 1, 3, 3, 9, 2};
  EXPECT_NEAR(pearson(x, y), 0.80158223977956866, 1e-15);
  EXPECT_NEAR(spearman(x, y), 0.70157068498117514, 1e-15);
  const std::vector<double> constant(6, 0.1);
  EXPECT_EQ(pearson(x, constant), 0);
  EXPECT_EQ(spearman(constant, y), 0);
  EXPECT_EQ(spearman(x, std::vector<double>{10, 20, 20, 40, 400, 1}), 1);
}

TEST(Glue, AHeaderIsNoExample) {
  BadLines bad;
  const auto message = [&](const char* task, const char* text) {
    return test::message_of([&] { read_glue(*find_glue_task(task), {"g.tsv", text}, bad); });
  };
  EXPECT_EQ(message("SST-2", "a b\t1\n"),
            "g.tsv:1: the line is an example of 1, but files of SST-2 begin with a header. Put it back");
  EXPECT_THAT(message("MRPC", "1\t55\t66\ta\tb\n"), HasSubstr("number 1, but files of MRPC begin with a header"));
  EXPECT_THAT(message("RTE", "a\tb\n"), HasSubstr("the header has 2 columns instead of 4, or 3 in a test"));
  EXPECT_THAT(message("CoLA", "gj04\t2\t\ta\n"), HasSubstr("g.tsv:1: unknown label '2' instead of 0 or 1"));
}

TEST(Glue, ClassesAreFoundByTheNamesOfPublishedModels) {
  using Names = std::vector<std::string_view>;
  using Columns = std::vector<std::int64_t>;
  const auto found = [](const char* task, const Names& names) {
    return find_glue_classes(*find_glue_task(task), names);
  };
  EXPECT_EQ(found("MNLI", {"ENTAILMENT", "Neutral", "contradiction"}), (Columns{2, 0, 1}));
  EXPECT_EQ(found("QQP", {"duplicate", "not_duplicate"}), (Columns{1, 0}));
  EXPECT_EQ(found("QNLI", {"not-entailment", "entailment"}), (Columns{1, 0}));
  EXPECT_EQ(found("WNLI", {"not_entailment", "entailment"}), (Columns{0, 1}));
  EXPECT_EQ(found("SST-2", {"POSITIVE", "NEGATIVE"}), (Columns{1, 0}));
  EXPECT_EQ(found("SST-2", {"0", "other"}), (Columns{0, -1}));
  for (const GlueTask& task : glue_tasks()) {
    const std::vector<std::string> names = glue_names(task);
    const Columns columns = found(std::string(task.name).c_str(), Names(names.begin(), names.end()));
    for (std::size_t i = 0; i < columns.size(); ++i) EXPECT_EQ(columns[i], static_cast<std::int64_t>(i)) << task.name;
  }
  EXPECT_EQ(glue_names(*find_glue_task("QQP")), (std::vector<std::string>{"not_duplicate", "duplicate"}));
}

std::string race_line(const std::string& article, const std::string& options, const std::string& answers) {
  return R"({"article": ")" + article + R"(", "questions": ["who _ ?"], "options": )" + options + R"(, "answers": )" +
         answers + "}\n";
}

TEST(Race, BadLinesAreErrorsOrSkippedAndCounted) {
  const auto tokenizer = make_byte_tokenizer();
  const std::string good = race_line("a", R"([["w", "x", "y", "z"]])", R"(["C"])");
  const auto message = [&](const std::string& line) {
    return test::message_of([&] {
      BadLines bad;
      RaceExamples examples;
      add_race({"r.txt", good + line}, io::parse_race_article, *tokenizer, 128, bad, examples);
    });
  };
  EXPECT_EQ(message(race_line(" \\u3000", R"([["w", "x", "y", "z"]])", R"(["C"])")), "r.txt:2: the article is empty");
  EXPECT_THAT(message(race_line("a", R"([["w", "x", "y", "z"]])", "[]")), HasSubstr("1 questions, but 0 answers"));
  EXPECT_THAT(message(race_line("a", R"([["w", "x", "y"]])", R"(["C"])")), HasSubstr("question 1 has 3 options"));
  for (const char* answer : {"E", "a", "", "AB", "@"}) {
    EXPECT_THAT(message(race_line("a", R"([["w", "x", "y", "z"]])", R"([")" + std::string(answer) + R"("])")),
                HasSubstr("r.txt:2: question 1 has the answer"));
  }
  EXPECT_THAT(message("\n"), HasSubstr("r.txt:2: not JSON"));

  BadLines skipping(true);
  RaceExamples examples;
  add_race({"r.txt", "{}\n" + good + "\n"}, io::parse_race_article, *tokenizer, 6, skipping, examples);
  EXPECT_EQ(skipping.count(), 2);
  ASSERT_EQ(examples.questions.size(), 1u);
  EXPECT_EQ(examples.questions[0].label, 2);
  const auto tokens = examples.packed(examples.questions[0], 3, 20, {256, 256, 256}).tokens;
  EXPECT_EQ(std::string(tokens.begin() + 1, tokens.begin() + 7), "who z ");
}

TEST(EpochSamples, EachEpochHasItsOwnOrderAndKeepsTheChoicesOfAQuestionTogether) {
  const auto tokenizer = make_byte_tokenizer();
  std::string text;
  for (int i = 0; i < 5; ++i)
    text += race_line(std::string(1, static_cast<char>('a' + i)), R"([["w", "x", "y", "z"]])", R"(["C"])");
  BadLines bad;
  RaceExamples made;
  add_race({"r.txt", text}, io::parse_race_article, *tokenizer, 128, bad, made);
  const RaceSamples samples({20, {256, 256, 0}}, std::move(made));
  EXPECT_EQ(samples.labels(), 5);
  const EpochSamples epochs(samples, 7, 3, 4);
  EXPECT_EQ(epochs.size(), 3 * 4 * 4);
  const SampleBuffer buffer(20, epochs.fields());
  std::vector<std::string> articles;
  for (std::int64_t i = 0; i < epochs.size(); ++i) {
    epochs.read(i, buffer.view());
    const auto& tokens = buffer.view().tokens;
    // [CLS] "who C ?" [SEP] article [SEP]
    EXPECT_EQ(tokens[5], "wxyz"[i % 4]);
    EXPECT_EQ(buffer.view().length[0], 11);
    EXPECT_EQ(buffer.view().last_token[0], 10);
    EXPECT_EQ(tokens[11], 0);
    EXPECT_EQ(buffer.view().is_random[0], 2);
    if (i % 16 == 0) articles.emplace_back();
    if (i % 4 == 0) articles.back() += static_cast<char>(tokens[9]);
    EXPECT_EQ(tokens[9], articles.back().back());
  }
  for (const std::string& order : articles) {
    EXPECT_EQ(std::set<char>(order.begin(), order.end()).size(), 4u);
  }
  EXPECT_EQ(std::set<std::string>(articles.begin(), articles.end()).size(), 3u);
  epochs.read(0, buffer.view());  // an order that was evicted and made again
  EXPECT_EQ(buffer.view().tokens[9], articles[0][0]);
}

}  // namespace
}  // namespace trireme::data
