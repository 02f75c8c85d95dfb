// Batched generation on several ranks: neither the grid nor the batch affects a text or its log-probabilities.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <set>
#include <sstream>

#include "src/comm/self_communicator.hpp"
#include "src/infer/generation.hpp"
#include "tests/support/generated.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::infer {
namespace {

using test::Layout;
using test::TrainingRun;
using test::world;

constexpr std::int32_t end_of_document = 7;

model::ModelConfig small_model() {
  return {.layers = 4,
          .hidden = 32,
          .heads = 4,
          .ffn_hidden = 64,
          .max_positions = 32,
          .vocabulary = 21,
          .hidden_dropout = 0,
          .attention_dropout = 0};
}
/// Rotary positions, QK norm, grouped queries, windows, untied output.
model::ModelConfig llama() {
  model::ModelConfig config = small_model();
  config.position_embedding = model::PositionEmbedding::rope;
  config.normalization = model::Normalization::rms_norm;
  config.qk_norm = true;
  config.gated = true;
  config.query_groups = 2;
  config.tied_output = false;
  config.window = model::AttentionWindow::of_layers(5, "10");
  return config;
}

/// Biases of scores by distance, normalised embeddings, windows.
model::ModelConfig bloom() {
  model::ModelConfig config = small_model();
  config.position_embedding = model::PositionEmbedding::alibi;
  config.embedding_norm = true;
  config.window = model::AttentionWindow::of_layers(5, "10");
  return config;
}

/// Latent attention with YaRN and windows, values narrower than keys, experts.
model::ModelConfig deepseek() {
  model::ModelConfig config = small_model();
  config.latent = {.used = true, .query_rank = 10, .kv_rank = 12, .head_dim = 6, .rotary_dim = 4, .value_dim = 7};
  config.qk_norm = true;
  config.normalization = model::Normalization::rms_norm;
  config.position_embedding = model::PositionEmbedding::rope;
  config.rotary_scaling = {model::RotaryScalingKind::yarn, 4, 64, 1, 32, 1, 0.5};
  config.linear_bias = false;
  config.experts.count = 4;
  config.window = model::AttentionWindow::of_layers(5, "10");
  return config;
}

/// Returns a run in fp64 with weights that make the model's predictions fairly certain.
test::TrainingRunConfig run_of(const model::ModelConfig& config) { return {.model = config, .init_std = 0.15}; }

/// Prompt `number` of a file of fourteen: of 1 to 32 tokens, with 0 to 44 new ones, some beyond the model's positions.
Prompt prompt_of(std::int64_t number) {
  constexpr std::int64_t lengths[] = {1, 12, 31, 2, 13, 24, 3, 14, 32, 4, 15, 29, 5, 16};
  Prompt prompt;
  prompt.number = number;
  for (std::int64_t i = 0; i < lengths[number]; ++i) {
    prompt.tokens.push_back(static_cast<std::int32_t>((number * 5 + i * 3) % 21));
  }
  prompt.max_new_tokens = number * 4 % 48;
  return prompt;
}
PromptSource prompts() { return {14, 32 + 44, prompt_of}; }

GenerationOptions options_of(std::int64_t batch_size) {
  GenerationOptions options;
  options.end_tokens = {end_of_document};
  options.batch_size = batch_size;
  options.log_probabilities = 3;
  options.stops = [](std::span<const std::int32_t> tokens) {  // two consecutive ids
    return tokens.size() > 1 && tokens.back() == tokens[tokens.size() - 2] + 1;
  };
  return options;
}

/// Number, reason, tokens and log-probabilities of a continuation.
std::string record_of(const Prompt& prompt, const Continuation& continuation) {
  std::ostringstream text;
  text.precision(17);
  text << prompt.number << ' ' << static_cast<int>(continuation.reason) << ' ' << continuation.tokens.size();
  for (const std::int32_t token : continuation.tokens) text << ' ' << token;
  for (const auto& of_token : continuation.log_probabilities) {
    for (const TokenProbability& likely : of_token) text << ' ' << likely.token << ' ' << likely.log_probability;
  }
  return text.str();
}

/// Returns the records of the prompts from `first` on, in the order taken; only on rank 0.
std::vector<std::string> records(TrainingRun& run, Communicator& ranks, const GenerationOptions& options,
                                 std::int64_t first = 0) {
  std::vector<std::string> taken;
  generate_all(run.gpt, ranks, prompts(), first, options,
               {record_of, [&](const std::string& record) { taken.push_back(record); }});
  return taken;
}

void expect_same(const std::vector<std::string>& actual, const std::vector<std::string>& expected) {
  const double same = test::tolerance(DType::fp64, test::Comparison::other_average).loss;
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    std::istringstream a(actual[i]), b(expected[i]);
    std::vector<double> x{std::istream_iterator<double>(a), {}}, y{std::istream_iterator<double>(b), {}};
    EXPECT_THAT(x, testing::Pointwise(testing::DoubleNear(same), y)) << "prompt " << i;
  }
}

std::vector<Layout> layouts(int ranks) {
  if (ranks == 2) return {"tp 2", "pp 2 vpp 2", "", "cp 2"};
  return {"tp 2 pp 2", "tp 2", "pp 2", ""};
}

TEST(BatchGeneration, NeitherTheGridNorTheBatchChangesATextOrItsLogProbabilities) {
  SelfCommunicator alone;
  for (model::ModelConfig config : {small_model(), llama(), bloom(), deepseek()}) {
    std::vector<std::string> expected;
    if (world().rank() == 0) {
      TrainingRun one(alone, run_of(config), {});
      expected = records(one, alone, options_of(1));
    }
    if (config.experts.any()) config.experts.capacity_factor = 0.75;  // used in training alone
    for (const Layout& layout : layouts(world().size())) {
      TrainingRun run(world(), run_of(config), layout);
      for (const std::int64_t batch_size : {2, 5, 20}) {
        SCOPED_TRACE(testing::Message() << layout << ", batch " << batch_size);
        expect_same(records(run, world(), options_of(batch_size)), expected);
      }
    }
  }
}

TEST(BatchGeneration, EndsAtTheLimitAtAStopAndAtTheEndOfADocument) {
  TrainingRun run(world(), run_of(small_model()), {});
  const std::vector<std::string> all = records(run, world(), options_of(4));
  if (world().rank() != 0) return;
  std::set<FinishReason> reasons;
  for (const std::string& record : all) {
    std::istringstream text(record);
    std::int64_t number = 0, count = 0;
    int reason = 0;
    text >> number >> reason >> count;
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
    for (std::int32_t& token : tokens) text >> token;
    EXPECT_THAT(tokens, testing::Not(testing::Contains(end_of_document)));
    for (std::size_t i = 1; i < tokens.size(); ++i) {
      const bool stops = tokens[i] == tokens[i - 1] + 1;
      EXPECT_EQ(stops, i + 1 == tokens.size() && reason == static_cast<int>(FinishReason::stop));
    }
    if (reason == static_cast<int>(FinishReason::length)) {
      EXPECT_EQ(count, prompt_of(number).max_new_tokens);
    }
    reasons.insert(static_cast<FinishReason>(reason));
  }
  EXPECT_EQ(reasons.size(), 3u) << "the case has all reasons";
}

TEST(BatchGeneration, ContinuesAnyPrompt) {
  TrainingRun run(world(), run_of(small_model()), {});
  const std::vector<std::string> all = records(run, world(), options_of(3)),
                                 rest = records(run, world(), options_of(3), 5);
  if (world().rank() == 0) expect_same(rest, {all.begin() + 5, all.end()});
  EXPECT_THAT(records(run, world(), options_of(3), 14), testing::IsEmpty());
}

TEST(BatchGeneration, MatchesTheGenerationOfSinglePrompts) {
  TrainingRun run(world(), run_of(small_model()), {});
  GenerationOptions options;
  options.batch_size = 2;
  const std::vector<std::int32_t> prompt = {5, 4, 3};
  std::vector<std::int32_t> first, second;
  const PromptSource twice{2, 60, [&](std::int64_t number) { return Prompt{number, "", prompt, 50}; }};
  const GenerationCounts counts = generate_all(run.gpt, world(), twice, 0, options,
                                               {[&](const Prompt& of, const Continuation& continuation) {
                                                  (of.number == 0 ? first : second) = continuation.tokens;
                                                  return "";
                                                },
                                                [](const std::string&) {}});
  const std::vector<std::int32_t> expected = test::generated(run.gpt, world(), prompt, 50);
  EXPECT_EQ(counts.prompt_tokens, 2 * 3);
  EXPECT_EQ(counts.new_tokens, 2 * 50);
  if (world().rank() != 0) return;
  EXPECT_EQ(first, expected);
  EXPECT_NE(second, first) << "another prompt of the file has other random numbers";
}

TEST(BatchGeneration, TakesRecordsInOrderOverSeveralExchanges) {
  TrainingRun run(world(), run_of(small_model()), {});
  std::vector<std::string> taken;
  const PromptSource many{150, 2, [](std::int64_t number) { return Prompt{number, "", {3}, number % 2}; }};
  generate_all(run.gpt, world(), many, 0, GenerationOptions(),
               {[](const Prompt& prompt, const Continuation&) { return std::to_string(prompt.number); },
                [&](const std::string& record) { taken.push_back(record); }});
  ASSERT_EQ(taken.size(), world().rank() == 0 ? 150u : 0u);
  for (std::size_t i = 0; i < taken.size(); ++i) EXPECT_EQ(taken[i], std::to_string(i));
}

/// Layouts whose ranks divide experts otherwise than layers, or the sequence.
std::vector<Layout> divided_layouts(int ranks) {
  std::vector<Layout> layouts = {"ep 2", "tp 2 etp 1", "tp 2 etp 1 ep 2", "tp 2 sp"};
  if (ranks == 4) layouts.insert(layouts.end(), {"tp 2 etp 1 ep 2 exchange", "ep 4 exchange", "tp 2 pp 2 sp"});
  return layouts;
}

TEST(BatchGeneration, NeitherDividedExpertsNorSequencesChangeATextOrItsLogProbabilities) {
  model::ModelConfig config = small_model();
  config.max_positions = 31;  // not a multiple of the tensor ranks; some prompts fill them
  config.linear_bias = false;
  config.experts.count = 4;
  SelfCommunicator alone;
  std::vector<std::string> expected;
  if (world().rank() == 0) {
    TrainingRun one(alone, run_of(config), {});
    expected = records(one, alone, options_of(1));
  }
  for (const Layout& layout : divided_layouts(world().size())) {
    TrainingRun run(world(), run_of(config), layout);
    for (const std::int64_t batch_size : {3, 20}) {
      SCOPED_TRACE(testing::Message() << layout << ", batch " << batch_size);
      expect_same(records(run, world(), options_of(batch_size)), expected);
    }
  }
}

TEST(TextContinuer, UsesTheCacheOfTheLastTextOnEveryGrid) {
  for (const Layout& layout : divided_layouts(world().size())) {
    SCOPED_TRACE(testing::Message() << layout);
    TrainingRun run(world(), run_of(deepseek()), layout);
    const GenerationOptions options;
    TextContinuer continuer(run.gpt, world(), options);
    std::vector<std::int32_t> text = {3, 1, 4};
    for (const std::int64_t kept : {8, 5, 11}) {  // tokens of the next text that the cache holds
      const std::vector<std::int32_t> tokens = continuer.run({0, "", text, 9}).tokens;
      EXPECT_EQ(tokens, test::generated(run.gpt, world(), text, 9));
      text.insert(text.end(), tokens.begin(), tokens.end());
      text.resize(static_cast<std::size_t>(kept));
      text.insert(text.end(), {2, 9, 2});
    }
  }
}

TEST(BatchGeneration, ShowsEachTokenAndEndsWhenARankIsInterrupted) {
  TrainingRun run(world(), run_of(small_model()), {});
  const std::vector<Prompt> two = {{0, "", {3, 1}, 30}, {1, "", {4}, 30}};
  std::vector<std::size_t> sizes;
  GenerationOptions options;
  options.batch_size = 2;
  options.observe = [&](const Prompt& prompt, const Continuation& continuation) {
    if (prompt.number == 0) sizes.push_back(continuation.tokens.size());
  };
  options.interrupted = [&] { return world().rank() == world().size() - 1 && sizes.size() >= 4; };
  const std::vector<Continuation> results = generate(run.gpt, world(), two, options);
  EXPECT_THAT(sizes, testing::ElementsAre(1, 2, 3, 4));
  for (const Continuation& result : results) {
    EXPECT_EQ(result.reason, FinishReason::interrupted);
    EXPECT_EQ(result.tokens.size(), 4u);
  }
}

TEST(BatchGeneration, SamplesBetweenStepsDoNotChangeTraining) {
  // The gather of parameters is in flight after a step.
  const Layout layout = world().size() == 4 ? "tp 2 sp zero1 gather" : "zero1 gather";
  const std::vector<Prompt> prompts = {{0, "", {3, 1, 4}, 12}};
  const auto run_steps = [&](bool samples, std::vector<std::int32_t>& text) {
    TrainingRun run(world(), run_of(small_model()), layout);
    for (int i = 0; i < 3; ++i) {
      run.step();
      if (samples) text = generate(run.gpt, world(), prompts, {}).front().tokens;
    }
    const double loss = run.step().lm_loss;
    if (!samples) return loss;
    TrainingRun alone(world(), run_of(small_model()), {});  // another grid has the same texts
    for (int i = 0; i < 3; ++i) alone.step();
    EXPECT_EQ(generate(alone.gpt, world(), prompts, {}).front().tokens, text);
    return loss;
  };
  std::vector<std::int32_t> text, none;
  EXPECT_EQ(run_steps(true, text), run_steps(false, none));
  EXPECT_EQ(text.size(), 12u);
}

TEST(BatchGeneration, OutputThatIsNotFiniteIsAnErrorOfTheFirstPromptOnEveryRank) {
  TrainingRun run(world(), run_of(small_model()), {});
  run.backend->elementwise().fill(run.backend->compute_stream(), std::numeric_limits<double>::quiet_NaN(),
                                  run.gpt.parameters().values());
  try {
    records(run, world(), options_of(4), 1);
    FAIL() << "no error";
  } catch (const NumericalError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("not finite after 12 tokens of prompt 2;"));
  }
}

}  // namespace
}  // namespace trireme::infer
