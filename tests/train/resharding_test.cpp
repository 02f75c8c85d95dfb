// Checkpoints of every layout, converted to any other and loaded by every rank, in one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/hash.hpp"
#include "src/checkpoint/load.hpp"
#include "src/checkpoint/reshard.hpp"
#include "src/checkpoint/save.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/train/state_tensors.hpp"
#include "tests/fakes/memory_store.hpp"
#include "tests/support/layout.hpp"
#include "tests/support/random_slices.hpp"

namespace trireme::train {
namespace {

using checkpoint::MemoryStore;
using checkpoint::StateTensor;
using test::Layout;

constexpr const char* kinds[] = {"model", "adamw_m", "adamw_v"};
constexpr const char* step_name = "step-00000005";

model::ModelConfig gpt2() {
  return {.layers = 8, .hidden = 16, .heads = 4, .ffn_hidden = 24, .max_positions = 7, .vocabulary = 301};
}

/// Untied output, gated feed-forward, keys and values of their own shape, no biases.
model::ModelConfig llama() {
  model::ModelConfig config = gpt2();
  config.normalization = model::Normalization::rms_norm;
  config.position_embedding = model::PositionEmbedding::rope;
  config.gated = true;
  config.heads = 8;
  config.query_groups = 4;
  config.tied_output = false;
  config.linear_bias = false;
  return config;
}

/// Latent attention, and experts in every other layer.
model::ModelConfig with_experts() {
  model::ModelConfig config = llama();
  config.query_groups = 0;
  config.latent = {.used = true, .query_rank = 10, .kv_rank = 12, .head_dim = 6, .rotary_dim = 4, .value_dim = 7};
  config.experts = {.count = 8,
                    .ffn_hidden = 12,
                    .shared_hidden = 8,
                    .layers = "01",
                    .score = RouterScore::sigmoid,
                    .router_bias = true};
  return config;
}

parallel::ProcessGrid grid_of(const Layout& layout) {
  const int ranks = layout.tensor * layout.pipeline * layout.context * std::max(1, layout.data);
  return {ranks, layout.tensor, layout.pipeline, layout.context, 0, layout.expert, layout.expert_tensor};
}

/// Four tensor ranks have only padding on the last, or with a multiple of 1 one row of it.
const std::vector<Layout>& layouts_of_dense_models() {
  static const std::vector<Layout> list = {"",
                                           "tp 4",
                                           "tp 4 vocabulary-multiple 1",
                                           "pp 4",
                                           "pp 4 vpp 2",
                                           "pp 4 layers 1,3,3,1",
                                           "pp 2 layers 0,3,5,0",
                                           "pp 3 embedding-alone",
                                           "dp 2",
                                           "dp 3 zero1",
                                           "dp 3 zero1 bucket 2000 bf16",
                                           "cp 2 dp 2 zero1",
                                           "tp 2 pp 2 dp 2 vpp 2 zero1 bucket 1000",
                                           "tp 2 pp 3 dp 3 first 2 zero1",
                                           "tp 4 pp 4 dp 2"};
  return list;
}

/// Layouts that divide eight experts, and some that do not.
const std::vector<Layout>& layouts_of_experts() {
  static const std::vector<Layout> list = {"",
                                           "tp 4",
                                           "tp 2 dp 2 zero1",
                                           "dp 2 ep 2",
                                           "dp 4 ep 4",
                                           "dp 4 ep 2",
                                           "dp 4 ep 2 zero1 bucket 2000",
                                           "dp 4 ep 2 zero2",
                                           "dp 4 ep 4 zero1",
                                           "cp 2 dp 2 ep 4 zero2",
                                           "tp 2 etp 1",
                                           "tp 2 dp 2 ep 4 etp 1 zero1",
                                           "tp 2 dp 2 ep 2 etp 2",
                                           "tp 4 pp 2 dp 2 ep 2 etp 2 zero2 bucket 1000",
                                           "dp 4 ep 2 etp 2 zero1",
                                           "tp 2 pp 2 cp 2 dp 3 ep 2 vpp 2 zero1 bf16"};
  return list;
}

std::uint32_t value(const std::string& tensor, std::int64_t index) {
  return static_cast<std::uint32_t>(splitmix64(fnv1a(tensor), static_cast<std::uint64_t>(index)));
}

/// Everything that one rank of a layout keeps, with memory.
struct RankState {
  RankState(const model::ModelConfig& config, const Layout& layout, int rank) {
    for (const StateTensor& piece : state_pieces(config, layout.options, grid_of(layout), rank)) {
      for (const char* kind : kinds) {
        tensors.push_back(piece);
        tensors.back().name = std::string(kind) + "/" + piece.name;
        memory.emplace_back(static_cast<std::size_t>(piece.data.numel()), 0xdeadbeefu);
        tensors.back().data =
            TensorView(reinterpret_cast<std::byte*>(memory.back().data()), DType::fp32, {piece.data.numel()});
      }
    }
  }
  std::uint32_t expected(std::size_t t, std::int64_t i) const {
    const StateTensor& piece = tensors[t];
    return value(piece.name, test::naive_index(piece.shape, {piece.box, piece.flat_begin, piece.data.numel()}, i));
  }
  void fill() {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      for (std::size_t i = 0; i < memory[t].size(); ++i) memory[t][i] = expected(t, static_cast<std::int64_t>(i));
    }
  }
  void expect_filled() const {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      std::int64_t wrong = 0;
      for (std::size_t i = 0; i < memory[t].size(); ++i) {
        wrong += memory[t][i] == expected(t, static_cast<std::int64_t>(i)) ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0) << tensors[t].name;
    }
  }
  std::vector<StateTensor> tensors;
  std::vector<std::vector<std::uint32_t>> memory;
};

std::vector<checkpoint::TargetFile> files_of(const model::ModelConfig& config, const Layout& layout) {
  std::vector<checkpoint::TargetFile> files;
  for (int rank = 0; rank < grid_of(layout).world_size(); ++rank) {
    checkpoint::TargetFile& file = files.emplace_back();
    for (const StateTensor& tensor : RankState(config, layout, rank).tensors) {
      if (!tensor.written_here) continue;
      file.push_back({tensor.name, tensor.shape, {tensor.box, tensor.flat_begin, tensor.data.numel()}});
    }
  }
  return files;
}

class Resharding : public testing::TestWithParam<const char*> {
 protected:
  model::ModelConfig config() const { return has_experts() ? with_experts() : is("gpt2") ? gpt2() : llama(); }
  const std::vector<Layout>& layouts() const {
    return has_experts() ? layouts_of_experts() : layouts_of_dense_models();
  }
  /// The step as one rank writes it.
  void save_whole(MemoryStore& store) {
    RankState state(config(), layouts().front(), 0);
    state.fill();
    checkpoint::save(store, alone_, {5, {{"kind", "test"}}, {{"tokenizer", "some bytes"}}}, state.tensors);
  }
  void reshard(MemoryStore& from, MemoryStore& to, const std::vector<checkpoint::TargetFile>& files) {
    checkpoint::reshard(*from.open(step_name), to, alone_, files);
  }
  static void expect_same(MemoryStore& actual, MemoryStore& expected) {
    const auto a = actual.open(step_name);
    const auto b = expected.open(step_name);
    ASSERT_EQ(a->manifest().files.size(), b->manifest().files.size());
    for (const checkpoint::FileEntry& file : b->manifest().files) {
      EXPECT_EQ(actual.file(step_name, file.name), expected.file(step_name, file.name)) << file.name;
    }
    EXPECT_EQ(checkpoint::to_text(a->manifest().pieces), checkpoint::to_text(b->manifest().pieces));
    EXPECT_EQ(a->manifest().attributes, b->manifest().attributes);
    EXPECT_EQ(checkpoint::read_description(*a).blobs, checkpoint::read_description(*b).blobs);
  }
  SelfCommunicator alone_;

 private:
  bool is(const char* model) const { return std::string(GetParam()) == model; }
  bool has_experts() const { return is("experts"); }
};

TEST_P(Resharding, ConvertsAnyLayoutToAnyOtherByteForByte) {
  std::vector<std::vector<checkpoint::TargetFile>> files;
  for (const Layout& layout : layouts()) files.push_back(files_of(config(), layout));
  MemoryStore whole;
  save_whole(whole);
  std::vector<MemoryStore> stores(layouts().size());
  for (std::size_t a = 0; a < stores.size(); ++a) reshard(whole, stores[a], files[a]);
  expect_same(stores[0], whole);
  for (std::size_t a = 0; a < stores.size(); ++a) {
    for (std::size_t b = 0; b < stores.size(); ++b) {
      SCOPED_TRACE(testing::Message() << layouts()[a] << " -> " << layouts()[b]);
      MemoryStore converted;
      reshard(stores[a], converted, files[b]);
      expect_same(converted, stores[b]);
    }
  }
}

// Each layout loads the files of the one before it. AnyLayoutGivesAnyOtherByteForByte covers the other pairs.
TEST_P(Resharding, EveryRankOfALayoutLoadsItsPartOfAnother) {
  MemoryStore whole;
  save_whole(whole);
  for (std::size_t i = 0; i < layouts().size(); ++i) {
    const Layout& saved = layouts()[i];
    const Layout& loaded = layouts()[(i + 1) % layouts().size()];
    SCOPED_TRACE(testing::Message() << saved << " -> " << loaded);
    MemoryStore store;
    reshard(whole, store, files_of(config(), saved));
    const auto step = checkpoint::open_checkpoint(store, alone_);
    for (int rank = 0; rank < grid_of(loaded).world_size(); ++rank) {
      RankState state(config(), loaded, rank);
      checkpoint::load(*step, alone_, state.tensors, checkpoint::ExtraTensors::leave);
      state.expect_filled();
    }
  }
}

TEST_P(Resharding, RefusesLayoutsOfAnotherModel) {
  MemoryStore whole;
  save_whole(whole);
  MemoryStore store;
  model::ModelConfig other = config();
  other.layers = 9;
  EXPECT_THAT(
      [&] { reshard(whole, store, files_of(other, layouts().front())); },
      testing::ThrowsMessage<CheckpointError>(testing::HasSubstr("model/h.8.ln_1.weight: not in the checkpoint")));
  other = config();
  other.vocabulary = 300;
  EXPECT_THAT([&] { reshard(whole, store, files_of(other, layouts().front())); },
              testing::ThrowsMessage<CheckpointError>(
                  testing::HasSubstr("model/wte: [301, 16] in the checkpoint, [300, 16] in the layout")));
  std::vector<checkpoint::TargetFile> files = files_of(config(), layouts()[1]);
  files.pop_back();
  EXPECT_THAT([&] { reshard(whole, store, files); },
              testing::ThrowsMessage<CheckpointError>(testing::HasSubstr("is not stored exactly once")));
  EXPECT_THAT(store.steps(), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Models, Resharding, testing::Values("gpt2", "llama", "experts"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace trireme::train
