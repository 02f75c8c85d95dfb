#include "src/optim/muon.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "src/comm/self_communicator.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/tolerance.hpp"
#include "tests/support/whole_parameter.hpp"

namespace trireme::optim {
namespace {

using namespace test;
using parallel::Parameter;
using parallel::ParameterBuffer;
using parallel::ParameterRole;

/// A matrix for plain loops, row-major.
struct Plain {
  std::int64_t rows, columns;
  std::vector<double> values;
  double at(std::int64_t r, std::int64_t c) const { return values[static_cast<std::size_t>(r * columns + c)]; }
};

Plain product(const Plain& a, const Plain& b) {
  Plain result{a.rows, b.columns, {}};
  for (std::int64_t r = 0; r < a.rows; ++r) {
    for (std::int64_t c = 0; c < b.columns; ++c) {
      double sum = 0;
      for (std::int64_t k = 0; k < a.columns; ++k) sum += a.at(r, k) * b.at(k, c);
      result.values.push_back(sum);
    }
  }
  return result;
}

Plain transposed(const Plain& a) {
  Plain result{a.columns, a.rows, {}};
  for (std::int64_t r = 0; r < a.columns; ++r) {
    for (std::int64_t c = 0; c < a.rows; ++c) result.values.push_back(a.at(c, r));
  }
  return result;
}

/// x + factor y, element by element.
Plain sum(double a, const Plain& x, double b, const Plain& y) {
  Plain result = x;
  for (std::size_t i = 0; i < x.values.size(); ++i) result.values[i] = a * x.values[i] + b * y.values[i];
  return result;
}

/// Newton-Schulz as its definition says: always X X^T, of the transposed matrix where that is smaller.
Plain orthogonalised(Plain x) {
  if (x.rows > x.columns) return transposed(orthogonalised(transposed(x)));
  constexpr double steps[][3] = {{4.0848, -6.8946, 2.9270},
                                 {3.9505, -6.3029, 2.6377},
                                 {3.7418, -5.5913, 2.3037},
                                 {2.8769, -3.1427, 1.2046},
                                 {2.8366, -3.0525, 1.2012}};
  double squares = 0;
  for (const double value : x.values) squares += value * value;
  for (double& value : x.values) value /= std::max(std::sqrt(squares), 1e-7);
  for (const auto& [a, b, c] : steps) {
    const Plain gram = product(x, transposed(x));
    x = sum(a, x, 1, product(sum(b, gram, c, product(gram, gram)), x));
  }
  return x;
}

/// Parameters of a layer, split over the tensor ranks as in the model: 4 heads of 2, 8 channels, 12 in the MLP.
std::vector<Parameter> layer(int tensor_rank, int tensor_size) {
  std::vector<Parameter> list = {whole_parameter("wte", ParameterRole::embedding, {9, 8}),
                                 whole_parameter("ln.weight", ParameterRole::norm_weight, {8}),
                                 whole_parameter("attn.qkv.weight", ParameterRole::matrix, {3, 4, 2, 8}),
                                 whole_parameter("attn.proj.weight", ParameterRole::residual_matrix, {8, 8}),
                                 whole_parameter("mlp.fc.weight", ParameterRole::matrix, {12, 8}),
                                 whole_parameter("mlp.proj.weight", ParameterRole::residual_matrix, {8, 12}),
                                 whole_parameter("second.mlp.fc.weight", ParameterRole::matrix, {12, 8}),
                                 whole_parameter("second.mlp.proj.weight", ParameterRole::residual_matrix, {8, 12}),
                                 whole_parameter("pooler.weight", ParameterRole::matrix, {8, 8}),
                                 whole_parameter("lm_head.weight", ParameterRole::output_matrix, {9, 8})};
  const auto split = [&](std::size_t i, int dimension) {
    Parameter& p = list[i];
    p.box.extent[dimension] /= tensor_size;
    p.box.offset[dimension] = tensor_rank * p.box.extent[dimension];
    p.storage = p.box.extent;
  };
  split(2, 1);
  split(3, 1);
  split(4, 0);
  split(5, 1);
  split(6, 0);
  split(7, 1);
  return list;
}

/// Elements of a full parameter that lie in the box of a shard, in its order.
std::vector<double> in_box(const Parameter& p, const std::vector<double>& whole) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < p.shape.numel(); ++i) {
    bool inside = true;
    for (std::int64_t d = p.shape.rank() - 1, rest = i; d >= 0; --d) {
      const int dimension = static_cast<int>(d);
      const std::int64_t at = rest % p.shape[dimension] - p.box.offset[dimension];
      inside = inside && at >= 0 && at < p.box.extent[dimension];
      rest /= p.shape[dimension];
    }
    if (inside) result.push_back(whole[static_cast<std::size_t>(i)]);
  }
  return result;
}

std::vector<double> random_whole(const Parameter& p, std::uint64_t seed) {
  return random_values(p.shape.numel(), fnv1a(p.name) + seed);
}

void put(const Parameter& p, TensorView to, const std::vector<double>& whole) {
  const std::vector<double> own = in_box(p, whole);
  std::ranges::copy(own, to.as<double>());
}

constexpr double rate = 0.02, decay = 0.1, beta = 0.8, gradient_scale = 0.5;

/// Weights of a parameter after three updates, by plain loops.
std::vector<double> expected_weights(const Parameter& p, const MuonOptions& options) {
  std::vector<double> w = random_whole(p, 0), m(w.size(), 0), v(w.size(), 0);
  const bool matrix = p.role == ParameterRole::matrix || p.role == ParameterRole::residual_matrix;
  const double decayed = parallel::decays(p.role) ? 1 - rate * decay : 1;
  for (int step = 1; step <= 3; ++step) {
    const std::vector<double> g = random_whole(p, static_cast<std::uint64_t>(step));
    if (!matrix) {
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double scaled = g[i] * gradient_scale;
        m[i] = 0.9 * m[i] + 0.1 * scaled;
        v[i] = 0.999 * v[i] + 0.001 * scaled * scaled;
        w[i] = decayed * w[i] -
               rate * m[i] / (1 - std::pow(0.9, step)) / (std::sqrt(v[i] / (1 - std::pow(0.999, step))) + 1e-8);
      }
      continue;
    }
    std::vector<double> u(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double scaled = g[i] * gradient_scale;
      m[i] = beta * m[i] + (1 - beta) * scaled;
      u[i] = options.nesterov ? (1 - beta) * scaled + beta * m[i] : m[i];
    }
    const std::int64_t count = p.shape.rank() == 4 && options.split_qkv ? 3 : 1;
    const std::int64_t numel = p.shape.numel() / count, columns = p.shape.back(), rows = numel / columns;
    for (std::int64_t k = 0; k < count; ++k) {
      const Plain orthogonal = orthogonalised({rows, columns, {u.begin() + k * numel, u.begin() + (k + 1) * numel}});
      const double scale = options.scale == MuonScale::spectral ? std::sqrt(std::max(rows, columns))
                           : options.scale == MuonScale::unit_rms_norm
                               ? std::sqrt(static_cast<double>(rows) / static_cast<double>(columns))
                               : std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns)));
      for (std::int64_t i = 0; i < numel; ++i) {
        double& weight = w[static_cast<std::size_t>(k * numel + i)];
        weight = decayed * weight - rate * scale * options.extra_scale * orthogonal.values[static_cast<std::size_t>(i)];
      }
    }
  }
  return w;
}

/// Makes three updates of the layer on tensor x data ranks, and compares each rank's shard with plain loops.
void expect_whole_updates(int tensor_size, parallel::DataSharding sharding, const MuonOptions& options) {
  Communicator& world = test::world();
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  const int tensor_rank = world.rank() % tensor_size, data_rank = world.rank() / tensor_size;
  const std::unique_ptr<Communicator> tensor = world.split(data_rank, tensor_rank, "tensor");
  const std::unique_ptr<Communicator> data = world.split(tensor_rank, data_rank, "data");
  // Small buckets, whose bounds divide the matrices.
  ParameterBuffer buffer(*backend, DType::fp64, layer(tensor_rank, tensor_size),
                         {.sharding = sharding, .bucket_elements = 100}, {{data->size(), data->rank()}});
  for (const Parameter& p : buffer.parameters()) put(p, p.value, random_whole(p, 0));
  Muon muon(*backend, buffer, {{*data, *tensor, *tensor}}, decay, options, {});
  for (int step = 1; step <= 3; ++step) {
    for (const Parameter& p : buffer.parameters()) {
      put(p, p.gradient, random_whole(p, static_cast<std::uint64_t>(step)));
    }
    muon.step(rate, gradient_scale);
  }
  for (std::size_t i = 0; i < buffer.parameters().size(); ++i) {
    const Parameter& p = buffer.parameters()[i];
    const parallel::ShardRange own = buffer.shard_range(i);
    const std::vector<double> box = in_box(p, expected_weights(p, options));
    const std::vector<Optimizer::State> states = muon.state(i);
    const std::vector<double> actual = values_of(*backend, states[0].data);
    ASSERT_EQ(std::ssize(actual), own.count);
    for (std::int64_t k = 0; k < own.count; ++k) {
      EXPECT_NEAR(actual[static_cast<std::size_t>(k)], box[static_cast<std::size_t>(own.begin + k)], 1e-12)
          << p.name << " " << own.begin + k << ", TP " << tensor_size;
    }
    const bool matrix = p.role == ParameterRole::matrix || p.role == ParameterRole::residual_matrix;
    EXPECT_EQ(states.size(), matrix ? 2u : 3u);
    EXPECT_EQ(states[1].kind, matrix ? "muon_m" : "adamw_m");
  }
}

TEST(Muon, OrthogonalisesWholeMatricesOnEveryGrid) {
  for (int tensor = 1; tensor <= test::world().size(); tensor *= 2) {
    for (const auto sharding : {parallel::DataSharding::none, parallel::DataSharding::optimizer}) {
      expect_whole_updates(tensor, sharding, {.momentum = beta});
    }
  }
}

TEST(Muon, HasTheFormsOfMegatronLm) {
  const auto sharding = parallel::DataSharding::optimizer;
  expect_whole_updates(1, sharding, {.momentum = beta, .nesterov = true, .scale = MuonScale::unit_rms_norm});
  expect_whole_updates(test::world().size(), sharding,
                       {.momentum = beta, .scale = MuonScale::shape_scaling, .extra_scale = 0.2, .split_qkv = false});
}

TEST(PlacesByWork, GiveTheLargestJobsFirstToThePlaceWithTheLeast) {
  EXPECT_EQ(places_by_work(std::vector<double>{1, 3, 3, 2, 3}, 2), (std::vector{1, 0, 1, 1, 0}));
  EXPECT_EQ(places_by_work(std::vector<double>{2, 2, 2}, 4), (std::vector{0, 1, 2}));
  EXPECT_TRUE(places_by_work({}, 3).empty());
  // The layers of GPT-2 1.2B, in units of a square matrix: the busiest of 64 ranks has at most 7 of 400, of which the
  // mean is 6.25.
  std::vector<double> work;
  for (int layer = 0; layer < 40; ++layer) work.insert(work.end(), {3, 1, 3, 3});
  std::vector<double> sums(64);
  const std::vector<int> places = places_by_work(work, 64);
  for (std::size_t i = 0; i < work.size(); ++i) sums[static_cast<std::size_t>(places[i])] += work[i];
  EXPECT_EQ(std::ranges::max(sums), 7);
}

TEST(NewtonSchulz, MakesSingularValuesNearOne) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  for (const auto& [rows, columns] : {std::pair{6, 20}, {20, 6}, {7, 7}}) {
    for (const auto coefficients : {NewtonSchulzCoefficients::quintic, NewtonSchulzCoefficients::simple}) {
      const Shape shape{2, rows, columns};
      NewtonSchulz orthogonalise(*backend, DType::fp64, {&shape, 1}, {coefficients, 10});
      const Tensor x = random_tensor(*backend, DType::fp64, shape, 1);
      const Tensor second = random_tensor(*backend, DType::fp64, shape, 1);
      orthogonalise(x);
      // Each matrix of a batch by itself.
      const auto matrix = [&](const Tensor& batch, int i) {
        return batch.view().flat(i * rows * columns, rows * columns);
      };
      orthogonalise(matrix(second, 1).reshape({1, rows, columns}));
      EXPECT_EQ(values_of(*backend, matrix(x, 1)), values_of(*backend, matrix(second, 1)));
      const Plain result{rows, columns, values_of(*backend, matrix(x, 0))};
      const Plain gram = rows < columns ? product(result, transposed(result)) : product(transposed(result), result);
      // The trace is the sum of the squares of the singular values.
      double trace = 0;
      for (std::int64_t i = 0; i < gram.rows; ++i) trace += gram.at(i, i);
      EXPECT_NEAR(trace / static_cast<double>(gram.rows), 1, 0.3) << rows << " x " << columns;
    }
  }
}

TEST(NewtonSchulz, LeavesZerosZero) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  const Shape shape{1, 3, 4};
  NewtonSchulz orthogonalise(*backend, DType::fp32, {&shape, 1}, {});
  const Tensor x = make_tensor(*backend, DType::fp32, shape, std::vector<double>(12, 0));
  orthogonalise(x);
  EXPECT_EQ(values_of(*backend, x), std::vector<double>(12, 0));
}

TEST(MuonSettings, OutOfRangeAreRefused) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  ParameterBuffer buffer(*backend, DType::fp32, layer(0, 1));
  SelfCommunicator self;
  const auto make = [&](const MuonOptions& options) { Muon(*backend, buffer, {{self, self, self}}, 0, options, {}); };
  EXPECT_NO_THROW(make({}));
  EXPECT_THROW(make({.momentum = 1}), ConfigError);
  EXPECT_THROW(make({.newton_schulz = {.steps = 0}}), ConfigError);
  EXPECT_THROW(make({.extra_scale = 0}), ConfigError);
}

}  // namespace
}  // namespace trireme::optim
