// The configurations in jobs/, on the grids they are for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "src/app/commands/finetune/task_options.hpp"
#include "src/app/run_config/run_config.hpp"
#include "src/model/presets.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "src/plan/search/search.hpp"
#include "src/train/memory_estimate.hpp"

namespace trireme::app {
namespace {

const std::filesystem::path jobs = TRIREME_JOBS;

/// A configuration and the sizes of clusters that it is for. The last is the one of its comment.
struct JobFile {
  std::string name;
  std::vector<int> ranks;
  std::int64_t micro_batches;  ///< micro-batches of an iteration on a data rank of the last cluster
  std::string base = {};       ///< configuration that is given before it
};
const std::vector<JobFile>& job_files() {
  static const std::vector<JobFile> list = {{"bert_336m.ini", {8}, 4},
                                            {"bert_1.3b.ini", {32, 128}, 1},
                                            {"bert_3.9b.ini", {256}, 1},
                                            {"gpt2_355m.ini", {8}, 2},
                                            {"gpt2_2.5b.ini", {32, 128}, 1},
                                            {"gpt2_8.3b.ini", {512}, 4},
                                            {"gpt2_8.3b_paper.ini", {512}, 1, "gpt2_8.3b.ini"},
                                            {"llama2_7b.ini", {32, 128}, 8}};
  return list;
}

/// The options of a configuration on data ranks as `ranks` leave.
struct Settled {
  Settled(const std::string& name, int ranks, const std::string& base = "")
      : options("trireme train", ""), reader(options) {
    std::vector<std::string> words = {"--config", jobs / name, "--data-path", "corpus.h5", "--save", "run"};
    if (!base.empty()) words.insert(words.begin(), {"--config", jobs / base});
    options.parse(words);
    grid = reader.parsed().parallel.grid.of(ranks);
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

constexpr const char* finetuning = "finetune.ini";

TEST(JobFiles, OfFineTuningAreForEightRanks) {
  std::ifstream table(jobs / "finetune_tasks.txt");
  int rows = 0;
  for (std::string line; std::getline(table, line);) {
    if (line.starts_with("#")) continue;
    SCOPED_TRACE(line);
    std::istringstream row(line);
    std::string name, size, its_task, batch, rate, epochs;
    row >> name >> size >> its_task >> batch >> rate >> epochs;
    const int ranks_of_model = size == "3.9b" ? 8 : 1;
    Options options("trireme finetune", "");
    TaskOptions task;
    task.declare(options);
    RunConfigReader reader(options, RunKind::task);
    options.parse({"--config", jobs / finetuning, "--task", its_task, "--global-batch-size", batch, "--lr", rate,
                   "--epochs", epochs, "--train-data", "a", "--valid-data", "b", "--pretrained-checkpoint", "c"});
    model::ModelConfig model = model::preset("bert-" + size);
    model.vocabulary = 30524;
    task.set_output(model);
    const RunConfig& config = reader.settle(8 / ranks_of_model, {model, 512, /*labels=*/1000, task.epochs});
    EXPECT_EQ(std::to_string(config.batch.batches(8 / ranks_of_model).max_size() / model.samples_per_label()), batch);
    EXPECT_EQ(config.precision.dtype, DType::bf16);
    ++rows;
  }
  EXPECT_EQ(rows, 15);
}

TEST(JobFiles, AreAllTestedHere) {
  std::vector<std::string> found, tested = {finetuning};
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
      const Settled job(file.name, ranks, file.base);
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
    const Settled job(file.name, file.ranks.back(), file.base);
    EXPECT_EQ(job.config.precision.dtype, DType::bf16);
    EXPECT_EQ(job.config.parallel.sharding.strategy, parallel::DataSharding::optimizer);
    EXPECT_TRUE(job.config.parallel.sharding.overlap_reduce);
    EXPECT_TRUE(job.config.parallel.sharding.overlap_gather);
    EXPECT_TRUE(job.config.checkpoint.async_save);
    EXPECT_EQ(job.config.parallel.sequence_parallel, job.config.parallel.grid.tensor > 1);
    EXPECT_THAT((std::vector{64, 96, 128}), testing::Contains(job.model.head_dim()));  // have kernels in 16 bits
  }
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(JobFiles, HaveLayoutsCloseToTheBestOfAPlan) {
  const plan::Cluster cluster = plan::cluster_preset("dgx-h100");
  for (const JobFile& file : job_files()) {
    if (!file.base.empty()) continue;  // the layout of a paper
    SCOPED_TRACE(file.name);
    const int ranks = file.ranks.back();
    EXPECT_THAT(text_of(jobs / file.name),
                testing::HasSubstr(fmt::format("--cluster dgx-h100 --nodes {} ", ranks / cluster.ranks_per_node)));
    const Settled job(file.name, ranks);
    const plan::Job shipped{job.model, job.config.execution_config(), job.config.train_options(), *job.grid};
    // Without recomputation and context parallelism, which these models do not need, it takes a fifth of the time.
    plan::SearchSpace space{.world_size = ranks,
                            .ranks_per_node = cluster.ranks_per_node,
                            .base = shipped,
                            .context = 1,
                            .recomputation = model::RecomputeGranularity::none};
    space.base.execution.parallel = {};
    plan::ClusterCosts costs(cluster);
    const plan::SearchResult found = plan::search(space, costs, 1);
    ASSERT_EQ(found.grids.size(), 1U);
    EXPECT_LT(costs.predict(shipped).step_ms, 1.03 * found.grids[0].step.step_ms);
  }
}

TEST(JobFiles, OfThePaperHaveItsGrid) {
  const Settled job("gpt2_8.3b_paper.ini", 512, "gpt2_8.3b.ini");
  EXPECT_EQ(job.grid->tensor_size(), 8);
  EXPECT_EQ(job.grid->data_size(), 64);
  EXPECT_EQ(job.config.optimizer.lr.maximum, 1.5e-4);
}

TEST(JobFiles, HaveTheNodesOfTheirBatchFiles) {
  EXPECT_THAT(text_of(jobs / "gpt2_8.3b.sbatch"), testing::HasSubstr("#SBATCH --nodes=64\n"));
  EXPECT_THAT(text_of(jobs / "bert_3.9b.sbatch"), testing::HasSubstr("#SBATCH --nodes=32\n"));
}

TEST(JobFiles, TrainTheModelsOfTheirPapers) {
  EXPECT_EQ(Settled("gpt2_8.3b.ini", 512).model.head_dim(), 128);
  EXPECT_EQ(Settled("gpt2_8.3b.ini", 512).model.hidden_dropout, 0.1);
  EXPECT_EQ(Settled("llama2_7b.ini", 32).model.hidden_dropout, 0);
  EXPECT_NEAR(model::parameter_count(Settled("bert_336m.ini", 8).model), 336e6, 1e6);
  EXPECT_NEAR(model::parameter_count(Settled("bert_1.3b.ini", 128).model), 1.3e9, 0.05e9);
  EXPECT_NEAR(model::parameter_count(Settled("bert_3.9b.ini", 256).model), 3.9e9, 0.05e9);
  EXPECT_FALSE(Settled("bert_3.9b.ini", 256).model.post_norm());
}

}  // namespace
}  // namespace trireme::app
