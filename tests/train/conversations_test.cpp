// Packed conversations, of which only the assistant's words are learned: compared with PyTorch on every grid.
#include <gtest/gtest.h>

#include "tests/support/mpi_world.hpp"
#include "tests/support/synthetic_runs.hpp"

namespace trireme::test {
namespace {

/// The corpus that tests/fixtures/conversation_runs.json describes.
std::shared_ptr<data::TokenStore> conversations(std::int64_t vocabulary_size, std::uint64_t documents) {
  std::vector<std::vector<std::int32_t>> texts;
  std::vector<data::LearnedRange> learned;
  std::int64_t id = 0;
  for (std::uint64_t d = 0; d < documents; ++d) {
    const auto size = static_cast<std::int64_t>(4 + splitmix64(fnv1a("sizes"), d) % 40);
    for (std::int64_t j = 4; j < size; j += 8) learned.push_back({id + j, id + std::min(j + 4, size)});
    texts.emplace_back();
    for (std::int64_t j = 0; j < size; ++j) {
      texts.back().push_back(static_cast<std::int32_t>(splitmix64(fnv1a("tokens"), static_cast<std::uint64_t>(id++)) %
                                                       static_cast<std::uint64_t>(vocabulary_size)));
    }
  }
  auto store = std::make_shared<data::MemoryTokenStore>(vocabulary_size, texts);
  store->set_learned_ranges(learned);
  return store;
}

SyntheticRun conversation_run() {
  const nlohmann::json run = runs_of("conversation_runs.json")["conversations"];
  SyntheticRun result = run_from(run);
  result.config.documents = {.conversations_apart = true};
  result.config.corpus = conversations(result.config.model.vocabulary, run["config"]["documents"]);
  result.config.seed = run["config"]["seed"];
  return result;
}

std::vector<Layout> layouts(int ranks) {
  if (ranks == 1) return {Layout(), "b 4", "b 2 variable-lengths"};
  if (ranks == 2) return {"tp 2 sp", "pp 2 zero-bubble", "cp 2 b 2", "zero2 bucket 1000", "dp 2 b 2 variable-lengths"};
  return {"tp 2 pp 2 sp", "cp 2 pp 2 interleaved vpp 2 b 2", "tp 2 zero2 bucket 1000", "b 1 zero1"};
}

TEST(Conversations, EveryGridReproducesPyTorchInFp64) {
  SyntheticRun run = conversation_run();
  if (world().size() > 1) run.shorten(12);  // beyond the first epoch
  for (const Layout& layout : layouts(world().size())) {
    SCOPED_TRACE(testing::Message() << layout);
    expect_close(training_curve(world(), run.config, layout), run.curve,
                 tolerance(DType::fp64, Comparison::pytorch_hot));
  }
}

}  // namespace
}  // namespace trireme::test
