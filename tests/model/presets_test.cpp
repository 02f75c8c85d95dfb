#include "src/model/presets.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::model {
namespace {

using test::message_of;
using testing::HasSubstr;

struct Size {
  const char* name;
  std::int64_t parameters;         // with GPT-2's vocabulary of 50257
  std::int64_t parameters_padded;  // with the scaling study's 51200; 0 if it lacks the model
};
constexpr Size sizes[] = {{"gpt2-124m", 124439808, 0},
                          {"gpt2-355m", 354823168, 0},
                          {"gpt2-774m", 774030080, 0},
                          {"gpt2-1.5b", 1557611200, 0},
                          {"gpt2-1.2b", 1212031488, 1213479936},
                          {"gpt2-2.5b", 2488598400, 2490408960},
                          {"gpt2-4.2b", 4196936448, 4199109120},
                          {"gpt2-8.3b", 8314143744, 8317040640},
                          {"gpt2-8.3b-scaling", 8314143744, 8317040640}};

TEST(Presets, HaveTheParameterCountsOfTheirPapers) {
  for (const Size& size : sizes) {
    ModelConfig config = preset(size.name);
    EXPECT_NO_THROW(validate(config)) << size.name;
    EXPECT_EQ(parameter_count(config), size.parameters) << size.name;
    config.vocabulary = 51200;
    EXPECT_TRUE(size.parameters_padded == 0 || parameter_count(config) == size.parameters_padded) << size.name;
  }
}

TEST(Presets, HaveTheParameterCountsOfOtherFamilies) {
  for (const auto& [name, parameters, positions, head_dim] : {std::tuple{"llama2-7b", 6'738'415'616, 4096, 128},
                                                              {"llama3-8b", 8'030'261'248, 8192, 128},
                                                              {"llama3.1-8b", 8'030'261'248, 131072, 128},
                                                              {"llama3.2-1b", 1'235'814'400, 131072, 64},
                                                              {"qwen2.5-0.5b", 494'032'768, 32768, 64},
                                                              {"qwen3-0.6b", 596'049'920, 40960, 128},
                                                              {"mixtral-8x7b", 46'702'792'704, 32768, 128},
                                                              {"qwen3-30b-a3b", 30'532'122'624, 40960, 128},
                                                              {"starcoder2-3b", 3'030'371'328, 16384, 128},
                                                              {"starcoder2-7b", 7'173'923'840, 16384, 128},
                                                              {"phi-3-mini", 3'821'079'552, 4096, 96},
                                                              {"gemma2-2b", 2'614'341'888, 8192, 256},
                                                              {"gemma3-1b", 999'885'952, 32768, 256},
                                                              {"pythia-1.4b", 1'414'647'808, 2048, 128},
                                                              {"falcon-7b", 6'921'720'704, 2048, 64},
                                                              {"bloom-560m", 559'214'592, 2048, 64},
                                                              {"bloom-7b1", 7'069'016'064, 2048, 128},
                                                              {"olmo2-7b", 7'298'617'344, 4096, 128},
                                                              {"olmoe-1b-7b", 6'919'161'856, 4096, 128},
                                                              {"deepseek-v2-lite", 15'706'484'224, 163840, 192}}) {
    const ModelConfig config = preset(name);
    EXPECT_NO_THROW(validate(config)) << name;
    EXPECT_EQ(parameter_count(config), parameters) << name;
    EXPECT_EQ(config.max_positions, positions) << name;
    EXPECT_EQ(config.head_dim(), head_dim) << name;
  }
  // (0.0707 ln 40 + 1)^2 / sqrt(192), while sines and cosines keep their magnitude.
  EXPECT_NEAR(preset("deepseek-v2-lite").score_scale(), 0.114721387, 1e-9);
  EXPECT_EQ(preset("deepseek-v2-lite").rotary_of(0).magnitude, 1);
  EXPECT_EQ(preset("llama3.1-8b").rotary_scaling.factor, 8);
  EXPECT_EQ(preset("llama3.2-1b").rotary_scaling.factor, 32);
  // A Gemma 2 has a window in every layer except each second one, a Gemma 3 except each sixth.
  EXPECT_EQ(preset("gemma2-2b").window.layers, AttentionWindow::every(4095, 2, 26).layers);
  EXPECT_EQ(preset("gemma3-1b").window.layers, AttentionWindow::every(511, 6, 26).layers);
}

TEST(Presets, ActivateSomeExpertsForEachToken) {
  // L (attention + router + k experts + norms) + embedding and output.
  EXPECT_EQ(active_parameter_count(preset("mixtral-8x7b")), 12'879'925'248);
  EXPECT_EQ(active_parameter_count(preset("qwen3-30b-a3b")), 3'353'032'704);
  EXPECT_EQ(active_parameter_count(preset("olmoe-1b-7b")), 1'282'017'280);
  EXPECT_EQ(active_parameter_count(preset("llama3-8b")), parameter_count(preset("llama3-8b")));
}

TEST(Presets, HaveTheShapesAndParameterCountsOfBert) {
  struct Shape {
    const char* name;
    int layers;
    std::int64_t hidden, heads, parameters;
    bool post_norm;
  };
  // V h + 512 h + 2 h + L (12 h^2 + 13 h) + 2 h, the heads (h^2 + 3 h + V) + (h^2 + h) + (2 h + 2).
  for (const Shape& shape :
       {Shape{"bert-336m", 24, 1024, 16, 336'226'108, false}, Shape{"bert-1.3b", 24, 2048, 32, 1'280'595'772, false},
        Shape{"bert-3.9b", 48, 2560, 40, 3'869'081'404, false}, Shape{"bert-base", 12, 768, 12, 110'106'428, true},
        Shape{"bert-large", 24, 1024, 16, 336'226'108, true}}) {
    const ModelConfig config = preset(shape.name);
    EXPECT_NO_THROW(validate(config)) << shape.name;
    EXPECT_EQ(config.layers, shape.layers) << shape.name;
    EXPECT_EQ(config.hidden, shape.hidden) << shape.name;
    EXPECT_EQ(config.heads, shape.heads) << shape.name;
    EXPECT_EQ(config.post_norm(), shape.post_norm) << shape.name;
    EXPECT_EQ(parameter_count(config), shape.parameters) << shape.name;
  }
}

TEST(Presets, TheLargestHas24HeadsOf128AsTrainedAnd32Of96InTheScalingStudy) {
  for (const auto& [name, heads, head_dim] : {std::tuple{"gpt2-8.3b", 24, 128}, {"gpt2-8.3b-scaling", 32, 96}}) {
    const ModelConfig config = preset(name);
    EXPECT_EQ(config.layers, 72);
    EXPECT_EQ(config.hidden, 3072);
    EXPECT_EQ(config.heads, heads);
    EXPECT_EQ(config.ffn_hidden, 4 * 3072);
    EXPECT_EQ(config.head_dim(), head_dim);
  }
}

TEST(Presets, AnUnknownNameListsTheKnownOnes) {
  const std::string error = message_of<ConfigError>([] { preset("gpt3"); });
  for (const Size& size : sizes) EXPECT_THAT(error, HasSubstr(size.name));
  EXPECT_THAT(error, testing::AllOf(HasSubstr("'gpt3'"), HasSubstr("llama2-7b")));
}

TEST(ModelFlops, AreThePublishedFormula) {
  for (const Size& size : sizes) {
    const ModelConfig config = preset(size.name);
    const double L = config.layers;
    const auto h = static_cast<double>(config.hidden);
    const auto V = static_cast<double>(config.vocabulary);
    for (const double s : {512, 1024}) {
      const double expected = 72 * 8 * s * L * h * h * (1 + s / (6 * h) + V / (12 * L * h));
      EXPECT_DOUBLE_EQ(model_flops(config, 8, static_cast<std::int64_t>(s)), expected) << size.name;
    }
  }
}

TEST(ModelFlops, CountEveryMatrixOfLlamaOnce) {
  const ModelConfig config = preset("llama3-8b");
  // 6 FLOPs for each matrix element and token, except the embedding, and 12 L h s for the scores.
  const double matrices = static_cast<double>(parameter_count(config)) - 128256.0 * 4096 - (2 * 32 + 1) * 4096.0;
  const double tokens = 4 * 8192.0;
  EXPECT_DOUBLE_EQ(model_flops(config, 4, 8192), tokens * (6 * matrices + 12 * 32 * 4096.0 * 8192));
}

TEST(ModelFlops, OfExpertsCountThoseThatComputeAToken) {
  ModelConfig config = preset("mixtral-8x7b");
  const double h = 4096, f = 14336, per_matrix = 6 * 4 * 8192;  // 6 FLOPs for each matrix element and token
  const double two = model_flops(config, 4, 8192);
  config.experts.per_token = 3;
  EXPECT_DOUBLE_EQ(model_flops(config, 4, 8192) - two, per_matrix * 32 * 3 * h * f);
  config.experts.shared_hidden = 1024;
  EXPECT_DOUBLE_EQ(model_flops(config, 4, 8192) - two, per_matrix * 32 * 3 * h * (f + 1024));
  // A layer with 3 experts and a shared one has 8 h + 3 h (2 f + 1024) more than a dense one.
  config.experts.layers = ExpertConfig::every(2, 32);
  const double half = model_flops(config, 4, 8192);
  config.experts = {};
  EXPECT_DOUBLE_EQ(half - model_flops(config, 4, 8192), per_matrix * 16 * (8 * h + 3 * h * (2 * f + 1024)));
}

TEST(ModelFlops, OfLatentAttentionCountBothSizesOfHeads) {
  ModelConfig config = preset("deepseek-v2-lite");
  config.experts = {};
  const double whole = model_flops(config, 1, 1024);
  // A score costs 192 multiply-adds for each of 16 heads, its value 128; V_up has 512 columns, the projection 2048.
  config.latent.value_dim = 64;
  EXPECT_DOUBLE_EQ(whole - model_flops(config, 1, 1024), 6 * 1024.0 * 27 * 16 * 64 * (1024 + 512 + 2048));
}

TEST(ModelFlops, OfBertCountTheMaskedTokensInItsHead) {
  const ModelConfig config = preset("bert-336m");
  const double h = 1024, head = 6 * 8 * (static_cast<double>(config.vocabulary) * h + h * h);
  const double all = model_flops(config, 8, 512);
  EXPECT_DOUBLE_EQ(all - model_flops(config, 8, 512, 76), head * (512 - 76));
  EXPECT_EQ(model_flops(config, 8, 512, 600), all);
  EXPECT_EQ(model_flops(preset("llama3-8b"), 8, 512, 76), model_flops(preset("llama3-8b"), 8, 512));
}

TEST(ModelFlops, CountTheKeysInWindows) {
  ModelConfig config = preset("llama3-8b");
  const double whole = model_flops(config, 4, 8192), score_of_key = 4 * 8192 * 12 * 4096.0;
  config.window.left = 1023;
  EXPECT_DOUBLE_EQ(whole - model_flops(config, 4, 8192), score_of_key * 32 * (8192 - 1024));
  config.window = AttentionWindow::every(1023, 4, 32);
  EXPECT_DOUBLE_EQ(whole - model_flops(config, 4, 8192), score_of_key * 24 * (8192 - 1024));
  config.window.left = 8191;
  EXPECT_EQ(model_flops(config, 4, 8192), whole);
}

TEST(FeedForward, SwigluHasTwoThirdsRoundedDownToAMultipleOf64) {
  EXPECT_EQ(default_ffn_hidden(4096, false), 16384);
  EXPECT_EQ(default_ffn_hidden(4096, true), 10880);  // 170 x 64, of 10922.7
  EXPECT_EQ(default_ffn_hidden(96, true), 256);
}

TEST(ModelConfigValidation, NamesEveryProblemAtOnce) {
  ModelConfig config;
  config.layers = 0;
  config.heads = 7;
  config.vocabulary = 0;
  config.hidden_dropout = 1;
  const std::string error = message_of<ConfigError>([&] { validate(config); });
  for (const char* option : {"<num_layers> 0", "<num_attention_heads> 7", "<vocab_size> 0", "<hidden_dropout> 1"}) {
    EXPECT_THAT(error, HasSubstr(option));
  }
  EXPECT_NO_THROW(validate(ModelConfig()));
}

TEST(ModelConfigValidation, HeadsOfTheirOwnSizeNeedNotDivideTheHiddenSize) {
  ModelConfig config;
  config.heads = 7;
  EXPECT_THAT([&] { validate(config); }, testing::ThrowsMessage<ConfigError>(HasSubstr("or <kv_channels> be given")));
  config.kv_channels = 64;
  EXPECT_NO_THROW(validate(config));
  config.kv_channels = std::int64_t{1} << 50;
  EXPECT_THAT([&] { validate(config); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("<kv_channels> 1125899906842624 must be")));
  config.kv_channels = (std::int64_t{1} << 31) - 1;
  config.heads = 1 << 20;
  EXPECT_THAT([&] { validate(config); }, testing::ThrowsMessage<ConfigError>(HasSubstr("more than any machine")));
}

TEST(ModelConfigValidation, NamesEveryProblemOfExperts) {
  const auto problems_of = [](auto change) {
    ModelConfig config;
    config.linear_bias = false;
    config.experts.count = 8;
    EXPECT_NO_THROW(validate(config));
    change(config.experts);
    return message_of<ConfigError>([&] { validate(config); });
  };
  EXPECT_THAT(problems_of([](ExpertConfig& e) { e.count = 513; }),
              HasSubstr("<num_experts> 513 must be between 1 and 512"));
  EXPECT_THAT(problems_of([](ExpertConfig& e) { e.per_token = 9; }),
              HasSubstr("<moe_router_topk> 9 is more than <num_experts> 8"));
  EXPECT_THAT(problems_of([](ExpertConfig& e) { e.per_token = 1; }), HasSubstr("give <moe_router_pre_softmax>"));
  EXPECT_THAT(problems_of([](ExpertConfig& e) { e.layers = "101"; }),
              HasSubstr("<moe_layer_freq>: a list of 3 layers, '101', for a model of 12"));
  EXPECT_THAT(problems_of([](ExpertConfig& e) { e.layers = "000000000000"; }),
              HasSubstr("leaves no layer with experts"));
  EXPECT_THAT(problems_of([](ExpertConfig& e) { e.capacity_factor = -0.5; }),
              HasSubstr("<moe_expert_capacity_factor> -0.5 must be at least 0"));
  const std::string groups = problems_of([](ExpertConfig& e) {
    e.per_token = 5;
    e.groups = 3;
    e.groups_per_token = 4;
  });
  EXPECT_THAT(groups, testing::AllOf(HasSubstr("<moe_router_num_groups> 3 must divide <num_experts> 8"),
                                     HasSubstr("<moe_router_group_topk> 4 is more than <moe_router_num_groups> 3"),
                                     HasSubstr("<moe_router_group_topk> 4 must divide <moe_router_topk> 5")));
  EXPECT_THAT(problems_of([](ExpertConfig& e) {
                e.per_token = 3;
                e.groups = 4;
              }),
              HasSubstr("<moe_router_topk> 3: a token's groups, <moe_router_group_topk> 1, have only 2 experts"));
  EXPECT_THAT(problems_of([](ExpertConfig& e) { e.router_bias = true; }),
              HasSubstr("<moe_router_enable_expert_bias>: the bias is added to sigmoid scores: give "
                        "<moe_router_score_function> sigmoid"));
  EXPECT_THAT(problems_of([](ExpertConfig& e) {
                e.score = RouterScore::sigmoid;
                e.router_bias = true;
                e.bias_update_rate = -1;
              }),
              HasSubstr("<moe_router_bias_update_rate> -1 must be at least 0"));
  ModelConfig biased;
  biased.experts.count = 8;
  EXPECT_THAT([&] { validate(biased); }, testing::ThrowsMessage<ConfigError>(HasSubstr("give <disable_bias_linear>")));
}

TEST(ModelConfigValidation, NamesEveryProblemOfLatentAttention) {
  ModelConfig config;
  config.latent.used = true;
  config.latent.value_dim = 193;
  config.latent.rotary_dim = 63;
  config.query_groups = 2;
  config.kv_channels = 64;
  config.rotary_percent = 0.5;
  config.qk_norm = config.qk_norm_across_heads = true;
  const auto problems = [&] { return message_of<ConfigError>([&] { validate(config); }); };
  EXPECT_THAT(
      problems(),
      testing::AllOf(HasSubstr("<multi_latent_attention> needs a GPT with rotary positions"),
                     HasSubstr("its linear layers have no biases: give <disable_bias_linear>"),
                     HasSubstr("<num_query_groups> 2 with <multi_latent_attention>: each of 12 heads"),
                     HasSubstr("<kv_channels> 64"), HasSubstr("<rotary_percent> 0.5 with"),
                     HasSubstr("<qk_layernorm_across_heads> with <multi_latent_attention>"),
                     HasSubstr("<v_head_dim> 193 must be at most <qk_head_dim> 128 + <qk_pos_emb_head_dim> 63")));
  config.position_embedding = PositionEmbedding::rope;
  EXPECT_THAT(problems(), HasSubstr("<qk_pos_emb_head_dim> 63 must be an even number above 0"));
}

TEST(ModelConfigValidation, ParallelLayersArePreNormAndOnlyTheyShareANorm) {
  ModelConfig config;
  config.shared_norm = true;
  EXPECT_THAT([&] { validate(config); }, testing::ThrowsMessage<ConfigError>(HasSubstr("give <parallel_residual>")));
  config.parallel_residual = true;
  EXPECT_NO_THROW(validate(config));
  config.family = ModelFamily::bert;
  EXPECT_NO_THROW(validate(config));
  config.norm_placement = NormPlacement::post;
  EXPECT_THAT([&] { validate(config); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("parallel layers are pre-norm")));
}

TEST(ModelConfigValidation, ALayerHasOneArrangementOfNorms) {
  ModelConfig config;
  config.qk_norm_across_heads = true;
  EXPECT_THAT([&] { validate(config); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("<qk_layernorm_across_heads> needs <qk_layernorm>")));
  config.qk_norm = config.post_branch_norm = true;
  EXPECT_NO_THROW(validate(config));
  config.parallel_residual = true;
  EXPECT_THAT([&] { validate(config); }, testing::ThrowsMessage<ConfigError>(HasSubstr("one arrangement of norms")));
}

TEST(ModelConfigValidation, ExpertsFitPostNormLayersAndOneChosenExpert) {
  ModelConfig config;
  config.family = ModelFamily::bert;
  config.norm_placement = NormPlacement::post;
  config.linear_bias = false;
  config.experts = {.count = 512, .per_token = 1, .pre_softmax = true};
  EXPECT_NO_THROW(validate(config));
  config.experts = {.count = 8, .per_token = 1, .score = RouterScore::sigmoid};
  EXPECT_NO_THROW(validate(config));
}

TEST(ModelConfigValidation, RefusesGroupsAndRotationsThatDoNotFit) {
  const auto expect_problem = [](auto change, const char* problem) {
    ModelConfig config;
    config.position_embedding = PositionEmbedding::rope;
    EXPECT_NO_THROW(validate(config));
    change(config);
    EXPECT_THAT([&] { validate(config); }, testing::ThrowsMessage<ConfigError>(HasSubstr(problem)));
  };
  expect_problem([](ModelConfig& c) { c.query_groups = 5; },
                 "<num_query_groups> 5 must divide <num_attention_heads> 12");
  expect_problem([](ModelConfig& c) { c.rotary_base = 0; }, "<rotary_base> 0");
  expect_problem([](ModelConfig& c) { c.rotary_percent = 1.5; }, "<rotary_percent> 1.5");
  expect_problem([](ModelConfig& c) { c.rotary_percent = 0.4; }, "rotates 25");
  expect_problem([](ModelConfig& c) { c.rotary_percent = 0.01; }, "rotates 0");
  const auto yarn = [](double factor, double slow) {
    return RotaryScaling{RotaryScalingKind::yarn, factor, 4096, slow, 32};
  };
  expect_problem([&](ModelConfig& c) { c.rotary_scaling = RotaryScaling::llama3(0.5); }, "<rope_scaling_factor> 0.5");
  expect_problem([&](ModelConfig& c) { c.rotary_scaling = yarn(0.5, 1); }, "<yarn_rotary_scaling_factor> 0.5");
  expect_problem([&](ModelConfig& c) { c.rotary_scaling = yarn(4, 32); }, "<yarn_beta_slow> 32");
  expect_problem(
      [&](ModelConfig& c) {
        c.rotary_scaling = yarn(4, 1);
        c.rotary_base = 1;
      },
      "<rotary_base> 1 must be above 1");
  expect_problem([](ModelConfig& c) { c.rotary_scaling.interpolation = 0; },
                 "<rotary_seq_len_interpolation_factor> 0 must be between 1");
  expect_problem([](ModelConfig& c) { c.window = {4, "1100"}; }, "a list of 4 layers, '1100', for a model of 12");
  expect_problem([](ModelConfig& c) { c.window = {4, "11001100110x"}; }, "'11001100110x'");
  expect_problem(
      [](ModelConfig& c) {
        c.family = ModelFamily::bert;
        c.window.left = 4;
      },
      "<window_size> 4: windows are for causal models");
}

}  // namespace
}  // namespace trireme::model
