#pragma once

#include <functional>
#include <map>
#include <ostream>
#include <sstream>
#include <string>

#include "src/base/check.hpp"
#include "src/parallel/pipeline/layout_text.hpp"
#include "src/train/train_options.hpp"

namespace trireme::test {

/// Layout of a run over the ranks; results do not depend on it.
struct Layout {
  Layout() = default;
  /// Layout described by words, some of which take a value: "tp 2 pp 2 zero-bubble b 4".
  Layout(const char* text) { add(text); }
  Layout(const std::string& text) { add(text); }

  /// This layout with more words.
  Layout with(const std::string& text) const {
    Layout changed = *this;
    changed.add(text);
    return changed;
  }

  int tensor = 1;
  int pipeline = 1;
  int context = 1;
  int data = 0;  ///< 0: the remaining factor of the world size
  int expert = 1;
  int expert_tensor = 0;             ///< 0: those of `tensor`
  train::ExecutionConfig options{};  ///< type and sequence length are the run's
  std::string words{};

 private:
  void add(const std::string& text) {
    train::ParallelConfig& parallel = options.parallel;
    parallel::DataParallelOptions& shards = parallel.data_parallel;
    parallel::PipelineSplit& split = parallel.pipeline;
    model::Recomputation& recomputation = options.recomputation;
    std::istringstream stream(text);
    const auto next = [&] {
      std::string word;
      stream >> word;
      return word;
    };
    const auto number = [&] { return std::stoi(next()); };
    const auto recompute_layers = [&](model::RecomputeMethod method) {
      recomputation = {model::RecomputeGranularity::full, method, number()};
    };
    const std::map<std::string, std::function<void()>> meanings = {
        {"tp", [&] { tensor = number(); }},
        {"pp", [&] { pipeline = number(); }},
        {"cp", [&] { context = number(); }},
        {"dp", [&] { data = number(); }},
        {"ep", [&] { expert = number(); }},
        {"etp", [&] { expert_tensor = number(); }},
        {"b", [&] { options.micro_batch_size = number(); }},
        {"bf16", [&] { options.dtype = DType::bf16; }},
        {"vocabulary-multiple", [&] { options.vocabulary_multiple = number(); }},
        {"cross-entropy-chunks", [&] { options.cross_entropy_chunks = number(); }},
        {"predictions", [&] { options.max_predictions = number(); }},
        {"graphs", [&] { options.cuda_graphs = true; }},
        {"variable-lengths", [&] { options.variable_lengths = true; }},
        {"sp", [&] { parallel.sequence_parallel = true; }},
        {"nccl-ub", [&] { parallel.registered_buffers = true; }},
        {"row-chunks", [&] { parallel.row_chunks = number(); }},
        {"no-tensor-overlap", [&] { parallel.async_tensor_all_reduce = false; }},
        {"exchange", [&] { parallel.exchange_tokens = true; }},
        {"pad", [&] { parallel.pad_experts = true; }},
        {"overlap-shared", [&] { parallel.overlap_shared_expert = true; }},
        {"gpipe", [&] { parallel.schedule = parallel::ScheduleKind::gpipe; }},
        {"1f1b", [&] { parallel.schedule = parallel::ScheduleKind::one_forward_one_backward; }},
        {"interleaved", [&] { parallel.schedule = parallel::ScheduleKind::interleaved; }},
        {"zero-bubble", [&] { parallel.schedule = parallel::ScheduleKind::zero_bubble; }},
        {"overlap-p2p", [&] { parallel.overlap_p2p = true; }},
        {"whole-messages", [&] { parallel.scatter_gather = false; }},
        {"vpp", [&] { split.chunks = number(); }},
        {"chunks-of", [&] { split.layers_per_chunk = number(); }},
        {"layers", [&] { split.layers = parallel::layers_of_chunks(next()); }},
        {"first", [&] { split.first_stage = number(); }},
        {"last", [&] { split.last_stage = number(); }},
        {"embedding-alone", [&] { split.standalone_embedding = true; }},
        {"zero1", [&] { shards.sharding = parallel::DataSharding::optimizer; }},
        {"zero2", [&] { shards.sharding = parallel::DataSharding::optimizer_and_gradients; }},
        {"rounded", [&] { shards.low_precision_gradients = true; }},
        {"bucket", [&] { shards.bucket_elements = number(); }},
        {"overlap", [&] { shards.overlap_reduce = true; }},
        {"gather", [&] { shards.overlap_gather = true; }},
        {"prompt-update", [&] { shards.overlap_update = false; }},
        {"selective", [&] { recomputation.granularity = model::RecomputeGranularity::selective; }},
        {"experts",
         [&] {
           recomputation = {.granularity = model::RecomputeGranularity::selective, .modules = {.experts = true}};
         }},
        {"uniform", [&] { recompute_layers(model::RecomputeMethod::uniform); }},
        {"block", [&] { recompute_layers(model::RecomputeMethod::block); }},
        {"offload", [&] { recomputation.offloaded_layers = number(); }},
        {"distributed", [&] { recomputation.distribute = true; }}};
    for (std::string word = next(); !word.empty(); word = next()) {
      TRIREME_CHECK(meanings.contains(word), ConfigError, "no layout has '{}'", word);
      meanings.at(word)();
    }
    words += (words.empty() || text.empty() ? "" : " ") + text;
  }
};

inline std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << (layout.words.empty() ? "one form alone" : layout.words);
}

}  // namespace trireme::test
