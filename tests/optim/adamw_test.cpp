#include "src/optim/adamw.hpp"

#include <gtest/gtest.h>

#include "tests/support/random_tensor.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::optim {
namespace {

using namespace test;
using parallel::Parameter;
using parallel::ParameterBuffer;
using parallel::Role;

Parameter parameter(const std::string& name, Role role, const Shape& shape) {
  Parameter p;
  p.name = name;
  p.role = role;
  p.shape = shape;
  p.box = Box::whole(shape);
  p.storage = shape;
  return p;
}

/// Decaying and not in turn, sizes that leave gaps between them, and a vocabulary with two rows of padding.
std::vector<Parameter> parameters() {
  std::vector<Parameter> list = {parameter("wte", Role::embedding, {5, 3}),
                                 parameter("ln.weight", Role::norm_weight, {7}),
                                 parameter("ln.bias", Role::norm_bias, {7}),
                                 parameter("fc.weight", Role::matrix, {9, 7}),
                                 parameter("proj.weight", Role::residual_matrix, {7, 9}),
                                 parameter("proj.bias", Role::bias, {7})};
  list[0].storage = {7, 3};
  return list;
}

/// Random numbers in the box, zero beyond it.
void fill(Backend& backend, const Parameter& p, TensorView to, std::uint64_t seed) {
  std::vector<double> values = random_values(p.stored_numel(), seed);
  std::fill(values.begin() + p.box.numel(), values.end(), 0);
  const Tensor source = make_tensor(backend, to.dtype(), p.storage, values);
  backend.elementwise().convert(backend.compute_stream(), source, to);
}

void fill_values(Backend& backend, ParameterBuffer& buffer) {
  std::uint64_t seed = 1;
  for (const Parameter& p : buffer.parameters()) fill(backend, p, p.value, seed++);
}

void fill_gradients(Backend& backend, ParameterBuffer& buffer, std::uint64_t step) {
  std::uint64_t seed = 1000 * step;
  for (const Parameter& p : buffer.parameters()) fill(backend, p, p.gradient, seed++);
}

class AdamWOptimizer : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Backend> backend_ = make_backend(BackendChoice::cpu, 1);
};
INSTANTIATE_TEST_SUITE_P(Types, AdamWOptimizer, testing::Values(DType::fp64, DType::fp32, DType::bf16, DType::fp16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(AdamWOptimizer, UpdatesEveryParameterAsAPlainLoopDoes) {
  Backend& b = *backend_;
  ParameterBuffer buffer(b, GetParam(), parameters());
  fill_values(b, buffer);
  AdamW adamw(b, buffer, {0.8, 0.95, 1e-6, 0.3});

  const std::size_t count = buffer.parameters().size();
  std::vector<std::vector<double>> w(count);
  std::vector<std::vector<double>> m(count);
  std::vector<std::vector<double>> v(count);
  for (std::size_t i = 0; i < count; ++i) {
    w[i] = values_of(b, buffer.parameters()[i].value);
    m[i].assign(w[i].size(), 0);
    v[i].assign(w[i].size(), 0);
  }
  for (int step = 1; step <= 4; ++step) {
    const double lr = 0.01 * step;
    const double scale = 1.0 / step;
    fill_gradients(b, buffer, static_cast<std::uint64_t>(step));
    for (std::size_t i = 0; i < count; ++i) {
      const Parameter& p = buffer.parameters()[i];
      const bool decays = p.name == "wte" || p.name == "fc.weight" || p.name == "proj.weight";
      const std::vector<double> gradient = values_of(b, p.gradient);
      for (std::size_t j = 0; j < gradient.size(); ++j) {
        const double g = gradient[j] * scale;
        m[i][j] = 0.8 * m[i][j] + 0.2 * g;
        v[i][j] = 0.95 * v[i][j] + 0.05 * g * g;
        const double mean = m[i][j] / (1 - std::pow(0.8, step));
        const double square = v[i][j] / (1 - std::pow(0.95, step));
        if (decays) w[i][j] -= lr * 0.3 * w[i][j];
        w[i][j] -= lr * mean / (std::sqrt(square) + 1e-6);
      }
    }
    adamw.step(lr, scale);
  }
  EXPECT_EQ(adamw.updates(), 4);
  const Tolerance allowed = tolerance(accumulation_type(GetParam()), Operation::sum);
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& p = buffer.parameters()[i];
    expect_close(values_of(b, adamw.first_moment(i)), m[i], allowed, "m of " + p.name);
    expect_close(values_of(b, adamw.second_moment(i)), v[i], allowed, "v of " + p.name);
    expect_close(values_of(b, adamw.master(i)), w[i], allowed, "master of " + p.name);
    // The parameter is its master, rounded once.
    EXPECT_EQ(values_of(b, p.value), values_of(b, converted(b, adamw.master(i), GetParam()))) << p.name;
  }
}

TEST_P(AdamWOptimizer, LeavesPaddingAndTheGapsBetweenParametersZero) {
  Backend& b = *backend_;
  ParameterBuffer buffer(b, GetParam(), parameters());
  fill_values(b, buffer);
  AdamW adamw(b, buffer, {});
  for (std::uint64_t step = 1; step <= 3; ++step) {
    fill_gradients(b, buffer, step);
    adamw.step(0.1, 1);
  }
  const std::vector<double> values = values_of(b, buffer.values());
  std::vector<bool> held(values.size(), false);
  for (std::size_t i = 0; i < buffer.parameters().size(); ++i) {
    const auto begin = held.begin() + buffer.layout().offset(i);
    std::fill(begin, begin + buffer.parameters()[i].box.numel(), true);
  }
  std::size_t others = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (held[i]) continue;
    EXPECT_EQ(values[i], 0) << "element " << i;
    ++others;
  }
  EXPECT_GE(others, 6u);
  for (const TensorView moment : {adamw.first_moment(0), adamw.second_moment(0), adamw.master(0)}) {
    EXPECT_EQ(values_of(b, moment.flat(15, 6)), std::vector<double>(6, 0));
  }
}

TEST_P(AdamWOptimizer, GoesOnBitForBitFromARestoredState) {
  Backend& b = *backend_;
  ParameterBuffer first(b, GetParam(), parameters());
  fill_values(b, first);
  AdamW one(b, first, {});
  fill_gradients(b, first, 1);
  one.step(0.01, 1);

  ParameterBuffer second(b, GetParam(), parameters());
  AdamW other(b, second, {});
  for (std::size_t i = 0; i < first.parameters().size(); ++i) {
    b.elementwise().convert(b.compute_stream(), one.master(i), other.master(i));
    b.elementwise().convert(b.compute_stream(), one.first_moment(i), other.first_moment(i));
    b.elementwise().convert(b.compute_stream(), one.second_moment(i), other.second_moment(i));
  }
  other.restore(one.updates());
  EXPECT_EQ(bytes_of(b, second.values()), bytes_of(b, first.values()));
  for (std::uint64_t step = 2; step <= 4; ++step) {
    fill_gradients(b, first, step);
    fill_gradients(b, second, step);
    one.step(0.01, 0.5);
    other.step(0.01, 0.5);
  }
  EXPECT_EQ(other.updates(), 4);
  EXPECT_EQ(bytes_of(b, second.values()), bytes_of(b, first.values()));
}

TEST(AdamWByHand, TwoUpdatesOfOneWeight) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  Backend& b = *backend;
  ParameterBuffer buffer(b, DType::fp64, {parameter("w", Role::matrix, {1}), parameter("b", Role::bias, {1})});
  for (const Parameter& p : buffer.parameters()) p.value.as<double>()[0] = 1;
  AdamW adamw(b, buffer, {0.9, 0.999, 1e-8, 0.01});
  const auto weight = [&](std::size_t i) { return buffer.parameters()[i].value.as<double>()[0]; };

  // m / c1 = g and v / c2 = g^2 in the first update, so the step is the learning rate but for epsilon.
  for (const Parameter& p : buffer.parameters()) p.gradient.as<double>()[0] = 0.5;
  adamw.step(0.1, 1);
  EXPECT_DOUBLE_EQ(weight(0), 1 - 0.001 - 0.1 * 0.5 / (0.5 + 1e-8));
  EXPECT_DOUBLE_EQ(weight(1), 1 - 0.1 * 0.5 / (0.5 + 1e-8));

  // m = 0.9 * 0.05 - 0.1 * 0.25 = 0.02, c1 = 0.19; v = 0.999 * 0.00025 + 0.001 * 0.0625 = 0.00031225, c2 = 0.001999.
  const double before = weight(1);
  for (const Parameter& p : buffer.parameters()) p.gradient.as<double>()[0] = -1;
  adamw.step(0.1, 0.25);
  EXPECT_DOUBLE_EQ(weight(1), before - 0.1 * (0.02 / 0.19) / (std::sqrt(0.00031225 / 0.001999) + 1e-8));
}

TEST(AdamWSettings, OutOfRangeAreRefused) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  ParameterBuffer buffer(*backend, DType::fp32, parameters());
  for (const AdamWOptions& options :
       {AdamWOptions{1, 0.999, 1e-8, 0}, AdamWOptions{0.9, 1, 1e-8, 0}, AdamWOptions{-0.1, 0.9, 1e-8, 0},
        AdamWOptions{0.9, 0.999, 0, 0}, AdamWOptions{0.9, 0.999, -1, 0}, AdamWOptions{0.9, 0.999, 1e-8, -0.1}}) {
    EXPECT_THROW(AdamW(*backend, buffer, options), ConfigError);
  }
}

}  // namespace
}  // namespace trireme::optim
