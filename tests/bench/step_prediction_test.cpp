// The counts of a step and the cost model behind step_predict.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "bench/step/prediction.hpp"
#include "src/base/check.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "src/plan/step/step_prediction.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::bench {
namespace {

using testing::AllOf;
using testing::Ge;
using testing::HasSubstr;
using testing::Le;
using testing::Not;

const Device& gpu(const std::string& name) { return *find_gpu(name); }

int calls_of(const Prediction& p, KernelKind line) { return p.line(line).calls; }

// Narayanan et al. 2021 with attention in full: 72 B s L h^2 (1 + s / 6 h + V / 12 L h), V with its padding.
TEST(StepPrediction, ProductsAndAttentionMatchTheFormula) {
  for (StepCase c : predicted_cases()) {
    SCOPED_TRACE(to_string(c));
    const Prediction p = predict(c, gpu("H200"), rehearse(c));
    const model::ModelConfig config = config_of(c);
    const double tokens = static_cast<double>(c.s * c.b), s = static_cast<double>(c.s),
                 h = static_cast<double>(config.hidden), layers = config.layers;
    const std::int64_t multiple = 128 * c.tensor_ranks;
    const double v = static_cast<double>((config.vocabulary + multiple - 1) / multiple * multiple);
    const double expected = 72 * tokens * layers * h * h * (1 + s / (6 * h) + v / (12 * layers * h)) / c.tensor_ranks;
    EXPECT_NEAR(p.model_flops, expected, 1e-9 * expected);
    const double attention = 12 * tokens * layers * s * h / c.tensor_ranks;
    EXPECT_NEAR(p.model_flops - p.causal_flops, attention / 2, 1e-9 * expected);
    EXPECT_EQ(calls_of(p, KernelKind::forward), 4 * config.layers);
    EXPECT_EQ(calls_of(p, KernelKind::input_gradient), 4 * config.layers);
    EXPECT_EQ(calls_of(p, KernelKind::weight_gradient), 4 * config.layers);
    EXPECT_EQ(calls_of(p, KernelKind::logits), 3);
    EXPECT_EQ(calls_of(p, KernelKind::attention), config.layers);
    EXPECT_EQ(calls_of(p, KernelKind::attention_backward), config.layers);
  }
}

TEST(StepPrediction, OptimizerMovesThirtyBytesPerParameter) {
  const StepCase c{.model = "gpt2-124m", .b = 1};
  const Prediction p = predict(c, gpu("H200"), rehearse(c));
  const double parameters = static_cast<double>(model::parameter_count(config_of(c)));
  // Padding of the vocabulary adds a little.
  EXPECT_THAT(p.line(KernelKind::optimizer).bytes, AllOf(Ge(30 * parameters), Le(30.1 * parameters)));
  // Their norm; biases, norms and positions are cleared before.
  EXPECT_THAT(p.line(KernelKind::gradients).bytes, AllOf(Ge(4 * parameters), Le(4.1 * parameters)));
}

// A step of Newton-Schulz takes 6 m^3 FLOPs for m x m, and 18 m^3 for 4 m x m. A layer has four and two.
TEST(StepPrediction, DataRanksShareTheWorkOfMuon) {
  StepCase c{.model = "gpt2-124m", .b = 1, .optimizer = optim::OptimizerKind::muon};
  const double expected = 5 * 12 * (4 * 6 + 2 * 18) * std::pow(768.0, 3);
  for (const int ranks : {1, 4}) {
    c.data_ranks = ranks;
    EXPECT_NEAR(predict(c, gpu("H200"), rehearse(c)).line(KernelKind::optimizer).flops, expected / ranks,
                1e-9 * expected);
  }
}

// The planner sums layers, and records updates separately.
TEST(StepPrediction, AgreesWithThePlannerOnOneRank) {
  for (const auto& [model, b, micro_batches] :
       std::vector<std::tuple<std::string, int, int>>{{"gpt2-1.2b", 8, 1}, {"gpt2-124m", 64, 1}, {"gpt2-124m", 8, 4}}) {
    const StepCase c{.model = model, .b = b, .micro_batches = micro_batches};
    SCOPED_TRACE(to_string(c));
    const Prediction p = predict(c, gpu("H200"), rehearse(c));
    plan::Job job{config_of(c), {}, {}, {1, 1, 1}};
    job.execution.dtype = DType::bf16;
    job.execution.micro_batch_size = b;
    job.options.global_batch_size = b * micro_batches;
    const plan::StepPrediction planned = plan::predict_step(plan::cluster_preset("dgx-h200"), job);
    EXPECT_NEAR(planned.step_ms, p.ms(), 0.002 * p.ms());
    // The guard of a step also reads each micro-batch's result and the gradient of its input, in bf16. The plan omits
    // these two.
    const double guard_bytes = 2.0 * 2 * b * micro_batches * static_cast<double>(c.s * job.model.hidden);
    EXPECT_NEAR(planned.work.optimizer + planned.work.hidden_update,
                p.line(KernelKind::optimizer).ms + p.line(KernelKind::gradients).ms, 0.01 + guard_bytes / 3.5e9);
  }
}

// The sum of the parts at the rates of large products (790 TFLOP/s) and copies (4.3 TB/s) is 103 ms: no step is
// shorter. A separate count, with attention at the published rates of FlashAttention-2, has 131 to 140 ms.
TEST(StepPrediction, StepOf1200MillionParametersLiesBetweenTheFloorAndCommonKernels) {
  const StepCase c = predicted_cases()[0];
  const Prediction p = predict(c, gpu("H200"), rehearse(c));
  EXPECT_THAT(p.ms(), AllOf(Ge(103), Le(140)));
}

// An input is rounded in each direction, that of the second feed-forward product once with its activation, a gradient
// of outputs once for both of its products, a weight once an update.
TEST(StepPrediction, OperandsInFp8AreRoundedAsOftenAsTheyChange) {
  const StepCase c{.model = "gpt2-124m", .b = 1, .micro_batches = 2, .fp8 = true};
  int rounded = 0, products = 0;
  for (const KernelCall& call : rehearse(c)) {
    if (!call.product || !call.product->fp8) continue;
    ++products;
    rounded += call.product->rounded;
  }
  const int layers = config_of(c).layers;
  EXPECT_EQ(products, 2 * 3 * 4 * layers);
  EXPECT_EQ(rounded, (4 + 2 * (3 * 4 - 1)) * layers);
}

TEST(StepPrediction, GradientsOfALayersWeightsRunBesideEachOther) {
  const StepCase c{.model = "gpt2-124m", .b = 1};
  int gradients = 0, beside = 0;
  for (const KernelCall& call : rehearse(c)) {
    if (call.kind != KernelKind::weight_gradient) continue;
    ++gradients;
    beside += call.product->beside ? 1 : 0;
  }
  const int layers = config_of(c).layers;
  EXPECT_EQ(gradients, 4 * layers);
  EXPECT_EQ(beside, 3 * layers);
}

// A step of Llama 2 7B reads 2 bytes of each parameter but the table of tokens. Its launches do not grow with the
// texts: 12 a layer, three of the embedding and the head, and two to copy and widen the logits.
TEST(StepPrediction, AStepOfGenerationTakesLittleMoreThanItsMemoryTraffic) {
  for (const StepCase& c : decoding_cases()) {
    const Prediction p = predict(c, gpu("H200"), rehearse(c));
    EXPECT_NEAR(p.weight_bytes, 2 * (6.738e9 - 32000 * 4096), 0.01e9);
    EXPECT_EQ(p.cache_bytes, 2.0 * 2 * 32 * 4096 * 1024 * static_cast<double>(c.b));
    EXPECT_EQ(p.launches, 32 * 12 + 5);
    EXPECT_LT(p.ms(), 1.3 * p.memory_limit_ms());
  }
}

TEST(CostModel, LargeProductsRunAtTheRateReachedThere) {
  for (const Device& each : gpus()) {
    const double ms = product_time(each, {.m = 8192, .n = 8192, .k = 8192}).ms;
    EXPECT_NEAR(2 * 8192.0 * 8192.0 * 8192.0 / ms * 1e-9, each.product_tflops, 0.1) << each.name;
    if (each.fp8_tflops == 0) continue;
    const double fp8_ms = product_time(each, {.m = 8192, .n = 8192, .k = 8192, .fp8 = true}).ms;
    EXPECT_NEAR(2 * 8192.0 * 8192.0 * 8192.0 / fp8_ms * 1e-9, each.fp8_tflops, 0.1) << each.name;
  }
}

TEST(CostModel, AProductBesideOthersLeavesThemItsLastWave) {
  KernelCall call{.kind = KernelKind::weight_gradient, .product = ProductCall{.m = 4608, .n = 1536, .k = 8192}};
  const Cost alone = cost_of(gpu("H200"), call);
  call.product->beside = true;
  const Cost shared = cost_of(gpu("H200"), call);
  EXPECT_GT(alone.idle, 0);
  EXPECT_DOUBLE_EQ(shared.main, alone.main - alone.idle);
  EXPECT_EQ(shared.idle, 0);
}

TEST(CostModel, PartialWaveCostsAFullWave) {
  const Device& h100 = gpu("H100");
  const std::int64_t tile = 256, k = 8192;
  const double full = product_time(h100, {.m = 132 * tile, .n = 128, .k = k}).ms;
  EXPECT_NEAR(product_time(h100, {.m = 264 * tile, .n = 128, .k = k}).ms, 2 * full, 1e-9);
  EXPECT_GT(product_time(h100, {.m = 133 * tile, .n = 128, .k = k}).ms, 1.2 * full);
}

TEST(CostModel, ThinProductsAreMemoryBound) {
  const double bytes = 1e9;
  EXPECT_NEAR(product_time(gpu("H200"), {.m = 8, .n = 8, .k = 8, .bytes = bytes}).ms, 1e3 * bytes / 4.3e12, 1e-9);
}

/// TFLOP/s of attention by the convention of FlashAttention's authors: 16k tokens, 2048 channels, no dropout; a causal
/// mask halves the FLOPs, and a backward has 2.5 times the forward's.
double attention_tflops(const Device& device, KernelKind kind, std::int64_t d, std::int64_t s, bool causal) {
  KernelCall call{.kind = kind};
  call.attention = AttentionProblem{.queries = s,
                                    .keys = s,
                                    .batch = 16384 / s,
                                    .heads = 2048 / d,
                                    .kv_heads = 2048 / d,
                                    .head_dim = d,
                                    .causal = causal,
                                    .dropout = {}};
  const double share_of_products = kind == KernelKind::attention ? 1 : 2.5 / 2;
  return share_of_products * call.flops(true) / attention_ms(device, call) * 1e-9;
}

// Rates of FlashAttention-2 on an H100, whose kernels also use mma.sync. Two constants were fitted to them within 5 %,
// with kernels that had up to a tenth less instructions: without windows, documents and ALiBi.
TEST(CostModel, AttentionMatchesFlashAttention2) {
  Device h100 = gpu("H100");
  h100.warp_groups = false;
  struct Published {
    std::int64_t d;
    bool causal;
    double at_1024, at_2048;
  };
  for (const auto& [d, causal, at_1024, at_2048] :
       {Published{64, false, 306, 318}, {128, false, 350, 362}, {64, true, 229, 262}, {128, true, 260, 298}}) {
    SCOPED_TRACE(testing::Message() << d << " channels, " << (causal ? "causal" : "full"));
    EXPECT_NEAR(attention_tflops(h100, KernelKind::attention, d, 1024, causal), at_1024, 0.1 * at_1024);
    EXPECT_NEAR(attention_tflops(h100, KernelKind::attention, d, 2048, causal), at_2048, 0.1 * at_2048);
  }
}

// Rates of FlashAttention-3 on an H100, with products of warp groups as here. Nothing was fitted to them. Its forward
// also overlaps the softmax and the products of one group; its backward has five products, the one here seven.
TEST(CostModel, AttentionByWarpGroupsIsSlowerThanFlashAttention3ByItsKnownAdvantages) {
  struct Published {
    KernelKind kind;
    std::int64_t d;
    bool causal;
    double at_1024, at_2048, least_share;
  };
  using enum KernelKind;
  for (const auto& [kind, d, causal, at_1024, at_2048, least_share] :
       {Published{attention, 64, false, 392, 460, 0.8},
        {attention, 128, false, 565, 625, 0.75},
        {attention, 64, true, 265, 371, 0.8},
        {attention, 128, true, 423, 521, 0.8},
        {attention_backward, 64, false, 363, 422, 0.65},
        {attention_backward, 128, false, 424, 501, 0.55}}) {
    SCOPED_TRACE(testing::Message() << name_of(kind) << ", " << d << " channels, " << (causal ? "causal" : "full"));
    for (const auto& [s, published] : {std::pair{1024, at_1024}, {2048, at_2048}}) {
      EXPECT_THAT(attention_tflops(gpu("H100"), kind, d, s, causal) / published, AllOf(Ge(least_share), Le(0.95)));
    }
  }
}

// An update has what the next forward leaves free, and the forward waits for its first bucket.
TEST(CostModel, AnUpdateHasWhatTheNextForwardLeavesFree) {
  EXPECT_EQ(hidden_update_ms(8, 4, 1.5), 1.5);
  EXPECT_EQ(hidden_update_ms(8, 4, 100), 6);
  EXPECT_EQ(hidden_update_ms(8, 1, 100), 0) << "one bucket, for which the forward waits";
  // 133 tiles need a second wave of 132 multiprocessors, of which 131 are free.
  const ProductTime time = product_time(gpu("H100"), {.m = 133 * 256, .n = 128, .k = 511});
  EXPECT_GT(time.idle_ms, 0);
  EXPECT_LT(time.idle_ms, time.ms / 2);
}

// A window counts the pairs in it, and its attention takes about their share of the time.
TEST(CostModel, AttentionInAWindowTakesTheTimeOfItsTiles) {
  const std::int64_t s = 8192;
  KernelCall whole{.kind = KernelKind::attention_backward};
  whole.attention =
      AttentionProblem{.queries = s, .keys = s, .batch = 4, .heads = 16, .kv_heads = 4, .head_dim = 128, .dropout = {}};
  for (const KernelKind line : {KernelKind::attention, KernelKind::attention_backward}) {
    whole.kind = line;
    double earlier = 0;
    for (const std::int64_t window : {0, 511, 1023, 4095}) {
      KernelCall call = whole;
      call.attention->window = window;
      double pairs = 0;
      for (std::int64_t i = 0; i < s; ++i) pairs += static_cast<double>(std::min(i, window) + 1);
      const double share = pairs / (static_cast<double>(s) * static_cast<double>(s + 1) / 2);
      EXPECT_NEAR(call.flops() / whole.flops(), share, 1e-12);
      const double ratio = attention_ms(gpu("H200"), call) / attention_ms(gpu("H200"), whole);
      EXPECT_GT(ratio, share - 0.02);
      EXPECT_LT(ratio, share + 0.12);
      EXPECT_GT(ratio, earlier);
      earlier = ratio;
    }
    KernelCall call = whole;
    call.attention->window = s - 1;
    EXPECT_EQ(attention_ms(gpu("H200"), call), attention_ms(gpu("H200"), whole));
    EXPECT_EQ(call.flops(true), whole.flops(true));
  }
}

// Without tensor cores: 16 x 32 x d multiply-adds a tile, 16 a clock and multiprocessor. 32 queries see 32 keys: 2
// tiles.
TEST(CostModel, AttentionWithoutTensorCoresReadsSharedMemory) {
  const Device& h200 = gpu("H200");
  KernelCall call{.kind = KernelKind::attention, .tensor_cores = false};
  call.attention =
      AttentionProblem{.queries = 32, .keys = 32, .batch = 3, .heads = 5, .kv_heads = 5, .head_dim = 80, .dropout = {}};
  const double forward = 2 * 2 * 16 * 32 * 80 * 15 / (16.0 * 132) / (h200.clock_ghz * 1e6);
  EXPECT_NEAR(attention_ms(h200, call), forward, 1e-12);
  call.kind = KernelKind::attention_backward;
  EXPECT_NEAR(attention_ms(h200, call), 3.5 * forward, 1e-12);
  // The remembered cost is that of the call.
  CallCosts costs(h200);
  for (const bool cores : {false, true, false}) {
    call.tensor_cores = cores;
    EXPECT_EQ(costs.of(call, false, false).main, cost_of(h200, call).main);
  }
}

/// The output of a comparison with a file of this text.
std::string compared(const std::string& text, const Device* with = nullptr) {
  const test::TemporaryDirectory folder;
  const std::string file = folder.path() + "/steps.jsonl";
  std::ofstream(file) << text;
  std::ostringstream out;
  compare(out, file, with);
  return out.str();
}

TEST(Comparison, OfAPredictionWithItselfShowsNoDifference) {
  const StepCase c{.model = "gpt2-124m", .b = 2, .moments = DType::bf16, .dropout = 0};
  std::ostringstream measured;
  print_json(measured, predict(c, gpu("H100"), rehearse(c)));
  const std::string table = compared(measured.str());
  EXPECT_THAT(table, HasSubstr("by the constants of H100"));
  for (const KernelKind line : {KernelKind::forward, KernelKind::attention_backward, KernelKind::optimizer}) {
    EXPECT_THAT(table, testing::ContainsRegex(std::string(name_of(line)) + " .* 1\\.00\n"));
  }
  EXPECT_THAT(table, testing::ContainsRegex("step, ms .* 1\\.00\n"));
}

TEST(Comparison, UsesTotalsIfLinesAreMissing) {
  const std::string step =
      R"({"model": "gpt2-124m", "s": 128, "micro_batch": 1, "micro_batches": 1, "cuda_graphs": true, )"
      R"("tensor_ranks": 1, "sequence_parallel": false, "ms": 2.0, "launches": 3})";
  EXPECT_THAT(compared(step), HasSubstr("no constants for the device ''"));
  EXPECT_THAT(compared(step, &gpu("H100")), AllOf(HasSubstr("step, ms"), Not(HasSubstr("optimizer"))));
}

TEST(Comparison, RefusesOtherFilesWithTheirLine) {
  EXPECT_THAT([] { compared("a warning\n{no step\n"); },
              testing::ThrowsMessage<DataError>(HasSubstr("steps.jsonl:2: not a line")));
  EXPECT_THAT([] { compared("a warning\n"); }, testing::ThrowsMessage<DataError>(HasSubstr("has no step")));
  EXPECT_THAT([] { compared("{\"model\": 3}\n"); }, testing::Throws<DataError>());
  EXPECT_THAT(
      [] {
        std::ostringstream out;
        compare(out, "/nowhere", nullptr);
      },
      testing::Throws<DataError>());
}

}  // namespace
}  // namespace trireme::bench
