// Model files of llm.c: their parameters, and damaged files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "io/huggingface/config_json.hpp"
#include "io/llmc/llmc_source.hpp"
#include "io/safetensors/safetensors_source.hpp"
#include "src/exchange/import.hpp"
#include "src/exchange/llmc.hpp"
#include "src/exchange/model_class.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::exchange {
namespace {

using test::message_of;
using testing::HasSubstr;

/// Layer parameters in the order of llm.c's files, between the embeddings and the last norm.
constexpr const char* order[] = {"ln_1.weight",      "ln_1.bias",      "attn.qkv.weight", "attn.qkv.bias",
                                 "attn.proj.weight", "attn.proj.bias", "ln_2.weight",     "ln_2.bias",
                                 "mlp.fc.weight",    "mlp.fc.bias",    "mlp.proj.weight", "mlp.proj.bias"};

/// Model of transformers, and its parameters.
class Model {
 public:
  Model()
      : config(io::read_config_json(folder + "/config.json").config),
        source_(folder),
        map_(tensor_map(model_class_from("GPT2LMHeadModel"), config)),
        reader_(map_, source_, match(map_, source_, rules())) {}
  std::vector<std::byte> read(const std::string& name) {
    const auto found = std::ranges::find(map_.parameters, name, &MappedParameter::name);
    std::vector<std::byte> bytes;
    reader_.read(*found, DType::fp32, bytes);
    return bytes;
  }
  const TensorMap& map() const { return map_; }

 private:
  static NameRules rules() {
    NameRules rules;
    rules.other_names = [](const std::string& name) { return other_names(model_class_from("GPT2LMHeadModel"), name); };
    rules.is_ignored = is_buffer;
    return rules;
  }
  const std::string folder = TRIREME_FIXTURES "/huggingface/gpt2";

 public:
  model::ModelConfig config;

 private:
  io::SafetensorsSource source_;
  TensorMap map_;
  ParameterReader reader_;
};

/// Returns the same model as llm.c writes it, with three padding rows of tokens, NaNs.
std::string file_of(Model& model, std::int32_t version) {
  std::int32_t header[256] = {20240326,
                              version,
                              static_cast<std::int32_t>(model.config.max_positions),
                              static_cast<std::int32_t>(model.config.vocabulary),
                              model.config.layers,
                              static_cast<std::int32_t>(model.config.heads),
                              static_cast<std::int32_t>(model.config.hidden),
                              static_cast<std::int32_t>(model.config.vocabulary + 3)};
  std::string file(reinterpret_cast<const char*>(header), sizeof header);
  const auto add = [&](const std::vector<std::byte>& values) {
    for (std::size_t i = 0; i < values.size(); i += 4) {
      float value = 0;
      std::memcpy(&value, values.data() + i, 4);
      const bf16 rounded(value);
      file.append(version == 3 ? reinterpret_cast<const char*>(&value) : reinterpret_cast<const char*>(&rounded),
                  version == 3 ? 4 : 2);
    }
  };
  add(model.read("wte"));
  add(std::vector<std::byte>(static_cast<std::size_t>(3 * model.config.hidden * 4), std::byte{0xff}));
  add(model.read("wpe"));
  for (const char* name : order) {
    for (int layer = 0; layer < model.config.layers; ++layer) add(model.read(layer_prefix(layer) + "." + name));
  }
  add(model.read("ln_f.weight"));
  add(model.read("ln_f.bias"));
  return file;
}

class LlmcSourceTest : public testing::Test {
 protected:
  std::string write(const std::string& bytes) {
    std::ofstream(directory_ / "model.bin", std::ios::binary) << bytes;
    return directory_ / "model.bin";
  }
  std::string error_of(const std::string& bytes) {
    const std::string path = write(bytes);
    return message_of<DataError>([&] { io::LlmcSource source(path); });
  }
  test::TemporaryDirectory directory_;
};

using LlmcSource = LlmcSourceTest;

TEST_F(LlmcSource, HasTheParametersOfTheSameModelOfTransformers) {
  Model model;
  for (const std::int32_t version : {3, 5}) {
    io::LlmcSource source(write(file_of(model, version)));
    EXPECT_EQ(source.config().vocabulary, model.config.vocabulary);
    EXPECT_EQ(source.config().layers, model.config.layers);
    EXPECT_EQ(source.padded_vocabulary(), model.config.vocabulary + 3);
    const TensorMap map = llmc_tensor_map(source.config(), source.padded_vocabulary());
    ParameterReader reader(map, source, match(map, source, {}));
    ASSERT_EQ(map.parameters.size(), model.map().parameters.size());
    for (const MappedParameter& parameter : map.parameters) {
      std::vector<std::byte> bytes, wanted = model.read(parameter.name);
      reader.read(parameter, DType::fp32, bytes);
      ASSERT_EQ(bytes.size(), wanted.size()) << parameter.name;
      for (std::size_t i = 0; i < wanted.size(); i += 4) {
        float value = 0, exact = 0;
        std::memcpy(&value, bytes.data() + i, 4);
        std::memcpy(&exact, wanted.data() + i, 4);
        ASSERT_EQ(value, version == 3 ? exact : static_cast<float>(bf16(exact))) << parameter.name << " " << i / 4;
      }
    }
  }
}

TEST_F(LlmcSource, EveryFaultIsNamed) {
  Model model;
  const std::string good = file_of(model, 3);
  const auto with = [&](std::size_t number, std::int32_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + 4 * number, &value, 4);
    return bytes;
  };
  EXPECT_EQ(error_of(good), "nothing was thrown");
  EXPECT_THAT(error_of(good.substr(0, 1000)), HasSubstr("has 1000 bytes, fewer than the header"));
  EXPECT_THAT(error_of(with(0, 7)), HasSubstr("7 is not the magic number"));
  EXPECT_THAT(error_of(with(0, 20240803)), HasSubstr("Llama 3"));
  EXPECT_THAT(error_of(with(1, 1)), HasSubstr("version 1 is neither 3 (fp32) nor 5 (bf16)"));
  EXPECT_THAT(error_of(with(2, 0)), HasSubstr("0 positions"));
  EXPECT_THAT(error_of(with(3, -1)), HasSubstr("-1 tokens"));
  EXPECT_THAT(error_of(with(4, 1 << 21)), HasSubstr("describes a model that cannot be imported"));
  EXPECT_THAT(error_of(with(6, 0x7fffffff)), HasSubstr("channels"));
  EXPECT_THAT(error_of(with(7, 1)), HasSubstr("1 rows are fewer than"));
  EXPECT_THAT(error_of(good.substr(0, good.size() - 1)), HasSubstr("it is cut off"));
  EXPECT_THAT(error_of(good + "x"), HasSubstr("it is damaged"));
  EXPECT_THAT(error_of(with(1, 5)), HasSubstr("it is damaged"));
}

}  // namespace
}  // namespace trireme::exchange
