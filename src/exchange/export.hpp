#pragma once

#include <cstdint>
#include <vector>

#include "src/checkpoint/store.hpp"
#include "src/comm/communicator.hpp"
#include "src/exchange/import.hpp"
#include "src/exchange/tensor_map.hpp"
#include "src/exchange/tensor_source.hpp"

namespace trireme::exchange {

/// Returns the tensors of `map` in `dtype`, as an export writes them.
std::vector<ForeignTensor> tensors_of(const TensorMap& map, DType dtype);

struct ExportResult {
  std::int64_t written_bytes = 0;
  std::int64_t written_files = 0;
  std::int64_t kept_files = 0;
};

struct ExportSizes {
  std::int64_t slice_bytes = default_slice_bytes;  ///< rows of a parameter that a rank reads at a time
  /// Largest part of a transposed tensor in memory. A larger tensor is written in several parts, by columns.
  std::int64_t transposed_bytes = std::int64_t{256} << 20;
};

/// Writes the master weights of a step ("model/NAME") to `destination`, which was made for `tensors_of(map, dtype)`.
/// The step may be opened with Verification::while_reading. Collective: the ranks of `world` share the parameters of
/// each file. Keeps a complete file of an earlier export of the same step if the digest of its tensors matches the one
/// that it states. CheckpointError if the step lacks parameters or is damaged.
ExportResult export_weights(checkpoint::StepReader& step, const TensorMap& map, DType dtype,
                            TensorDestination& destination, Communicator& world, const ExportSizes& sizes = {});

}  // namespace trireme::exchange
