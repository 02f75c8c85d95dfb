#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "src/app/options/field_names.hpp"
#include "src/app/run_config/run_config.hpp"
#include "src/backend/backend.hpp"
#include "src/train/memory_estimate.hpp"
#include "tests/app/words.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::app {

/// Reads and checks the options of a run with a corpus of 257 tokens, and rehearses an update on every rank.
inline void settle(const Words& words, int ranks = 1) {
  Options options("trireme train", "");
  RunConfigReader reader(options);
  options.parse(words);
  const parallel::ProcessGrid grid = reader.parsed().parallel.grid.of(ranks);
  const RunConfig config = reader.settle(grid.data_size());
  const model::ModelConfig model = config.model.config(*config.batch.sequence_length, 257);
  model::check_sequence_length(model, *config.batch.sequence_length);
  const auto cpu = make_backend(BackendChoice::cpu, 1);
  for (int rank = 0; rank < ranks; ++rank) {
    train::estimate_memory(*cpu, model, config.execution_config(), config.train_options(), grid, rank);
  }
}

inline std::string error_of(const Words& words, int ranks = 1) {
  return with_flags(test::message_of([&] { settle(words, ranks); }));
}

/// A remedy in the message that the first options cause, and options that follow it.
struct Remedy {
  const char* message;
  const char* wrong;
  const char* right;
  int ranks = 1;
  int right_ranks = 0;  ///< 0: as many
};

inline const std::string length = "--seq-length 16 --lr 0.01 ", iterations = length + "--train-iters 8 ",
                         shape = "--num-layers 4 --hidden-size 16 --num-attention-heads 4 ",
                         corpus = "--data-path c.h5 ", run = iterations + shape + corpus;

inline void expect_remedies(const std::string& base, std::initializer_list<Remedy> remedies) {
  for (const Remedy& each : remedies) {
    SCOPED_TRACE(each.message);
    EXPECT_THAT(error_of(base + each.wrong, each.ranks), testing::HasSubstr(each.message));
    EXPECT_NO_THROW(settle(base + each.right, each.right_ranks == 0 ? each.ranks : each.right_ranks)) << each.right;
  }
}

}  // namespace trireme::app
