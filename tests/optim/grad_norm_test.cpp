#include "src/optim/grad_norm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/comm/self_communicator.hpp"
#include "src/model/initialisation.hpp"
#include "src/model/model_parameters.hpp"
#include "src/parallel/grid/process_grid.hpp"
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
               Communicator& gradient_group) {
  const Tensor sum(backend, DType::fp64, {1});
  return gradient_norm(backend, buffer, tensor_rank, model_group, gradient_group, sum);
}

TEST(GradientNorm, CountsEachElementOfTheModelOnceOnEveryGrid) {
  Communicator& world = test::world();
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  SelfCommunicator self;
  const double expected = norm_of(*backend, buffer_of(*backend, 0, 1, 0, 1), 0, self, self);
  EXPECT_GT(expected, 1);
  const double close = test::tolerance(DType::fp64, test::Comparison::other_average).grad_norm;
  for (int tensor = 1; tensor <= world.size(); ++tensor) {
    if (world.size() % tensor != 0) continue;
    const parallel::ProcessGrid grid(world.size(), tensor, world.size() / tensor);
    const auto position = grid.position(world.rank());
    const ParameterBuffer buffer =
        buffer_of(*backend, position.tensor, tensor, position.pipeline, world.size() / tensor);
    // The same squares, added in another order.
    EXPECT_NEAR(norm_of(*backend, buffer, position.tensor, world, self) / expected, 1, close) << "TP " << tensor;
  }
}

TEST(GradientNorm, IsTheRootOfTheSumOfSquares) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
    Parameter p = test::whole_parameter("w", parallel::ParameterRole::matrix, {2, 2});
    p.replicated = true;
    Parameter copy = p;
    copy.name = "tied";
    copy.shared_copy = true;
    const ParameterBuffer buffer(*backend, dtype, {p, copy});
    backend->elementwise().fill(backend->compute_stream(), 3, buffer.gradients());
    SelfCommunicator self;
    EXPECT_EQ(norm_of(*backend, buffer, 0, self, self), 6) << name_of(dtype);  // the copy does not count
    EXPECT_EQ(norm_of(*backend, buffer, 1, self, self), 0) << name_of(dtype);  // tensor rank 0 counts it
  }
}

TEST(GradientNorm, IsNotFiniteOnAnyRankWhereOneElementOfOneRankIsNot) {
  Communicator& world = test::world();
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  SelfCommunicator self;
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    const ParameterBuffer buffer = buffer_of(*backend, world.rank(), world.size(), 0, 1);
    if (world.rank() == world.size() - 1) {
      const std::vector<Parameter>& list = buffer.parameters();
      for (const Parameter& p : list) {
        if (p.name == "h.7.mlp.fc.bias") p.gradient.as<double>()[0] = bad;
      }
    }
    EXPECT_FALSE(std::isfinite(norm_of(*backend, buffer, world.rank(), world, self)));
  }
}

TEST(ClipCoefficient, ScalesTheNormDownToTheLimitAndNeverUp) {
  EXPECT_EQ(clip_coefficient(4, 1), 1 / (4 + 1e-6));
  EXPECT_EQ(clip_coefficient(0.5, 1), 1);
  EXPECT_EQ(clip_coefficient(0, 1), 1);
  EXPECT_EQ(clip_coefficient(1e9, 0), 1);  // 0: no clipping
}

}  // namespace
}  // namespace trireme::optim
