#include "src/infer/perplexity.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "src/train/batch_loader.hpp"

namespace trireme::infer {

data::SequentialSamples perplexity_windows(const train::ParallelModel& model, const data::TokenStore& store) {
  TRIREME_CHECK(store.token_count() >= 2, DataError, "{} has {} tokens: perplexity needs at least 2", store.name(),
                store.token_count());
  const std::shared_ptr<const data::TokenStore> not_owned(std::shared_ptr<const void>(), &store);
  return {data::CheckedTokens(not_owned, model.config().vocabulary), model.execution().sequence_length,
          data::Remainder::kept};
}

PerplexityResult measure_perplexity(train::ParallelModel& model, const data::TokenStore& store,
                                    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const data::SequentialSamples windows = perplexity_windows(model, store);
  PerplexityResult result;
  const std::int64_t all_tokens = store.token_count() - 1;
  result.tokens = data::learned_tokens(store, 1, store.token_count());
  TRIREME_CHECK(result.tokens > 0, DataError, "{}: no token after the first is learned", store.name());
  const train::ExecutionConfig& execution = model.execution();
  // One micro-batch for each stage keeps the pipeline busy.
  const std::int64_t micro_batches = model.grid().pipeline_size();
  const data::SamplerGrid grid{execution.micro_batch_size, model.grid().data_size()};
  const std::int64_t batch_size = micro_batches * grid.data_parallel_size * grid.micro_batch_size;
  train::BatchLoader loader(model.backend(), model.sequence_shard(), grid.micro_batch_size, micro_batches,
                            execution.dtype);
  for (std::int64_t first = 0; first < windows.size(); first += batch_size) {
    std::vector<train::BatchLoader::Sample> samples =
        train::BatchLoader::samples_of_rank(first, 0, batch_size, model.communicators().data->rank(), grid);
    for (train::BatchLoader::Sample& sample : samples) {
      if (sample.index >= windows.size()) sample.index = -1;
    }
    model.run(loader.load(windows, samples, {.length_multiple = model.length_multiple()}), {});
    progress(std::min((first + batch_size) * execution.sequence_length, all_tokens), all_tokens);
  }
  result.loss = model.take_global_loss_sums().tokens / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss);
  return result;
}

}  // namespace trireme::infer
