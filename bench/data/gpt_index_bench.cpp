// Time to lay out the sample order of a large run, and to find one sample in it.
#include <benchmark/benchmark.h>

#include <numeric>
#include <vector>

#include "src/base/hash.hpp"
#include "src/data/dataset/gpt_index.hpp"

namespace trireme::data {
namespace {

constexpr std::int64_t sequence_length = 1024;

/// Offsets of documents of 1 to 2000 tokens: 1000 on average, as OpenWebText's.
std::vector<std::int64_t> offsets_of(std::int64_t documents) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(documents) + 1);
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    offsets[i] = offsets[i - 1] + 1 + static_cast<std::int64_t>(splitmix64(1, i) % 2000);
  }
  return offsets;
}

void build(benchmark::State& state) {
  const auto offsets = offsets_of(state.range(0));
  for (auto _ : state) {
    const GptIndex index({offsets, 0, state.range(0), 0, offsets.back()}, sequence_length, state.range(1), 1234);
    benchmark::DoNotOptimize(index.size());
  }
  state.counters["samples/s"] =
      benchmark::Counter(static_cast<double>(state.range(1) * state.iterations()), benchmark::Counter::kIsRate);
}

void find(benchmark::State& state) {
  const auto offsets = offsets_of(state.range(0));
  const GptIndex index({offsets, 0, state.range(0), 0, offsets.back()}, sequence_length, state.range(1), 1234);
  std::int64_t sample = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(index.position(index.shuffled(sample)));
    sample = sample + 1 < index.size() ? sample + 1 : 0;
  }
}

BENCHMARK(build)->ArgNames({"documents", "samples"})->Args({8'000'000, 10'000'000})->Unit(benchmark::kMillisecond);
BENCHMARK(find)->ArgNames({"documents", "samples"})->Args({8'000'000, 10'000'000});

}  // namespace
}  // namespace trireme::data

BENCHMARK_MAIN();
