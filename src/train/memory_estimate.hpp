#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/model/model_config.hpp"
#include "src/parallel/grid/process_grid.hpp"
#include "src/train/train_options.hpp"

namespace trireme::train {

/// Bytes that one rank takes to train, known before the run.
struct MemoryEstimate {
  std::size_t parameters = 0;     ///< values in the training type
  std::size_t gradients = 0;      ///< main gradients
  std::size_t gradient_work = 0;  ///< memory in which layers add up gradients
  std::size_t optimizer = 0;      ///< moments and, for 16-bit types, master weights; or pieces of those streamed
  std::size_t activations = 0;    ///< maximum over all micro-batches in flight, with what backward recomputes
  std::size_t work = 0;           ///< memory that layers need only while they run, and weights in FP8
  std::size_t messages = 0;       ///< between stages
  std::size_t batches = 0;        ///< samples of this update and the next, and the remainder
  std::size_t kernels = 0;        ///< memory of kernels beside tensors (Backend::kernel_memory_bytes)
  std::size_t total() const { return allocated() + kernels; }
  /// Host memory, not in the total: activations and the optimizer's state that are kept there.
  std::size_t host_activations = 0, host_optimizer = 0;
  std::size_t host() const { return host_activations + host_optimizer; }
  /// All except the last: memory of tensors, from the allocator.
  std::size_t allocated() const {
    return parameters + gradients + gradient_work + optimizer + activations + work + messages + batches;
  }
  /// Not in the total: master weights and moments, of which checkpoints consist, and master weights alone.
  struct State {
    std::size_t all = 0, on_device = 0;
  };
  State state, weights;
};

/// Memory that rank `rank` of `grid` will take on `backend`. It is found by rehearsing an update and an evaluation
/// without computing (RehearsalBackend).
MemoryEstimate estimate_memory(const Backend& backend, const model::ModelConfig& config,
                               const ExecutionConfig& execution, const TrainOptions& options,
                               const parallel::ProcessGrid& grid, int rank);

/// Lower bound of the device bytes of all ranks together, by arithmetic alone: for sizes at which even a list of the
/// parameters or of a run's steps would not fit. At most the sum of all ranks' `estimate_memory`. Without an
/// `optimizer` the model is not trained.
struct MinMemory {
  double parameters = 0;   ///< with their gradients, moments and masters
  double activations = 0;  ///< the widest tensor of one micro-batch on each data rank
  std::int64_t padded_vocabulary = 0;
  double total() const { return parameters + activations; }
};
MinMemory min_memory(const model::ModelConfig& config, const ExecutionConfig& execution,
                     const parallel::ProcessGrid& grid, const std::optional<optim::OptimizerOptions>& optimizer);

/// Activations that one layer keeps of one micro-batch on one rank.
struct LayerActivations {
  std::size_t kept = 0;  ///< here, in the training type; of a recomputed span of layers, the amount per layer
  /// In 16 bits by a formula of Korthikanti et al. 2022 (arXiv:2205.05198, table 2): GPT-2, f = 4 h, attention scores
  /// in memory, masks of one byte.
  struct Published {
    std::string setting;
    std::string formula;
    double bytes = 0;
    bool applies = false;  ///< to this configuration
  };
  std::vector<Published> published;
};
/// In `s b h` of the formulas s are the positions of one context rank.
LayerActivations layer_activations(const Backend& backend, const model::ModelConfig& config,
                                   const ExecutionConfig& execution, const parallel::ProcessGrid& grid);

}  // namespace trireme::train
