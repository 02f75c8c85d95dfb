#include <gtest/gtest.h>

#include "src/comm/self_communicator.hpp"
#include "src/optim/make_optimizer.hpp"
#include "src/parallel/data/data_parallel.hpp"
#include "tests/support/gradient_norm.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/tolerance.hpp"
#include "tests/support/whole_parameter.hpp"

// Parameters of a second gradient group, as experts are: the even ranks hold one set of them, the odd ranks another.

namespace trireme::optim {
namespace {

using namespace trireme::test;
using parallel::DataParallelOptions;
using parallel::DataSharding;
using parallel::Parameter;
using parallel::ParameterBuffer;
using parallel::ParameterRole;

constexpr int units = 3, micro_batches = 2, steps = 2;

/// Set `set` of the experts' parameters has these names.
std::string expert_name(int unit, int set) { return fmt::format("expert.{}.{}", set, unit); }

/// Units of a dense matrix, an expert's matrix of `set`, and a dense bias.
std::vector<Parameter> rank_parameters(int set) {
  std::vector<Parameter> list;
  for (int unit = 0; unit < units; ++unit) {
    const auto add = [&](const std::string& name, ParameterRole role, const Shape& shape, int group) {
      list.push_back(whole_parameter(name, role, shape));
      list.back().unit = unit;
      list.back().gradient_group = group;
    };
    add(fmt::format("dense.{}", unit), ParameterRole::matrix, {6, 5 + unit}, 0);
    add(expert_name(unit, set), ParameterRole::matrix, {4 + unit, 7}, 1);
    add(fmt::format("bias.{}", unit), ParameterRole::bias, {3}, 0);
  }
  return list;
}

/// Small whole numbers, whose sums are exact, by name, position, rank, step and micro-batch.
double gradient_at(const std::string& name, std::int64_t i, int rank, int step, int micro_batch) {
  const auto seed = static_cast<std::int64_t>(name.back() + name.front() * 3 + static_cast<int>(name.size()) * 5);
  return static_cast<double>((seed + 7 * i * i + 11 * rank + 5 * step + 3 * micro_batch) % 23 - 11);
}
double value_at(const std::string& name, std::int64_t i) { return 0.125 * gradient_at(name, i, 0, 9, 4); }

/// Set of the experts on a rank, which is also part of their names.
int set_of(int rank) { return rank % 2; }

void fill_values(const ParameterBuffer& buffer) {
  for (const Parameter& p : buffer.parameters()) {
    for (std::int64_t i = 0; i < p.box.numel(); ++i) p.value.as<double>()[i] = value_at(p.name, i);
  }
}

/// All parameters of all ranks on one, with the sums of the ranks' gradients.
class Reference {
 public:
  Reference(Backend& backend, int ranks, const OptimizerOptions& options)
      : backend_(backend), ranks_(ranks), buffer_(backend, DType::fp64, all(ranks)) {
    fill_values(buffer_);
    optimizer_ = make_optimizer(backend, buffer_, {{self_, self_, self_}}, options);
  }
  /// Returns the norm of the gradients of `step`.
  double update(int step) {
    for (const Parameter& p : buffer_.parameters()) {
      for (std::int64_t i = 0; i < p.box.numel(); ++i) p.gradient.as<double>()[i] = sum_at(p.name, i, step);
    }
    const parallel::GradientGroup group{self_, self_, self_};
    const double norm = test::gradient_norm(backend_, buffer_, {&group, 1});
    optimizer_->step(0.01, 0.5);
    return norm;
  }
  double sum_at(const std::string& name, std::int64_t i, int step) const {
    double sum = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      const bool holds = !name.starts_with("expert") || name.starts_with(fmt::format("expert.{}.", set_of(rank)));
      for (int m = 0; holds && m < micro_batches; ++m) sum += gradient_at(name, i, rank, step, m);
    }
    return sum;
  }
  const ParameterBuffer& buffer() const { return buffer_; }

 private:
  static std::vector<Parameter> all(int ranks) {
    std::vector<Parameter> list = rank_parameters(0), second = rank_parameters(1);
    for (Parameter& p : second) {
      if (ranks > 1 && p.gradient_group == 1) list.push_back(p);
    }
    for (Parameter& p : list) p.unit = p.gradient_group = 0;
    return list;
  }
  Backend& backend_;
  int ranks_;
  SelfCommunicator self_;
  ParameterBuffer buffer_;
  std::unique_ptr<Optimizer> optimizer_;
};

/// Trains on all ranks of the world, and compares each rank with the reference.
void expect_reference(const DataParallelOptions& options, OptimizerKind kind) {
  Communicator& world = test::world();
  SelfCommunicator self;
  const int rank = world.rank(), set = set_of(rank);
  // The ranks with the same experts, and those that hold all of them once.
  const std::unique_ptr<Communicator> holders = world.split(set, rank, "holders");
  const std::unique_ptr<Communicator> replica = world.split(rank / 2, rank, "replica");
  const std::vector<parallel::GradientGroup> groups = {{world, self, self}, {*holders, self, *replica}};
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  ParameterBuffer buffer(*backend, DType::fp64, rank_parameters(set), options,
                         {{world.size(), rank}, {holders->size(), holders->rank()}});
  parallel::DataParallel data_parallel(*backend, buffer, groups);
  fill_values(buffer);
  OptimizerOptions optimizer_options;
  optimizer_options.kind = kind;
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(*backend, buffer, groups, optimizer_options);
  Reference reference(*backend, world.size(), optimizer_options);

  for (int step = 0; step < steps; ++step) {
    data_parallel.begin_step();
    data_parallel.clear_gradients();
    for (int m = 0; m < micro_batches; ++m) {
      for (int unit = 0; unit < units; ++unit) data_parallel.before_forward(unit);
      for (int unit = units; unit-- > 0;) {
        data_parallel.before_backward(unit);
        for (const Parameter& p : buffer.parameters()) {
          if (p.unit != unit) continue;
          for (std::int64_t i = 0; i < p.box.numel(); ++i) {
            p.gradient.as<double>()[i] += gradient_at(p.name, i, rank, step, m);
          }
        }
        data_parallel.after_backward(unit, m + 1 == micro_batches);
      }
    }
    data_parallel.finish_reduction();
    for (std::size_t i = 0; i < buffer.parameters().size(); ++i) {
      const Parameter& p = buffer.parameters()[i];
      const parallel::ShardRange own = buffer.shard_range(i);
      for (std::int64_t k = 0; k < own.count; ++k) {
        ASSERT_EQ(buffer.shard_gradient(i).as<double>()[k], reference.sum_at(p.name, own.begin + k, step)) << p.name;
      }
    }
    const double norm = test::gradient_norm(*backend, buffer, groups);
    EXPECT_DOUBLE_EQ(norm, reference.update(step));
    optimizer->step(0.01, 0.5,
                    [&](std::size_t bucket) { data_parallel.start_gather(bucket, backend->compute_stream()); });
    data_parallel.finish_gather();
  }
  data_parallel.wait_for_parameters();
  for (const Parameter& p : buffer.parameters()) {
    expect_close(values_of(*backend, p.value), values_of(*backend, reference.buffer().at(p.name).value),
                 {.relative = 1e-12, .absolute = 1e-12}, p.name);
  }
}

TEST(GradientGroups, AreReducedShardedAndUpdatedOverTheirRanks) {
  for (const auto sharding : {DataSharding::none, DataSharding::optimizer, DataSharding::optimizer_and_gradients}) {
    for (const bool overlap : {false, true}) {
      SCOPED_TRACE(fmt::format("ZeRO {}, overlap {}", static_cast<int>(sharding), overlap));
      expect_reference({sharding, false, overlap, overlap, overlap ? 40 : 0},
                       overlap ? OptimizerKind::muon : OptimizerKind::adam);
    }
  }
}

}  // namespace
}  // namespace trireme::optim
