#include "src/train/perplexity.hpp"

#include <algorithm>
#include <cmath>

#include "src/train/batch_loader.hpp"

namespace trireme::train {
namespace {

/// Window i holds the tokens [i s, i s + s + 1) of a corpus; what lies behind its end is -1, which no loss counts.
class Windows final : public data::SampleSource {
 public:
  Windows(const data::TokenStore& store, std::int64_t vocabulary, std::int64_t s)
      : store_(store), tokens_(store.token_count()), vocabulary_(vocabulary), s_(s) {}
  std::int64_t size() const override { return (tokens_ - 1 + s_ - 1) / s_; }
  std::int64_t sample_length() const override { return s_ + 1; }
  std::int64_t targets() const { return tokens_ - 1; }
  void read(std::int64_t index, std::span<std::int32_t> tokens) const override {
    const std::int64_t begin = index * s_;
    const auto count = static_cast<std::size_t>(std::min(s_ + 1, tokens_ - begin));
    data::read_checked_tokens(store_, vocabulary_, begin, tokens.first(count));
    std::ranges::fill(tokens.subspan(count), -1);
  }
  void check_unchanged() const override { store_.check_unchanged(); }

 private:
  const data::TokenStore& store_;
  std::int64_t tokens_;
  std::int64_t vocabulary_;
  std::int64_t s_;
};

}  // namespace

PerplexityResult measure_perplexity(ParallelGpt& gpt, const data::TokenStore& store) {
  TRIREME_CHECK(store.token_count() >= 2, DataError, "{} has {} tokens: perplexity needs at least 2", store.name(),
                store.token_count());
  const ParallelConfig& layout = gpt.layout();
  const Windows windows(store, gpt.config().vocabulary, layout.sequence_length);
  // As many micro-batches at a time as the pipeline has stages keep all of them at work.
  const std::int64_t micro_batches = gpt.grid().pipeline_size();
  const std::int64_t b = layout.micro_batch_size;
  const std::int64_t data_size = gpt.grid().data_size();
  BatchLoader loader(gpt.backend(), gpt.sequence_shard(), b, micro_batches, layout.dtype);
  for (std::int64_t first = 0; first < windows.size(); first += micro_batches * data_size * b) {
    std::vector<BatchLoader::Sample> samples;
    for (std::int64_t j = 0; j < micro_batches; ++j) {
      for (std::int64_t i = 0; i < b; ++i) {
        const std::int64_t index = first + (j * data_size + gpt.communicators().data->rank()) * b + i;
        samples.push_back({index < windows.size() ? index : -1, 0});
      }
    }
    gpt.run(loader.load(windows, samples), {});
  }
  PerplexityResult result;
  result.tokens = windows.targets();
  result.loss = gpt.take_global_loss_sum() / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss);
  return result;
}

}  // namespace trireme::train
