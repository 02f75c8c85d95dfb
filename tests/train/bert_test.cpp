// BERT: compared with PyTorch, and the same on every grid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "src/comm/self_communicator.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/synthetic_runs.hpp"

namespace trireme::test {
namespace {

/// Grids of `ranks` ranks for a batch of four samples and two layers. A sample masks at most 11 tokens; the ranks of a
/// tensor group divide 14 predictions.
std::vector<Layout> bert_layouts(int ranks) {
  if (ranks == 1) return {Layout(), "predictions 13", "predictions 13 cross-entropy-chunks 3"};
  if (ranks == 2) {
    return {"tp 2 predictions 13",    "pp 2 predictions 13", "zero1",
            "tp 2 sp predictions 13", "cp 2 predictions 13", "tp 2 sp predictions 13 cross-entropy-chunks 4"};
  }
  return {"tp 2 pp 2", "tp 2 sp zero2 predictions 13", "pp 2 cp 2 predictions 13 b 2 cross-entropy-chunks 5"};
}

TEST(Bert, EveryGridReproducesPyTorchInFp64) {
  Communicator& ranks = world();
  for (const char* name : {"bert_a_erf", "bert_b_erf", "bert_b_tanh", "bert_a_hot_erf", "bert_b_hot_erf"}) {
    SyntheticRun run = bert_run(name);
    if (ranks.size() > 1) {
      if (run.config.init_scale == 1) continue;  // errors grow faster in the hot runs
      run.shorten(4);
    }
    EXPECT_EQ(model::parameter_count(run.config.model), run.parameters) << name;
    for (const Layout& layout : bert_layouts(ranks.size())) {
      SCOPED_TRACE(testing::Message() << name << ": " << layout);
      // The others change the head alone: the third loss follows from its gradients and the optimizer's moments.
      if (layout.options.max_predictions > 0) run.shorten(std::min<std::int64_t>(run.config.steps, 4));
      expect_close(training_curve(ranks, run.config, layout), run.curve, tolerance(DType::fp64, Comparison::pytorch));
    }
  }
}

TEST(Bert, Fp32StaysWithinItsTolerance) {
  Communicator& ranks = world();
  for (const char* name : {"bert_a_erf", "bert_b_erf", "bert_b_tanh", "bert_a_hot_erf", "bert_b_hot_erf"}) {
    SyntheticRun run = bert_run(name);
    run.config.dtype = DType::fp32;
    const bool hot = run.config.init_scale != 1;  // rounding errors grow a thousandfold within the 20 updates
    if (!hot && ranks.size() > 1) continue;
    const Layout layout = bert_layouts(ranks.size()).front();
    SCOPED_TRACE(testing::Message() << name << ": " << layout);
    expect_close(training_curve(ranks, run.config, layout), run.curve,
                 tolerance(DType::fp32, hot ? Comparison::pytorch_hot_bert : Comparison::pytorch));
  }
}

}  // namespace
}  // namespace trireme::test
