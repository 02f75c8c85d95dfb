#pragma once

#include <string>

#include "src/backend/kernels/norm.hpp"
#include "src/parallel/data/parameter_buffer.hpp"

namespace trireme::model {

/// Value of a parameter that the model may lack: then empty.
inline TensorView value_of(const parallel::Parameter* parameter) { return parameter ? parameter->value : TensorView(); }
inline TensorView gradient_of(const parallel::Parameter* parameter) {
  return parameter ? parameter->gradient : TensorView();
}

/// Weight and bias of one normalisation, with their gradients. RMSNorm has no bias.
struct NormParameters {
  NormParameters(const parallel::ParameterBuffer& parameters, const std::string& prefix)
      : weight(parameters.at(prefix + ".weight").value,
               parameters.at(prefix + ".weight").role == parallel::ParameterRole::centred_norm_weight ? 1 : 0),
        bias(value_of(parameters.find(prefix + ".bias"))),
        weight_gradient(parameters.at(prefix + ".weight").gradient),
        bias_gradient(gradient_of(parameters.find(prefix + ".bias"))) {}

  NormWeight weight;
  TensorView bias;
  TensorView weight_gradient;
  TensorView bias_gradient;
};

}  // namespace trireme::model
