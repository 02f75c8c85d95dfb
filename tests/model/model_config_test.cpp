#include "src/model/model_config.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <numbers>
#include <set>

#include "src/model/fields.hpp"
#include "src/model/presets.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "tests/support/model_variants.hpp"
#include "tests/support/other_value.hpp"

namespace trireme::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ModelConfigAttributes, RestoreEveryModel) {
  std::vector<Attributes> all;
  for (const test::ModelVariant& variant : test::model_variants()) {
    ModelConfig config;
    config.layers = 3;
    config.norm_epsilon = 1e-6;
    variant.apply(config);
    const Attributes attributes = attributes_of(config);
    EXPECT_EQ(attributes_of(config_from(attributes)), attributes) << variant.name;
    EXPECT_EQ(parameter_count(config_from(attributes)), parameter_count(config)) << variant.name;
    EXPECT_THAT(all, testing::Not(testing::Contains(attributes))) << variant.name;
    all.push_back(attributes);
  }
}

/// Models that meet the conditions of some fields.
std::vector<ModelConfig> models_with_conditions() {
  std::vector<ModelConfig> models(8);
  models[1].position_embedding = models[2].position_embedding = PositionEmbedding::rope;
  models[1].rotary_scaling = {RotaryScalingKind::yarn, 4, 16, 2, 64, 0.5, 0.25};
  models[2].window.left = 4;
  models[2].linear_bias = false;
  models[2].qk_norm = models[2].parallel_residual = true;
  models[3].family = ModelFamily::bert;
  models[3].output = ModelOutput::choices;
  models[4].linear_bias = false;
  models[4].experts = {.count = 16, .per_token = 2, .groups = 4};
  models[5] = models[4];
  models[5].experts.score = RouterScore::sigmoid;
  models[6] = models[1];
  models[6].linear_bias = false;
  models[6].latent.used = true;
  models[7].adapters.rank = 2;
  return models;
}

TEST(Fields, EachSurvivesACheckpointWithAnotherValue) {
  std::set<std::string> expected, kept;
  for (const Field& field : fields()) {
    if (field.attribute.empty()) continue;
    expected.insert(field.key());
    for (const ModelConfig& config : models_with_conditions()) {
      const auto value = test::other_value(field, config);
      if (!value || (field.stored_if != nullptr && !field.stored_if(config))) continue;
      ModelConfig changed = config;
      field.set(changed, *value);
      const Attributes attributes = attributes_of(changed);
      if (attributes == attributes_of(config)) continue;
      EXPECT_EQ(field.get(config_from(attributes)), *value) << field.attribute;
      kept.insert(field.key());
    }
  }
  EXPECT_EQ(kept, expected);
}

TEST(Fields, OutOfTheirRangesAreRefusedByName) {
  for (const Field& field : fields()) {
    ModelConfig config;
    if (std::isinf(field.range.min) || (field.stored_if != nullptr && !field.stored_if(config))) continue;
    const double outside = field.range.min - 1;
    field.set(config, std::holds_alternative<double>(field.get(config))
                          ? FieldValue(outside)
                          : FieldValue(static_cast<std::int64_t>(outside)));
    if (field.is_default(config)) continue;
    EXPECT_THAT([&] { validate(config); }, ThrowsMessage<ConfigError>(HasSubstr(field.tag() + " "))) << field.name();
  }
}

TEST(Fields, ThatAreListsHaveAnItem) {
  int lists = 0;
  for (const Field& field : fields()) {
    if (!field.is_list) continue;
    ++lists;
    EXPECT_FALSE(field.admits_list("")) << field.name();
    if (!field.name().starts_with("moe-")) continue;
    ModelConfig config;
    EXPECT_THROW(field.set(config, std::string()), ConfigError) << field.name();
    EXPECT_TRUE(field.is_default(config)) << field.name();
  }
  EXPECT_GE(lists, 3);
}

TEST(ModelConfigAttributes, OfExpertsAreStoredIfThereAreAny) {
  ModelConfig config = preset("mixtral-8x7b");
  config.experts.layers = ExpertConfig::every(4, 32);
  const Attributes attributes = attributes_of(config);
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"model.kind", "gpt"},
                                   {"model.experts", "8"},
                                   {"model.experts_per_token", "2"},
                                   {"model.expert_ffn_hidden", "14336"},
                                   {"model.shared_hidden", "0"},
                                   {"model.expert_layers", "10001000100010001000100010001000"},
                                   {"model.router_score", "softmax"},
                                   {"model.router_pre_softmax", "false"},
                                   {"model.router_scaling", "1"},
                                   {"model.router_groups", "1"},
                                   {"model.router_groups_per_token", "1"}}) {
    EXPECT_EQ(attributes.get<std::string>(name), text) << name;
  }
  const ModelConfig read = config_from(attributes);
  EXPECT_EQ(attributes_of(read), attributes);
  EXPECT_TRUE(read.experts.in_layer(4));
  EXPECT_FALSE(read.experts.in_layer(5));
  config.experts.count = 0;
  EXPECT_EQ(attributes_of(config).texts().size(), attributes_of(preset("llama3-8b")).texts().size());
}

TEST(ModelConfigAttributes, OfAnOlderLlamaNameItGpt2) {
  const Attributes llama = attributes_of(preset("llama3-8b"));
  Attributes older = llama;
  older.put("model.kind", "gpt2");
  EXPECT_EQ(attributes_of(config_from(older)), llama);
}

TEST(ModelConfigAttributes, ThatContradictTheArchitectureAreRefused) {
  for (const char* kind : {"llama", "gpt"}) {
    Attributes attributes = attributes_of(ModelConfig());
    attributes.put("model.kind", kind);
    EXPECT_THAT(
        [&] { config_from(attributes); },
        ThrowsMessage<CheckpointError>(HasSubstr(fmt::format("the attribute model.kind is '{}' instead of ", kind))));
  }
}

TEST(ModelConfigAttributes, KeepTheirNamesAndTexts) {
  EXPECT_EQ(attributes_of(ModelConfig()), (Attributes{{"model.kind", "gpt2"},
                                                      {"model.layers", "12"},
                                                      {"model.hidden", "768"},
                                                      {"model.heads", "12"},
                                                      {"model.ffn_hidden", "3072"},
                                                      {"model.max_positions", "1024"},
                                                      {"model.vocabulary", "50257"},
                                                      {"model.gelu", "tanh"},
                                                      {"model.norm_epsilon", "1.0000000000000001e-05"},
                                                      {"model.kv_heads", "12"},
                                                      {"model.normalization", "LayerNorm"},
                                                      {"model.positions", "learned_absolute"},
                                                      {"model.rotary_base", "10000"},
                                                      {"model.rotary_percent", "1"},
                                                      {"model.swiglu", "false"},
                                                      {"model.linear_bias", "true"},
                                                      {"model.tied_output", "true"},
                                                      {"model.kv_channels", "64"},
                                                      {"model.qkv_bias", "true"},
                                                      {"model.norm_1p", "false"},
                                                      {"model.qk_norm", "false"},
                                                      {"model.rotary_scaling", "none"}}));
}

/// Expects a model of an earlier version, whose checkpoints lack these attributes, to be read as it was.
void expect_read_without(const std::vector<std::string>& names, const Attributes& now) {
  Attributes::Texts texts = now.texts();
  for (const std::string& name : names) EXPECT_EQ(texts.erase("model." + name), 1u) << name;
  EXPECT_EQ(attributes_of(config_from(Attributes(texts))), now);
}

TEST(ModelConfigAttributes, OfEarlierVersionsMeanTheirModels) {
  std::vector<std::string> later = {"kv_channels", "qkv_bias", "norm_1p", "qk_norm", "rotary_scaling"};
  expect_read_without(later, attributes_of(preset("llama3-8b")));  // heads of the hidden size over their number
  later.insert(later.end(), {"kv_heads", "normalization", "positions", "rotary_base", "rotary_percent", "swiglu",
                             "linear_bias", "tied_output"});
  expect_read_without(later, attributes_of(ModelConfig()));  // a GPT-2
}

TEST(ModelConfigAttributes, WithAWrongValueAreRefusedByItsName) {
  const Attributes::Texts good = attributes_of(ModelConfig()).texts();
  for (const auto& [name, text] : good) {
    Attributes::Texts texts = good;
    texts[name] = "wrong";
    EXPECT_THAT([&] { config_from(Attributes(texts)); },
                ThrowsMessage<CheckpointError>(HasSubstr("the attribute " + name + " is 'wrong' instead of ")));
    if (name == "model.kv_heads" || name == "model.kv_channels") continue;  // without them the model is a GPT-2
    texts.erase(name);
    EXPECT_THAT([&] { config_from(Attributes(texts)); },
                ThrowsMessage<CheckpointError>(HasSubstr("the attribute " + name + " is missing")));
  }
}

TEST(ModelConfigAttributes, OfAnImpossibleModelAreABadCheckpoint) {
  Attributes attributes = attributes_of(ModelConfig());
  attributes.set_source("here");
  attributes.put("model.kv_heads", 5);
  EXPECT_THAT([&] { config_from(attributes); },
              ThrowsMessage<CheckpointError>(AllOf(HasSubstr("here: "), HasSubstr("5 must divide"))));
}

// Megatron-LM counts layers from 1 and omits multiples of the frequency.
TEST(AttentionWindow, EveryNthLayerHasFullAttention) {
  const AttentionWindow window = AttentionWindow::every(127, 3, 7);
  for (const int layer : {0, 1, 3, 4, 6}) EXPECT_EQ(window.of(layer), 127) << layer;
  for (const int layer : {2, 5}) EXPECT_EQ(window.of(layer), -1) << layer;
  EXPECT_EQ(window.layers, "1101101");
}

TEST(AttentionWindow, DoesNotDependOnHowItsLayersAreGiven) {
  EXPECT_EQ(AttentionWindow::every(7, 9, 4).layers, "");
  EXPECT_EQ(AttentionWindow::of_layers(7, "1111").layers, "");
  EXPECT_EQ(AttentionWindow::of_layers(7, "0101").layers, "0101");
  EXPECT_FALSE(AttentionWindow::of_layers(7, "0000").any());
  EXPECT_FALSE(AttentionWindow::every(7, 1, 4).any());
  EXPECT_TRUE(AttentionWindow::every(0, 2, 4).any());
}

double frequency(const RotaryEmbedding& rotary, std::int64_t pair) {
  return rotary.scaled(pair,
                       std::pow(rotary.base, -2.0 * static_cast<double>(pair) / static_cast<double>(rotary.channels)));
}

// Three cases as in Llama 3.1's reference code, by wavelength.
TEST(RotaryScaling, IsThatOfLlama31ByWavelengths) {
  const RotaryEmbedding rotary = RotaryScaling::llama3(8).embedding(128, 500000);
  int kept = 0, divided = 0, between = 0;
  for (std::int64_t pair = 0; pair < 64; ++pair) {
    const double f = std::pow(500000.0, -2.0 * static_cast<double>(pair) / 128), length = 2 * std::numbers::pi / f;
    double expected = f;
    if (length > 8192.0 / 1) {
      expected = f / 8;
      ++divided;
    } else if (length >= 8192.0 / 4) {
      const double smooth = (8192 / length - 1) / (4 - 1);
      expected = (1 - smooth) * f / 8 + smooth * f;
      ++between;
    } else {
      ++kept;
    }
    EXPECT_NEAR(frequency(rotary, pair) / expected, 1, 1e-14) << pair;
  }
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(between, 6);
  EXPECT_EQ(divided, 29);
  EXPECT_EQ(rotary.magnitude, 1);
}

TEST(RotaryScaling, IsThatOfYarnByPairs) {
  const RotaryScaling scaling{RotaryScalingKind::yarn, 4, 32768, 1, 32};
  const RotaryEmbedding rotary = scaling.embedding(128, 1e6);
  // 128 ln(32768 / (2 pi 32)) / (2 ln 1e6) = 23.6 and 128 ln(32768 / 2 pi) / (2 ln 1e6) = 39.7.
  for (std::int64_t pair = 0; pair < 64; ++pair) {
    const double ramp = std::fmin(std::fmax((static_cast<double>(pair) - 23) / (40 - 23), 0), 1);
    const double f = std::pow(1e6, -2.0 * static_cast<double>(pair) / 128);
    EXPECT_NEAR(frequency(rotary, pair) / (f / 4 * ramp + f * (1 - ramp)), 1, 1e-14) << pair;
  }
  EXPECT_NEAR(rotary.magnitude, 0.1 * std::log(4.0) + 1, 1e-15);
}

TEST(RotaryScaling, OfYarnTakesTheMagnitudeOfBothScales) {
  RotaryScaling scaling{RotaryScalingKind::yarn, 40, 4096, 1, 32, 0.707, 0.707};
  EXPECT_EQ(scaling.embedding(64, 10000).magnitude, 1);
  scaling.mscale_all_dim = 0;
  EXPECT_NEAR(scaling.embedding(64, 10000).magnitude, 0.0707 * std::log(40.0) + 1, 1e-15);
}

TEST(RotaryScaling, OfYarnOverFewPairsIsAStep) {
  // Both bounds are at the first pair: the earlier training's sequence made no full turn.
  const RotaryEmbedding rotary = RotaryScaling{RotaryScalingKind::yarn, 4, 1, 1, 32}.embedding(8, 10000);
  EXPECT_EQ(frequency(rotary, 0), 1);
  EXPECT_NEAR(frequency(rotary, 1), 0.1 / 4, 1e-15);
}

TEST(ModelConfig, LayersWithAWindowHaveTheLocalBaseAndUnscaledFrequencies) {
  ModelConfig config;
  config.position_embedding = PositionEmbedding::rope;
  config.layers = 4;
  config.window = AttentionWindow::every(3, 2, 4);
  config.rotary_scaling.interpolation = 8;
  EXPECT_EQ(config.rotary_of(0).base, 10000);
  EXPECT_EQ(config.rotary_of(0).interpolation, 8);
  config.rotary_base_local = 50;
  EXPECT_EQ(config.rotary_of(0).base, 50);
  EXPECT_EQ(config.rotary_of(0).interpolation, 1);
  EXPECT_EQ(config.rotary_of(1).base, 10000);
  EXPECT_EQ(config.rotary_of(1).interpolation, 8);
}

TEST(ModelConfig, ScoresAreScaledByTheChannelsOfAHeadOrAnotherNumber) {
  ModelConfig config;
  EXPECT_EQ(config.score_scale(), 0.125);
  config.query_scalar = 256;
  EXPECT_EQ(config.score_scale(), 0.0625);
}

// All frequencies are divided, with every kind of scaling: the angle is that of the position over the factor.
TEST(RotaryScaling, InterpolationDividesPositions) {
  for (RotaryScaling scaling : {RotaryScaling(), RotaryScaling::llama3(8)}) {
    const RotaryEmbedding whole = scaling.embedding(128, 10000);
    scaling.interpolation = 4;
    const RotaryEmbedding divided = scaling.embedding(128, 10000);
    for (std::int64_t pair = 0; pair < 64; ++pair) {
      EXPECT_EQ(4 * frequency(divided, pair), frequency(whole, pair)) << pair;
    }
    EXPECT_EQ(divided.magnitude, 1);
  }
}

}  // namespace
}  // namespace trireme::model
