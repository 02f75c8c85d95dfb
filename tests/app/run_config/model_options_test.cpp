// The model that a command line asks for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/model/presets.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "tests/app/run_config/ask_model.hpp"

namespace trireme::app {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ModelOptions, APresetSetsVocabularyPositionsAndDropout) {
  const Asked llama = ask("--model llama2-7b", 512, 257);
  EXPECT_EQ(llama.config.vocabulary, 32000);
  EXPECT_EQ(llama.config.max_positions, 4096);
  EXPECT_EQ(llama.config.hidden_dropout, 0);
  EXPECT_EQ(llama.config.attention_dropout, 0);
  EXPECT_EQ(model::parameter_count(llama.config), 6'738'415'616);
  EXPECT_EQ(llama.preset_values,
            "vocab-size 32000, max-position-embeddings 4096, hidden-dropout 0, attention-dropout 0");
  EXPECT_EQ(ask("--model llama3-8b", 512, 257).config.attention_dropout, 0);

  const Asked gpt2 = ask("--model gpt2-124m", 512, 257);
  EXPECT_EQ(gpt2.config.max_positions, 1024);
  EXPECT_EQ(gpt2.config.hidden_dropout, 0.1);
  EXPECT_EQ(gpt2.config.attention_dropout, 0.1);
  EXPECT_EQ(model::parameter_count(gpt2.config), 124'439'808);
}

TEST(ModelOptions, OverrideAPreset) {
  const Asked asked = ask("--model llama3-8b --attention-dropout 0.5 --vocab-size 300", 512, 257);
  EXPECT_EQ(asked.config.vocabulary, 300);
  EXPECT_EQ(asked.config.hidden_dropout, 0);
  EXPECT_EQ(asked.config.attention_dropout, 0.5);
  EXPECT_EQ(asked.preset_values, "max-position-embeddings 8192, hidden-dropout 0");
  EXPECT_EQ(ask("--model 124m --max-position-embeddings 2048", 2000, 257).config.max_positions, 2048);
}

TEST(ModelOptions, WithoutAPresetFollowSequenceLengthAndCorpus) {
  const Asked asked = ask("--num-layers 2 --hidden-size 16 --num-attention-heads 4", 512, 257);
  EXPECT_EQ(asked.config.vocabulary, 257);
  EXPECT_EQ(asked.config.max_positions, 512);
  EXPECT_EQ(asked.config.hidden_dropout, 0.1);
  EXPECT_EQ(asked.preset_values, "");
}

TEST(ModelOptions, OnlyLearnedPositionsOfAPresetHaveAnEnd) {
  EXPECT_THAT(
      [] { ask("--model gpt2-124m", 1025, 257); },
      ThrowsMessage<ConfigError>(HasSubstr("--seq-length 1025 is longer than the model's 1024 positions: choose a "
                                           "shorter --seq-length, or train with --max-position-embeddings 1025")));
  EXPECT_EQ(ask("--model llama2-7b", 8000, 257).config.max_positions, 8000);
  EXPECT_EQ(ask("--model gpt2-124m --position-embedding-type rope", 1025, 257).config.max_positions, 1025);
}

TEST(ModelOptions, RefuseACorpusOfALargerVocabularyThanThePresets) {
  EXPECT_THAT([] { ask("--model llama2-7b", 512, 50257); },
              ThrowsMessage<ConfigError>(HasSubstr("--model llama2-7b has 32000 tokens, the corpus' 50257: build the "
                                                   "corpus with the model's tokenizer, or give --vocab-size 50257")));
  EXPECT_EQ(ask("--model llama2-7b --vocab-size 50257", 512, 50257).config.vocabulary, 50257);
  EXPECT_THAT(
      [] { ask("--model 124m --vocab-size 100", 512, 257); },
      ThrowsMessage<ConfigError>(HasSubstr("--vocab-size 100 is smaller than the corpus' vocabulary of 257 tokens")));
}

TEST(ModelOptions, TakeOneFormOfTheActivation) {
  EXPECT_EQ(ask("--model 124m --squared-relu", 512, 257).config.activation, Activation::squared_relu);
  for (const char* words : {"--model llama3-8b --squared-relu", "--model 124m --squared-relu --gelu erf"}) {
    EXPECT_THAT([&] { ask(words, 512, 257); },
                ThrowsMessage<ConfigError>(HasSubstr("--gelu, --squared-relu and --swiglu exclude each other")));
  }
}

TEST(ModelOptions, TakeOneFormOfTheGate) {
  const auto gate_of = [](const char* words) { return ask(words, 512, 257).config.gate; };
  EXPECT_TRUE(ask("--model 124m --geglu", 512, 257).config.gated);
  EXPECT_EQ(gate_of("--model llama3-8b --geglu"), Activation::gelu_tanh);
  EXPECT_EQ(gate_of("--model gemma2-2b"), Activation::gelu_tanh);
  EXPECT_EQ(gate_of("--model gemma2-2b --swiglu"), Activation::silu);
  EXPECT_THAT([&] { gate_of("--model 124m --swiglu --geglu"); },
              ThrowsMessage<ConfigError>(HasSubstr("--swiglu and --geglu exclude each other")));
}

TEST(ModelOptions, RefuseNormsAndBasesThatCannotBe) {
  EXPECT_THAT([] { ask("--model 124m --sandwich-norm --post-branch-norm", 512, 257); },
              ThrowsMessage<ConfigError>(HasSubstr("--sandwich-norm with --post-branch-norm")));
  EXPECT_THAT([] { ask("--model llama3-8b --rotary-base-local 10000", 512, 257); },
              ThrowsMessage<ConfigError>(HasSubstr("--rotary-base-local 10000 needs rotary positions and layers with a "
                                                   "window: give --window-size")));
}

TEST(ModelOptions, ScaleRotaryFrequencies) {
  using model::RotaryScaling, model::RotaryScalingKind;
  const auto scaling_of = [](const Words& words) { return ask(words, 512, 257).config.rotary_scaling; };
  const RotaryScaling llama = scaling_of("--model llama3-8b --use-rope-scaling");
  EXPECT_EQ(llama.kind, RotaryScalingKind::llama3);
  EXPECT_EQ(llama.factor, 8);
  EXPECT_EQ(llama.positions, 8192);
  EXPECT_EQ(scaling_of("--model llama3.1-8b --rope-scaling-factor 4").factor, 4);
  EXPECT_EQ(scaling_of("--model llama3.1-8b --position-embedding-type learned_absolute").kind, RotaryScalingKind::none);
  const RotaryScaling yarn = scaling_of(
      "--model qwen3-0.6b --position-embedding-type yarn --yarn-rotary-scaling-factor 4 "
      "--yarn-original-max-position-embeddings 32768 --yarn-beta-fast 16 --yarn-beta-slow 2 --yarn-mscale 0.7 "
      "--yarn-mscale-all-dim 0.3");
  EXPECT_EQ(yarn.kind, RotaryScalingKind::yarn);
  EXPECT_EQ(yarn.factor, 4);
  EXPECT_EQ(yarn.positions, 32768);
  EXPECT_EQ(yarn.fast_turns, 16);
  EXPECT_EQ(yarn.slow_turns, 2);
  EXPECT_EQ(yarn.mscale, 0.7);
  EXPECT_EQ(yarn.mscale_all_dim, 0.3);
  const auto expect_problem = [&](const Words& words, const char* problem) {
    EXPECT_THAT([&] { scaling_of(words); }, ThrowsMessage<ConfigError>(HasSubstr(problem)));
  };
  expect_problem("--model 124m --use-rope-scaling", "--use-rope-scaling needs --position-embedding-type rope");
  expect_problem("--model llama3-8b --rope-scaling-factor 8", "--rope-scaling-factor needs");
  expect_problem("--model llama3-8b --yarn-mscale 1", "needs --position-embedding-type yarn");
  expect_problem("--model llama3-8b --position-embedding-type yarn", "yarn needs --yarn-rotary-scaling-factor");
  expect_problem("--model llama3-8b --position-embedding-type yarn --yarn-rotary-scaling-factor 4 --yarn-beta-slow 0",
                 "--yarn-beta-slow 0 must be above 0 and below --yarn-beta-fast 32");
  expect_problem("--model 124m --position-embedding-type rope --rotary-percent 0.05", "must be an even number above 0");
  expect_problem("--model 124m --rotary-base 500", "--rotary-base needs --position-embedding-type rope");
  expect_problem("--model 124m --use-rotary-position-embeddings --position-embedding-type learned_absolute",
                 "--use-rotary-position-embeddings and --position-embedding-type learned_absolute exclude each other");
}

TEST(ModelOptions, SwigluOfANarrowModelNeedsItsColumns) {
  EXPECT_THAT([] { ask("--num-layers 2 --hidden-size 16 --num-attention-heads 4 --swiglu", 16, 257); },
              ThrowsMessage<ConfigError>(HasSubstr("--swiglu at --hidden-size 16")));
  EXPECT_THAT([] { ask("--num-layers 2 --hidden-size 8 --num-attention-heads 4 --geglu", 16, 257); },
              ThrowsMessage<ConfigError>(HasSubstr("--geglu at --hidden-size 8")));
}

TEST(ModelOptions, InterpolateRotaryPositions) {
  const std::string flag = "--rotary-seq-len-interpolation-factor";
  const auto factor_of = [](const Words& words) { return ask(words, 512, 257).config.rotary_scaling.interpolation; };
  EXPECT_EQ(factor_of("--model llama3-8b"), 1);
  EXPECT_EQ(factor_of({"--model", "llama3-8b", flag, "4"}), 4);
  EXPECT_EQ(factor_of({"--model", "llama3.1-8b", flag, "2"}), 2);
  const Words yarn = "--model llama3-8b --position-embedding-type yarn --yarn-rotary-scaling-factor 4 " + flag;
  EXPECT_EQ(factor_of(yarn + "1"), 1);
  EXPECT_THAT([&] { factor_of(yarn + "2"); },
              ThrowsMessage<ConfigError>(HasSubstr(flag + " 2 needs rotary positions that YaRN does not scale")));
  EXPECT_THAT(
      [&] {
        factor_of({"--model", "124m", flag, "2"});
      },
      ThrowsMessage<ConfigError>(HasSubstr("needs --position-embedding-type rope")));
  EXPECT_THROW(factor_of({"--model", "llama3-8b", flag, "0.5"}), ConfigError);
}

TEST(ModelOptions, MakeBranchesParallel) {
  const Words sizes = "--num-layers 4 --hidden-size 64 --num-attention-heads 4";
  EXPECT_FALSE(ask(sizes, 16, 257).config.parallel_residual);
  const model::ModelConfig two = ask(sizes + "--parallel-residual", 16, 257).config;
  EXPECT_TRUE(two.parallel_residual && !two.shared_norm);
  EXPECT_TRUE(ask(sizes + "--parallel-residual --shared-norm", 16, 257).config.shared_norm);
  EXPECT_THAT([&] { ask(sizes + "--shared-norm", 16, 257); },
              ThrowsMessage<ConfigError>(HasSubstr("--shared-norm needs --parallel-residual")));
}

TEST(ModelOptions, PlaceNorms) {
  const Words sizes = "--num-layers 4 --hidden-size 64 --num-attention-heads 4";
  const model::ModelConfig plain = ask(sizes + "--qk-layernorm", 16, 257).config;
  EXPECT_FALSE(plain.qk_norm_across_heads || plain.post_branch_norm);
  const Words both = "--qk-layernorm --qk-layernorm-across-heads --post-branch-norm";
  const model::ModelConfig config = ask(sizes + both, 16, 257).config;
  EXPECT_TRUE(config.qk_norm_across_heads && config.post_branch_norm);
  EXPECT_THAT([&] { ask(sizes + "--qk-layernorm-across-heads", 16, 257); },
              ThrowsMessage<ConfigError>(HasSubstr("--qk-layernorm-across-heads needs --qk-layernorm")));
  EXPECT_THAT([&] { ask(sizes + "--post-branch-norm --parallel-residual", 16, 257); },
              ThrowsMessage<ConfigError>(HasSubstr("--post-branch-norm with --parallel-residual")));
}

TEST(ModelOptions, DescribeLatentAttention) {
  const Words words =
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --disable-bias-linear --multi-latent-attention "
      "--q-lora-rank 48 --kv-lora-rank 24 --qk-head-dim 16 --qk-pos-emb-head-dim 8 --v-head-dim 12 --qk-layernorm";
  const model::ModelConfig config = ask(words + Words("--rope-type yarn --rotary-scaling-factor 4 --mscale 0.5 "
                                                      "--mscale-all-dim 0.25"),
                                        16, 257)
                                        .config;
  EXPECT_EQ(config.latent.query_rank, 48);
  EXPECT_EQ(config.latent.kv_rank, 24);
  EXPECT_EQ(config.head_dim(), 24);
  EXPECT_EQ(config.rotary_of(0).channels, 8);
  EXPECT_EQ(config.value_columns(), 48);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_EQ(config.rotary_scaling.kind, model::RotaryScalingKind::yarn);
  EXPECT_EQ(config.rotary_scaling.factor, 4);
  EXPECT_EQ(ask(words + Words("--rope-type rope"), 16, 257).config.rotary_scaling.factor, 1);
  EXPECT_EQ(ask("--model deepseek-v2-lite --rope-type rope", 16, 257).config.rotary_scaling.kind,
            model::RotaryScalingKind::none);
  EXPECT_THAT([&] { ask(words, 16, 257); },
              ThrowsMessage<ConfigError>(HasSubstr(
                  "--multi-latent-attention needs a GPT with rotary positions: give --position-embedding-type rope")));
  const Words both = "--rope-type rope --position-embedding-type yarn --rotary-scaling-factor 4";
  EXPECT_THAT(
      [&] { ask(words + both, 16, 257); },
      ThrowsMessage<ConfigError>(HasSubstr("--rope-type and --position-embedding-type name different positions")));
  EXPECT_THAT([] { ask("--model 124m --kv-lora-rank 8", 16, 257); },
              ThrowsMessage<ConfigError>(HasSubstr("--kv-lora-rank needs --multi-latent-attention")));
}

TEST(ModelOptions, DescribeModulesAhead) {
  const Words rope =
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --position-embedding-type rope --mtp-num-layers 2 ";
  const model::ModelConfig config = ask(rope, 16, 257).config;
  EXPECT_EQ(config.ahead.depths, 2);
  EXPECT_EQ(config.ahead.loss_factor, 0.1);
  EXPECT_EQ(config.all_layers(), 6);
  EXPECT_EQ(ask(rope + Words("--mtp-loss-scaling-factor 0.25"), 16, 257).config.ahead.loss_factor, 0.25);
  EXPECT_THAT([] { ask("--model 124m --mtp-num-layers 1", 16, 257); },
              ThrowsMessage<ConfigError>(HasSubstr("--mtp-num-layers 1 needs a GPT whose embeddings have neither "
                                                   "positions nor norms: give --position-embedding-type rope")));
  EXPECT_THAT([&] { ask(rope + Words("--embed-layernorm"), 16, 257); },
              ThrowsMessage<ConfigError>(HasSubstr("without --embed-layernorm")));
  EXPECT_THAT([] { ask("--model 124m --mtp-loss-scaling-factor 1", 16, 257); },
              ThrowsMessage<ConfigError>(HasSubstr("--mtp-loss-scaling-factor needs --mtp-num-layers")));
}

TEST(ModelOptions, DescribeExperts) {
  const Words dense = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --disable-bias-linear";
  const auto experts_of = [&](const Words& words) { return ask(dense + words, 16, 257).config.experts; };
  EXPECT_FALSE(experts_of({}).any());
  const model::ExpertConfig experts = experts_of(
      "--num-experts 8 --moe-router-topk 4 --moe-ffn-hidden-size 32 --moe-shared-expert-intermediate-size 96 "
      "--moe-router-score-function sigmoid --moe-router-topk-scaling-factor 2.5 --moe-router-num-groups 4 "
      "--moe-router-group-topk 2 --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.01 "
      "--moe-z-loss-coeff 0.001 --moe-expert-capacity-factor 1.25 --moe-token-drop-policy position "
      "--moe-router-enable-expert-bias --moe-router-bias-update-rate 0.002");
  EXPECT_EQ(experts.count, 8);
  EXPECT_EQ(experts.per_token, 4);
  EXPECT_EQ(experts.ffn_hidden, 32);
  EXPECT_EQ(experts.shared_hidden, 96);
  EXPECT_EQ(experts.score, RouterScore::sigmoid);
  EXPECT_EQ(experts.scaling, 2.5);
  EXPECT_EQ(experts.groups, 4);
  EXPECT_EQ(experts.groups_per_token, 2);
  EXPECT_EQ(experts.balance, (std::vector<model::BalanceTerm>{{model::BalanceLoss::sequence, 0.01}}));
  EXPECT_EQ(experts.z_coefficient, 0.001);
  EXPECT_EQ(experts.capacity_factor, 1.25);
  EXPECT_TRUE(experts.drop_by_position);
  EXPECT_TRUE(experts.router_bias);
  EXPECT_EQ(experts.bias_update_rate, 0.002);
  EXPECT_TRUE(experts_of("--num-experts 8 --moe-router-topk 1 --moe-router-pre-softmax").pre_softmax);
  const std::vector<model::BalanceTerm> both = {{model::BalanceLoss::global, 0.01},
                                                {model::BalanceLoss::micro_batch, 0}};
  const Words kinds = "--num-experts 8 --moe-router-load-balancing-type";
  EXPECT_EQ(experts_of(kinds + "global_aux_loss aux_loss --moe-aux-loss-coeff 0.01 0").balance, both);
  EXPECT_EQ(experts_of(kinds + "global_aux_loss,aux_loss --moe-aux-loss-coeff 0.01,0").balance, both);
  EXPECT_EQ(model::canonical(ask(dense + kinds + "none --moe-aux-loss-coeff 1", 16, 257).config).experts.balance,
            model::ExpertConfig().balance);
  const auto layers_of = [&](const char* layers) {
    return experts_of({"--num-experts", "8", "--moe-layer-freq", layers}).layers;
  };
  EXPECT_EQ(layers_of("1"), "");
  EXPECT_EQ(layers_of("2"), "1010");
  EXPECT_EQ(layers_of("3"), "1001");
  EXPECT_EQ(layers_of("([0]+[1]*3)"), "0111");
  EXPECT_EQ(layers_of("[1]*4"), "");
}

TEST(ModelOptions, RefuseExpertsThatCannotBe) {
  const auto expect_problem = [](const Words& words, const std::string& problem) {
    const Words dense = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --disable-bias-linear";
    EXPECT_THAT([&] { ask(dense + words, 16, 257); }, ThrowsMessage<ConfigError>(HasSubstr(problem)));
  };
  expect_problem("--moe-router-topk 2", "--moe-router-topk needs --num-experts");
  expect_problem("--moe-aux-loss-coeff 0.01", "--moe-aux-loss-coeff needs --num-experts");
  expect_problem("--moe-layer-freq 2", "--moe-layer-freq needs --num-experts");
  const Words experts = "--num-experts 8";
  const std::string each_once = "give as many coefficients as losses, and each loss once";
  expect_problem(experts + "--moe-aux-loss-coeff 0.1 0.2", each_once);
  const Words kinds = experts + "--moe-router-load-balancing-type";
  expect_problem(kinds + "aux_loss seq_aux_loss --moe-aux-loss-coeff 0.1", each_once);
  expect_problem(kinds + "aux_loss --moe-aux-loss-coeff 0.1 0.2", each_once);
  expect_problem(kinds + "aux_loss aux_loss --moe-aux-loss-coeff 0.1 0.2", each_once);
  expect_problem(kinds + "aux_loss none --moe-aux-loss-coeff 0.1 0.2", "none excludes other losses");
  expect_problem(kinds + "sinkhorn",
                 "--moe-router-load-balancing-type sinkhorn is not a list of aux_loss, seq_aux_loss");
  expect_problem(experts + "--moe-aux-loss-coeff -1", "--moe-aux-loss-coeff -1 is not a list of numbers");
  expect_problem(Words("--moe-router-load-balancing-type") + Words{""},
                 "--moe-router-load-balancing-type '' is not a list of aux_loss, seq_aux_loss");
  expect_problem(experts + "--moe-aux-loss-coeff" + Words{""},
                 "--moe-aux-loss-coeff '' is not a list of numbers at least 0");
  expect_problem(experts + "--moe-router-enable-expert-bias", "give --moe-router-score-function sigmoid");
  expect_problem(experts + "--moe-router-bias-update-rate 0.01",
                 "--moe-router-bias-update-rate needs --moe-router-enable-expert-bias");
  expect_problem(experts + "--moe-router-num-groups 2",
                 "--moe-router-num-groups and --moe-router-group-topk need each");
  expect_problem(experts + "--moe-router-topk 1", "give --moe-router-pre-softmax");
  expect_problem(experts + "--moe-layer-freq 0", "--moe-layer-freq 0 must be at least 1");
  expect_problem(experts + "--moe-layer-freq [1,0]", "--moe-layer-freq '[1,0]' lists 2 layers of 4");
  expect_problem(experts + "--moe-layer-freq [0]*4", "--moe-layer-freq: '0000' leaves no layer with experts");
  expect_problem(experts + "--moe-layer-freq x", "--moe-layer-freq 'x' must be N or a list of 0 and 1");
}

TEST(ModelOptions, APresetOfExpertsSetsTheirBalanceLoss) {
  EXPECT_THAT(ask("--model mixtral-8x7b", 512, 257).preset_values, HasSubstr("moe-aux-loss-coeff 0.02"));
  EXPECT_THAT(ask("--model mixtral-8x7b", 512, 257).preset_values, testing::Not(HasSubstr("moe-z-loss-coeff")));
  EXPECT_EQ(ask("--model qwen3-30b-a3b --moe-aux-loss-coeff 0", 512, 257).config.experts.balance_terms().size(), 0);
}

TEST(ModelOptions, ABertHasTheVocabularyOfItsCorpus) {
  const Asked bert = ask("--model bert-336m", 512, 30524);
  EXPECT_EQ(bert.config.vocabulary, 30524);
  EXPECT_THAT(bert.preset_values, testing::Not(HasSubstr("vocab-size")));
  EXPECT_EQ(ask("--model bert-base --vocab-size 30592", 512, 30524).config.vocabulary, 30592);
}

TEST(ModelOptions, EachFieldsOptionSetsIt) {
  std::size_t options = 0;
  for (const model::Field& field : model::fields()) {
    if (field.help.empty()) continue;
    Words base = "--model 124m";
    if (field.needs.met != nullptr) {
      constexpr const char* models[] = {"llama3-8b",  "llama3.1-8b", "mixtral-8x7b",     "qwen3-0.6b",
                                        "bloom-560m", "pythia-1.4b", "deepseek-v2-lite", "bert-336m"};
      const auto* const found =
          std::ranges::find_if(models, [&](const char* name) { return field.needs.met(model::preset(name)); });
      base[1] = found != std::end(models) ? *found : "llama3-8b";
      if (field.role == model::FieldRole::adapter) {
        base = "--model 124m --lora-rank 2";
      } else if (field.name().starts_with("moe-router-bias")) {
        base = "--model mixtral-8x7b --moe-router-score-function sigmoid --moe-router-enable-expert-bias";
      } else if (found == std::end(models)) {
        base.insert(base.end(), {"--position-embedding-type", "yarn"});
        if (!field.option.starts_with("yarn-rotary")) base.insert(base.end(), {"--yarn-rotary-scaling-factor", "8"});
      }
    }
    if (field.name() == "num-query-groups") base.emplace_back("--group-query-attention");
    if (field.name() == "hidden-size") base.insert(base.end(), {"--kv-channels", "64"});
    if (field.name() == "multi-latent-attention") {
      base = "--model llama3-8b --group-query-attention --num-query-groups 32";
    }
    if (field.name() == "qk-head-dim") base.insert(base.end(), {"--v-head-dim", "16"});
    if (field.name() == "num-experts") base.emplace_back("--disable-bias-linear");
    if (field.name().starts_with("mtp-")) base = "--model llama3-8b";
    if (field.name() == "mtp-loss-scaling-factor") base.insert(base.end(), {"--mtp-num-layers", "1"});
    if (field.name() == "rotary-base-local") base.insert(base.end(), {"--window-size", "5"});
    if (field.name() == "moe-router-enable-expert-bias") {
      base.insert(base.end(), {"--moe-router-score-function", "sigmoid"});
    }
    if (field.name() == "moe-router-num-groups") base.insert(base.end(), {"--moe-router-group-topk", "1"});
    if (field.name() == "moe-router-group-topk") base.insert(base.end(), {"--moe-router-num-groups", "4"});
    for (const std::string_view name : split(field.option, ',')) {
      Words arguments = base;
      arguments.push_back("--" + std::string(name));
      const bool is_fraction = field.range.max <= 1;
      const bool is_real = std::holds_alternative<double>(field.get({}));
      const bool is_vocabulary = field.name() == "vocab-size", is_turn = field.name() == "yarn-beta-fast";
      const std::string value = field.is_flag()                     ? ""
                                : !field.names.empty()              ? std::string(field.names.back())
                                : !field.item_names.empty()         ? std::string(field.item_names.back())
                                : is_fraction                       ? "0.5"
                                : is_vocabulary                     ? "60000"
                                : is_turn                           ? "48"
                                : is_real && field.range.min < 1    ? "0.75"
                                : field.name() == "moe-router-topk" ? "3"
                                                                    : "2";
      if (!value.empty()) arguments.push_back(value);
      if (field.name() == "max-position-embeddings") arguments.back() = "2000";
      const model::ModelConfig config = ask(arguments, 16, 257).config;
      if (value.empty()) {
        EXPECT_EQ(field.get(config), field.flag_value()) << name;
      } else {
        EXPECT_EQ(field.text(config), arguments.back()) << name;
        EXPECT_NE(arguments.back(), field.text(model::ModelConfig())) << name;
      }
      ++options;
    }
  }
  EXPECT_GT(options, 30u);
}

TEST(ModelOptions, TakeTheModelOfACheckpoint) {
  const model::ModelConfig stored =
      ask("--num-layers 2 --hidden-size 64 --num-attention-heads 4 --swiglu --normalization RMSNorm "
          "--use-rotary-position-embeddings --rotary-base 500000 --max-position-embeddings 32",
          16, 100)
          .config;
  const auto taken = [&](const Words& arguments, std::vector<std::string>& lines) {
    ModelOptions model;
    Options options("test", "");
    model.declare(options);
    options.parse(arguments);
    lines = model.take(stored);
    return model.config(16, 90);
  };
  std::vector<std::string> lines;
  EXPECT_EQ(attributes_of(taken({}, lines)).texts(), attributes_of(stored).texts());
  EXPECT_TRUE(lines.empty());
  EXPECT_EQ(attributes_of(taken("--rotary-base 10000 --num-layers 2", lines)).texts(), attributes_of(stored).texts());
  EXPECT_THAT(lines, testing::ElementsAre("the model's rotary_base is the checkpoint's 500000, instead of 10000"));
  // A form of the activation contradicts the checkpoint's SwiGLU, and is set aside, too.
  EXPECT_TRUE(taken("--gelu erf", lines).gated);
  EXPECT_THAT(lines, testing::Contains(HasSubstr("the model's swiglu is the checkpoint's true")));
  EXPECT_EQ(taken("--num-layers 3", lines).layers, 3) << "a shape stays, for the checkpoint to refuse";
  EXPECT_THAT([&] { taken("--model gpt2-124m", lines); },
              ThrowsMessage<ConfigError>(HasSubstr("--use-checkpoint-args and --model exclude each other")));
}

}  // namespace
}  // namespace trireme::app
