#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "src/model/presets.hpp"
#include "src/plan/step/step_prediction.hpp"
#include "src/plan/work/device_stand_in.hpp"
#include "src/train/memory_estimate.hpp"

namespace trireme::plan {
namespace {

/// GPT-2 1.2B on a grid, in bf16.
Job job_of(const parallel::ProcessGrid& grid, std::int64_t global_batch, std::int64_t micro_batch = 8) {
  Job job{model::preset("gpt2-1.2b"), {}, {}, grid};
  job.execution.dtype = DType::bf16;
  job.execution.micro_batch_size = micro_batch;
  job.options.global_batch_size = global_batch;
  return job;
}

/// A cluster whose links take no time.
Cluster without_links() {
  Cluster cluster = cluster_preset("dgx-h200");
  cluster.node = cluster.network = {1e12, 1, 0};
  return cluster;
}

TEST(StepPrediction, RepeatsTheWorkButNotTheUpdatePerMicroBatch) {
  const parallel::ProcessGrid one(1, 1, 1);
  StepPredictor predictor(cluster_preset("dgx-h200"));
  const double of_1 = predictor.predict(job_of(one, 8)).step_ms, of_2 = predictor.predict(job_of(one, 16)).step_ms,
               of_4 = predictor.predict(job_of(one, 32)).step_ms;
  EXPECT_NEAR(of_4 - of_2, 2 * (of_2 - of_1), 1e-6);
  EXPECT_LT(of_2, 2 * of_1);
}

TEST(StepPrediction, AddsUpWithoutBubbleOnOneStage) {
  StepPredictor predictor(cluster_preset("dgx-h100"));
  for (const bool sequence_parallel : {false, true}) {
    for (const auto sharding : {parallel::DataSharding::none, parallel::DataSharding::optimizer,
                                parallel::DataSharding::optimizer_and_gradients}) {
      Job job = job_of({16, 2, 1}, 128);
      job.execution.parallel.sequence_parallel = sequence_parallel;
      job.execution.parallel.data_parallel.sharding = sharding;
      const StepPrediction p = predictor.predict(job);
      EXPECT_NEAR(p.bubble_ms, 0, 1e-6 * p.step_ms);
      EXPECT_NEAR(p.work.total(), p.step_ms, 1e-6 * p.step_ms);
      EXPECT_GT(p.work.of(Traffic::tensor).exposed_ms, 0);
      EXPECT_GT(p.work.of(Traffic::gradients).exposed_ms, 0);
      EXPECT_EQ(p.work.of(Traffic::parameters).exposed_ms > 0, sharding != parallel::DataSharding::none);
      EXPECT_GT(p.work.of(Traffic::scalars).exposed_ms, 0);
    }
  }
}

TEST(StepPrediction, ExposesFourAllReducesPerLayerOnTwoTensorRanks) {
  const Cluster cluster = cluster_preset("dgx-h200");
  Job job = job_of({2, 2, 1}, 8);
  job.execution.parallel.async_tensor_all_reduce = false;
  const StepPrediction p = predict_step(cluster, job);
  const double stream = 8.0 * 1024 * static_cast<double>(job.model.hidden) * 2;
  const double one = collective_ms(cluster, Collective::all_reduce, stream, {2, 2});
  // The embedding and the head have a few more.
  EXPECT_GT(p.work.of(Traffic::tensor).exposed_ms, 4 * job.model.layers * one);
  EXPECT_LT(p.work.of(Traffic::tensor).exposed_ms, 1.05 * 4 * job.model.layers * one);
  const StepPrediction alone = predict_step(cluster, job_of({1, 1, 1}, 8));
  // Gradients of weights fill each other's last waves on one rank alone.
  EXPECT_NEAR(p.work.products, alone.work.products / 2, 0.12 * alone.work.products / 2);
  // Half of them overlap with backward's products.
  job.execution.parallel.async_tensor_all_reduce = true;
  const StepPrediction overlapped = predict_step(cluster, job);
  EXPECT_LT(overlapped.work.of(Traffic::tensor).exposed_ms, 0.7 * p.work.of(Traffic::tensor).exposed_ms);
  EXPECT_LT(overlapped.step_ms, p.step_ms);
  // Chunks of rows hide most of the rest.
  job.execution.parallel.row_chunks = 2;
  const StepPrediction chunked = predict_step(cluster, job);
  EXPECT_LT(chunked.work.of(Traffic::tensor).exposed_ms, 0.5 * overlapped.work.of(Traffic::tensor).exposed_ms);
  // Products of fewer rows are slower. It pays where communication takes longer.
  const Cluster slower = cluster_preset("dgx-a100");
  Job wide = job_of({4, 4, 1}, 8);
  const double without_chunks = predict_step(slower, wide).step_ms;
  wide.execution.parallel.row_chunks = 2;
  EXPECT_LT(predict_step(slower, wide).step_ms, without_chunks);
}

TEST(StepPrediction, OfDataRanksOnInstantLinksIsThatOfOneRank) {
  const StepPrediction alone = predict_step(without_links(), job_of({1, 1, 1}, 16));
  const StepPrediction many = predict_step(without_links(), job_of({64, 1, 1}, 64 * 16));
  // Data ranks read their gradients once more, for the guard of the step.
  EXPECT_GT(many.step_ms, alone.step_ms);
  EXPECT_NEAR(many.step_ms, alone.step_ms, 6e-3 * alone.step_ms);
  EXPECT_NEAR(many.model_flops, 64 * alone.model_flops, 1);
}

TEST(StepPrediction, HidesReductionsAndGathersWithOverlap) {
  StepPredictor predictor(cluster_preset("dgx-a100-40gb"));
  for (const auto sharding : {parallel::DataSharding::none, parallel::DataSharding::optimizer,
                              parallel::DataSharding::optimizer_and_gradients}) {
    Job job = job_of({64, 8, 1}, 64);
    job.execution.parallel.data_parallel.sharding = sharding;
    const StepPrediction without = predictor.predict(job);
    job.execution.parallel.data_parallel.overlap_reduce = true;
    job.execution.parallel.data_parallel.overlap_gather = sharding != parallel::DataSharding::none;
    job.execution.parallel.data_parallel.bucket_elements = 20'000'000;
    const StepPrediction with = predictor.predict(job);
    EXPECT_LT(with.work.of(Traffic::gradients).exposed_ms, 0.7 * without.work.of(Traffic::gradients).exposed_ms);
    EXPECT_GT(with.work.of(Traffic::gradients).hidden_ms, 0);
    EXPECT_LE(with.work.of(Traffic::parameters).exposed_ms, without.work.of(Traffic::parameters).exposed_ms);
    EXPECT_LT(with.step_ms, without.step_ms);
  }
}

TEST(StepPrediction, OfAPipelineOfEqualStagesHasTheBubbleOfItsSchedule) {
  // With a small vocabulary, the first and last stages take as long as the others.
  Job job = job_of({4, 1, 4}, 64);
  job.model.vocabulary = 100;
  job.model.layers = 48;
  StepPredictor predictor(without_links());
  const auto bubble = [&] {
    const StepPrediction p = predictor.predict(job);
    const double end = p.schedule.makespan;
    double busy = 0;
    for (const RankTime& time : p.schedule.times) busy = std::max(busy, time.busy);
    return end / busy - 1;
  };
  EXPECT_NEAR(bubble(), 3.0 / 8, 0.02);
  job.execution.parallel.pipeline.chunks = 3;
  EXPECT_NEAR(bubble(), 3.0 / 24, 0.02);
}

TEST(StepPrediction, ExposesMessagesWithoutOverlap) {
  Job job = job_of({8, 2, 4}, 32, 2);
  const Cluster cluster = cluster_preset("dgx-a100-40gb");
  const StepPrediction without = predict_step(cluster, job);
  job.execution.parallel.overlap_p2p = true;
  const StepPrediction with = predict_step(cluster, job);
  EXPECT_LT(with.step_ms, without.step_ms);
  EXPECT_GT(without.work.of(Traffic::pipeline).exposed_ms, with.work.of(Traffic::pipeline).exposed_ms);
  EXPECT_GE(with.bubble_ms, 0);
}

TEST(StepPrediction, SendsMessagesBetweenNodesOverTheNetwork) {
  Cluster cluster = cluster_preset("dgx-h100");
  cluster.network.gbs = 1;
  Job job = job_of({8, 1, 8}, 64, 1);
  const double one_node = predict_step(cluster, job).step_ms;
  cluster.ranks_per_node = 4;
  const double two_nodes = predict_step(cluster, job).step_ms;
  cluster.ranks_per_node = 1;
  const double eight_nodes = predict_step(cluster, job).step_ms;
  EXPECT_LT(one_node, two_nodes);
  EXPECT_LT(two_nodes, eight_nodes);
}

TEST(StepPrediction, ExtrapolatesLongSchedules) {
  Job job = job_of({8, 1, 8}, 0, 1);
  StepPredictor predictor(cluster_preset("dgx-h100"));
  const auto step_ms = [&](int micro_batches) {
    job.options.global_batch_size = micro_batches;
    return predictor.predict(job).step_ms;
  };
  // 824 micro-batches are simulated in full, 840 are not.
  const double round = step_ms(824) - step_ms(816);
  EXPECT_NEAR(step_ms(840) - step_ms(824), 2 * round, 0.01 * round);
  EXPECT_NEAR(step_ms(8 * 1024) - step_ms(840), (1024 - 105) * round, 0.01 * round);
}

TEST(StepPrediction, IncludesRecomputation) {
  Job job = job_of({1, 1, 1}, 8);
  StepPredictor predictor(cluster_preset("dgx-h200"));
  const StepPrediction kept = predictor.predict(job);
  EXPECT_EQ(kept.recompute_ms, 0);
  job.execution.recomputation.granularity = model::RecomputeGranularity::full;
  const StepPrediction full = predictor.predict(job);
  EXPECT_NEAR(full.step_ms - kept.step_ms, full.recompute_ms, 1e-6);
  job.execution.recomputation.method = model::RecomputeMethod::block;
  job.execution.recomputation.layers = job.model.layers / 2;
  EXPECT_NEAR(predictor.predict(job).recompute_ms, full.recompute_ms / 2, 1e-6);
}

TEST(StepPrediction, ExposesCopiesToHostMemoryThatTakeLongerThanTheWorkBesideThem) {
  Cluster cluster = cluster_preset("dgx-h200");
  cluster.ranks_per_node = 1;
  Job job = job_of({1, 1, 1}, 16);
  const StepPrediction kept = predict_step(cluster, job);
  EXPECT_EQ(kept.work.of(Traffic::host).exposed_ms + kept.work.of(Traffic::host).hidden_ms, 0);
  job.execution.recomputation.offloaded_layers = 10;
  job.options.optimizer.offload.fraction = 1;
  // Ten layers of two micro-batches twice, and 12 bytes of each parameter, in both directions at once.
  const double layer =
      static_cast<double>(train::layer_activations(DeviceStandIn(), job.model, job.execution, job.grid).kept);
  const double bytes = 2 * 2 * 10 * layer + 12 * static_cast<double>(model::parameter_count(job.model));
  for (const double gbs : {200.0, 1.0}) {
    cluster.host.link_gbs = gbs;
    const StepPrediction p = predict_step(cluster, job);
    const TrafficTime& host = p.work.of(Traffic::host);
    EXPECT_NEAR((host.exposed_ms + host.hidden_ms) * gbs * 1e6 / bytes, 1, 0.01);
    EXPECT_GT(host.hidden_ms, 0);
    EXPECT_NEAR(p.work.total(), p.step_ms, 1e-6 * p.step_ms);
    EXPECT_NEAR(p.step_ms - kept.step_ms, host.exposed_ms, 0.01 * p.step_ms);
    EXPECT_EQ(host.exposed_ms > p.step_ms / 2, gbs == 1);
  }
}

TEST(StepPrediction, AveragesLayersWithAndWithoutAWindow) {
  Job job = job_of({1, 1, 1}, 8);
  StepPredictor predictor(cluster_preset("dgx-h200"));
  const double whole = predictor.predict(job).step_ms;
  job.model.window.left = 127;
  const double all = predictor.predict(job).step_ms;
  EXPECT_LT(all, whole);
  job.model.window = model::AttentionWindow::every(127, 2, job.model.layers);
  EXPECT_NEAR(predictor.predict(job).step_ms, (whole + all) / 2, 1e-3 * whole);
}

TEST(StepPrediction, RefusesJobsTheProgramCannotRun) {
  StepPredictor predictor(cluster_preset("dgx-h100"));
  EXPECT_THROW(predictor.predict(job_of({8, 1, 8}, 12, 8)), ConfigError);
  EXPECT_THROW(predictor.predict(job_of({7, 1, 7}, 8)), ConfigError);
  EXPECT_THROW(predictor.predict(job_of({32, 32, 1}, 8)), Error);
}

}  // namespace
}  // namespace trireme::plan
