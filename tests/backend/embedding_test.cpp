#include "src/backend/kernels/embedding.hpp"

#include <gtest/gtest.h>

#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme {
namespace {

using namespace test;

const std::vector<std::int64_t> sample_numbers = {7, (std::int64_t{3} << 32) + 5, 12};

/// n token numbers in [0, vocabulary), small ones the most frequent, as in text.
std::vector<std::int32_t> random_ids(std::int64_t n, std::int64_t vocabulary) {
  std::vector<std::int32_t> ids;
  for (const double u : random_values(n, 9, 0, 1)) ids.push_back(static_cast<std::int32_t>(u * u * u * vocabulary));
  return ids;
}

class Embedding : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, Embedding, testing::ValuesIn(test::kernel_types()), name_of_type);

TEST_P(Embedding, LookupCopiesOwnRowsAndZeroesOthers) {
  const Tensor table = make_tensor(b(), dtype(), {2, 3}, {1, 2, 3, 4, 5, 6});  // rows 10 and 11
  const Tensor ids = make_tensor(b(), {4}, std::vector<std::int32_t>{11, 9, 10, 12});
  const Tensor y = poisoned_tensor(b(), dtype(), {4, 3});
  b().embedding().lookup(stream(), ids, table, 10, y);
  EXPECT_EQ(values_of(b(), y), (std::vector<double>{4, 5, 6, 0, 0, 0, 1, 2, 3, 0, 0, 0}));
}

TEST_P(Embedding, LookupBackwardAddsToOwnRows) {
  const Tensor dtable = make_tensor(b(), accumulation(), {2, 2}, {100, 200, 300, 400});  // rows 10 and 11
  const Tensor ids = make_tensor(b(), {4}, std::vector<std::int32_t>{11, 9, 11, 12});
  const Tensor dy = make_tensor(b(), dtype(), {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  b().embedding().lookup_backward(stream(), ids, dy, 10, dtable);
  EXPECT_EQ(values_of(b(), dtable), (std::vector<double>{100, 200, 306, 408}));
}

TEST_P(Embedding, LookupAndItsBackwardMatchTheDefinition) {
  for (const std::int64_t n : {0, 1, 31, 33, 1025}) {
    for (const std::int64_t h : {1, 33, 130}) {
      const std::int64_t rows = 50, first_row = 5;
      const std::vector<std::int32_t> id = random_ids(n, 60);
      const Tensor ids = make_tensor(b(), {n}, id);
      const Tensor table = random_tensor(b(), dtype(), {rows, h}, 1), dy = random_tensor(b(), dtype(), {n, h}, 2);
      const Tensor y = poisoned_tensor(b(), dtype(), {n, h});
      const Tensor dtable = random_tensor(b(), accumulation(), {rows, h}, 3);
      const std::vector<double> table_values = values_of(b(), table), dy_values = values_of(b(), dy);
      std::vector<double> expected_y(n * h, 0), expected_dtable = values_of(b(), dtable);
      for (std::int64_t i = 0; i < n * h; ++i) {
        const std::int64_t row = id[i / h] - first_row;
        if (row < 0 || row >= rows) continue;
        expected_y[i] = table_values[row * h + i % h];
        expected_dtable[row * h + i % h] += dy_values[i];
      }
      b().embedding().lookup(stream(), ids, table, first_row, y);
      b().embedding().lookup_backward(stream(), ids, dy, first_row, dtable);
      EXPECT_EQ(values_of(b(), y), expected_y);
      expect_close(values_of(b(), dtable), expected_dtable, tolerance(accumulation(), Operation::sum), "dtable");
    }
  }
}

// More tokens than a kernel handles at once, a third of them the same, as padding is.
TEST_P(Embedding, LookupBackwardAddsInTheOrderOfTheTokens) {
  const std::int64_t n = 4200, h = 9, rows = 300, first_row = 20;
  std::vector<std::int32_t> id = random_ids(n, 400);
  for (std::int64_t i = 0; i < n; i += 3) id[i] = 50;
  id[7] = -1;
  const Tensor dy = random_tensor(b(), dtype(), {n, h}, 2), dtable = random_tensor(b(), accumulation(), {rows, h}, 3);
  std::vector<double> expected = values_of(b(), dtable);
  const std::vector<double> dy_values = values_of(b(), dy);
  for (std::int64_t i = 0; i < n * h; ++i) {
    const std::int64_t row = id[i / h] - first_row;
    if (row < 0 || row >= rows) continue;
    double& to = expected[row * h + i % h];
    to += dy_values[i];
    if (accumulation() == DType::fp32) to = static_cast<float>(to);  // rounds as an addition in fp32
  }
  b().embedding().lookup_backward(stream(), make_tensor(b(), {n}, id), dy, first_row, dtable);
  EXPECT_EQ(values_of(b(), dtable), expected);
}

TEST_P(Embedding, AnyNumberOfThreadsGivesTheSameBits) {
  const std::int64_t n = 500, h = 300;
  std::vector<std::vector<double>> results;
  for (const int threads : {1, 2, 3}) {
    const auto backend = test::make_backend(threads);
    const Tensor ids = make_tensor(*backend, {n}, random_ids(n, 20));
    const Tensor dy = random_tensor(*backend, dtype(), {n, h}, 2);
    const Tensor dtable = random_tensor(*backend, accumulation(), {20, h}, 3);
    backend->embedding().lookup_backward(backend->compute_stream(), ids, dy, 0, dtable);
    results.push_back(values_of(*backend, dtable));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST_P(Embedding, PositionsAndTheirGradientsMatchTheDefinition) {
  const std::int64_t batch = 3, max_positions = 50;
  const Positions positions{4, 20, 30};  // in two pieces
  const Tensor samples = samples_tensor(b(), sample_numbers);
  for (const double probability : {0.0, 0.3}) {
    const Dropout dropout(probability, 1234, 0, DropoutSite::embedding, samples.view().as<std::int64_t>());
    for (const std::int64_t s : {0, 1, 31, 33}) {
      for (const std::int64_t h : {1, 65, 200}) {
        for (const bool learned : {true, false}) {  // without a table only dropout is left
          const Shape shape{s, batch, h};
          const Tensor table = random_tensor(b(), dtype(), {max_positions, h}, 1),
                       x = random_tensor(b(), dtype(), shape, 2);
          const Tensor dy = random_tensor(b(), dtype(), shape, 3), dx = poisoned_tensor(b(), dtype(), shape);
          const Tensor dtable = random_tensor(b(), accumulation(), {max_positions, h}, 4);
          const std::vector<double> table_values = values_of(b(), table), dy_values = values_of(b(), dy);
          std::vector<double> expected_x = values_of(b(), x), expected_dx(dy_values.size());
          std::vector<double> expected_dtable = values_of(b(), dtable);
          std::int64_t kept = 0;
          for (std::int64_t i = 0; i < s * batch * h; ++i) {
            const std::int64_t channel = i % h, sample = i / h % batch, position = positions[i / h / batch];
            const bool keep =
                !dropout.enabled() || dropout.keeps(dropout.key, sample_numbers[sample], position, channel);
            const double factor = keep ? static_cast<double>(dropout.scale) : 0;
            kept += keep;
            expected_x[i] = (expected_x[i] + (learned ? table_values[position * h + channel] : 0)) * factor;
            expected_dx[i] = dy_values[i] * factor;
            if (learned) expected_dtable[position * h + channel] += expected_dx[i];
          }
          const TensorView values = learned ? table.view() : TensorView();
          const TensorView gradient = learned ? dtable.view() : TensorView();
          b().embedding().add_positions(stream(), values, positions, dropout, x);
          b().embedding().add_positions_backward(stream(), dy, positions, dropout, dx, gradient);
          const Tolerance close = tolerance(dtype(), Operation::elementwise);
          expect_close(values_of(b(), x), expected_x, close, "x");
          expect_close(values_of(b(), dx), expected_dx, close, "dx");
          expect_close(values_of(b(), dtable), expected_dtable, tolerance(accumulation(), Operation::sum),
                       "dpositions");
          b().embedding().add_positions_backward(stream(), dy, positions, dropout, dy, gradient);
          EXPECT_EQ(values_of(b(), dy), values_of(b(), dx)) << "in place";

          const double n = static_cast<double>(s * batch * h);
          EXPECT_NEAR(static_cast<double>(kept), n * (1 - probability),
                      5 * std::sqrt(n * probability * (1 - probability)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme
