#pragma once

#include "src/optim/optimizer.hpp"

namespace trireme::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  /// Types of the first and the second moment, bf16 or fp32; fp32 means the accumulation type. Updates are computed in
  /// the accumulation type and rounded to nearest even. In bf16 a moment must lose 2^-8 of itself or more in an update.
  DType exp_avg_dtype = DType::fp32;
  DType exp_avg_sq_dtype = DType::fp32;
};

/// Throws ConfigError for options out of range.
void validate(const AdamWOptions& options);

/// AdamW, which keeps both moments. Weight decay is decoupled: it does not enter the moments.
class AdamW final : public Optimizer {
 public:
  /// Throws ConfigError for options out of range, and for moments of 16 bits in fp64. `parameters` must live longer.
  AdamW(Backend& backend, parallel::ParameterBuffer& parameters, double weight_decay, const AdamWOptions& options,
        const Offload& offload = {});

  /// Enqueues the update of ranges of any optimizer, whose moments are AdamW's.
  static void update(Backend& backend, const AdamWOptions& options, const Update& update, const UpdateRanges& ranges,
                     const Arrays& arrays);

 private:
  void update_ranges(const Update& update, const UpdateRanges& ranges, const Arrays& arrays) override {
    AdamW::update(backend(), options_, update, ranges, arrays);
  }

  AdamWOptions options_;
};

}  // namespace trireme::optim
