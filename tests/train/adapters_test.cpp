// Adapters of low rank: runs that PEFT computed, on every kind of layout, and the state that frozen weights lack.
#include <gtest/gtest.h>

#include "src/comm/self_communicator.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/synthetic_runs.hpp"

namespace trireme::test {
namespace {

std::vector<Layout> adapter_layouts(int ranks, bool experts) {
  if (ranks == 1) return {Layout()};
  if (ranks == 2 && experts) return {"tp 2 sp", "pp 2", "zero1 ep 2"};
  if (ranks == 2) return {"tp 2 sp", "pp 2", "cp 2", "zero1"};
  if (experts) return {"tp 2 pp 2", "tp 2 ep 4 etp 1 sp"};
  return {"tp 2 pp 2", "tp 2 sp cp 2"};
}

TEST(Adapters, EveryGridReproducesPeftInFp64) {
  Communicator& ranks = world();
  for (const char* name : {"gpt2", "gpt2_attention", "llama", "deepseek"}) {
    SyntheticRun run = adapter_run(name);
    EXPECT_EQ(model::parameter_count(run.config.model), run.parameters) << name;
    if (ranks.size() > 1) run.shorten(6);
    for (const Layout& layout : adapter_layouts(ranks.size(), run.config.model.experts.any())) {
      SCOPED_TRACE(testing::Message() << name << ": " << layout);
      expect_close(training_curve(ranks, run.config, layout), run.curve, {1e-9, 1e-9});
    }
  }
}

TEST(Adapters, AloneAreTrainedAndHaveState) {
  SelfCommunicator alone;
  TrainingRunConfig config = tiny_run();
  config.dtype = DType::bf16;
  model::set_fields(config.model, "lora-rank 2");
  TrainingRun run(alone, config, {});
  const std::vector<parallel::Parameter>& parameters = run.gpt.parameters().parameters();
  const auto values_of_all = [&] {
    std::vector<std::vector<double>> values;
    for (const parallel::Parameter& p : parameters) values.push_back(values_of(*run.backend, p.value));
    return values;
  };
  const auto before = values_of_all();
  run.step();
  run.step();
  const auto after = values_of_all();
  std::int64_t trained = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool is_adapter = model::LowRankAdapters::has(parameters[i].name);
    EXPECT_EQ(before[i] != after[i], is_adapter) << parameters[i].name;
    trained += is_adapter ? parameters[i].shape.numel() : 0;
  }
  // Four layers of 2 (in + out) elements: 16 and 48, 16 and 16, 16 and 32, 32 and 16.
  EXPECT_EQ(trained, 2 * (64 + 32 + 48 + 48));
  EXPECT_EQ(model::trained_parameter_count(config.model), trained);
  EXPECT_EQ(run.gpt.parameters().memory().gradients, trained * sizeof(float));
  EXPECT_EQ(run.trainer.optimizer_bytes(), 3 * trained * sizeof(float));
  std::int64_t stored = 0;
  for (const checkpoint::StateTensor& tensor : run.trainer.state_tensors(train::OptimizerState::kept)) {
    const bool is_master = tensor.name.starts_with("model/");
    EXPECT_TRUE(is_master || model::LowRankAdapters::has(tensor.name)) << tensor.name;
    stored += is_master ? tensor.data.numel() : 0;
  }
  EXPECT_EQ(stored, model::parameter_count(config.model));
}

}  // namespace
}  // namespace trireme::test
