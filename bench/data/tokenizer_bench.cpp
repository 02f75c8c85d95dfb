// Speed of the tokenizers on given texts, in bytes of text a second on one core.
//   tokenizer_bench [--benchmark_...] ENCODER_JSON VOCAB_BPE TEXT...
// `--benchmark_repetitions=9 --benchmark_report_aggregates_only` gives medians and their spread.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "src/data/tokenizer/tokenizer.hpp"
#include "tests/support/gpt2_files.hpp"

namespace trireme::data {
namespace {

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
  if (argc < 4) {
    std::fprintf(stderr, "usage: tokenizer_bench ENCODER_JSON VOCAB_BPE TEXT...\n");
    return 2;
  }
  const auto gpt2 = make_gpt2_tokenizer(test::read_gpt2_files(argv[1], argv[2]));
  std::vector<std::unique_ptr<std::string>> texts;
  const auto add = [&](const std::string& name, const std::string& text) {
    texts.push_back(std::make_unique<std::string>(text));
    benchmark::RegisterBenchmark(("gpt2/encode/" + name).c_str(), encode, std::cref(*gpt2), std::cref(*texts.back()));
    benchmark::RegisterBenchmark(("gpt2/decode/" + name).c_str(), decode, std::cref(*gpt2), std::cref(*texts.back()));
  };
  for (int i = 3; i < argc; ++i) {
    const std::string path = argv[i];
    add(path.substr(path.find_last_of('/') + 1), test::read_file(path));
  }
  add("one_letter_1_MB", std::string(1 << 20, 'a'));
  benchmark::RegisterBenchmark("gpt2/make", [&](benchmark::State& state) {
    const auto vocabulary = test::read_gpt2_files(argv[1], argv[2]);
    for (auto _ : state) benchmark::DoNotOptimize(make_gpt2_tokenizer(vocabulary));
  });
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace trireme::data

int main(int argc, char** argv) { return trireme::data::run(argc, argv); }
