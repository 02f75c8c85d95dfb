#pragma once

#include <array>
#include <string_view>

namespace trireme::report {

/// Range of a vertical axis.
enum class Axis {
  fitted,    ///< from the least to the greatest value
  decades,   ///< likewise, logarithmic if positive values span a factor of ten
  from_zero  ///< from zero
};

/// Number that a run records for each iteration.
struct Quantity {
  std::string_view key;  ///< in the lines of metrics
  std::string_view title;
  std::string_view unit;
  Axis axis = Axis::fitted;
  bool always_shown = true;  ///< even if missing; otherwise only if it varies
};

enum QuantityIndex {
  lm_loss,
  sop_loss,
  learning_rate,
  grad_norm,
  tokens_per_second,
  tflops_per_rank,
  memory,
  loss_scale
};

/// All quantities, in the order of the page; the first are those of `QuantityIndex`.
inline constexpr auto quantities = std::to_array<Quantity>({
    {"lm_loss", "Training loss", "", Axis::decades},
    {"sop_loss", "Training loss of the segments' order", "", Axis::decades, false},
    {"learning_rate", "Learning rate", "", Axis::from_zero},
    {"grad_norm", "Gradient norm", "", Axis::decades},
    {"tokens_per_second", "Speed", "tokens/s", Axis::from_zero},
    {"tflops_per_rank", "Speed of a rank", "TFLOP/s", Axis::from_zero},
    {"peak_memory_bytes", "Memory of rank 0, greatest so far", "bytes", Axis::from_zero},
    {"loss_scale", "Loss scale", "", Axis::decades, false},
    {"params_norm", "Norm of the parameters", "", Axis::decades, false},
    {"num_zeros", "Gradients that are zero", "", Axis::from_zero, false},
    {"weight_decay", "Weight decay", "", Axis::from_zero, false},
    {"exposed_communication_ms", "Exposed communication", "ms", Axis::from_zero, false},
});

}  // namespace trireme::report
