#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "src/model/gpt_parameters.hpp"
#include "src/parallel/grid/process_grid.hpp"
#include "src/train/train_options.hpp"

namespace trireme::train {

/// Bytes that one rank holds while it trains, known before the run.
struct MemoryEstimate {
  std::size_t parameters = 0;     ///< values in the training type
  std::size_t gradients = 0;      ///< main gradients
  std::size_t gradient_work = 0;  ///< where layers add gradients up before they go to the main ones
  std::size_t optimizer = 0;      ///< both moments and, for 16-bit types, master weights
  std::size_t activations = 0;    ///< of all micro-batches in flight at the most, with what backward makes again
  std::size_t total() const { return parameters + gradients + gradient_work + optimizer + activations; }
};

/// What rank `rank` of `grid` will hold; `micro_batches` is the number in a global batch for one data rank. Work space
/// of single operations and the buffers between stages come on top.
MemoryEstimate estimate_memory(const model::GptConfig& config, const LayoutOptions& layout,
                               const parallel::ProcessGrid& grid, int rank, std::int64_t micro_batches);

/// What one layer keeps of one micro-batch on one rank.
struct LayerActivations {
  std::size_t kept = 0;  ///< here, in the training type; of a recomputed group of layers, a layer's share
  /// In 16 bits by a formula of Korthikanti et al. 2022 (arXiv:2205.05198, table 2): GPT-2, f = 4 h, attention scores
  /// in memory, masks of one byte.
  struct Published {
    std::string setting;
    std::string formula;
    double bytes = 0;
    bool applies = false;  ///< to this layout
  };
  std::vector<Published> published;
};
/// In `s b h` of the formulas s are the positions of one context rank.
LayerActivations layer_activations(const model::GptConfig& config, const LayoutOptions& layout, int tensor_size,
                                   int context_size = 1);

}  // namespace trireme::train
