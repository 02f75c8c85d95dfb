#include "src/model/stage/model_parameters.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "src/parallel/grid/process_grid.hpp"
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

/// Sizes of a grid with as many data ranks as divide the experts.
struct Sizes {
  int tensor = 1;
  int stages = 1;
  int virtual_stages = 1;
  int expert = 1;
  int expert_tensor = 0;  ///< 0: `tensor`
  int ranks() const { return tensor * stages * expert; }
  parallel::ProcessGrid grid() const { return {ranks(), tensor, stages, 1, expert, expert, expert_tensor}; }
};

/// Counts the ranks that represent each element of each tensor; row-major. The first of the ranks with the same
/// parameters represents them.
std::map<std::string, std::vector<int>> coverage(const ModelConfig& config, const Sizes& sizes) {
  std::map<std::string, std::vector<int>> counts;
  for (int rank = 0; rank < sizes.ranks(); ++rank) {
    const parallel::ProcessGrid grid = sizes.grid();
    const parallel::GridPosition at = grid.position(rank);
    const parallel::VocabularyPartition vocabulary(config.vocabulary, at.tensor, sizes.tensor);
    StageShard shard =
        StageShard::of(layout_of(sizes.stages, sizes.virtual_stages), at.tensor, sizes.tensor, at.pipeline);
    shard.expert_size = sizes.expert;
    shard.expert_rank = grid.expert_rank(rank);
    shard.expert_tensor_size = grid.expert_tensor_size();
    shard.expert_tensor_rank = grid.expert_tensor_rank(rank);
    for (const Parameter& p : model_parameters(config, shard, vocabulary)) {
      EXPECT_EQ(p.storage.rank(), p.shape.rank()) << p.name;
      for (int i = 0; i < p.shape.rank(); ++i) {
        EXPECT_LE(p.box.offset[i] + p.box.extent[i], p.shape[i]) << p.name;
        EXPECT_LE(p.box.extent[i], p.storage[i]) << p.name;
        EXPECT_TRUE(i == 0 || p.box.extent[i] == p.storage[i]) << p.name;  // only dimension 0 is padded
      }
      const bool is_divided = shard.divides_experts() && p.name.find(".experts.") != std::string::npos;
      EXPECT_EQ(p.gradient_group, is_divided ? 1 : 0) << p.name;
      if (!p.counts_here(is_divided ? shard.expert_tensor_rank : at.tensor)) continue;
      if ((is_divided ? grid.expert_gradient_rank(rank) : at.data) > 0) continue;
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
  return counts;
}

TEST(GptParameters, EveryElementIsCountedByOneRankOnEveryGrid) {
  for (const test::ModelVariant& variant : test::model_variants()) {
    ModelConfig config = small();
    variant.apply(config);
    std::vector<Sizes> grids;
    for (const int tensor : {1, 2, 4}) {
      for (const int stages : {1, 2, 4}) {
        for (const int virtual_stages : {1, 2}) grids.push_back({tensor, stages, virtual_stages});
      }
      for (const int expert : {2, 4}) grids.push_back({.tensor = tensor, .expert = expert});
      grids.push_back({.tensor = tensor, .expert = 2, .expert_tensor = 1});
    }
    grids.push_back({.tensor = 4, .expert = 2, .expert_tensor = 2});
    grids.push_back({.tensor = 2, .stages = 2, .expert_tensor = 1});
    for (const Sizes& sizes : grids) {
      if (config.kv_heads() % sizes.tensor != 0 || config.experts.count % sizes.expert != 0) continue;
      if (!config.experts.any() && sizes.grid().folds_experts()) continue;
      SCOPED_TRACE(testing::Message() << variant.name << ", TP " << sizes.tensor << " x PP " << sizes.stages << " x "
                                      << sizes.virtual_stages << " x EP " << sizes.expert << " x ETP "
                                      << sizes.grid().expert_tensor_size());
      std::int64_t total = 0;
      for (const auto& [name, counts] : coverage(config, sizes)) {
        total += static_cast<std::int64_t>(counts.size());
        for (std::size_t i = 0; i < counts.size(); ++i) ASSERT_EQ(counts[i], 1) << name << ", element " << i;
      }
      EXPECT_EQ(total, parameter_count(config));
    }
  }
}

TEST(GptParameters, OfLlamaHaveTheirNamesAndShapes) {
  ModelConfig config = small();
  test::model_variant("Llama").apply(config);
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

TEST(GptParameters, OfModulesAheadFollowTheHead) {
  ModelConfig config = small();
  test::model_variant("Llama").apply(config);
  config.layers = 2;
  config.ahead.depths = 1;
  const parallel::VocabularyPartition vocabulary(config.vocabulary, 0, 1);
  const StageShard last = StageShard::of(parallel::PipelineLayout::of(2, 2, {}), 0, 1, 1);
  std::string list;
  for (const Parameter& p : model_parameters(config, last, vocabulary)) {
    if (!p.name.starts_with("h.1.") && !p.name.starts_with("h.2.mlp")) {
      list += p.name + " " + to_string(p.shape) + (p.shared_copy ? " copy\n" : "\n");
    }
  }
  EXPECT_EQ(list,
            "ln_f.weight [16]\n"
            "lm_head.weight [130, 16]\n"
            "wte [130, 16] copy\n"
            "mtp.0.embedding_ln.weight [16]\n"
            "mtp.0.hidden_ln.weight [16]\n"
            "mtp.0.proj.weight [16, 32]\n"
            "h.2.ln_1.weight [16]\n"
            "h.2.attn.q.weight [4, 4, 16]\n"
            "h.2.attn.kv.weight [2, 2, 4, 16]\n"
            "h.2.attn.proj.weight [16, 16]\n"
            "h.2.ln_2.weight [16]\n"
            "mtp.0.ln.weight [16]\n");
}

TEST(GptParameters, OfLatentAttentionHaveTheirNamesAndShapes) {
  ModelConfig config = small();
  config.layers = 1;
  config.linear_bias = false;
  config.qk_norm = true;
  config.normalization = Normalization::rms_norm;
  config.position_embedding = PositionEmbedding::rope;
  config.latent = {.used = true, .kv_rank = 12, .head_dim = 6, .rotary_dim = 4, .value_dim = 7};
  const auto list_of = [&](std::int64_t query_rank, bool sequence_parallel) {
    config.latent.query_rank = query_rank;
    const parallel::VocabularyPartition vocabulary(config.vocabulary, 0, 2);
    StageShard shard = StageShard::of(parallel::PipelineLayout::of(1, 1, {}), 0, 2, 0);
    shard.sequence_parallel = sequence_parallel;
    std::string list;
    for (const Parameter& p : model_parameters(config, shard, vocabulary)) {
      if (p.name.find(".attn.") == std::string::npos) continue;
      list += p.name.substr(9) + " " + to_string(p.shape) + " " + to_string(p.box.extent);
      list += p.gradient_is_partial ? " partial\n" : "\n";
    }
    return list;
  };
  EXPECT_EQ(list_of(0, false),
            "q.weight [4, 10, 16] [2, 10, 16]\n"
            "kv_down.weight [16, 16] [16, 16]\n"
            "kv_ln.weight [12] [12]\n"
            "kv_up.weight [4, 13, 12] [2, 13, 12]\n"
            "proj.weight [16, 28] [16, 14]\n");
  EXPECT_EQ(list_of(10, true),
            "q_down.weight [10, 16] [10, 16] partial\n"
            "q_ln.weight [10] [10] partial\n"
            "q_up.weight [4, 10, 10] [2, 10, 10]\n"
            "kv_down.weight [16, 16] [16, 16] partial\n"
            "kv_ln.weight [12] [12] partial\n"
            "kv_up.weight [4, 13, 12] [2, 13, 12]\n"
            "proj.weight [16, 28] [16, 14]\n");
}

TEST(GptParameters, OfExpertsHaveTheirNamesAndShapes) {
  ModelConfig config = small();
  test::model_variants().back().apply(config);
  config.layers = 2;
  config.experts = {.count = 2, .ffn_hidden = 32, .shared_hidden = 48, .layers = "01"};
  std::string list;
  for (const Parameter& p : all_parameters(config)) {
    if (p.name.find(".mlp.") != std::string::npos) list += p.name + " " + to_string(p.shape) + "\n";
  }
  EXPECT_EQ(list,
            "h.0.mlp.fc.weight [2, 64, 16]\n"
            "h.0.mlp.proj.weight [16, 64]\n"
            "h.1.mlp.router.weight [2, 16]\n"
            "h.1.mlp.experts.0.fc.weight [2, 32, 16]\n"
            "h.1.mlp.experts.0.proj.weight [16, 32]\n"
            "h.1.mlp.experts.1.fc.weight [2, 32, 16]\n"
            "h.1.mlp.experts.1.proj.weight [16, 32]\n"
            "h.1.mlp.shared.fc.weight [2, 48, 16]\n"
            "h.1.mlp.shared.proj.weight [16, 48]\n");
  EXPECT_EQ(active_parameter_count(config), parameter_count(config)) << "both experts compute a token";
  config.experts.per_token = 1;
  EXPECT_EQ(parameter_count(config) - active_parameter_count(config), 3 * 32 * 16);
  config.experts.score = RouterScore::sigmoid;
  config.experts.router_bias = true;
  for (const Parameter& p : all_parameters(config)) {
    EXPECT_EQ(p.has_gradient, p.name != "h.1.mlp.router.bias") << p.name;
    if (!p.has_gradient) {
      EXPECT_EQ(to_string(p.shape), "[2]");
    }
  }
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
