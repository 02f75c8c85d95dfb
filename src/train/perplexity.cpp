#include "src/train/perplexity.hpp"

#include <cmath>
#include <memory>

#include "src/data/dataset/gpt_samples.hpp"
#include "src/train/batch_loader.hpp"

namespace trireme::train {

PerplexityResult measure_perplexity(ParallelGpt& gpt, const data::TokenStore& store) {
  TRIREME_CHECK(store.token_count() >= 2, DataError, "{} has {} tokens: perplexity needs at least 2", store.name(),
                store.token_count());
  const ParallelConfig& layout = gpt.layout();
  const std::shared_ptr<const data::TokenStore> not_owned(std::shared_ptr<const void>(), &store);
  const data::SequentialSamples windows(data::CheckedTokens(not_owned, gpt.config().vocabulary), layout.sequence_length,
                                        data::Remainder::kept);
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
  result.tokens = store.token_count() - 1;
  result.loss = gpt.take_global_loss_sum() / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss);
  return result;
}

}  // namespace trireme::train
