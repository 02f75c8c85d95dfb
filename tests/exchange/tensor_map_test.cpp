#include "src/exchange/tensor_map.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "src/exchange/elements.hpp"
#include "src/exchange/export.hpp"
#include "src/exchange/fused_experts.hpp"
#include "src/exchange/import.hpp"
#include "src/exchange/model_class.hpp"
#include "tests/exchange/small_llama.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::exchange {
namespace {

using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// Tensors whose elements count up from 0 across all tensors, or in each tensor, times a factor.
class CountingSource final : public TensorSource {
 public:
  explicit CountingSource(std::vector<ForeignTensor> tensors) : tensors_(std::move(tensors)) {}
  std::string description() const override { return "the source"; }
  const std::vector<ForeignTensor>& tensors() const override { return tensors_; }
  void read(std::size_t tensor, std::int64_t first, std::span<std::byte> out) override {
    std::int64_t base = first;
    for (std::size_t i = 0; i < tensor && !are_alike_; ++i) base += tensors_[i].shape.numel();
    dispatch_float(tensors_[tensor].dtype, [&]<class T>() {
      for (std::size_t i = 0; i < out.size() / sizeof(T); ++i) {
        const auto value = static_cast<T>(
            static_cast<Accumulation<T>>(factor_ * static_cast<double>(base + static_cast<std::int64_t>(i))));
        std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
      }
    });
  }
  std::vector<ForeignTensor> tensors_;
  bool are_alike_ = false;
  double factor_ = 1;
};

std::vector<float> rows_of(const TensorMap& map, TensorSource& source, const std::string& name, std::int64_t first,
                           std::int64_t count) {
  ParameterReader reader(map, source, match(map, source, {}));
  const auto parameter = std::ranges::find(map.parameters, name, &MappedParameter::name);
  std::vector<std::byte> bytes;
  reader.read({&*parameter, false, first, count}, DType::fp32, bytes);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(TensorMap, MetasOrderOfChannelsBecomesHalves) {
  model::ModelConfig config = small_llama();
  config.hidden = 4;
  config.heads = 1;  // one head of four channels
  const TensorMap map = tensor_map(model_class_from("LlamaForCausalLM"), config, {.rotary = RotaryLayout::interleaved});
  CountingSource source(tensors_of(map, DType::fp32));
  // Query rows 0 1 2 3 of the file are the pairs (0, 1) and (2, 3): here rows 0 2 1 3. Values stay as they are.
  const auto query = std::ranges::find(source.tensors_, "model.layers.0.self_attn.q_proj.weight", &ForeignTensor::name);
  float base = 0;
  for (auto tensor = source.tensors_.begin(); tensor != query; ++tensor) {
    base += static_cast<float>(tensor->shape.numel());
  }
  std::vector<float> firsts;
  const std::vector<float> rows = rows_of(map, source, "h.0.attn.qkv.weight", 0, 12);
  for (std::size_t row = 0; row < 12; ++row) firsts.push_back((rows[row * 4] - base) / 4);
  EXPECT_THAT(firsts, ElementsAre(0, 2, 1, 3, 4, 6, 5, 7, 8, 9, 10, 11));
  // Part of the rows has the same elements.
  EXPECT_EQ(rows_of(map, source, "h.0.attn.qkv.weight", 1, 6), std::vector<float>(rows.begin() + 4, rows.begin() + 28));
}

TEST(Elements, AreRoundedOnceFromFp64To16Bits) {
  const double tie = 1 + 0x1p-8;  // between 1 and the next bf16
  const std::vector<double> values{tie + 0x1p-40, tie - 0x1p-40, tie, -tie - 0x1p-40, 1e300, 0x1p-140};
  std::vector<bf16> rounded(values.size());
  const std::int64_t lost = convert(std::as_bytes(std::span(values)).data(), DType::fp64,
                                    std::as_writable_bytes(std::span(rounded)).data(), DType::bf16, std::ssize(values));
  EXPECT_EQ(lost, 1);
  std::vector<float> back;
  for (const bf16 value : rounded) back.push_back(static_cast<float>(value));
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(back, ElementsAre(1 + 0x1p-7f, 1.0f, 1.0f, -1 - 0x1p-7f, infinity, 0));
}

// Scores are those of Meta's order only if the weights of norms move with their channels.
TEST(TensorMap, NormsOfQueriesAndKeysFollowTheirChannels) {
  model::ModelConfig config = small_llama();
  config.hidden = 8;
  config.heads = 2;
  config.qk_norm = true;
  for (const bool across : {false, true}) {
    config.qk_norm_across_heads = across;
    const TensorMap map =
        tensor_map(model_class_from("Qwen3ForCausalLM"), config, {.rotary = RotaryLayout::interleaved});
    CountingSource source(tensors_of(map, DType::fp32));
    for (const char* norm : {"h.0.attn.q_ln.weight", "h.0.attn.k_ln.weight"}) {
      std::vector<float> weights = rows_of(map, source, norm, 0, across ? 8 : 4);
      const float base = weights.front();
      for (float& weight : weights) weight -= base;
      EXPECT_EQ(weights, across ? std::vector<float>({0, 2, 1, 3, 4, 6, 5, 7}) : std::vector<float>({0, 2, 1, 3}));
    }
  }
}

TEST(TensorMap, FusedExpertsAreReadOneByOne) {
  model::ModelConfig config = small_llama();
  config.experts = {.count = 3, .ffn_hidden = 2};
  config.qk_norm = true;
  for (const char* name : {"MixtralForCausalLM", "Qwen3MoeForCausalLM"}) {
    config.qk_norm = std::string_view(name).starts_with("Qwen");
    const ModelClass& model_class = model_class_from(name);
    const TensorMap map = tensor_map(model_class, config);
    auto fused = std::make_unique<CountingSource>(
        std::vector<ForeignTensor>{{"model.layers.0.mlp.experts.gate_up_proj", DType::fp32, {3, 4, 8}},
                                   {"model.layers.0.mlp.experts.down_proj", DType::fp32, {3, 8, 2}},
                                   {"model.layers.0.mlp.gate.weight", DType::fp32, {3, 8}}});
    for (const ForeignTensor& tensor : tensors_of(map, DType::fp32)) {
      const bool is_block =
          tensor.name.find("mlp") != std::string::npos || tensor.name.find("moe") != std::string::npos;
      if (!is_block) fused->tensors_.push_back(tensor);
    }
    const std::unique_ptr<TensorSource> single = with_single_experts(std::move(fused));
    ParameterReader reader(map, *single, match(map, *single, {.other_names = [&](const std::string& tensor) {
                                                 return other_names(model_class, tensor);
                                               }}));
    const auto first_of = [&](const std::string& parameter, std::int64_t row) {
      std::vector<std::byte> bytes;
      float value = 0;
      reader.read({&*std::ranges::find(map.parameters, parameter, &MappedParameter::name), false, row, 1}, DType::fp32,
                  bytes);
      std::memcpy(&value, bytes.data(), sizeof value);
      return value;
    };
    EXPECT_EQ(first_of("h.0.mlp.experts.2.fc.weight", 1), 2 * 32 + 8);   // gate
    EXPECT_EQ(first_of("h.0.mlp.experts.2.fc.weight", 3), 2 * 32 + 24);  // up
    EXPECT_EQ(first_of("h.0.mlp.experts.1.proj.weight", 3), 96 + 16 + 6);
    EXPECT_EQ(first_of("h.0.mlp.router.weight", 2), 96 + 48 + 16);
  }
}

TEST(TensorMap, PaddedRowsAreLeftOutAndBertsMissingOnesAreNeverPredicted) {
  model::ModelConfig config = small_llama();
  const TensorMap padded = tensor_map(model_class_from("LlamaForCausalLM"), config, {.vocabulary_rows = 8});
  CountingSource source(tensors_of(padded, DType::fp32));
  EXPECT_EQ(source.tensors_.front().shape, (Shape{8, 8}));
  EXPECT_THAT(rows_of(padded, source, "wte", 4, 1), ElementsAre(32, 33, 34, 35, 36, 37, 38, 39));

  config = {};
  config.family = model::ModelFamily::bert;
  config.norm_placement = model::NormPlacement::post;
  config.layers = 1;
  config.hidden = 2;
  config.heads = 1;
  config.ffn_hidden = 2;
  config.vocabulary = 4;
  const TensorMap added = tensor_map(model_class_from("BertForPreTraining"), config, {.vocabulary_rows = 3});
  CountingSource bert(tensors_of(added, DType::fp32));
  EXPECT_THAT(rows_of(added, bert, "emb.word", 2, 2), ElementsAre(4, 5, 0, 0));
  EXPECT_THAT(rows_of(added, bert, "mlm.out.bias", 3, 1), ElementsAre(-10000));
  const TensorMap both =
      tensor_map(model_class_from("BertForPreTraining"), config, {.vocabulary_rows = TokenRows(4, 3)});
  CountingSource larger(tensors_of(both, DType::fp32));
  EXPECT_THAT(rows_of(both, larger, "emb.word", 2, 2), ElementsAre(4, 5, 0, 0));
  EXPECT_THAT(
      message_of([&] { tensor_map(model_class_from("LlamaForCausalLM"), small_llama(), {.vocabulary_rows = 3}); }),
      HasSubstr("the tensors have 3 tokens, fewer than the 5"));
}

TEST(TensorMap, OneErrorListsEveryTensorThatDoesNotFit) {
  const TensorMap map = tensor_map(model_class_from("LlamaForCausalLM"), small_llama());
  CountingSource source(tensors_of(map, DType::fp32));
  source.tensors_[0].shape = {6, 8};
  source.tensors_[1].name = "model.layers.7.input_layernorm.weight";
  source.tensors_[2].dtype = DType::int32;
  EXPECT_THAT(message_of<DataError>([&] { match(map, source, {}); }),
              AllOf(HasSubstr("4 differences"), HasSubstr("model.embed_tokens.weight is [6, 8] instead of [5, 8]"),
                    HasSubstr("model.layers.0.input_layernorm.weight [8] is missing"),
                    HasSubstr("model.layers.7.input_layernorm.weight [8] is not part of the model"),
                    HasSubstr("has the type int32")));
}

TEST(TensorMap, CopiesOfATensorMustBeEqual) {
  model::ModelConfig config = small_llama();
  config.tied_output = true;
  const TensorMap map = tensor_map(model_class_from("LlamaForCausalLM"), config);
  CountingSource source(tensors_of(map, DType::fp32));
  source.tensors_.push_back({"lm_head.weight", DType::bf16, {5, 8}});
  source.are_alike_ = true;
  EXPECT_EQ(rows_of(map, source, "wte", 1, 1).front(), 8);
  source.are_alike_ = false;
  EXPECT_THAT(message_of<DataError>([&] { rows_of(map, source, "wte", 1, 1); }),
              AllOf(HasSubstr("model.embed_tokens.weight and lm_head.weight of the source have different elements"),
                    HasSubstr("tie_word_embeddings")));
  source.tensors_.back().shape = {4, 8};
  EXPECT_THAT(message_of<DataError>([&] { match(map, source, {}); }), HasSubstr("lm_head.weight is [4, 8] instead of"));
}

TEST(TensorMap, ElementsBeyondTheTypeOfTheMastersAreRefused) {
  const TensorMap map = tensor_map(model_class_from("LlamaForCausalLM"), small_llama());
  CountingSource source(tensors_of(map, DType::fp64));
  source.factor_ = 1e37;
  EXPECT_EQ(rows_of(map, source, "wte", 0, 1).at(3), 3e37f);
  EXPECT_THAT(message_of<ConfigError>([&] { rows_of(map, source, "wte", 4, 1); }),
              HasSubstr("model.embed_tokens.weight has 5 finite elements that would be infinite in fp32"));
}

TEST(TensorMap, MatricesOfOneColumnAreNoVectors) {
  model::ModelConfig config = small_llama();
  config.ffn_hidden = 1;
  const TensorMap map = tensor_map(model_class_from("LlamaForCausalLM"), config);
  const auto down = std::ranges::find(map.tensors, "model.layers.0.mlp.down_proj.weight", &MappedTensor::name);
  EXPECT_EQ(down->shape, (Shape{8, 1}));
}

TEST(TensorMap, NamesOfOlderFilesAreFound) {
  EXPECT_THAT(other_names(model_class_from("BertForPreTraining"), "bert.embeddings.LayerNorm.weight"),
              ElementsAre("embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.gamma"));
  EXPECT_THAT(other_names(model_class_from("GPT2LMHeadModel"), "transformer.wte.weight"), ElementsAre("wte.weight"));
  EXPECT_TRUE(is_buffer("h.0.attn.bias"));
  EXPECT_FALSE(is_buffer("transformer.h.0.attn.c_attn.bias"));
}

TEST(TensorMap, LatentHeadsRotateTheirLastChannels) {
  model::ModelConfig config = class_defaults(model_class_from("DeepseekV2ForCausalLM"));
  config.layers = 1;
  config.heads = 2;
  config.latent = {.used = true, .kv_rank = 3, .head_dim = 1, .rotary_dim = 4, .value_dim = 2};
  const TensorMap map = tensor_map(model_class_from("DeepseekV2ForCausalLM"), config);
  const auto rows_of = [&](const std::string& name) {
    std::vector<std::int64_t> rows;
    for (const RowRun& run : std::ranges::find(map.parameters, name, &MappedParameter::name)->runs) {
      for (std::int64_t i = 0; i < run.count; ++i) rows.push_back(run.foreign_first + i * run.foreign_step);
    }
    return rows;
  };
  EXPECT_EQ(rows_of("h.0.attn.q.weight"), (std::vector<std::int64_t>{0, 1, 3, 2, 4, 5, 6, 8, 7, 9}));
  EXPECT_EQ(rows_of("h.0.attn.kv_down.weight"), (std::vector<std::int64_t>{0, 1, 2, 3, 5, 4, 6}));
}

TEST(TensorMap, GroupsHaveTheirQueriesThenAKeyAndAValue) {
  model::ModelConfig config = small_llama();
  config.hidden = 4;
  config.heads = 4;
  config.query_groups = 2;
  config.normalization = model::Normalization::layer_norm;
  config.gated = false;
  config.parallel_residual = config.shared_norm = true;
  const TensorMap map = tensor_map(model_class_from("FalconForCausalLM"), config);
  CountingSource source(tensors_of(map, DType::fp32));
  const std::string name = "transformer.h.0.self_attention.query_key_value.weight";
  const auto fused = std::ranges::find(source.tensors_, name, &ForeignTensor::name);
  ASSERT_NE(fused, source.tensors_.end());
  float base = 0;
  for (auto tensor = source.tensors_.begin(); tensor != fused; ++tensor) {
    base += static_cast<float>(tensor->shape.numel());
  }
  // Heads of one channel, in the order q q k v q q k v.
  const auto firsts = [&](const std::string& parameter) {
    std::vector<float> result;
    const std::vector<float> rows = rows_of(map, source, parameter, 0, 4);
    for (std::size_t row = 0; row < 4; ++row) result.push_back((rows[row * 4] - base) / 4);
    return result;
  };
  EXPECT_THAT(firsts("h.0.attn.q.weight"), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(firsts("h.0.attn.kv.weight"), ElementsAre(2, 6, 3, 7));
}

TEST(Elements, ATransposeAndItsInverseAreTheIdentity) {
  // Sizes around those of tiles.
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{37, 70}, {130, 64}, {1, 5}}) {
    const auto size = static_cast<std::size_t>(rows * columns);
    std::vector<float> from(size), back(size);
    std::vector<bf16> to(size);
    for (std::size_t i = 0; i < size; ++i) from[i] = static_cast<float>(i % 251);
    convert_transposed(reinterpret_cast<std::byte*>(from.data()), DType::fp32, rows, columns,
                       reinterpret_cast<std::byte*>(to.data()), DType::bf16, rows);
    EXPECT_EQ(static_cast<float>(to[1]), from[static_cast<std::size_t>(rows == 1 ? 1 : columns)]);
    convert_transposed(reinterpret_cast<std::byte*>(to.data()), DType::bf16, columns, rows,
                       reinterpret_cast<std::byte*>(back.data()), DType::fp32, columns);
    EXPECT_EQ(back, from);
  }
}

}  // namespace
}  // namespace trireme::exchange
