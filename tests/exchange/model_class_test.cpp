#include "src/exchange/model_class.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "src/exchange/export.hpp"
#include "src/exchange/import.hpp"
#include "src/model/initialisation.hpp"
#include "src/model/presets.hpp"
#include "tests/exchange/small_llama.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/other_value.hpp"

namespace trireme::exchange {
namespace {

using test::message_of;
using testing::AllOf;
using testing::HasSubstr;

TEST(ModelClass, EveryPartThatAClassLacksIsListedWithTheReason) {
  model::ModelConfig config = small_llama();
  EXPECT_EQ(model_class_of(config).name, "LlamaForCausalLM");
  config.window.left = 2;
  EXPECT_EQ(model_class_of(config).name, "MistralForCausalLM");
  config.window.layers = "10";
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config); }),
              AllOf(HasSubstr("cannot be exported as LlamaForCausalLM"), HasSubstr("<window_size> 2")));
  config.window = {};
  config.qkv_bias = true;
  EXPECT_EQ(model_class_of(config).name, "Qwen2ForCausalLM");
  config.qkv_bias = false;
  config.qk_norm = true;
  EXPECT_EQ(model_class_of(config).name, "Qwen3ForCausalLM");
  config.linear_bias = true;
  config.gated = false;
  config.rotary_percent = 0.5;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config); }),
              AllOf(HasSubstr("cannot be exported as Qwen3ForCausalLM"),
                    HasSubstr("without <swiglu>: all models of the class have it"), HasSubstr("<rotary_percent> 0.5"),
                    HasSubstr("without <disable_bias_linear>")));

  model::ModelConfig gpt2;
  gpt2.query_groups = 4;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(gpt2); }),
              HasSubstr("<num_query_groups> 4: all models of the class have the default"));
  model::ModelConfig bert;
  bert.family = model::ModelFamily::bert;
  bert.binary_head = false;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(bert); }),
              HasSubstr("<bert_no_binary_head>: no model of the class has it"));
  model::ModelConfig phi3 = small_llama();
  phi3.rotary_percent = 0.5;
  EXPECT_EQ(model_class_of(phi3).name, "Phi3ForCausalLM");
  phi3.rotary_scaling = model::RotaryScaling::llama3(8);
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(phi3); }),
              HasSubstr("<rotary_scaling> llama3: all models of the class have none"));
  model::ModelConfig starcoder2 = small_llama();
  starcoder2.normalization = model::Normalization::layer_norm;
  starcoder2.gated = false;
  EXPECT_EQ(model_class_of(starcoder2).name, "Starcoder2ForCausalLM");
  starcoder2.qkv_bias = true;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(starcoder2); }),
              HasSubstr("<add_qkv_bias>: no model of the class has it"));
  EXPECT_THAT(message_of<DataError>([] { model_class_from("MambaForCausalLM"); }),
              AllOf(HasSubstr("'MambaForCausalLM'"), HasSubstr("Qwen3ForCausalLM")));
}

TEST(ModelClass, AModelWithExpertsIsAMixtralOrWithNormsOfQueriesAndKeysAQwen3) {
  model::ModelConfig config = small_llama();
  config.layers = 2;
  config.experts.count = 4;
  config.experts.ffn_hidden = 6;  // that of a Mixtral: it has no dense block of another width
  EXPECT_EQ(model_class_of(config).name, "MixtralForCausalLM");
  config.experts.fp32_router = true;
  EXPECT_EQ(model_class_of(config).name, "MixtralForCausalLM") << "the routers' type is one of computation";
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config, "LlamaForCausalLM"); }),
              HasSubstr("<num_experts> 4: all models of the class have the default"));
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(small_llama(), "MixtralForCausalLM"); }),
              HasSubstr("without <num_experts>: all models of the class have experts"));
  config.experts.layers = "01";
  config.experts.pre_softmax = true;
  config.experts.shared_hidden = 3;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config); }),
              AllOf(HasSubstr("cannot be exported as MixtralForCausalLM"), HasSubstr("<moe_layer_freq> 01"),
                    HasSubstr("<moe_router_pre_softmax>: no model of the class has it"),
                    HasSubstr("<moe_shared_expert_intermediate_size> 3")));
  config.qk_norm = true;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config); }),
              AllOf(HasSubstr("cannot be exported as Qwen3MoeForCausalLM:\n  <moe_shared_expert_intermediate_size> 3"),
                    testing::Not(HasSubstr("<moe_layer_freq>"))));
  config.experts.shared_hidden = 0;
  EXPECT_EQ(model_class_of(config).name, "Qwen3MoeForCausalLM");
  config.experts.score = RouterScore::sigmoid;
  config.experts.router_bias = true;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config); }),
              AllOf(HasSubstr("<moe_router_score_function> sigmoid: all models of the class have softmax"),
                    HasSubstr("<moe_router_enable_expert_bias>: no model of the class has it")));
  EXPECT_THAT(message_of<DataError>([] { model_class_from("Qwen2MoeForCausalLM"); }), HasSubstr("sigmoid gate"));
}

TEST(ModelClass, AModelWithLatentAttentionIsADeepseek) {
  model::ModelConfig config = model::preset("deepseek-v2-lite");
  EXPECT_EQ(model_class_of(config).name, "DeepseekV2ForCausalLM");
  const auto refusal = [](const model::ModelConfig& changed) {
    return message_of<ConfigError>([&] { tensor_map(model_class_of(changed), changed); });
  };
  config.norm_epsilon = 1e-5;
  config.qk_norm = false;
  EXPECT_THAT(refusal(config), AllOf(HasSubstr("<layernorm_epsilon> 1e-05"), HasSubstr("without <qk_layernorm>")));
  config = model::preset("deepseek-v2-lite");
  config.experts.layers.front() = '1';
  config.experts.layers[3] = '0';
  EXPECT_THAT(refusal(config), HasSubstr("only the first layers of a DeepSeek model are dense"));
  config.experts = {};
  EXPECT_THAT(refusal(config), HasSubstr("without <num_experts>: all models of the class have experts"));

  config = class_defaults(model_class_from("DeepseekV3ForCausalLM"));
  config.experts.layers.clear();
  EXPECT_EQ(model_class_of(config).name, "DeepseekV3ForCausalLM");
  config.experts.groups_per_token = 2;
  EXPECT_THAT(refusal(config), HasSubstr("compares groups by two experts"));
  config.experts.groups_per_token = 4;
  config.experts.shared_hidden = 1000;
  EXPECT_THAT(refusal(config), HasSubstr("<moe_shared_expert_intermediate_size> 1000"));
}

TEST(ModelClass, AModelWithNormsAroundItsBranchesIsAGemma) {
  model::ModelConfig config = small_llama();
  model::set_fields(config, "geglu sandwich-norm scale-embeddings attn-logit-softcapping 2 window-size 1");
  EXPECT_EQ(model_class_of(config).name, "Gemma2ForCausalLM");
  config.rotary_base_local = 50;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config); }),
              AllOf(HasSubstr("cannot be exported as Gemma2ForCausalLM"), HasSubstr("<rotary_base_local> 50")));
  config.qk_norm = true;
  config.rotary_scaling.interpolation = 2;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config); }), HasSubstr("<attn_logit_softcapping> 2"));
  config.attention_soft_cap = 0;
  EXPECT_EQ(model_class_of(config).name, "Gemma3ForCausalLM");
  config.rotary_base_local = 0;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config); }),
              HasSubstr("scaled frequencies without <rotary_base_local>"));
  config.rotary_scaling.interpolation = 1;
  EXPECT_EQ(model_class_of(config).name, "Gemma3ForCausalLM");
  config.scaled_embedding = false;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config); }),
              HasSubstr("without <scale_embeddings>: all models of the class have it"));
  model::ModelConfig llama = small_llama();
  llama.gate = Activation::gelu_tanh;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(llama); }),
              HasSubstr("<geglu>: no model of the class has it"));
}

TEST(ModelClass, AModelWithBiasesByDistanceIsABloom) {
  model::ModelConfig config;
  config.position_embedding = model::PositionEmbedding::alibi;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config); }),
              AllOf(HasSubstr("cannot be exported as BloomForCausalLM"),
                    HasSubstr("without <embed_layernorm>: all models of the class have it")));
  config.embedding_norm = true;
  EXPECT_EQ(model_class_of(config).name, "BloomForCausalLM");
  config.ffn_hidden = 100;
  EXPECT_THAT(message_of<ConfigError>([&] { tensor_map(model_class_from("BloomForCausalLM"), config); }),
              HasSubstr("<ffn_hidden_size> 100: blocks of a BloomForCausalLM are as wide as 4 x <hidden_size> 768"));
}

TEST(ModelClass, AParallelModelIsAGptNeoXOrWithoutBiasesAFalcon) {
  model::ModelConfig config = small_llama();
  config.normalization = model::Normalization::layer_norm;
  config.gated = false;
  config.parallel_residual = true;
  EXPECT_EQ(model_class_of(config).name, "FalconForCausalLM");
  config.shared_norm = true;
  EXPECT_EQ(model_class_of(config).name, "FalconForCausalLM");
  config.rotary_percent = 0.5;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config); }),
              AllOf(HasSubstr("cannot be exported as FalconForCausalLM"), HasSubstr("<rotary_percent> 0.5")));
  config.shared_norm = false;
  config.linear_bias = true;
  EXPECT_EQ(model_class_of(config).name, "GPTNeoXForCausalLM");
  config.parallel_residual = false;
  EXPECT_EQ(model_class_of(config).name, "GPTNeoXForCausalLM");
  config.rotary_percent = 1;  // a StarCoder2 computes the same
  EXPECT_EQ(model_class_of(config).name, "Starcoder2ForCausalLM");
  EXPECT_EQ(model_class_of(config, "GPTNeoXForCausalLM").name, "GPTNeoXForCausalLM");
  config.heads = 4;
  config.query_groups = 2;
  EXPECT_THAT(message_of<ConfigError>([&] { tensor_map(model_class_from("FalconForCausalLM"), config); }),
              HasSubstr("<num_query_groups> 2 without <parallel_residual>"));
  config = small_llama();
  config.parallel_residual = true;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config); }),
              AllOf(HasSubstr("cannot be exported as LlamaForCausalLM"),
                    HasSubstr("<parallel_residual>: no model of the class has it")));
}

TEST(ModelClass, AModelWithNormsAcrossHeadsOrAfterBranchesIsAnOlmo) {
  model::ModelConfig config = small_llama();
  config.qk_norm = config.qk_norm_across_heads = config.post_branch_norm = true;
  EXPECT_EQ(model_class_of(config).name, "Olmo2ForCausalLM");
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config, "Qwen3ForCausalLM"); }),
              AllOf(HasSubstr("<qk_layernorm_across_heads>: no model of the class has it"),
                    HasSubstr("<post_branch_norm>: no model of the class has it")));
  const TensorMap map = tensor_map(model_class_from("Olmo2ForCausalLM"), config);
  EXPECT_THAT(map.tensors, testing::Contains(testing::Field(&MappedTensor::name,
                                                            "model.layers.0.post_feedforward_layernorm.weight")));
  config.post_branch_norm = false;
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config); }),
              AllOf(HasSubstr("cannot be exported as Olmo2ForCausalLM"),
                    HasSubstr("without <post_branch_norm>: all models of the class have it")));
  config.experts.count = 4;
  EXPECT_EQ(model_class_of(config).name, "OlmoeForCausalLM");
  config.qk_norm_across_heads = false;
  EXPECT_EQ(model_class_of(config).name, "Qwen3MoeForCausalLM");
}

TEST(ModelClass, IsTheNamedOneIfTheModelFits) {
  model::ModelConfig config = small_llama();
  EXPECT_EQ(model_class_of(config, "Phi3ForCausalLM").name, "Phi3ForCausalLM");
  EXPECT_EQ(model_class_of(config, "MistralForCausalLM").name, "MistralForCausalLM");
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config, "Starcoder2ForCausalLM"); }),
              AllOf(HasSubstr("cannot be exported as Starcoder2ForCausalLM"), HasSubstr("<swiglu>"),
                    HasSubstr("<normalization> RMSNorm")));
  EXPECT_THAT(message_of<ConfigError>([&] { model_class_of(config, "BertForPreTraining"); }),
              HasSubstr("the class is of another kind of model"));
}

TEST(ModelClass, IsFoundForEveryFamilyByNameAndByDefaults) {
  EXPECT_EQ(model_classes().size(), 25u);
  for (const ModelClass& model_class : model_classes()) {
    SCOPED_TRACE(model_class.name);
    EXPECT_EQ(&model_class_from(model_class.name), &model_class);
    model::ModelConfig config = class_defaults(model_class);
    EXPECT_EQ(&model_class_of(config, model_class.name), &model_class);
    // With all channels rotated, a Phi-3 is a Llama. A BERT with all of its heads is one for pretraining.
    const bool is_pretrained = config.is_bert() && config.predicts_tokens();
    EXPECT_EQ(model_class_of(config).name, model_class.name == "Phi3ForCausalLM" ? "LlamaForCausalLM"
                                           : is_pretrained                       ? "BertForPreTraining"
                                                                                 : model_class.name);
    config.layers = 1;
    // The builder refuses a map that lacks a parameter or a row.
    const TensorMap map = tensor_map(model_class, config);
    EXPECT_FALSE(map.parameters.empty());
    for (const MappedTensor& tensor : map.tensors) EXPECT_FALSE(is_buffer(tensor.name)) << tensor.name;
  }
}

/// A source without tensors.
class NoTensors final : public TensorSource {
 public:
  std::string description() const override { return "nothing"; }
  const std::vector<ForeignTensor>& tensors() const override { return none_; }
  void read(std::size_t, std::int64_t, std::span<std::byte>) override { FAIL() << "there is nothing to read"; }

 private:
  std::vector<ForeignTensor> none_;
};

TEST(ModelClass, PartsOfABertThatFilesLackHaveInitialWeights) {
  for (const auto& [name, lacking] : {std::pair("BertForMaskedLM", std::set<std::string>{"pooler", "sop"}),
                                      {"BertModel", {"mlm", "sop"}},
                                      {"BertForTokenClassification", {"mlm", "pooler", "sop"}},
                                      {"BertForPreTraining", {}}}) {
    SCOPED_TRACE(name);
    model::ModelConfig config = class_defaults(model_class_from(name));
    config.layers = 1;
    config.vocabulary = 40;
    const TensorMap map = tensor_map(model_class_from(name), config);
    std::set<std::string> parts;
    NoTensors source;
    ParameterReader reader(map, source, {});
    for (const MappedParameter& parameter : map.parameters) {
      if (!parameter.is_initial) continue;
      parts.insert(parameter.name.substr(0, parameter.name.find('.')));
      std::vector<std::byte> bytes;
      ParameterSlice slice = reader.slices_of(parameter, DType::fp64, 8 * 768).back();
      reader.read(slice, DType::fp64, bytes);
      const auto* values = reinterpret_cast<const double*>(bytes.data());
      for (std::int64_t i = 0; i < slice.count * parameter.columns; i += 97) {
        EXPECT_EQ(values[i], model::initial_value(parameter.name, parameter.role, slice.first * parameter.columns + i,
                                                  model::Initialisation{}))
            << parameter.name << " " << i;
      }
    }
    EXPECT_EQ(parts, lacking);
    for (const MappedTensor& tensor : map.tensors) {
      EXPECT_EQ(tensor.name.starts_with("bert.") || tensor.name.starts_with("cls."), std::string(name) != "BertModel")
          << tensor.name;
    }
  }
}

TEST(ModelClass, PartsOfABertAreThoseOfItsFiles) {
  for (const auto& [name, there, lacking] :
       {std::tuple("BertForMaskedLM", "bert.pooler.dense.weight", std::set<std::string>{"sop"}),
        {"BertForTokenClassification", "bert.pooler.dense.weight", {"mlm", "sop"}},
        {"BertModel", "cls.seq_relationship.weight", {"mlm", "pooler"}}}) {
    model::ModelConfig config = class_defaults(model_class_from(name));
    config.layers = 1;
    config.vocabulary = 40;
    const TensorMap map = tensor_map(model_class_from(name), config,
                                     {.has_tensor = [there](const std::string& tensor) { return tensor == there; }});
    std::set<std::string> parts;
    for (const MappedParameter& parameter : map.parameters) {
      if (parameter.is_initial) parts.insert(parameter.name.substr(0, parameter.name.find('.')));
    }
    EXPECT_EQ(parts, lacking) << name;
  }
  EXPECT_THAT(model_class_from("BertForQuestionAnswering").left_out, testing::Contains("bert.pooler.dense.bias"));
}

TEST(ModelClass, HasOwnKeysOfKnownFields) {
  for (const ModelClass& model_class : model_classes()) {
    for (const auto& [attribute, key] : model_class.own_keys) {
      EXPECT_THAT(model::fields(), testing::Contains(testing::Field(&model::Field::attribute, attribute)))
          << model_class.name << " " << key;
    }
  }
}

TEST(ModelClass, NoFieldIsLostSilently) {
  // Other values of a field that a class lacks are refused; without a row in the table they would be exported.
  for (const ModelClass& model_class : model_classes()) {
    const model::ModelConfig defaults = class_defaults(model_class);
    for (const model::Field& field : model::fields()) {
      const auto value = test::other_value(field, defaults);
      const bool is_stored = !field.attribute.empty() && (field.stored_if == nullptr || field.stored_if(defaults));
      if (!value || !is_stored || !config_key(field, model_class).empty()) continue;
      if (field.attribute == "norm_1p" || field.attribute == "router_type")
        continue;  // exported in another form, or none
      model::ModelConfig changed = defaults;
      field.set(changed, *value);
      if (field.get(canonical(changed)) == field.get(canonical(defaults))) continue;  // no effect in this model
      try {
        EXPECT_NE(&model_class_of(changed), &model_class) << field.name();
      } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("cannot be exported as"));
      }
    }
  }
}

}  // namespace
}  // namespace trireme::exchange
