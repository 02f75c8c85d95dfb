#include "src/backend/kernels/experts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/support/finite_difference.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme {
namespace {

using namespace test;
using Integers = std::vector<std::int32_t>;

/// Choices [n, k] of k different ones of `count` experts; with `gaps`, one in five is -1.
Integers random_choices(std::int64_t n, std::int64_t k, std::int64_t count, bool gaps) {
  std::mt19937_64 random(run_seed() + 4);
  Integers order(count), choices;
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t t = 0; t < n; ++t) {
    std::shuffle(order.begin(), order.end(), random);
    for (std::int64_t j = 0; j < k; ++j) choices.push_back(gaps && random() % 5 == 0 ? -1 : order[j]);
  }
  return choices;
}

/// Results of sort.
struct RowOrder {
  Integers rows_of_expert, row_of, slot_of, token_of;
  std::int64_t count() const { return std::accumulate(rows_of_expert.begin(), rows_of_expert.end(), std::int64_t{0}); }
};

RowOrder sorted_rows(Backend& b, const Integers& choices, std::int64_t k, std::int64_t first, std::int64_t here,
                     std::int64_t room = 0) {
  const std::int64_t size = std::ssize(choices), rows = room > 0 ? here * room : size;
  const Tensor experts = make_tensor(b, {size / k, k}, choices), row_of = poisoned_integers(b, {size / k, k});
  const Tensor rows_of_expert = poisoned_integers(b, {here});
  const Tensor slot_of = poisoned_integers(b, {rows}), token_of = poisoned_integers(b, {rows});
  b.experts().sort(b.compute_stream(), experts, first, room, rows_of_expert, row_of, slot_of, token_of);
  return {integers_of(b, rows_of_expert), integers_of(b, row_of), integers_of(b, slot_of), integers_of(b, token_of)};
}

TEST(ExpertRows, AreInTheOrderOfExpertsThenTokens) {
  const auto backend = test::make_backend(2);
  const Integers choices{1, 0, 2, 1, -1, 1, 0, 3};
  const RowOrder rows = sorted_rows(*backend, choices, 2, 1, 2);
  EXPECT_EQ(rows.rows_of_expert, (Integers{3, 1}));
  EXPECT_EQ(rows.row_of, (Integers{0, -1, 3, 1, -1, 2, -1, -1}));
  EXPECT_EQ(rows.slot_of, (Integers{0, 3, 5, 2, -1, -1, -1, -1}));
  EXPECT_EQ(rows.token_of, (Integers{0, 1, 2, 1, -1, -1, -1, -1}));
}

TEST(ExpertRows, BeginAtTheRoomOfTheirExpert) {
  const auto backend = test::make_backend(2);
  const Integers choices{1, 0, 2, 1, -1, 1, 0, 3};
  const RowOrder rows = sorted_rows(*backend, choices, 2, 1, 2, 4);
  EXPECT_EQ(rows.rows_of_expert, (Integers{3, 1}));
  EXPECT_EQ(rows.row_of, (Integers{0, -1, 4, 1, -1, 2, -1, -1}));
  EXPECT_EQ(rows.slot_of, (Integers{0, 3, 5, -1, 2, -1, -1, -1}));
  EXPECT_EQ(rows.token_of, (Integers{0, 1, 2, -1, 1, -1, -1, -1}));
  // More rows than choices, and fewer.
  for (const std::int64_t room : {1025, 700}) {
    const Integers many = random_choices(1025, 2, 3, true);
    Integers kept = many;
    for (const std::int32_t e : {0, 1, 2}) {
      std::int64_t taken = 0;
      for (std::int32_t& choice : kept) {
        if (choice == e && ++taken > room) choice = -1;
      }
    }
    const RowOrder dense = sorted_rows(*backend, kept, 2, 0, 3), padded = sorted_rows(*backend, kept, 2, 0, 3, room);
    Integers slots(static_cast<std::size_t>(3 * room), -1);
    std::int64_t r = 0;
    for (std::int64_t e = 0; e < 3; ++e) {
      for (std::int64_t i = 0; i < dense.rows_of_expert[e]; ++i) slots[e * room + i] = dense.slot_of[r++];
    }
    EXPECT_EQ(padded.slot_of, slots);
  }
}

TEST(ExpertRows, MatchTheDefinition) {
  const auto backend = test::make_backend(2);
  struct Sizes {
    std::int64_t n, k, count, first, here;
  };
  for (const auto& [n, k, count, first, here] : std::vector<Sizes>{{0, 2, 4, 0, 4},
                                                                   {1, 1, 1, 0, 1},
                                                                   {33, 8, 8, 0, 8},
                                                                   {33, 3, 512, 256, 256},
                                                                   {1025, 6, 64, 0, 64},
                                                                   {1025, 2, 8, 6, 2},
                                                                   {1025, 1, 40, 39, 1},
                                                                   {4200, 2, 5, 1, 3}}) {
    for (const bool gaps : {false, true}) {
      const Integers choices = random_choices(n, k, count, gaps);
      RowOrder expected{Integers(here, 0), Integers(n * k, -1), {}, {}};
      for (std::int64_t e = first; e < first + here; ++e) {
        for (std::int64_t i = 0; i < n * k; ++i) {
          if (choices[i] != e) continue;
          ++expected.rows_of_expert[e - first];
          expected.row_of[i] = static_cast<std::int32_t>(expected.slot_of.size());
          expected.slot_of.push_back(static_cast<std::int32_t>(i));
          expected.token_of.push_back(static_cast<std::int32_t>(i / k));
        }
      }
      expected.slot_of.resize(n * k, -1);
      expected.token_of.resize(n * k, -1);
      const RowOrder actual = sorted_rows(*backend, choices, k, first, here);
      const std::string name = fmt::format("{} tokens, {} of {} experts, gaps {}", n, k, count, gaps);
      EXPECT_EQ(actual.rows_of_expert, expected.rows_of_expert) << name;
      EXPECT_EQ(actual.row_of, expected.row_of) << name;
      EXPECT_EQ(actual.slot_of, expected.slot_of) << name;
      EXPECT_EQ(actual.token_of, expected.token_of) << name;
    }
  }
}

TEST(ExpertRows, RefuseShapesThatDoNotFit) {
  const auto backend = test::make_backend(1);
  const auto integers = [&](const Shape& shape) { return poisoned_integers(*backend, shape); };
  const auto sort = [&](std::int64_t first, std::int64_t here, const Shape& row_of, std::int64_t rows) {
    const Tensor experts = make_tensor(*backend, {2, 2}, Integers{0, 1, 1, 0});
    backend->experts().sort(backend->compute_stream(), experts, first, 0, integers({here}), integers(row_of),
                            integers({rows}), integers({rows}));
  };
  EXPECT_NO_THROW(sort(0, 2, {2, 2}, 4));
  EXPECT_THROW(sort(0, 0, {2, 2}, 4), ShapeError);
  EXPECT_THROW(sort(-1, 2, {2, 2}, 4), ShapeError);
  EXPECT_THROW(sort(max_routed_experts - 1, 2, {2, 2}, 4), ShapeError);
  EXPECT_THROW(sort(0, 2, {2, 1}, 4), ShapeError);
  EXPECT_THROW(sort(0, 2, {2, 2}, 3), ShapeError);
}

class Experts : public KernelTest {
 protected:
  Integers limited(const Integers& choices, const std::vector<double>& weights, std::int64_t k, std::int64_t count,
                   std::int64_t capacity, bool by_position) {
    const Shape shape{std::ssize(choices) / k, k};
    const Tensor kept = poisoned_integers(b(), shape);
    b().experts().limit_load(stream(), make_tensor(b(), shape, choices),
                             make_tensor(b(), accumulation(), shape, weights), count, capacity, by_position, kept);
    return integers_of(b(), kept);
  }
};
INSTANTIATE_TEST_SUITE_P(Types, Experts, testing::ValuesIn(test::kernel_types()), name_of_type);

TEST_P(Experts, KeepTheLargestWeightsOrTheFirstTokens) {
  const Integers choices{0, 1, 0, 2, 1, 0, 0, 2, 0, 1};
  const std::vector<double> weights{0.25, 0.5, 0.5, 0.75, 0.25, 0.5, 0.5, 1, 0.75, 0.25};
  EXPECT_EQ(limited(choices, weights, 2, 3, 2, false), (Integers{-1, 1, 0, 2, 1, -1, -1, 2, 0, -1}));
  EXPECT_EQ(limited(choices, weights, 2, 3, 2, true), (Integers{0, 1, 0, 2, 1, -1, -1, 2, -1, -1}));
  EXPECT_EQ(limited(choices, weights, 2, 3, 0, false), Integers(10, -1));
  EXPECT_EQ(limited(choices, weights, 2, 3, 6, false), choices);
}

TEST_P(Experts, LimitLoadMatchesTheDefinition) {
  struct Sizes {
    std::int64_t n, k, count;
  };
  for (const auto& [n, k, count] : std::vector<Sizes>{{0, 2, 4}, {1, 1, 3}, {33, 5, 9}, {270, 4, 5}, {20, 4, 30}}) {
    const Integers choices = random_choices(n, k, count, false);
    std::vector<double> weights = random_values(n * k, 5, 0, 1);
    for (double& weight : weights) weight = std::round(16 * weight) / 16;  // many are equal
    std::vector<double> rounded_otherwise = weights;
    const std::vector<double> errors = random_values(n * k, 6, -1e-6, 1e-6);
    for (std::size_t i = 0; i < errors.size(); ++i) rounded_otherwise[i] *= 1 + errors[i];
    const std::int64_t share = n * k / count;
    for (const std::int64_t capacity : {std::int64_t{0}, share, n + 5}) {
      if (n > 100 && capacity != share) continue;
      for (const bool by_position : {false, true}) {
        Integers expected = choices;
        for (std::int64_t i = 0; i < n * k; ++i) {
          std::int64_t before = 0;
          for (std::int64_t j = 0; j < n * k; ++j) {
            if (choices[j] != choices[i]) continue;
            const bool is_larger = !by_position && weights[j] > weights[i];
            before += is_larger || (j < i && (by_position || weights[j] == weights[i]));
          }
          if (before >= capacity) expected[i] = -1;
        }
        EXPECT_EQ(limited(choices, rounded_otherwise, k, count, capacity, by_position), expected)
            << n << " tokens, " << count << " experts, capacity " << capacity << ", by position " << by_position;
      }
    }
  }
}

TEST_P(Experts, SumRowsAddsTheRowsOfEachToken) {
  const Tensor y = make_tensor(b(), dtype(), {3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor row_of = make_tensor(b(), {4, 2}, Integers{2, 0, -1, -1, -1, 1, 0, 1});
  const Tensor x = poisoned_tensor(b(), dtype(), {4, 2});
  b().experts().sum_rows(stream(), y, row_of, x);
  EXPECT_EQ(values_of(b(), x), (std::vector<double>{6, 8, 0, 0, 3, 4, 4, 6}));
}

TEST_P(Experts, SumRowsMatchesTheDefinition) {
  struct Sizes {
    std::int64_t n, k, h;
  };
  for (const auto& [n, k, h] :
       std::vector<Sizes>{{0, 2, 8}, {1, 8, 1}, {33, 3, 33}, {33, 8, 130}, {40, 1, 1024}, {1025, 2, 24}}) {
    const RowOrder rows = sorted_rows(b(), random_choices(n, k, 16, true), k, 4, 8);
    const Tensor y = random_tensor(b(), dtype(), {rows.count(), h}, 1), x = poisoned_tensor(b(), dtype(), {n, h});
    b().experts().sum_rows(stream(), y, make_tensor(b(), {n, k}, rows.row_of), x);
    const std::vector<double> terms = values_of(b(), y);
    std::vector<double> expected(n * h, 0);
    for (std::int64_t r = 0; r < rows.count(); ++r) {
      for (std::int64_t c = 0; c < h; ++c) expected[rows.token_of[r] * h + c] += terms[r * h + c];
    }
    expect_close(values_of(b(), x), expected, tolerance(dtype(), Operation::sum), "x");
  }
}

TEST_P(Experts, ScaleRowsAndItsBackwardMatchTheDefinition) {
  struct Sizes {
    std::int64_t n, k, f;
  };
  for (const auto& [n, k, f] :
       std::vector<Sizes>{{0, 2, 8}, {1, 8, 1}, {33, 3, 33}, {33, 8, 130}, {40, 1, 1024}, {1025, 2, 24}}) {
    const RowOrder rows = sorted_rows(b(), random_choices(n, k, 16, false), k, 4, 8);
    const std::int64_t count = rows.count();
    const Shape shape{count, f};
    const Tensor slots = make_tensor(b(), {n * k}, rows.slot_of);
    const Tensor weights = random_tensor(b(), accumulation(), {n, k}, 1);
    const Tensor x = random_tensor(b(), dtype(), shape, 2), dy = random_tensor(b(), dtype(), shape, 3);
    const Tensor y = poisoned_tensor(b(), dtype(), shape), dx = poisoned_tensor(b(), dtype(), shape);
    const Tensor dweights = random_tensor(b(), accumulation(), {n, k}, 4);
    const std::vector<double> w = values_of(b(), weights), inputs = values_of(b(), x), gradients = values_of(b(), dy);
    std::vector<double> expected_y, expected_dx, expected_dweights = values_of(b(), dweights);
    for (std::int64_t r = 0; r < count; ++r) expected_dweights[rows.slot_of[r]] = 0;
    for (std::int64_t i = 0; i < count * f; ++i) {
      const std::int32_t slot = rows.slot_of[i / f];
      expected_y.push_back(w[slot] * inputs[i]);
      expected_dx.push_back(w[slot] * gradients[i]);
      expected_dweights[slot] += gradients[i] * inputs[i];
    }
    const Tolerance close = tolerance(dtype(), Operation::elementwise);
    ExpertKernels& kernels = b().experts();
    kernels.scale_rows(stream(), x, weights, slots, y);
    expect_close(values_of(b(), y), expected_y, close, "y");
    kernels.scale_rows_backward(stream(), dy, x, weights, slots, dx, dweights);
    expect_close(values_of(b(), dx), expected_dx, close, "dx");
    expect_close(values_of(b(), dweights), expected_dweights, tolerance(accumulation(), Operation::sum), "dweights");

    const std::vector<double> dweights_apart = values_of(b(), dweights);
    kernels.scale_rows_backward(stream(), dy, x, weights, slots, dy, dweights);
    EXPECT_EQ(values_of(b(), dy), values_of(b(), dx)) << "in place";
    EXPECT_EQ(values_of(b(), dweights), dweights_apart) << "in place";
    kernels.scale_rows(stream(), x, weights, slots, x);
    EXPECT_EQ(values_of(b(), x), values_of(b(), y)) << "in place";
  }
}

TEST_P(Experts, RowsWithoutATokenAreZero) {
  const Tensor slots = make_tensor(b(), {3}, Integers{1, -1, 0}),
               weights = random_tensor(b(), accumulation(), {2, 1}, 1);
  const Tensor x = random_tensor(b(), dtype(), {3, 40}, 2), y = poisoned_tensor(b(), dtype(), {3, 40});
  const Tensor dweights = random_tensor(b(), accumulation(), {2, 1}, 3);
  b().experts().scale_rows(stream(), x, weights, slots, y);
  b().experts().scale_rows_backward(stream(), x, x, weights, slots, x, dweights);
  for (const Tensor* result : {&y, &x}) {
    const std::vector<double> values = values_of(b(), *result);
    EXPECT_EQ(std::vector<double>(values.begin() + 40, values.begin() + 80), std::vector<double>(40, 0));
    EXPECT_NE(values[0], 0);
    EXPECT_NE(values[80], 0);
  }
}

TEST_P(Experts, LoadsAddUp) {
  const auto wide = [&](const Shape& shape, const std::vector<double>& values) {
    return make_tensor(b(), accumulation(), shape, values);
  };
  const Tensor chosen = make_tensor(b(), {3, 2}, Integers{2, 0, 0, 1, 2, 0});
  const Tensor kept = make_tensor(b(), {3, 2}, Integers{2, 0, -1, 1, -1, 0});
  const Tensor load = wide({9}, {1, 0, 0, 0, 0, 0, 1, 2, 3});
  b().experts().add_load(stream(), 3, chosen, kept, wide({2, 3}, {1, 2, 3, 4, 5, 6}), wide({2, 3}, {1, 0, 2, 0, 1, 0}),
                         0.5, wide({2}, {8, 4}), 0.25, load);
  EXPECT_EQ(values_of(b(), load), (std::vector<double>{4, 1, 2, 2, 1, 1, 7, 4, 4}));
  b().experts().add_load(stream(), 3, chosen, chosen, {}, {}, 0.5, wide({2}, {8, 4}), 0.25, load);
  EXPECT_EQ(values_of(b(), load), (std::vector<double>{7, 2, 4, 5, 2, 3, 7, 6, 5}));
}

// Noise by the rule of RouterJitter, element by element, of two pieces of a sequence.
TEST_P(Experts, JitterMultipliesByTheNoiseOfEachElement) {
  const std::int64_t s = 6, batch = 3;
  const std::vector<std::int64_t> samples = {7, std::int64_t{1} << 33, 0};
  const Tensor numbers(b(), DType::int64, {batch});
  b().copy_from_host(stream(), ConstTensorView(samples.data(), {batch}), numbers);
  RouterJitter noise{0.25, Dropout(0, 1234, 5, DropoutSite::router_input, numbers.view().as<std::int64_t>())};
  noise.random.positions = {2, 4, 20};
  for (const std::int64_t h : {1, 33, 64}) {
    const Shape shape{s, batch, h};
    const Tensor x = random_tensor(b(), dtype(), shape, 1), y = poisoned_tensor(b(), dtype(), shape);
    std::vector<double> expected = values_of(b(), x);
    for (std::int64_t i = 0; i < s * batch * h; ++i) {
      const std::int64_t channel = i % h, position = noise.random.positions[i / h / batch];
      const auto words =
          Dropout::words(noise.random.key, samples[static_cast<std::size_t>(i / h % batch)], position, channel / 8);
      const double random = Dropout::bits_of_column(words, channel);
      expected[static_cast<std::size_t>(i)] *= 0.75 + 0.5 * (random + 0.5) / 65536;
    }
    b().experts().jitter(stream(), noise, x, y);
    expect_close(values_of(b(), y), expected, tolerance(dtype(), Operation::elementwise), "y");
    b().experts().jitter(stream(), noise, x, x);
    EXPECT_EQ(values_of(b(), x), values_of(b(), y)) << "in place";
  }
}

TEST_P(Experts, AnyNumberOfThreadsGivesTheSameBits) {
  const std::int64_t n = 200, k = 4, f = 300;
  std::vector<std::vector<std::vector<double>>> results;
  for (const int threads : {1, 2, 3}) {
    const auto backend = test::make_backend(threads);
    const RowOrder rows = sorted_rows(*backend, random_choices(n, k, 16, false), k, 0, 16);
    const Tensor y = random_tensor(*backend, dtype(), {n * k, f}, 1), x = poisoned_tensor(*backend, dtype(), {n, f});
    const Tensor weights = random_tensor(*backend, accumulation(), {n, k}, 2);
    const Tensor dweights = poisoned_tensor(*backend, accumulation(), {n, k});
    ExpertKernels& kernels = backend->experts();
    kernels.sum_rows(backend->compute_stream(), y, make_tensor(*backend, {n, k}, rows.row_of), x);
    kernels.scale_rows_backward(backend->compute_stream(), y, y, weights, make_tensor(*backend, {n * k}, rows.slot_of),
                                y, dweights);
    results.push_back({values_of(*backend, x), values_of(*backend, y), values_of(*backend, dweights)});
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(ScaleRows, BackwardMatchesFiniteDifference) {
  TRIREME_NEEDS_FP64_KERNELS();
  const auto backend = test::make_backend(1);
  Backend& b = *backend;
  const Shape shape{6, 3}, choices{3, 2};
  const Tensor slots = make_tensor(b, {6}, Integers{3, 0, 5, 1, 4, 2});
  std::vector<double> x = random_values(18, 1), weights = random_values(6, 2);
  const std::vector<double> dy = random_values(18, 3);
  const Tensor dx = poisoned_tensor(b, DType::fp64, shape), dweights = poisoned_tensor(b, DType::fp64, choices);
  const auto tensor = [&](const Shape& of, const std::vector<double>& values) {
    return make_tensor(b, DType::fp64, of, values);
  };
  b.experts().scale_rows_backward(b.compute_stream(), tensor(shape, dy), tensor(shape, x), tensor(choices, weights),
                                  slots, dx, dweights);
  const auto loss = [&] {
    const Tensor y = poisoned_tensor(b, DType::fp64, shape);
    b.experts().scale_rows(b.compute_stream(), tensor(shape, x), tensor(choices, weights), slots, y);
    const std::vector<double> values = values_of(b, y);
    return std::inner_product(values.begin(), values.end(), dy.begin(), 0.0);
  };
  expect_derivative(x, values_of(b, dx), loss, "dx");
  expect_derivative(weights, values_of(b, dweights), loss, "dweights");
}

}  // namespace
}  // namespace trireme
