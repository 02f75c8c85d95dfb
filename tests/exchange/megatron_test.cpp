// Checkpoints of Megatron-LM: each has the parameters of the model of transformers that it was made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "io/huggingface/config_json.hpp"
#include "io/megatron/megatron_checkpoint.hpp"
#include "io/safetensors/safetensors_source.hpp"
#include "src/exchange/architecture.hpp"
#include "src/exchange/import.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::exchange {
namespace {

using test::message_of;
using testing::HasSubstr;

constexpr const char* checkpoints = TRIREME_FIXTURES "/megatron/";

std::vector<float> values_of(ParameterReader& reader, const MappedParameter& parameter) {
  std::vector<std::byte> bytes;
  // Two halves, as two ranks would read them.
  std::vector<float> values(static_cast<std::size_t>(parameter.shape.numel()));
  auto* out = reinterpret_cast<std::byte*>(values.data());
  const std::int64_t half = parameter.rows() / 2;
  for (const auto& [first, count] : {std::pair{std::int64_t{0}, half}, {half, parameter.rows() - half}}) {
    if (count == 0) continue;
    reader.read(parameter, first, count, DType::fp32, bytes);
    out = std::copy(bytes.begin(), bytes.end(), out);
  }
  return values;
}

/// Compares a checkpoint's parameters with a model's. `rounded` tells tensors that were saved in bf16.
void expect_same(const std::string& checkpoint, const std::string& model, bool rounded) {
  const std::string folder = std::string(TRIREME_FIXTURES) + "/huggingface/" + model;
  const io::HuggingFaceModel original = io::read_config_json(folder + "/config.json");
  io::SafetensorsSource weights(folder);
  const TensorMap wanted = tensor_map(original.model_class, original.config);
  NameRules rules;
  rules.other_names = [&](const std::string& name) { return other_names(original.model_class, name); };
  rules.is_ignored = is_buffer;
  ParameterReader expected(wanted, weights, match(wanted, weights, rules));

  io::MegatronCheckpoint opened = io::open_megatron_checkpoint(checkpoints + checkpoint);
  model::ModelConfig config = opened.model.config;
  config.vocabulary = original.config.vocabulary;
  config.hidden_dropout = original.config.hidden_dropout;
  config.attention_dropout = original.config.attention_dropout;
  EXPECT_EQ(model::attributes_of(config), model::attributes_of(original.config)) << checkpoint;
  opened.layout.vocabulary_rows = 20;
  const TensorMap map = megatron_tensor_map(config, opened.layout);
  NameRules names;
  names.other_names = megatron_other_names;
  names.is_ignored = [](const std::string& name) { return is_megatron_buffer(name); };
  ParameterReader reader(map, *opened.source, match(map, *opened.source, names));
  ASSERT_EQ(map.parameters.size(), wanted.parameters.size());
  for (std::size_t i = 0; i < map.parameters.size(); ++i) {
    const MappedParameter& parameter = map.parameters[i];
    ASSERT_EQ(parameter.name, wanted.parameters[i].name);
    std::vector<float> exact = values_of(expected, wanted.parameters[i]);
    if (rounded && parameter.name.starts_with("h.")) {
      for (float& value : exact) value = static_cast<float>(bf16(value));
    }
    EXPECT_EQ(values_of(reader, parameter), exact) << checkpoint << " " << parameter.name;
  }
}

TEST(MegatronCheckpoint, OfTensorAndPipelineRanksHasTheParametersOfItsModel) { expect_same("core", "llama3", true); }

TEST(MegatronCheckpoint, OfTheFirstVersionHasTheParametersOfItsModel) { expect_same("first", "gpt2", false); }

TEST(MegatronCheckpoint, OfVirtualChunksHasTheParametersOfItsModel) { expect_same("chunks", "gpt2", false); }

TEST(MegatronCheckpoint, DistributedHasTheParametersOfItsModel) { expect_same("dist", "llama3", false); }

class MegatronFiles : public testing::Test {
 protected:
  /// A checkpoint in a folder of this test.
  std::string copy(const char* name) {
    std::filesystem::copy(std::string(checkpoints) + name, directory_ / name, std::filesystem::copy_options::recursive);
    return directory_ / name;
  }
  static std::string error_of(const std::string& path) {
    return message_of<DataError>([&] { io::open_megatron_checkpoint(path); });
  }
  test::TemporaryDirectory directory_;
};

TEST_F(MegatronFiles, ThatAreMissingAreNamed) {
  EXPECT_THAT(error_of(directory_ / "none"), HasSubstr("there is no"));
  EXPECT_THAT(error_of(directory_.path()), HasSubstr("holds neither mp_rank_00 nor .metadata"));
  const std::string core = copy("core");
  std::filesystem::remove_all(core + "/iter_0000009/mp_rank_01_001");
  EXPECT_THAT(error_of(core), HasSubstr("has the files of 3 ranks"));
  std::filesystem::remove_all(core + "/iter_0000009/mp_rank_00_001");
  EXPECT_THAT(error_of(core),
              HasSubstr("was saved by 2 tensor ranks and 2 pipeline ranks, but has the files of 2 and 1"));
  std::ofstream(core + "/latest_checkpointed_iteration.txt") << "../../etc";
  EXPECT_THAT(error_of(core), HasSubstr("neither an iteration nor 'release'"));
  const std::string chunks = copy("chunks");
  std::filesystem::rename(chunks + "/mp_rank_01", chunks + "/mp_rank_01_000_001");
  EXPECT_THAT(error_of(chunks), HasSubstr("experts"));
}

TEST_F(MegatronFiles, OfDistributedCheckpointsThatAreDamagedAreNamed) {
  const std::string dist = copy("dist");
  std::filesystem::resize_file(dist + "/__1_0.distcp", 9000);
  EXPECT_THAT(error_of(dist), HasSubstr("__1_0.distcp has 9000 bytes, but"));
  std::filesystem::remove(dist + "/__1_0.distcp");
  EXPECT_THAT(error_of(dist), HasSubstr("names the file __1_0.distcp, which is not there"));
  std::ifstream input(dist + "/.metadata", std::ios::binary);
  const std::string metadata{std::istreambuf_iterator<char>(input), {}};
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = metadata;
    changed.replace(changed.find(from), from.size(), to);
    std::ofstream(dist + "/.metadata", std::ios::binary) << changed;
    return error_of(dist);
  };
  EXPECT_THAT(with("__1_0.distcp", "/../../xx.pt"), HasSubstr("is not the name of a file beside it"));
  EXPECT_THAT(with("TensorStorageMetadata", "TensorStorageMetadatb"), HasSubstr("TensorStorageMetadatb, not a tensor"));
  EXPECT_THAT(with("chunks", "chunkz"), HasSubstr("has no 'chunks'"));
  EXPECT_THAT(with("relative_path", "relative_pith"), HasSubstr("has no 'relative_path'"));
  for (std::size_t length = 0; length < metadata.size(); length += 97) {
    std::ofstream(dist + "/.metadata", std::ios::binary) << metadata.substr(0, length);
    EXPECT_NE(message_of([&] { io::open_megatron_checkpoint(dist); }), "nothing was thrown") << length;
  }
}

TEST_F(MegatronFiles, WithDamagedArchivesAreNamed) {
  const std::string chunks = copy("chunks"), file = chunks + "/mp_rank_00/model_optim_rng.pt";
  std::ifstream input(file, std::ios::binary);
  const std::string archive{std::istreambuf_iterator<char>(input), {}};
  // Changes a byte of the first entry of the directory.
  const auto with = [&](std::size_t at, char value) {
    std::string changed = archive;
    changed[archive.find("PK\1\2") + at] = value;
    std::ofstream(file, std::ios::binary) << changed;
    return error_of(chunks);
  };
  EXPECT_THAT(with(10, 8), HasSubstr("is compressed or encrypted"));
  EXPECT_THAT(with(8, 1), HasSubstr("is compressed or encrypted"));
  EXPECT_THAT(with(45, 0x7f), HasSubstr("the header of an entry is missing"));
  EXPECT_THAT(with(0, 'Q'), HasSubstr("an entry of its directory is none"));
  std::string changed = archive;
  const std::size_t name = archive.rfind("data/1");  // its last place, in the directory
  changed[name + 5] = '0';
  std::ofstream(file, std::ios::binary) << changed;
  EXPECT_NE(error_of(chunks), "nothing was thrown");
}

TEST_F(MegatronFiles, ThatWereCutOffAreAnErrorAtEveryLength) {
  for (const char* name : {"first/release/mp_rank_01/model_optim_rng.pt", "chunks/mp_rank_01/model_optim_rng.pt"}) {
    const std::string folder = copy(std::string(name).starts_with("first") ? "first" : "chunks");
    const std::string file = directory_ / name;
    const auto size = static_cast<std::int64_t>(std::filesystem::file_size(file));
    for (std::int64_t length = size - 1; length > 0; length -= size / 50) {
      std::filesystem::resize_file(file, static_cast<std::uintmax_t>(length));
      EXPECT_NE(error_of(folder), "nothing was thrown") << name << " " << length;
    }
  }
}

}  // namespace
}  // namespace trireme::exchange
