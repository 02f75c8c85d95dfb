// Epilogues of products, against the same in fp64.
#include "cuda/kernels/epilogue.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/activations.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme {
namespace {

using namespace test;

class Epilogue : public testing::TestWithParam<DType> {
 protected:
  Tensor random(const Shape& shape, std::uint64_t offset, DType dtype) {
    // One of many results may vanish, a single one must not.
    return random_tensor(b_, dtype, shape, offset, shape.numel() == 1 ? 0.5 : -2, 2);
  }
  Tensor random(const Shape& shape, std::uint64_t offset) { return random(shape, offset, GetParam()); }

  std::unique_ptr<Backend> backend_ = test::make_backend(2);
  Backend& b_ = *backend_;
  Stream& stream_ = b_.compute_stream();
};

constexpr std::int64_t sizes[][2] = {{0, 8}, {1, 1}, {31, 33}, {33, 31}, {5, 1025}, {1025, 40}};

TEST_P(Epilogue, AddsTheBiasAndActivates) {
  for (const auto& [rows, columns] : sizes) {
    for (const Activation kind : {Activation::none, Activation::gelu_tanh, Activation::gelu_erf}) {
      for (const bool keep : {false, true}) {
        SCOPED_TRACE(fmt::format("{} x {}, activation {}, keep {}", rows, columns, static_cast<int>(kind), keep));
        const Tensor z = random({rows, columns}, 1), bias = random({columns}, 2);
        const Tensor y = poisoned_tensor(b_, GetParam(), {rows, columns});
        std::vector<double> sum = values_of(b_, z), expected;
        const std::vector<double> before = sum, added = values_of(b_, bias);
        for (std::size_t i = 0; i < sum.size(); ++i) {
          sum[i] += added[i % static_cast<std::size_t>(columns)];
          expected.push_back(activated(kind, sum[i]));
        }
        cuda::bias_activation(stream_, GetParam(), rows, columns, bias.view().data(), kind, z.view().data(), keep,
                              y.view().data());
        const Tolerance close = tolerance(GetParam(), Operation::elementwise);
        expect_close(values_of(b_, y), expected, close, "y");
        expect_close(values_of(b_, z), keep ? sum : before, close, "z");
      }
    }
  }
}

TEST_P(Epilogue, MultipliesByTheSlopeOfTheActivation) {
  for (const Activation kind : {Activation::gelu_tanh, Activation::gelu_erf}) {
    for (const std::int64_t n : {0, 1, 31, 33, 1025}) {
      const Tensor z = random({n}, 3), dx = random({n}, 4);
      std::vector<double> expected = values_of(b_, dx);
      const std::vector<double> x = values_of(b_, z);
      for (std::size_t i = 0; i < x.size(); ++i) expected[i] *= activation_slope(kind, x[i]);
      cuda::activation_backward(stream_, GetParam(), n, kind, z.view().data(), dx.view().data());
      expect_close(values_of(b_, dx), expected, tolerance(GetParam(), Operation::elementwise), fmt::format("{}", n));
    }
  }
}

TEST_P(Epilogue, AddsUpColumns) {
  for (const auto& [rows, columns] : sizes) {
    const Tensor x = random({rows, columns}, 5), sums = random({columns}, 6, DType::fp32);
    std::vector<double> expected = values_of(b_, sums);
    const std::vector<double> values = values_of(b_, x);
    for (std::size_t i = 0; i < values.size(); ++i) expected[i % static_cast<std::size_t>(columns)] += values[i];
    const Buffer scratch = b_.allocate(cuda::column_sums_bytes(rows, columns));
    cuda::column_sums(stream_, GetParam(), rows, columns, x.view().data(), scratch.data(), sums.view().as<float>());
    expect_close(values_of(b_, sums), expected, tolerance(DType::fp32, Operation::sum),
                 fmt::format("{} x {}", rows, columns));
    cuda::add_rows(stream_, 1, columns, sums.view().as<float>(), sums.view().as<float>());
    for (double& value : expected) value *= 2;
    expect_close(values_of(b_, sums), expected, tolerance(DType::fp32, Operation::sum), "twice");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Epilogue, testing::Values(DType::fp32, DType::bf16, DType::fp16), name_of_type);

}  // namespace
}  // namespace trireme
