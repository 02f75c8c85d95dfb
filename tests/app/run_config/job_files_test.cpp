// The configurations in jobs/, on the grids they are for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "src/app/run_config/run_config.hpp"
#include "src/train/memory_estimate.hpp"

namespace trireme::app {
namespace {

const std::filesystem::path jobs = TRIREME_JOBS;

/// A configuration and the sizes of clusters that its comment or jobs/README.md names.
struct JobFile {
  std::string name;
  std::vector<int> ranks;
  std::int64_t micro_batches;  ///< micro-batches of an iteration on a data rank of the last cluster
};
const std::vector<JobFile>& job_files() {
  static const std::vector<JobFile> list = {{"bert_336m.ini", {8}, 8},   {"bert_3.9b.ini", {256}, 1},
                                            {"gpt2_355m.ini", {8}, 8},   {"gpt2_2.5b.ini", {32, 128}, 1},
                                            {"gpt2_8.3b.ini", {512}, 1}, {"llama2_7b.ini", {32, 128}, 16}};
  return list;
}

/// The options of a configuration on data ranks as `ranks` leave.
struct Settled {
  Settled(const std::string& name, int ranks) : options("trireme train", ""), reader(options) {
    options.parse({"--config", jobs / name, "--data-path", "corpus.h5", "--save", "run"});
    const GridOptions& asked = reader.parsed().parallel.grid;
    grid.emplace(ranks, asked.tensor, asked.pipeline, asked.context);
    config = reader.settle(grid->data_size());
    // A BERT has the vocabulary of its corpus: that of bert-base-uncased, [BOS] and [EOS].
    model = config.model.config(*config.batch.sequence_length, name.starts_with("bert") ? 30524 : 1);
  }
  Options options;
  RunConfigReader reader;
  RunConfig config;
  std::optional<parallel::ProcessGrid> grid;
  model::ModelConfig model;
};

TEST(JobFiles, AreAllTestedHere) {
  std::vector<std::string> found, tested;
  for (const auto& entry : std::filesystem::directory_iterator(jobs)) {
    if (entry.path().extension() == ".ini") found.push_back(entry.path().filename());
  }
  for (const JobFile& file : job_files()) tested.push_back(file.name);
  EXPECT_THAT(found, testing::UnorderedElementsAreArray(tested));
}

TEST(JobFiles, FitTheirClustersAndGpusOf80GB) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  for (const JobFile& file : job_files()) {
    for (const int ranks : file.ranks) {
      SCOPED_TRACE(testing::Message() << file.name << " on " << ranks << " ranks");
      const Settled job(file.name, ranks);
      const train::MemoryEstimate memory = train::estimate_memory(*backend, job.model, job.config.execution_config(),
                                                                  job.config.train_options(), *job.grid, ranks - 1);
      EXPECT_LT(memory.total(), 70e9);  // the driver, NCCL and products' workspaces take the rest
      if (ranks != file.ranks.back()) continue;
      const std::int64_t batch = job.config.batch.batches(job.grid->data_size()).max_size();
      EXPECT_EQ(batch / (job.config.batch.micro_batch_size * job.grid->data_size()), file.micro_batches);
    }
  }
}

TEST(JobFiles, UseWhatMakesThemFast) {
  for (const JobFile& file : job_files()) {
    SCOPED_TRACE(file.name);
    const Settled job(file.name, file.ranks.back());
    EXPECT_EQ(job.config.precision.dtype, DType::bf16);
    EXPECT_EQ(job.config.parallel.sharding.strategy, parallel::DataSharding::optimizer);
    EXPECT_TRUE(job.config.parallel.sharding.overlap_reduce);
    EXPECT_TRUE(job.config.parallel.sharding.overlap_gather);
    EXPECT_TRUE(job.config.checkpoint.async_save);
    EXPECT_EQ(job.config.parallel.sequence_parallel, job.config.parallel.grid.tensor > 1);
    EXPECT_THAT((std::vector{64, 96, 128}), testing::Contains(job.model.head_dim()));  // have kernels in 16 bits
  }
}

TEST(JobFiles, TrainTheModelsOfTheirPapers) {
  EXPECT_EQ(Settled("gpt2_8.3b.ini", 512).model.head_dim(), 128);
  EXPECT_EQ(Settled("gpt2_8.3b.ini", 512).model.hidden_dropout, 0.1);
  EXPECT_EQ(Settled("llama2_7b.ini", 32).model.hidden_dropout, 0);
  EXPECT_NEAR(model::parameter_count(Settled("bert_336m.ini", 8).model), 336e6, 1e6);
  EXPECT_NEAR(model::parameter_count(Settled("bert_3.9b.ini", 256).model), 3.9e9, 0.05e9);
  EXPECT_FALSE(Settled("bert_3.9b.ini", 256).model.post_norm());
}

}  // namespace
}  // namespace trireme::app
