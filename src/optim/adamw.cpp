#include "src/optim/adamw.hpp"

#include <array>

namespace trireme::optim {

namespace {

void validate_moment(const char* field, DType dtype, const char* decay_field, double decay) {
  // The smallest positive number of fp16 is 6e-8, and squares of gradients are smaller.
  TRIREME_CHECK(dtype == DType::fp32 || dtype == DType::bf16, ConfigError,
                "<{}> {}: moments in {} would need a scale for every tensor. Try bf16, which has the range of fp32.",
                field, name_of(dtype), name_of(dtype));
  // Just above a power of two, half the distance to the next number of bf16 is 2^-8 of it.
  constexpr double max_decay = 1 - 0x1p-8;
  TRIREME_CHECK(
      dtype != DType::bf16 || decay <= max_decay, ConfigError,
      "<{}> bf16 and <{}> {} exclude each other: bf16 has 8 bits, so that a moment which loses {:.2g} of itself "
      "may be rounded back and never decay. Try <{}> fp32, or <{}> of at most 0.996, such as 0.95.",
      field, decay_field, decay, 1 - decay, field, decay_field);
}

}  // namespace

void validate(const AdamWOptions& options) {
  TRIREME_CHECK(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1, ConfigError,
                "<adam_beta1> {} and <adam_beta2> {} must be from 0 to less than 1", options.beta1, options.beta2);
  // With 0, an element without gradients, such as padding, would become 0 / 0.
  TRIREME_CHECK(options.epsilon > 0, ConfigError, "<adam_eps> {} must be above 0", options.epsilon);
  validate_moment("exp_avg_dtype", options.exp_avg_dtype, "adam_beta1", options.beta1);
  validate_moment("exp_avg_sq_dtype", options.exp_avg_sq_dtype, "adam_beta2", options.beta2);
}

AdamW::AdamW(Backend& backend, parallel::ParameterBuffer& parameters, double weight_decay, const AdamWOptions& options,
             const Offload& offload)
    : Optimizer(backend, parameters, weight_decay,
                std::array{MomentSpec{"adamw_m", false, options.exp_avg_dtype},
                           MomentSpec{"adamw_v", false, options.exp_avg_sq_dtype}},
                offload),
      options_(options) {
  validate(options);
}

void AdamW::update(Backend& backend, const AdamWOptions& options, const Update& update, const UpdateRanges& ranges,
                   const Arrays& arrays) {
  AdamWStep step;
  step.rates = update.rates;
  step.beta1 = options.beta1;
  step.beta2 = options.beta2;
  step.epsilon = options.epsilon;
  step.update = update.number;
  step.gradient_scale = update.gradient_scale;
  step.factor = update.factor;
  backend.optimizer().adamw(update.stream, step, ranges, arrays.gradients, arrays.masters, arrays.moments[0],
                            arrays.moments[1], arrays.rounded);
}

}  // namespace trireme::optim
