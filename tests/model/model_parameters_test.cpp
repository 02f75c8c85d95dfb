#include "src/model/stage/model_parameters.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/support/model_variants.hpp"

namespace trireme::model {
namespace {

using parallel::Parameter;

ModelConfig small() {
  // The vocabulary pads to 256 over one or two ranks, to 512 over four: some ranks hold no true row.
  return {.layers = 8, .hidden = 16, .heads = 4, .ffn_hidden = 64, .max_positions = 8, .vocabulary = 130};
}

parallel::PipelineLayout layout_of(int stages, int chunks = 1) {
  return parallel::PipelineLayout::of(small().layers, stages, {.chunks = chunks});
}

/// Counts the ranks that represent each element of each tensor; row-major.
std::map<std::string, std::vector<int>> coverage(const ModelConfig& config, int tensor_size, int stages,
                                                 int virtual_stages) {
  std::map<std::string, std::vector<int>> counts;
  for (int pipeline_rank = 0; pipeline_rank < stages; ++pipeline_rank) {
    for (int tensor_rank = 0; tensor_rank < tensor_size; ++tensor_rank) {
      const parallel::VocabularyPartition vocabulary(config.vocabulary, tensor_rank, tensor_size);
      const StageShard shard =
          StageShard::of(layout_of(stages, virtual_stages), tensor_rank, tensor_size, pipeline_rank);
      for (const Parameter& p : model_parameters(config, shard, vocabulary)) {
        EXPECT_EQ(p.storage.rank(), p.shape.rank()) << p.name;
        for (int i = 0; i < p.shape.rank(); ++i) {
          EXPECT_LE(p.box.offset[i] + p.box.extent[i], p.shape[i]) << p.name;
          EXPECT_LE(p.box.extent[i], p.storage[i]) << p.name;
          EXPECT_TRUE(i == 0 || p.box.extent[i] == p.storage[i]) << p.name;  // only dimension 0 is padded
        }
        if (!p.counts_here(tensor_rank)) continue;
        std::vector<int>& count = counts[p.name];
        count.resize(static_cast<std::size_t>(p.shape.numel()));
        for (std::int64_t i = 0; i < p.shape.numel(); ++i) {
          bool inside = true;
          std::int64_t rest = i;
          for (int d = p.shape.rank() - 1; d >= 0; --d) {
            const std::int64_t at = rest % p.shape[d];
            inside = inside && at >= p.box.offset[d] && at < p.box.offset[d] + p.box.extent[d];
            rest /= p.shape[d];
          }
          count[static_cast<std::size_t>(i)] += inside ? 1 : 0;
        }
      }
    }
  }
  return counts;
}

TEST(GptParameters, EveryElementIsCountedByOneRankOnEveryGrid) {
  for (const test::ModelVariant& variant : test::model_variants()) {
    ModelConfig config = small();
    variant.apply(config);
    for (const int tensor_size : {1, 2, 4}) {
      if (config.kv_heads() % tensor_size != 0) continue;
      for (const int stages : {1, 2, 4}) {
        for (const int virtual_stages : {1, 2}) {
          SCOPED_TRACE(testing::Message()
                       << variant.name << ", TP " << tensor_size << " x PP " << stages << " x " << virtual_stages);
          std::int64_t total = 0;
          for (const auto& [name, counts] : coverage(config, tensor_size, stages, virtual_stages)) {
            total += static_cast<std::int64_t>(counts.size());
            for (std::size_t i = 0; i < counts.size(); ++i) ASSERT_EQ(counts[i], 1) << name << ", element " << i;
          }
          EXPECT_EQ(total, parameter_count(config));
        }
      }
    }
  }
}

TEST(GptParameters, OfLlamaHaveTheirNamesAndShapes) {
  ModelConfig config = small();
  test::model_variants().back().apply(config);
  config.layers = 1;
  const parallel::VocabularyPartition vocabulary(config.vocabulary, 0, 2);
  const StageShard shard = StageShard::of(parallel::PipelineLayout::of(1, 1, {}), 0, 2, 0);
  std::string list;
  for (const Parameter& p : model_parameters(config, shard, vocabulary)) {
    list += p.name + " " + to_string(p.shape) + " " + to_string(p.box.extent) + (decays(p.role) ? "\n" : " no decay\n");
  }
  EXPECT_EQ(list,
            "wte [130, 16] [128, 16]\n"
            "h.0.ln_1.weight [16] [16] no decay\n"
            "h.0.attn.q.weight [4, 4, 16] [2, 4, 16]\n"
            "h.0.attn.kv.weight [2, 2, 4, 16] [2, 1, 4, 16]\n"
            "h.0.attn.proj.weight [16, 16] [16, 8]\n"
            "h.0.ln_2.weight [16] [16] no decay\n"
            "h.0.mlp.fc.weight [2, 64, 16] [2, 32, 16]\n"
            "h.0.mlp.proj.weight [16, 64] [16, 32]\n"
            "ln_f.weight [16] [16] no decay\n"
            "lm_head.weight [130, 16] [128, 16]\n");
}

TEST(StageShard, StagesMayHoldNoLayers) {
  const auto layout = parallel::PipelineLayout::of(small().layers, 3, {.layers = {0, 8, 0}});
  EXPECT_EQ(StageShard::of(layout, 0, 1, 0).chunks[0].layers, 0);
  EXPECT_EQ(StageShard::of(layout, 0, 1, 2).chunks[0].layers, 0);
  const parallel::VocabularyPartition vocabulary(small().vocabulary, 0, 1);
  const auto names = [&](int rank) {
    std::string text;
    for (const Parameter& p : model_parameters(small(), StageShard::of(layout, 0, 1, rank), vocabulary))
      text += p.name + " ";
    return text;
  };
  EXPECT_EQ(names(0), "wte wpe ");
  EXPECT_EQ(names(2), "ln_f.weight ln_f.bias wte ");
}

}  // namespace
}  // namespace trireme::model
