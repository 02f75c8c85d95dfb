// Time to lay out the sample order of a large run, and to find one sample in it. With files, also the speed of the
// tokenizers on these texts, in bytes of text a second on one core.
//   data_bench [--benchmark_...] [ENCODER_JSON VOCAB_BPE TEXT... | TOKENIZER_JSON - TEXT... | VOCAB_TXT wordpiece
//   TEXT...]
// `--benchmark_repetitions=9 --benchmark_report_aggregates_only` gives medians and their spread.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/huggingface/tokenizer_json.hpp"
#include "io/tokenizer/tokenizer_files.hpp"
#include "src/base/hash.hpp"
#include "src/data/dataset/gpt_index.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "tests/support/gpt2_files.hpp"

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

void build_index(benchmark::State& state) {
  const auto offsets = offsets_of(state.range(0));
  for (auto _ : state) {
    const GptIndex index({offsets, 0, state.range(0), 0, offsets.back()}, sequence_length, state.range(1), 1234);
    benchmark::DoNotOptimize(index.size());
  }
  state.counters["samples/s"] =
      benchmark::Counter(static_cast<double>(state.range(1) * state.iterations()), benchmark::Counter::kIsRate);
}

void find_sample(benchmark::State& state) {
  const auto offsets = offsets_of(state.range(0));
  const GptIndex index({offsets, 0, state.range(0), 0, offsets.back()}, sequence_length, state.range(1), 1234);
  std::int64_t sample = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(index.position(index.shuffled(sample)));
    sample = sample + 1 < index.size() ? sample + 1 : 0;
  }
}

BENCHMARK(build_index)
    ->ArgNames({"documents", "samples"})
    ->Args({8'000'000, 10'000'000})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(find_sample)->ArgNames({"documents", "samples"})->Args({8'000'000, 10'000'000});

using Make = std::function<std::unique_ptr<const Tokenizer>()>;

/// The first call of a tokenizer, whose caches are empty.
void encode_first(benchmark::State& state, const Make& make, const std::string& text) {
  std::size_t tokens = 0;
  for (auto _ : state) {
    state.PauseTiming();
    std::unique_ptr<const Tokenizer> tokenizer = make();
    state.ResumeTiming();
    std::vector<std::int32_t> ids;
    tokenizer->encode(text, ids);
    tokens = ids.size();
    state.PauseTiming();
    tokenizer.reset();
    state.ResumeTiming();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(text.size()) * state.iterations());
  state.counters["tokens"] = static_cast<double>(tokens);
}

void encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::int32_t> ids;
  for (auto _ : state) {
    ids.clear();
    tokenizer.encode(text, ids);
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(text.size()) * state.iterations());
  state.counters["tokens"] = static_cast<double>(ids.size());
}

void decode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, ids);
  std::string bytes;
  for (auto _ : state) {
    bytes.clear();
    tokenizer.decode(ids, bytes);
    benchmark::DoNotOptimize(bytes.data());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(text.size()) * state.iterations());
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc == 2 || argc == 3) {
    std::fprintf(stderr,
                 "usage: data_bench [ENCODER_JSON VOCAB_BPE TEXT... | TOKENIZER_JSON - TEXT... | VOCAB_TXT wordpiece "
                 "TEXT...]\n");
    return 2;
  }
  Make make;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::vector<std::unique_ptr<std::string>> texts;
  const auto add = [&](const std::string& name, const std::string& text) {
    texts.push_back(std::make_unique<std::string>(text));
    benchmark::RegisterBenchmark(("first/" + name).c_str(), encode_first, std::cref(make), std::cref(*texts.back()));
    benchmark::RegisterBenchmark(("encode/" + name).c_str(), encode, std::cref(*tokenizer), std::cref(*texts.back()));
    benchmark::RegisterBenchmark(("decode/" + name).c_str(), decode, std::cref(*tokenizer), std::cref(*texts.back()));
  };
  if (argc > 3) {
    const std::string second = argv[2];
    const bool is_gpt2 = second != "-" && second != "wordpiece";
    if (is_gpt2) {
      make = [vocabulary = test::read_gpt2_files(argv[1], argv[2])] { return make_gpt2_tokenizer(vocabulary); };
    } else if (second == "-") {
      make = [path = argv[1]] { return io::read_tokenizer_json(path, ""); };
    } else {
      make = [vocabulary = io::read_wordpiece_file(argv[1])] { return make_wordpiece_tokenizer(vocabulary); };
    }
    tokenizer = make();
    for (int i = 3; i < argc; ++i) {
      const std::string path = argv[i];
      add(path.substr(path.find_last_of('/') + 1), test::read_file(path));
    }
    add("one_letter_1_MB", std::string(1 << 20, 'a'));
    if (is_gpt2)
      benchmark::RegisterBenchmark("gpt2/make", [&](benchmark::State& state) {
        for (auto _ : state) benchmark::DoNotOptimize(make());
      });
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace trireme::data

int main(int argc, char** argv) { return trireme::data::run(argc, argv); }
