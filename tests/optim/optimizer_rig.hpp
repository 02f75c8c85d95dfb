#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "src/optim/optimizer.hpp"
#include "src/parallel/data/parameter_buffer.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/tolerance.hpp"
#include "tests/support/whole_parameter.hpp"

// Parameters for tests of optimizers.

namespace trireme::optim::test {

using namespace trireme::test;
using parallel::Parameter;
using parallel::ParameterBuffer;
using parallel::ParameterRole;

/// Decaying and not in turn, sizes that leave gaps between them, and a vocabulary with two rows of padding.
inline std::vector<Parameter> parameters() {
  std::vector<Parameter> list = {whole_parameter("wte", ParameterRole::embedding, {5, 3}),
                                 whole_parameter("ln.weight", ParameterRole::norm_weight, {7}),
                                 whole_parameter("ln.bias", ParameterRole::norm_bias, {7}),
                                 whole_parameter("fc.weight", ParameterRole::matrix, {9, 7}),
                                 whole_parameter("proj.weight", ParameterRole::residual_matrix, {7, 9}),
                                 whole_parameter("proj.bias", ParameterRole::bias, {7})};
  list[0].storage = {7, 3};
  return list;
}

/// Random numbers in the box, zero beyond it.
inline void fill(Backend& backend, const Parameter& p, TensorView to, std::uint64_t seed) {
  std::vector<double> values = random_values(p.stored_numel(), seed);
  std::fill(values.begin() + p.box.numel(), values.end(), 0);
  const Tensor source = make_tensor(backend, to.dtype(), p.storage, values);
  backend.elementwise().convert(backend.compute_stream(), source, to);
}

inline void fill_values(Backend& backend, ParameterBuffer& buffer) {
  std::uint64_t seed = 1;
  for (const Parameter& p : buffer.parameters()) fill(backend, p, p.value, seed++);
}

inline void fill_gradients(Backend& backend, ParameterBuffer& buffer, std::uint64_t step) {
  std::uint64_t seed = 1000 * step;
  for (const Parameter& p : buffer.parameters()) fill(backend, p, p.gradient, seed++);
}

/// A step of one parameter in fp64: its inputs, and the states that it updates.
struct PlainStep {
  int step = 0;  ///< 1 at first
  double lr = 0;
  bool decays = false;
  std::vector<double> g;                    ///< gradient times the scale
  std::vector<std::vector<double>> states;  ///< weights, then moments
};

/// Base of the tests of one optimizer in each type.
class OptimizerTest : public testing::TestWithParam<DType> {
 protected:
  /// Makes four steps of `optimizer`, and expects the states that `update` computes.
  void expect_updates_of(ParameterBuffer& buffer, Optimizer& optimizer, const std::function<void(PlainStep&)>& update,
                         bool decays_all = false) {
    Backend& b = *backend_;
    const std::size_t count = buffer.parameters().size();
    std::vector<PlainStep> plain(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::vector<double> weights = values_of(b, buffer.parameters()[i].value);
      plain[i].states.assign(optimizer.state(i).size(), std::vector<double>(weights.size(), 0));
      plain[i].states[0] = weights;
    }
    for (int step = 1; step <= 4; ++step) {
      const double lr = 0.01 * step, scale = 1.0 / step;
      fill_gradients(b, buffer, static_cast<std::uint64_t>(step));
      for (std::size_t i = 0; i < count; ++i) {
        const Parameter& p = buffer.parameters()[i];
        plain[i].step = step;
        plain[i].lr = lr;
        plain[i].decays = decays_all || p.name == "wte" || p.name == "fc.weight" || p.name == "proj.weight";
        plain[i].g = values_of(b, p.gradient);
        for (double& g : plain[i].g) g *= scale;
        update(plain[i]);
      }
      Optimizer::Rates rates = lr;
      rates.decays_all = decays_all;
      optimizer.step(rates, scale);
    }
    EXPECT_EQ(optimizer.updates(), 4);
    const Tolerance allowed = tolerance(accumulation_type(GetParam()), Operation::sum);
    for (std::size_t i = 0; i < count; ++i) {
      const Parameter& p = buffer.parameters()[i];
      const std::vector<Optimizer::State> states = optimizer.state(i);
      for (std::size_t k = 0; k < states.size(); ++k) {
        expect_close(values_of(b, states[k].data), plain[i].states[k], allowed, states[k].kind + " of " + p.name);
      }
      // The parameter is its master, rounded once.
      EXPECT_EQ(values_of(b, p.value), values_of(b, converted(b, states[0].data, GetParam()))) << p.name;
    }
  }

  std::unique_ptr<Backend> backend_ = make_backend(BackendChoice::cpu, 1);
};

inline const auto all_types = testing::Values(DType::fp64, DType::fp32, DType::bf16, DType::fp16);
inline std::string name_of_type(const testing::TestParamInfo<DType>& info) { return std::string(name_of(info.param)); }

}  // namespace trireme::optim::test
