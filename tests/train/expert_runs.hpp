#pragma once

#include <string>
#include <vector>

#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"
#include "tests/train/one_rank.hpp"

// Small models with experts, and the grids that divide them.

namespace trireme::train {

inline model::ModelConfig config_with(const model::ExpertConfig& experts, bool gated) {
  model::ModelConfig config = small_config();
  config.layers = 2;
  config.ffn_hidden = 24;
  config.gated = gated;
  config.linear_bias = false;
  config.experts = experts;
  return config;
}

/// `layouts` with micro-batches of two samples, and once more with tokens sent only to the ranks of their experts.
inline std::vector<test::Layout> with_both_routes(const std::vector<test::Layout>& layouts) {
  std::vector<test::Layout> both;
  for (const test::Layout& layout : layouts) {
    both.push_back(layout.with("b 2"));
    if (layout.expert > 1 || layout.expert_tensor > 1) both.push_back(layout.with("b 2 exchange"));
  }
  return both;
}

/// Grids of `ranks` ranks that divide four experts.
inline std::vector<test::Layout> layouts(int ranks) {
  if (ranks == 1) return {};
  if (ranks == 2) {
    return with_both_routes(
        {"ep 2", "tp 2", "tp 2 sp", "cp 2 ep 2", "pp 2", "tp 2 etp 1", "tp 2 ep 2 etp 1 sp", "etp 2"});
  }
  return with_both_routes({"ep 4 uniform 1", "ep 2 zero2 overlap", "tp 2 ep 2", "tp 2 ep 2 sp zero1 experts",
                           "cp 2 ep 4", "pp 2 ep 2 zero-bubble experts", "tp 2 ep 4 etp 1 sp uniform 1",
                           "tp 2 ep 2 etp 1 zero2 overlap", "tp 4 ep 2 etp 2 sp", "tp 4 etp 2",
                           "tp 2 pp 2 ep 2 etp 1 sp zero-bubble", "tp 2 cp 2 ep 4 etp 1", "ep 2 etp 2 zero1",
                           "tp 2 cp 2 ep 2 sp"});
}

/// One of each two neighbours of `layouts`, by turns: these often differ in the route alone, so that each half has
/// both. A single layout belongs to both halves.
inline std::vector<test::Layout> half_of(const std::vector<test::Layout>& layouts, bool second) {
  if (layouts.size() == 1) return layouts;
  std::vector<test::Layout> half;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    if (((i + i / 2) % 2 == 1) == second) half.push_back(layouts[i]);
  }
  return half;
}

}  // namespace trireme::train
