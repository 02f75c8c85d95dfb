// The predicted pieces of a layout are the pieces its ranks keep.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/train/state_tensors.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

TEST(StatePieces, AreThoseOfTheRanks) {
  TrainingRunConfig config;
  config.dtype = DType::bf16;
  const int ranks = world().size();
  for (const auto& [tensor, pipeline, expert] :
       {std::tuple{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {2, 2, 1}, {1, 1, 2}, {1, 1, 4}, {2, 1, 2}, {1, 2, 2}}) {
    if (ranks % (tensor * pipeline * expert) != 0) continue;
    config.model.experts.count = expert > 1 ? 4 : 0;
    config.model.linear_bias = expert == 1;
    for (const char* sharding : {"", "zero1", "zero2"}) {
      const Layout layout = fmt::format("tp {} pp {} ep {} bucket 9000 {} {}", tensor, pipeline, expert,
                                        pipeline > 1 ? "vpp 2" : "", sharding);
      SCOPED_TRACE(testing::Message() << layout);
      TrainingRun run(world(), config, layout);
      const std::vector<checkpoint::StateTensor> actual = run.trainer.state_tensors();
      const std::vector<checkpoint::StateTensor> expected =
          train::state_pieces(config.model, run.gpt.execution(), run.grid, world().rank());
      ASSERT_EQ(actual.size(), 3 * expected.size());
      for (std::size_t i = 0; i < actual.size(); ++i) {
        const checkpoint::StateTensor& piece = expected[i / 3];
        EXPECT_THAT(actual[i].name, testing::EndsWith("/" + piece.name));
        EXPECT_EQ(actual[i].shape, piece.shape) << piece.name;
        EXPECT_EQ(actual[i].box.offset, piece.box.offset) << piece.name;
        EXPECT_EQ(actual[i].box.extent, piece.box.extent) << piece.name;
        EXPECT_EQ(actual[i].flat_begin, piece.flat_begin) << piece.name;
        EXPECT_EQ(actual[i].data.numel(), piece.data.numel()) << piece.name;
        EXPECT_EQ(actual[i].written_here, piece.written_here) << piece.name;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::test
