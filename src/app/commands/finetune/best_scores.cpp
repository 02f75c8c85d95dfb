#include "src/app/commands/finetune/best_scores.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace trireme::app {
namespace {

constexpr const char* valid_blob = "task/valid_scores";
constexpr const char* test_blob = "task/test_scores";

/// Names the samples of a split by its files and the options that change them.
std::string key_of(const TaskOptions& options, const TaskSplit& split) {
  return fmt::format("{} {} {} {}", split.digest, split.samples->sequence_length(), options.doc_stride,
                     options.max_query_length);
}

}  // namespace

void BestScores::put(const TaskOptions& options, const TaskSplit& valid_split, const TaskSplit& test_split,
                     std::map<std::string, std::string>& blobs) const {
  blobs[valid_blob] = to_bytes(valid, key_of(options, valid_split));
  blobs.erase(test_blob);
  if (test_split.samples) blobs[test_blob] = to_bytes(test, key_of(options, test_split));
}

BestScores BestScores::from(const std::map<std::string, std::string>& blobs, const TaskOptions& options,
                            const TaskSplit& valid_split, const TaskSplit& test_split) {
  const auto read = [&](const char* name, const TaskSplit& split) -> infer::TaskScores {
    const auto found = blobs.find(name);
    if (!split.samples || found == blobs.end()) return {};
    return infer::scores_from(found->second, key_of(options, split), split.samples->labels())
        .value_or(infer::TaskScores{});
  };
  return {read(valid_blob, valid_split), read(test_blob, test_split)};
}

infer::TaskScores mean_of(const std::vector<BestScores>& seeds, infer::TaskScores BestScores::*scores, bool are_spans) {
  infer::TaskScores sum;
  for (const BestScores& seed : seeds) {
    infer::TaskScores probabilities = seed.*scores;
    to_probabilities(probabilities, are_spans ? 2 : 1);
    if (sum.scores.empty()) {
      sum = std::move(probabilities);
    } else {
      std::ranges::transform(sum.scores, probabilities.scores, sum.scores.begin(), std::plus<>());
    }
  }
  for (double& value : sum.scores) value = std::log(value / static_cast<double>(seeds.size()));
  return sum;
}

}  // namespace trireme::app
