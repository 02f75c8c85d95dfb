#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include "src/base/error.hpp"
#include "src/plan/cases/csv.hpp"
#include "src/plan/cases/published_schedule.hpp"
#include "src/plan/cases/run_prediction.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Csv, ReadsQuotesLineEndsAndLineNumbers) {
  const std::vector<CsvRecord> records = parse_csv("a.csv",
                                                   "\xef\xbb\xbf"
                                                   "a,b\r\n\"1,5\",\"say \"\"x\"\"\"\n\n\"two\nlines\",\nlast,\"\"");
  ASSERT_EQ(records.size(), 4u);
  EXPECT_THAT(records[0].fields, ElementsAre("a", "b"));
  EXPECT_THAT(records[1].fields, ElementsAre("1,5", "say \"x\""));
  EXPECT_THAT(records[2].fields, ElementsAre("two\nlines", ""));
  EXPECT_THAT(records[3].fields, ElementsAre("last", ""));
  EXPECT_EQ(records[2].line, 4);
  EXPECT_EQ(records[3].line, 6);
  EXPECT_TRUE(parse_csv("a.csv", "").empty());
}

TEST(Csv, NamesTheLineOfAnInvalidQuote) {
  EXPECT_THAT([] { parse_csv("a.csv", "a\n\"b\n"); }, ThrowsMessage<DataError>(HasSubstr("a.csv, line 2: a quoted")));
  EXPECT_THAT([] { parse_csv("a.csv", "\"b\"c\n"); }, ThrowsMessage<DataError>(HasSubstr("a.csv, line 1: text")));
}

using Fields = std::map<std::string, std::string>;

/// A valid row with some fields replaced.
PublishedRow row_with(const Fields& changes) {
  Fields fields = {{"model", "m"},       {"hidden", "1024"},    {"layers", "8"},
                   {"heads", "16"},      {"vocab", "51200"},    {"seq", "1024"},
                   {"hardware", "A100"}, {"gpus", "8"},         {"tp", "2"},
                   {"pp", "2"},          {"dp", "2"},           {"mbs", "1"},
                   {"gbs", "16"},        {"source", "x"},       {"recompute", "full"},
                   {"schedule", ""},     {"precision", "bf16"}, {"iter_s", ""},
                   {"tflops_gpu", ""},   {"tflops_def", ""},    {"layers_per_virtual_stage", ""}};
  for (const auto& [column, value] : changes) fields[column] = value;
  std::string header, line;
  for (const auto& [column, value] : fields) {
    header += (header.empty() ? "" : ",") + column;
    line += (line.empty() ? "\"" : ",\"") + value + "\"";
  }
  return parse_published_runs("runs.csv", header + "\n" + line + "\n").at(0);
}

TEST(PublishedRuns, AcceptSeveralWordings) {
  EXPECT_EQ(row_with({{"hardware", "V100-SXM3-32GB DGX-2H"}}).run->cluster, "dgx-2h");
  EXPECT_EQ(row_with({{"hardware", "A100-40GB DGX-A100 cluster"}}).run->cluster, "dgx-a100-40gb");
  EXPECT_EQ(row_with({{"hardware", "h100_80gb"}}).run->cluster, "dgx-h100");
  EXPECT_EQ(row_with({{"vocab", "~50k (not stated)"}}).run->vocabulary, 50000);
  EXPECT_EQ(row_with({{"dp", ""}}).run->dp, 2);
  EXPECT_EQ(row_with({{"recompute", "selective + SP"}}).run->recomputation, Recomputation::selective);
  EXPECT_TRUE(row_with({{"recompute", "selective + SP"}}).run->sequence_parallel);
  EXPECT_EQ(row_with({{"schedule", "ZB-1p"}}).run->schedule, PublishedSchedule::zero_bubble_1p);
  EXPECT_EQ(row_with({{"schedule", "1F1B-I (1 layer/chunk)"}, {"layers_per_virtual_stage", "1"}}).run->chunks, 4);
  EXPECT_EQ(row_with({{"schedule", "1F1B interleaved"}, {"layers_per_virtual_stage", "2"}}).run->chunks, 2);
  EXPECT_EQ(row_with({{"schedule", "non-interleaved 1F1B, overlapped p2p"}}).run->schedule,
            PublishedSchedule::one_forward_one_backward);
  EXPECT_EQ(row_with({{"schedule", "FSDP SHARD_GRAD_OP"}, {"tp", "1"}, {"pp", "1"}, {"dp", "8"}}).run->sharding,
            Sharding::gradients);
  EXPECT_EQ(row_with({{"schedule", "DeepSpeed ZeRO-3"}, {"tp", "1"}, {"pp", "1"}, {"dp", "8"}}).run->sharding,
            Sharding::full);
  EXPECT_EQ(row_with({{"program", "Megatron-2019"}}).run->framework.name, "megatron-2019");
  EXPECT_EQ(row_with({{"schedule", "ZB-1p"}}).run->framework.name, "megatron-2021");
  EXPECT_EQ(row_with({{"program", "megatron-2022"}, {"recompute", "selective"}}).run->sequence_parallel, true);
  EXPECT_EQ(row_with({{"tflops_def", "eq3 incl recompute"}}).run->convention, FlopConvention::with_recompute);
  EXPECT_EQ(row_with({{"tflops_def", "model FLOPs, incl. attention"}}).run->convention, FlopConvention::model);
  EXPECT_EQ(row_with({{"tflops_def", "model FLOPs 6N+attn"}}).run->convention, FlopConvention::six_n_attention);
}

TEST(PublishedRuns, NameLineAndColumnOfAnError) {
  const auto expect = [](const Fields& changes, const char* message) {
    const PublishedRow row = row_with(changes);
    EXPECT_FALSE(row.run.has_value());
    EXPECT_THAT(row.error, HasSubstr(message));
  };
  expect({{"hardware", "TPU v4"}}, "runs.csv, line 2, column hardware: 'TPU v4' does not name one of V100");
  expect({{"gpus", "9"}}, "line 2, column gpus: 9 are not a multiple of tp 2 x pp 2");
  expect({{"gbs", "1"}}, "column gbs: 1 are less than dp 2 x mbs 1");
  expect({{"mbs", ""}}, "column mbs: is empty");
  expect({{"mbs", "1.5"}}, "column mbs: '1.5' is not a whole number");
  expect({{"hidden", "wide"}}, "column hidden: 'wide' is not a number");
  expect({{"layers", "1"}}, "column pp: 2 stages for 1 layers");
  expect({{"schedule", "zigzag"}}, "column schedule: 'zigzag' is not one of 1F1B");
  expect({{"schedule", "FSDP"}}, "column schedule: 'FSDP' is not predicted together with tp 2");
  expect({{"schedule", "interleaved"}}, "column layers_per_virtual_stage: is empty");
  expect({{"program", "word2vec"}},
         "column program: 'word2vec' is not one of deepspeed, fsdp, megatron, megatron-2019");
  expect({{"precision", "fp8"}}, "column precision: fp8 needs an H100");
  expect({{"tflops_def", "guess"}}, "column tflops_def: 'guess' is not a known convention");
  expect({{"iter_s", "nan"}}, "column iter_s");
  expect({{"style", "mamba"}}, "column style: 'mamba' is not one of gpt, llama");
  expect({{"kv_heads", "3"}}, "column kv_heads: 3 do not divide 16 heads");
  expect({{"experts", "4"}, {"topk", "8"}}, "column topk: 8 are more than 4 experts");
  expect({{"experts", "4"}, {"ep", "3"}}, "column ep: 3 ranks do not divide 4 experts");
  expect({{"experts", "4"}, {"etp", "4"}}, "column etp: 4 do not divide tp 2");
  expect({{"experts", "4"}, {"ep", "4"}}, "column ep: ep 4 x etp 2 do not divide the 4 GPUs of a stage");
  expect({{"experts", "4"}, {"schedule", "FSDP"}, {"tp", "1"}, {"pp", "1"}, {"dp", "8"}},
         "column schedule: 'FSDP' is not predicted together with experts");
  expect({{"gbs", "1000000000"}}, "column gbs: 500000000 micro-batches on 2 stages are too many");
}

TEST(PublishedRuns, RequireTheirColumnsAndFields) {
  EXPECT_THAT([] { parse_published_runs("runs.csv", "hidden,layers,seq\n"); },
              ThrowsMessage<DataError>(HasSubstr("runs.csv, line 1: the header lacks the columns hardware, gpus")));
  EXPECT_THAT([] { parse_published_runs("runs.csv", ""); }, ThrowsMessage<DataError>(HasSubstr("the file is empty")));
  const auto rows = parse_published_runs("runs.csv", "hidden,layers,seq,hardware,gpus,mbs,gbs\n1,2\n");
  EXPECT_EQ(rows.at(0).error, "runs.csv, line 2: 2 fields, the header has 7 columns");
}

TEST(PublishedRuns, CountFlopsInTheRowsConvention) {
  // B = 16, s = 1024, l = 8, h = 1024, V = 51200: layers 72 B s l h^2 (1 + s / 6h), logits 6 B s h V.
  const double layers = 72.0 * 16 * 1024 * 8 * 1024 * 1024 * 7 / 6, logits = 6.0 * 16 * 1024 * 1024 * 51200;
  EXPECT_DOUBLE_EQ(row_with({}).run->flops(), layers + logits);
  EXPECT_DOUBLE_EQ(row_with({{"tflops_def", "eq3"}}).run->flops(), layers * 4 / 3 + logits);
  EXPECT_DOUBLE_EQ(row_with({{"tflops_def", "hardware FLOPs"}}).run->flops(), layers * 4 / 3 + logits);
  const double parameters = 12.0 * 8 * 1024 * 1024 + 51200.0 * 1024 + 1024.0 * 1024;
  EXPECT_DOUBLE_EQ(row_with({{"tflops_def", "6N+attn"}}).run->flops(),
                   16.0 * 1024 * (6 * parameters + 12.0 * 8 * 1024 * 1024));
}

TEST(PublishedRuns, CountTheExpertsThatComputeAToken) {
  const PublishedRow row = row_with({{"style", "llama"},
                                     {"kv_heads", "4"},
                                     {"experts", "8"},
                                     {"topk", "2"},
                                     {"moe_ffn", "512"},
                                     {"shared_ffn", "256"},
                                     {"ep", "2"}});
  ASSERT_TRUE(row.run) << row.error;
  EXPECT_EQ(row.run->expert_dp(), 1);  // 8 GPUs: 2 stages x 2 expert ranks x 2 tensor ranks
  // Queries and output 1024 wide, keys and values 256 each; a router; gates of 256 and of 2 x 512.
  const double matrices = 1024.0 * (2 * 1024 + 2 * 256 + 8 + 3 * 256 + 2 * 3 * 512);
  const double tokens = 16 * 1024;
  EXPECT_DOUBLE_EQ(row.run->flops(), 6 * tokens * (8 * matrices + 1024.0 * 51200) + 12 * tokens * 8 * 1024 * 1024);
}

TEST(PublishedRuns, ExchangeTokensOverExpertRanksAndThoseThatSplitAnExpert) {
  const auto traffic = [](const char* ep, const char* etp) {
    const PublishedRow row = row_with({{"experts", "8"}, {"ep", ep}, {"etp", etp}, {"hardware", "H100"}});
    return predict_run(row.run.value()).work.of(Traffic::experts).exposed_ms;
  };
  EXPECT_EQ(traffic("1", "1"), 0);
  EXPECT_GT(traffic("2", "1"), 0);
  EXPECT_GT(traffic("2", "2"), traffic("2", "1"));
}

TEST(PublishedRuns, OfExpertsAreNearTheirPredictions) {
  const auto rows = parse_published_runs("published_experts.csv", test::content_of(TRIREME_PUBLISHED_EXPERTS));
  ASSERT_EQ(rows.size(), 43u);
  double sum = 0, worst = 0;
  for (const PublishedRow& row : rows) {
    ASSERT_TRUE(row.run) << row.error;
    const double error = std::abs(predict_run(*row.run).seconds / row.run->published_seconds().value() - 1);
    sum += error;
    worst = std::max(worst, error);
  }
  // No constant is fitted to these rows.
  EXPECT_LE(sum / 43, 0.10);
  EXPECT_LE(worst, 0.21);
}

TEST(ZeroBubbleSchedule, HasNoBubbleWithinRanksGivenTwiceTheMemory) {
  constexpr int p = 8, m = 32;
  ScheduleTimes times{std::vector<ChunkTimes>(p, {1.0, 1.0, 1.0}), 0};
  for (const auto& steps : simulate(zero_bubble_schedule(p, m, 2 * p, 1, times), times).ranks) {
    EXPECT_EQ(steps.size(), 3u * m);
    EXPECT_DOUBLE_EQ(steps.back().end - steps.front().start, 3 * m);
  }
}

/// Relative error of a run.
struct RunError {
  const PublishedRun* run;
  double percent;
};

/// Returns the program of the runs of a source.
std::string program_of(const std::string& source) {
  const std::pair<const char*, const char*> programs[] = {{"Megatron-LM README", "megatron-2020"},
                                                          {"arXiv:1909.08053", "megatron-2019"},
                                                          {"arXiv:2104.04473", "megatron-2021"},
                                                          {"arXiv:2401.10241", "megatron-2021"},
                                                          {"mosaicml/llm-foundry", "fsdp"}};
  for (const auto& [start, program] : programs) {
    if (source.starts_with(start)) return program;
  }
  throw DataError("the program of the source {} is unknown", source);
}

class PublishedRunsFile : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("TRIREME_TEST_DATA");
    if (folder == nullptr) GTEST_SKIP() << "TRIREME_TEST_DATA does not name the folder of external test data";
    std::ifstream file(std::string(folder) + "/planner/published_runs.csv", std::ios::binary);
    if (!file) GTEST_SKIP() << "there is no planner/published_runs.csv in TRIREME_TEST_DATA";
    rows_ = parse_published_runs("published_runs.csv", std::string(std::istreambuf_iterator<char>(file), {}));
    for (PublishedRow& row : rows_) {
      ASSERT_TRUE(row.run) << row.error;
      row.run->framework = find_framework(program_of(row.run->text.at("source")));
    }
  }

  /// Errors of every second run of each source and generation, from the `first`, with constants by generation.
  std::vector<RunError> errors(std::size_t first, const std::map<std::string, FittedShares>& shares) const {
    std::vector<RunError> result;
    std::map<std::string, std::size_t> count;
    for (const PublishedRow& row : rows_) {
      PublishedCluster cluster = published_cluster(row.run->cluster);
      if (count[cluster.generation + row.run->text.at("source")]++ % 2 != first) continue;
      cluster.shares = shares.at(cluster.generation);
      const RunPrediction p = predict_run(*row.run, PublishedCosts(cluster));
      result.push_back({&*row.run, 100 * std::abs(p.seconds / row.run->published_seconds().value() - 1)});
    }
    return result;
  }

  std::vector<PublishedRow> rows_;
};

struct Limits {
  double mean, worst;
};
void expect_within(const std::vector<RunError>& errors, bool fsdp, Limits limits) {
  double sum = 0, worst = 0;
  int count = 0;
  for (const RunError& e : errors) {
    if (e.run->is_fsdp() != fsdp) continue;
    sum += e.percent;
    worst = std::max(worst, e.percent);
    ++count;
  }
  EXPECT_GE(count, 18);
  EXPECT_LE(sum / count, limits.mean);
  EXPECT_LE(worst, limits.worst);
}

TEST_F(PublishedRunsFile, ErrorsOfTheHalfNotFitted) {
  // planner_bench prints the constants: those of the first half are checked against the second, and so on.
  const std::map<std::string, FittedShares> first = {
      {"V100", {.product = 0.972, .memory = 0.861, .node = 0.629, .network = 0.7, .unfused = 0.571}},
      {"A100", {.product = 0.875, .memory = 0.880, .node = 0.704, .network = 0.687}},
      {"H100", {.product = 0.783, .memory = 0.863, .node = 0.750, .network = 0.700}}};
  const std::map<std::string, FittedShares> second = {
      {"V100", {.product = 0.960, .memory = 0.830, .node = 0.725, .network = 0.7, .unfused = 0.580}},
      {"A100", {.product = 0.889, .memory = 0.861, .node = 0.686, .network = 0.613}},
      {"H100", {.product = 0.812, .memory = 0.730, .node = 0.778, .network = 0.669}}};
  // One run of 2.5B with 64 data ranks is 8.1 % off: it lost 12 points of efficiency, similar runs 3 or 4.
  expect_within(errors(1, first), false, {.mean = 3, .worst = 8.2});
  expect_within(errors(0, second), false, {.mean = 2.5, .worst = 5.5});
  // One run of 760M on 8 H100s is slower than the same on 32.
  expect_within(errors(1, first), true, {.mean = 3, .worst = 8.5});
  expect_within(errors(0, second), true, {.mean = 2, .worst = 5.5});
}

}  // namespace
}  // namespace trireme::plan
