#include "src/optim/grad_norm.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "src/comm/rehearsal_communicator.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/model/initialisation.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "src/optim/adamw.hpp"
#include "src/parallel/grid/process_grid.hpp"
#include "tests/support/gradient_norm.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/tolerance.hpp"
#include "tests/support/whole_parameter.hpp"

namespace trireme::optim {
namespace {

using parallel::Parameter;
using parallel::ParameterBuffer;

/// A small GPT that divides over up to eight ranks in either direction, with a vocabulary that is padded.
model::ModelConfig config() {
  return {.layers = 8, .hidden = 32, .heads = 8, .ffn_hidden = 128, .max_positions = 16, .vocabulary = 1003};
}

/// The parameters of one rank of a tensor x pipeline grid, whose gradients are a function of name and global index.
ParameterBuffer buffer_of(Backend& backend, int tensor_rank, int tensor_size, int pipeline_rank, int stages) {
  const parallel::VocabularyPartition vocabulary(config().vocabulary, tensor_rank, tensor_size);
  const model::StageShard shard = model::StageShard::of(parallel::PipelineLayout::of(config().layers, stages),
                                                        tensor_rank, tensor_size, pipeline_rank);
  ParameterBuffer buffer(backend, DType::fp64, model::model_parameters(config(), shard, vocabulary));
  std::vector<Parameter> gradients = buffer.parameters();
  for (Parameter& parameter : gradients) parameter.value = parameter.gradient;
  model::initialise(backend, gradients, {model::InitMethod::hashed_uniform, 1, config().layers, 1, 0.02});
  return buffer;
}

double norm_of(Backend& backend, const ParameterBuffer& buffer, int tensor_rank, Communicator& model_group,
               Communicator& gradient_group, int power = 2) {
  RehearsalCommunicator tensor(tensor_rank, 8, "tensor");
  const parallel::GradientGroup group{gradient_group, tensor, model_group};
  return test::gradient_norm(backend, buffer, {&group, 1}, power);
}

class GradientNorm : public testing::Test {
 protected:
  /// Calls `check` with this rank's part of the model on every grid of tensor x pipeline ranks.
  template <class Check>
  void for_each_grid(const Check& check) {
    for (int tensor = 1; tensor <= world.size(); ++tensor) {
      if (world.size() % tensor != 0) continue;
      SCOPED_TRACE(testing::Message() << "TP " << tensor);
      const parallel::ProcessGrid grid(world.size(), tensor, world.size() / tensor);
      const auto position = grid.position(world.rank());
      check(buffer_of(*backend, position.tensor, tensor, position.pipeline, world.size() / tensor), position.tensor);
    }
  }
  Communicator& world = test::world();
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  SelfCommunicator self;
  const double close = test::tolerance(DType::fp64, test::Comparison::other_average).grad_norm;
};
using Observations = GradientNorm;

TEST_F(GradientNorm, CountsEachElementOfTheModelOnceOnEveryGrid) {
  const int powers[] = {2, 1, 3, infinity_norm};
  const ParameterBuffer whole = buffer_of(*backend, 0, 1, 0, 1);
  std::vector<double> expected;
  for (const int power : powers) expected.push_back(norm_of(*backend, whole, 0, self, self, power));
  EXPECT_GT(expected[0], 1);
  EXPECT_GT(expected[1], expected[0]);
  EXPECT_LT(expected[2], expected[0]);
  EXPECT_LT(expected[3], expected[2]);
  for_each_grid([&](const ParameterBuffer& buffer, int tensor_rank) {
    // The same powers, added in another order.
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double norm = norm_of(*backend, buffer, tensor_rank, world, self, powers[i]);
      EXPECT_NEAR(norm / expected[i], 1, close) << "power " << powers[i];
    }
  });
}

TEST_F(GradientNorm, IsTheRootOfTheSumOfSquares) {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
    Parameter p = test::whole_parameter("w", parallel::ParameterRole::matrix, {2, 2});
    p.replicated = true;
    Parameter copy = p;
    copy.name = "tied";
    copy.shared_copy = true;
    const ParameterBuffer buffer(*backend, dtype, {p, copy});
    backend->elementwise().fill(backend->compute_stream(), 3, buffer.gradients());
    EXPECT_EQ(norm_of(*backend, buffer, 0, self, self), 6) << name_of(dtype);  // the copy does not count
    EXPECT_EQ(norm_of(*backend, buffer, 1, self, self), 0) << name_of(dtype);  // tensor rank 0 counts it
  }
}

TEST_F(GradientNorm, IsNotFiniteOnAllRanksIfOneElementIsNot) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    const ParameterBuffer buffer = buffer_of(*backend, world.rank(), world.size(), 0, 1);
    if (world.rank() == world.size() - 1) {
      const std::vector<Parameter>& list = buffer.parameters();
      for (const Parameter& p : list) {
        if (p.name == "h.7.mlp.fc.bias") p.gradient.as<double>()[0] = bad;
      }
    }
    for (const int power : {2, 1, 3, infinity_norm}) {
      EXPECT_FALSE(std::isfinite(norm_of(*backend, buffer, world.rank(), world, self, power))) << power;
    }
  }
}

TEST_F(GradientNorm, HasTheValuesOfMegatronLm) {
  const auto expect_norms = [&](const std::vector<double>& values, const std::vector<double>& norms,
                                std::int64_t zeros) {
    const ParameterBuffer buffer(*backend, DType::fp64,
                                 {test::whole_parameter("w", parallel::ParameterRole::matrix, {std::ssize(values)})});
    std::ranges::copy(values, buffer.parameters()[0].gradient.as<double>());
    const int powers[] = {2, infinity_norm, 1, 3};
    for (std::size_t i = 0; i < norms.size(); ++i) {
      EXPECT_NEAR(norm_of(*backend, buffer, 0, self, self, powers[i]), norms[i], 2e-6 * norms[i]) << powers[i];
    }
    const Tensor sum(*backend, DType::fp64, {1});
    const parallel::GradientGroup group{self, self, self};
    EXPECT_EQ(count_zero_gradients(*backend, buffer, {&group, 1}, sum), zeros);
  };
  expect_norms({3, 0, 4}, {5, 4, 7, 4.497941445275415}, 1);
  expect_norms({0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0}, 7);
}

TEST_F(Observations, CountEachElementOfTheModelOnceOnEveryGrid) {
  const auto observed = [&](ParameterBuffer buffer, int tensor_rank, Communicator& group) {
    backend->elementwise().convert(backend->compute_stream(), buffer.gradients(), buffer.values());
    for (const Parameter& p : buffer.parameters()) {
      if (p.role == parallel::ParameterRole::bias)
        backend->elementwise().fill(backend->compute_stream(), 0, p.gradient);
    }
    const Tensor sum(*backend, DType::fp64, {1});
    const AdamW optimizer(*backend, buffer, 0, {});
    RehearsalCommunicator tensor(tensor_rank, 8, "tensor");
    const std::vector<parallel::GradientGroup> groups = {{self, tensor, group}};
    return std::pair(parameter_norm(*backend, buffer, optimizer, groups, sum),
                     count_zero_gradients(*backend, buffer, groups, sum));
  };
  const auto expected = observed(buffer_of(*backend, 0, 1, 0, 1), 0, self);
  EXPECT_EQ(expected.first, norm_of(*backend, buffer_of(*backend, 0, 1, 0, 1), 0, self, self));
  EXPECT_EQ(expected.second, 8 * (3 * 32 + 32 + 128 + 32));  // qkv, its projection, the MLP's two
  for_each_grid([&](ParameterBuffer buffer, int tensor_rank) {
    const auto actual = observed(std::move(buffer), tensor_rank, world);
    EXPECT_NEAR(actual.first / expected.first, 1, close);
    EXPECT_EQ(actual.second, expected.second);
  });
}

TEST_F(Observations, CountEachElementOfShardsOnce) {
  const auto observed = [&](Communicator& group) {
    std::vector<Parameter> list = {test::whole_parameter("wte", parallel::ParameterRole::embedding, {5, 3}),
                                   test::whole_parameter("fc", parallel::ParameterRole::matrix, {9, 7}),
                                   test::whole_parameter("bias", parallel::ParameterRole::bias, {7})};
    list[0].storage = {7, 3};  // two rows of padding
    const parallel::DataParallelOptions options{.sharding = parallel::DataSharding::optimizer, .bucket_elements = 50};
    ParameterBuffer buffer(*backend, DType::fp64, list, options, {{group.size(), group.rank()}});
    for (const Parameter& p : buffer.parameters()) {
      for (std::int64_t i = 0; i < p.box.numel(); ++i) {
        p.gradient.as<double>()[i] = i % 3 == 0 ? 0 : static_cast<double>(i);
        p.value.as<double>()[i] = static_cast<double>(i + 1);
      }
    }
    const Tensor sum(*backend, DType::fp64, {1});
    const AdamW optimizer(*backend, buffer, 0, {});
    const std::vector<parallel::GradientGroup> groups = {{group, self, self}};
    return std::tuple(parameter_norm(*backend, buffer, optimizer, groups, sum),
                      test::gradient_norm(*backend, buffer, groups, infinity_norm),
                      count_zero_gradients(*backend, buffer, groups, sum));
  };
  EXPECT_EQ(std::get<1>(observed(self)), 62);
  EXPECT_EQ(std::get<2>(observed(self)), 5 + 21 + 3);
  EXPECT_EQ(observed(world), observed(self));  // sums of small whole numbers are exact
}

}  // namespace
}  // namespace trireme::optim
