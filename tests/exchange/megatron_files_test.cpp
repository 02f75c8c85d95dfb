// Checkpoints of Megatron-LM that are damaged, incomplete, or of unsupported models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/megatron/megatron_checkpoint.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/zip_checksums.hpp"

namespace trireme::exchange {
namespace {

using test::message_of;
using testing::HasSubstr;

class MegatronFiles : public testing::Test {
 protected:
  /// Copies a checkpoint to the folder of this test.
  std::string copy(const char* name) {
    std::filesystem::copy(std::string(TRIREME_FIXTURES "/megatron/") + name, directory_ / name,
                          std::filesystem::copy_options::recursive);
    return directory_ / name;
  }
  static std::string error_of(const std::string& path) {
    return message_of<DataError>([&] { io::open_megatron_checkpoint(path); });
  }
  test::TemporaryDirectory directory_;
};

TEST_F(MegatronFiles, AreNamedIfMissing) {
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

TEST_F(MegatronFiles, AreNamedIfADistributedCheckpointIsDamaged) {
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

TEST_F(MegatronFiles, AreNamedIfAnArchiveIsDamaged) {
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
  EXPECT_THAT(with(0, 'Q'), HasSubstr("a directory entry is malformed"));
  std::string changed = archive;
  const std::size_t name = archive.rfind("data/1");  // in the directory, at the end
  changed[name + 5] = '0';
  std::ofstream(file, std::ios::binary) << changed;
  EXPECT_NE(error_of(chunks), "nothing was thrown");
}

TEST_F(MegatronFiles, AreNamedIfOneBitOfAnEntryIsFlipped) {
  const std::string chunks = copy("chunks"), file = chunks + "/mp_rank_00/model_optim_rng.pt";
  std::ifstream input(file, std::ios::binary);
  const std::string archive{std::istreambuf_iterator<char>(input), {}};
  // Flips a bit at `at` in the file, and reads all tensors.
  const auto with = [&](const std::string& content, std::size_t at) {
    std::string changed = content;
    changed.at(at) ^= 4;
    std::ofstream(file, std::ios::binary) << changed;
    return message_of<DataError>([&] {
      const io::MegatronCheckpoint checkpoint = io::open_megatron_checkpoint(chunks);
      std::vector<std::byte> bytes;
      for (std::size_t i = 0; i < checkpoint.source->tensors().size(); ++i) {
        const ForeignTensor& tensor = checkpoint.source->tensors()[i];
        bytes.resize(static_cast<std::size_t>(tensor.shape.numel()) * size_of(tensor.dtype));
        checkpoint.source->read(i, 0, bytes);
      }
    });
  };
  // Data of an entry: after the name in its header, padded to 64 bytes.
  const auto place_of = [&](const std::string& entry) { return (archive.find(entry) + entry.size()) / 64 * 64 + 64; };
  EXPECT_THAT(with(archive, place_of("/data.pkl") + 20),
              HasSubstr("the entry 'model_optim_rng/data.pkl' has the CRC-32"));
  EXPECT_THAT(with(archive, place_of("/data/1") + 3),
              HasSubstr("model_optim_rng.pt: the entry 'model_optim_rng/data/1' has the CRC-32"));
  EXPECT_EQ(with(test::without_checksums(archive), place_of("/data/1") + 3), "nothing was thrown");
}

/// Returns the position of an option's value in a pickle: after its name, which is put into the memo.
std::size_t value_of(const std::string& pickle, const std::string& option) {
  const std::size_t end = pickle.find(option) + option.size();
  return end + (pickle.at(end) == 'q' ? 2 : 5);
}

TEST_F(MegatronFiles, NameAllUnsupportedPartsOfAModel) {
  const std::string folder = copy("run_common"), file = folder + "/__0_0.distcp";
  std::ifstream input(file, std::ios::binary);
  std::string content = test::without_checksums({std::istreambuf_iterator<char>(input), {}});
  const char* const options[] = {"quick_geglu",
                                 "activation_func_clamp_value",
                                 "qk_l2_norm",
                                 "no_rope_freq",
                                 "num_experts",
                                 "multi_latent_attention",
                                 "use_mup",
                                 "linear_attention_freq",
                                 "mtp_num_layers",
                                 "enable_mhc_connections",
                                 "attention_output_gate",
                                 "experimental_attention_variant"};
  for (const char* option : options) {
    char& value = content.at(value_of(content, option));
    ASSERT_TRUE(value == 'N' || value == '\x89') << option;  // None or False
    value = '\x88';
  }
  std::ofstream(file, std::ios::binary) << content;
  const std::string error = error_of(folder);
  for (const char* option : options) EXPECT_THAT(error, HasSubstr(std::string("\n  ") + option + ": "));
}

TEST_F(MegatronFiles, AreNamedIfTheVocabularyContradictsTheTensors) {
  const std::string folder = copy("run_window"), file = folder + "/common.pt";
  std::ifstream input(file, std::ios::binary);
  std::string content = test::without_checksums({std::istreambuf_iterator<char>(input), {}});
  const std::size_t value = value_of(content, "padded_vocab_size");
  ASSERT_EQ(content.at(value), 'K');  // an integer of one byte
  ++content.at(value + 1);
  std::ofstream(file, std::ios::binary) << content;
  EXPECT_THAT(error_of(folder), testing::ContainsRegex("padded_vocab_size is [0-9]+, but .*weight has [0-9]+ rows"));
}

TEST_F(MegatronFiles, AreNamedIfTheirWindowsAreUnsupported) {
  const std::string folder = copy("run_window"), file = folder + "/common.pt";
  std::ifstream input(file, std::ios::binary);
  const std::string content = test::without_checksums({std::istreambuf_iterator<char>(input), {}});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = content;
    changed.replace(changed.find(from), from.size(), to);
    std::ofstream(file, std::ios::binary) << changed;
    return error_of(folder);
  };
  const std::string window{"K\5K\0\x86", 5};  // the pickle of (5, 0)
  EXPECT_THAT(with(window, {"K\5K\2\x86", 5}), HasSubstr("window_size is (5, 2): attention must be causal"));
  const std::string skip = content.substr(value_of(content, "window_attn_skip_freq") - 2, 2);
  EXPECT_THAT(with(skip + "K\2", skip + std::string{"K\0", 2}), HasSubstr("window_attn_skip_freq is"));
}

}  // namespace
}  // namespace trireme::exchange
