// The command that `trireme plan` prints, read as `trireme train` reads it.
#include "src/app/commands/plan/plan_options.hpp"
#include "src/plan/search/search.hpp"
#include "tests/app/run_config/followed.hpp"

namespace trireme::app {
namespace {

TEST(Plan, ProposesLayoutsThatTrainAccepts) {
  constexpr int ranks = 4;
  const Words shape = "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 16 --vocab-size 257";
  const Words at_two_stages = "--pp 2 --tp 1";
  for (const Words& words : {
           Words("--tp 2 --recompute-granularity full --distribute-saved-activations"),
           Words("--tp 2 --fp8-format hybrid --fp8-recipe tensorwise"),
           at_two_stages + "--num-layers-per-virtual-pipeline-stage 2",
           at_two_stages + "--pipeline-model-parallel-layout 1,2,2,3",
           at_two_stages + "--decoder-first-pipeline-num-layers 3",
           at_two_stages + "--standalone-embedding-stage",
           at_two_stages + "--vpp 4",
       }) {
    PlanOptions o;
    Options options("trireme plan", "");
    o.declare(options);
    options.parse(shape + words + "--cluster dgx-h100 --ranks-per-node 4 --global-batch-size 16");
    SCOPED_TRACE(fmt::format("{}", fmt::join(words, " ")));
    const plan::Cluster cluster = o.read_cluster();
    plan::ClusterCosts costs(cluster);
    const plan::SearchResult result = plan::search(o.space(options, cluster), costs, 2);
    EXPECT_FALSE(result.grids.empty());
    for (const plan::RankedGrid& grid : result.grids) {
      const std::vector<std::string> layout = train_options(options, grid.job);
      const Words proposed = "--data-path c.h5 --train-iters 1 --lr 1" + Words(layout.begin(), layout.end());
      EXPECT_NO_THROW(settle(proposed, ranks)) << fmt::format("{}", fmt::join(proposed, " "));
    }
  }
}

}  // namespace
}  // namespace trireme::app
