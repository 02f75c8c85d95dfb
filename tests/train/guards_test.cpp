// Checks of a run's numbers, on every grid. Steps that are not finite or have a spiky loss run again, which tells a
// machine's fault from the numbers'; replicas are compared; iterations are left out. Faults are planted on the last
// rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <string>

#include "tests/fakes/faulty_backend.hpp"
#include "tests/fakes/varying_communicator.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

using parallel::DataSharding;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Sums over ranks of a run.
enum class Sums {
  fixed,    ///< have the same bits at each call
  varying,  ///< differ in rounding from call to call, on a backend that says so
  hidden    ///< the same on a backend that claims to be repeatable
};

/// A run whose products may be faulty.
struct FaultyRun {
  explicit FaultyRun(const Layout& layout, const train::GuardOptions& guards = {}, Sums sums = Sums::fixed,
                     DType dtype = DType::fp64)
      : run(world(), config(guards, dtype), layout,
            [sums](parallel::GridCommunicators& communicators) {
              if (sums == Sums::fixed) return;
              for (auto* group : {&communicators.tensor, &communicators.gradient}) {
                *group = std::make_unique<VaryingCommunicator>(std::move(*group));
              }
            },
            {.make = [this, sums] {
              auto made = std::make_unique<FaultyBackend>(*cpu);
              made->repeatable = sums != Sums::varying;
              backend = made.get();
              return made;
            }}) {}

  static TrainingRunConfig config(const train::GuardOptions& guards, DType dtype = DType::fp64) {
    TrainingRunConfig config;
    config.dtype = dtype;
    config.model.hidden = 16;
    config.model.heads = 4;
    config.model.ffn_hidden = 32;
    config.model.vocabulary = 64;
    config.s = 8;
    config.batch = 4;
    config.steps = 110;
    config.guards = guards;
    return config;
  }
  /// Number of products of this rank in a step.
  int products_of_step() {
    int last = 0;
    backend->after_product = [&](int call, TensorView) { last = call; };
    run.step();
    const int before = last;
    run.step();
    backend->after_product = {};
    return last - before;
  }

  std::unique_ptr<Backend> cpu = make_backend(BackendChoice::cpu, 1);
  FaultyBackend* backend = nullptr;
  TrainingRun run;
};

/// A product of a step.
enum class Product { first, logits, last };

/// Changes one element of a product of every step on the last rank, from now on; only once unless `always`. It becomes
/// infinite, or of the logits large.
void plant_fault(FaultyRun& faulty, Product product, bool always) {
  const int products = faulty.products_of_step();
  if (world().rank() + 1 != world().size()) return;
  const int wanted = product == Product::first ? 1 : products;
  faulty.backend->after_product = [=, first = -1, faults = 0](int call, TensorView result) mutable {
    if (first < 0) first = call;
    const bool is_wanted = product == Product::logits ? result.shape()[result.shape().rank() - 1] >= 64
                                                      : (call - first) % products + 1 == wanted;
    if (!is_wanted || (!always && faults > 0)) return;
    ++faults;
    if (product == Product::logits) {
      result.as<double>()[0] = 1e5;
      return;
    }
    result.as<double>()[result.numel() - 1] = std::numeric_limits<double>::infinity();
  };
}

std::vector<Layout> guarded_layouts() {
  std::vector<Layout> layouts = {"",           "zero1 overlap",    "zero2",         "tp 2 sp",
                                 "pp 2 vpp 2", "pp 2 zero-bubble", "cp 2 uniform 1"};
  if (world().size() == 4) layouts.insert(layouts.end(), {"tp 2 pp 2", "pp 2 zero2"});
  for (Layout& layout : layouts) layout = layout.with("bucket 2000");
  return layouts;
}

std::string named_rank(int rank) { return fmt::format("rank {} on host", rank); }

TEST(Guards, ContinueWithTheCorrectResultAfterAHardwareFault) {
  const int last = world().size() - 1;
  for (const Layout& layout : guarded_layouts()) {
    SCOPED_TRACE(testing::Message() << layout);
    FaultyRun sound(layout), faulty(layout), strict(layout, {.max_machine_faults = 0});
    sound.products_of_step();
    plant_fault(faulty, Product::first, false);
    plant_fault(strict, Product::first, false);
    for (int i = 0; i < 2; ++i) {
      const train::TrainRecord expected = sound.run.step(), record = faulty.run.step();
      EXPECT_EQ(record.lm_loss, expected.lm_loss);
      EXPECT_EQ(record.grad_norm, expected.grad_norm);
      EXPECT_FALSE(record.skipped);
    }
    const auto message = message_of<MachineError>([&] { strict.run.step(); });
    EXPECT_THAT(message, AllOf(HasSubstr("another result"), HasSubstr("a fault of the machine"),
                               HasSubstr(named_rank(last)), HasSubstr("<max_machine_faults> 0 is exceeded")));
    // Ranks of one tensor or context group compute a layer together.
    const parallel::GridPosition here = strict.run.grid.position(last);
    for (int rank = 0; rank < last; ++rank) {
      const parallel::GridPosition there = strict.run.grid.position(rank);
      if (there.data != here.data || there.pipeline != here.pipeline) {
        EXPECT_THAT(message, Not(HasSubstr(named_rank(rank))));
      }
    }
  }
}

TEST(Guards, NameTheFirstNonFiniteOutputIfItRepeats) {
  for (const Layout& layout : guarded_layouts()) {
    SCOPED_TRACE(testing::Message() << layout);
    FaultyRun run(layout);
    plant_fault(run, Product::first, true);
    const int layer = run.run.grid.pipeline_size() == 1 ? 0 : layout.options.parallel.pipeline.chunks ? 1 : 2;
    EXPECT_THAT(message_of<NumericalError>([&] { run.run.step(); }),
                AllOf(HasSubstr("in a second run of the step, too"),
                      HasSubstr(fmt::format("the output of h.{} (layer {}) has ", layer, layer)),
                      HasSubstr("elements that are not finite, on"), HasSubstr(named_rank(world().size() - 1))));
    EXPECT_EQ(run.run.trainer.progress().iteration, 2);  // nothing that could be saved
  }
}

TEST(Guards, NameTheGradientThatIsNotFiniteAndItsRank) {
  for (const Layout& layout : guarded_layouts()) {
    SCOPED_TRACE(testing::Message() << layout);
    FaultyRun run(layout);
    plant_fault(run, Product::last, true);
    const std::string message = message_of<NumericalError>([&] { run.run.step(); });
    EXPECT_THAT(message, AllOf(HasSubstr("the gradient of h."), HasSubstr(".weight in layer "), HasSubstr(" has 1 of "),
                               HasSubstr("not finite, from " + named_rank(world().size() - 1))));
    EXPECT_THAT(message, Not(HasSubstr("more such gradients")));
  }
}

TEST(Guards, NameAWeightThatIsNotFinite) {
  FaultyRun run({});
  const bool here = world().rank() == 1;
  if (here) run.run.gpt.parameters().at("h.2.ln_2.bias").value.as<double>()[3] = -std::nan("");
  EXPECT_THAT(
      message_of<NumericalError>([&] { run.run.step(); }),
      HasSubstr("before the step the weight h.2.ln_2.bias in layer 2 had 1 of 16 elements that are not finite on " +
                named_rank(1)));
}

TEST(Guards, ReportAHardwareFaultIfTheSecondResultDiffersAndIsNotFinite) {
  FaultyRun run({});
  const int products = run.products_of_step();
  int calls = 0;
  if (world().rank() == 1) {
    run.backend->after_product = [&](int, TensorView result) {
      // Another product in each run of the step.
      if (++calls == 1 || calls == products + 30) result.as<double>()[0] = std::nan("");
    };
  }
  const test::TemporaryDirectory directory;
  setenv("TRIREME_FAULTY_NODES", (directory / "nodes").c_str(), 1);
  setenv("SLURMD_NODENAME", fmt::format("node{}", world().rank()).c_str(), 1);
  EXPECT_THAT(message_of<MachineError>([&] { run.run.step(); }),
              AllOf(HasSubstr("The second result is bad, too"), HasSubstr("rank 1 on host node1")));
  unsetenv("TRIREME_FAULTY_NODES");
  unsetenv("SLURMD_NODENAME");
  std::string nodes;
  std::getline(std::ifstream(directory / "nodes"), nodes, '\0');
  EXPECT_EQ(nodes, world().rank() == 0 ? "node1\n" : "");  // for the job's script
}

/// Sets the state of the run after 100 iterations whose largest loss was `largest`.
void note_losses(FaultyRun& run, double largest) {
  Attributes attributes = run.run.trainer.state_attributes();
  for (const char* name : {"iteration", "updates", "noted_losses"}) {
    attributes.put(std::string("state.") + name, std::int64_t{100});
  }
  for (const char* name : {"consumed_samples", "updated_samples"}) {
    attributes.put(std::string("state.") + name, std::int64_t{400});
  }
  attributes.put("state.largest_loss", largest);
  run.run.trainer.restore(attributes);
}

TEST(Guards, SkipUpdatesOfSpikyLossesThatRepeat) {
  for (const bool skip : {false, true}) {
    FaultyRun run({}, {.spiky_loss_factor = 10, .skip_spiky_loss = skip});
    note_losses(run, 1);
    const TensorView values = run.run.gpt.parameters().values();
    const auto weights = [&] { return std::vector<std::byte>(values.data(), values.data() + values.size_bytes()); };
    std::vector<std::byte> before = weights();
    EXPECT_FALSE(run.run.step().skipped);  // a loss of about ln(64)
    EXPECT_NE(weights(), before);
    note_losses(run, 0.4);
    before = weights();
    const train::TrainRecord record = run.run.step();
    EXPECT_EQ(record.skipped, skip);
    EXPECT_EQ(record.skip_reason == train::Skip::spiky, skip);
    EXPECT_EQ(weights() == before, skip);
    EXPECT_EQ(run.run.trainer.progress().skipped_in_row, 0);
  }
}

TEST(Guards, SkipUpdatesThatAreNotFiniteUntilTheyAreASpike) {
  const train::GuardOptions guards{.rewinds = train::RewindOptions{.iterations = 2}};
  FaultyRun run({}, guards);
  plant_fault(run, Product::first, true);
  for (const bool is_spike : {false, true}) {
    const train::TrainRecord record = run.run.step();
    EXPECT_TRUE(record.skipped);
    EXPECT_EQ(record.skip_reason, train::Skip::not_finite);
    EXPECT_EQ(run.run.trainer.spikes().is_spike(*guards.rewinds), is_spike);
  }
  EXPECT_EQ(run.run.trainer.spikes().first_high(), 3);
}

TEST(Guards, AcceptSumsInAnotherOrder) {
  const train::GuardOptions guards{.max_machine_faults = 0, .spiky_loss_factor = 10, .skip_spiky_loss = true};
  for (const DType dtype : {DType::fp64, DType::bf16}) {
    for (const Layout& layout : guarded_layouts()) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << ", " << layout);
      FaultyRun run(layout, guards, Sums::varying, dtype);
      note_losses(run, 0.4);
      EXPECT_EQ(run.run.step().skip_reason, train::Skip::spiky);
    }
  }
  // Bit by bit they differ. The loss of a single step may still round alike in both of its runs.
  FaultyRun hidden("tp 2", guards, Sums::hidden);  // with sums in every layer
  note_losses(hidden, 0.4);
  const auto steps = [&] {
    for (int i = 0; i < 20; ++i) hidden.run.step();
  };
  EXPECT_THAT(message_of<MachineError>(steps), HasSubstr("another result"));
}

TEST(Guards, BoundSumsByTheTypeAndTheNumberOfRoundings) {
  EXPECT_EQ(train::rounding_bound(DType::fp32, 2, 2, 0), 16 * 0x1p-24);
  EXPECT_EQ(train::rounding_bound(DType::fp32, 3, 4, 16), 32 * 0x1p-24);
  EXPECT_EQ(train::rounding_bound(DType::bf16, 72, 8, 64), 0.5);
}

TEST(Guards, NameAFlippedBitBesideSumsOfAnotherOrder) {
  const int last = world().size() - 1;
  for (const DType dtype : {DType::fp64, DType::bf16}) {
    for (const Layout& layout : guarded_layouts()) {
      if (layout.tensor > 1) continue;  // the last rank's logits are padding
      SCOPED_TRACE(testing::Message() << name_of(dtype) << ", " << layout);
      FaultyRun run(layout, {.max_machine_faults = 0, .spiky_loss_factor = 10}, Sums::varying, dtype);
      note_losses(run, 5);
      bool flipped = false;
      if (world().rank() == last) {
        run.backend->after_product = [&](int, TensorView result) {
          if (flipped || result.shape()[result.shape().rank() - 1] < 64) return;  // no logits
          // The highest bit of the exponent: a positive logit of about 0 becomes huge.
          for (std::int64_t i = 0; i < result.numel() && !flipped; ++i) {
            std::byte& high = result.data()[size_of(dtype) * static_cast<std::size_t>(i + 1) - 1];
            flipped = (high & std::byte{0xc0}) == std::byte{0};
            if (flipped) high ^= std::byte{0x40};
          }
        };
      }
      EXPECT_THAT(message_of<MachineError>([&] { run.run.step(); }),
                  AllOf(HasSubstr("that rounding explains"), HasSubstr(named_rank(last))));
    }
  }
}

TEST(Guards, CompareLossesWithTheLargestOfTheFirstHundred) {
  train::Progress progress;
  for (int i = 0; i < 99; ++i) progress.note_loss(1 + i % 3);
  EXPECT_FALSE(progress.is_spiky(1000, 10));
  progress.note_loss(std::nan(""));
  EXPECT_FALSE(progress.is_spiky(1000, 10));
  progress.note_loss(2);
  progress.note_loss(500);  // is not one of the first
  EXPECT_FALSE(progress.is_spiky(29.9, 10));
  EXPECT_TRUE(progress.is_spiky(30, 10));
  EXPECT_FALSE(progress.is_spiky(std::numeric_limits<double>::infinity(), 10));
}

TEST(Guards, FindTheMachineThatMakesASpikyLoss) {
  const train::GuardOptions guards{.spiky_loss_factor = 10};
  FaultyRun sound({}, guards), faulty({}, guards);
  sound.products_of_step();
  plant_fault(faulty, Product::logits, false);
  note_losses(sound, 5);
  note_losses(faulty, 5);
  EXPECT_EQ(faulty.run.step().lm_loss, sound.run.step().lm_loss);
}

TEST(Guards, SkipIterationsOnEveryGrid) {
  SelfCommunicator alone;
  TrainingRunConfig config = FaultyRun::config({.iterations_to_skip = {2, 3}});
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  TrainingRun one(alone, config, {});
  std::vector<train::TrainRecord> expected;
  for (int i = 0; i < 5; ++i) expected.push_back(one.step());
  EXPECT_FALSE(expected[0].skipped);
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {
    EXPECT_TRUE(expected[i].skipped);
    EXPECT_EQ(expected[i].skip_reason, train::Skip::requested);
    EXPECT_TRUE(std::isnan(expected[i].lm_loss));
    EXPECT_EQ(expected[i].consumed_samples, static_cast<std::int64_t>(4 * (i + 1)));
  }
  EXPECT_EQ(one.trainer.progress().skipped, 2);
  EXPECT_EQ(one.trainer.progress().skipped_in_row, 0);
  EXPECT_EQ(one.trainer.state_attributes().texts().at("state.updates"), "3");

  // The next update has the next learning rate and the samples of its iteration.
  TrainingRunConfig whole = config;
  whole.guards = {};
  TrainingRun after_one(alone, whole, {});
  after_one.step();
  EXPECT_NEAR(expected[3].lm_loss / after_one.trainer.evaluate(*after_one.data.train, 12, 1)->loss, 1,
              tolerance(DType::fp64, Comparison::other_order).loss);
  EXPECT_EQ(expected[3].learning_rate, after_one.step().learning_rate);

  for (const Layout& layout : guarded_layouts()) {
    SCOPED_TRACE(testing::Message() << layout);
    TrainingRun run(world(), config, layout);
    for (const train::TrainRecord& record : expected) {
      const double loss = run.step().lm_loss;
      if (!record.skipped) {
        EXPECT_NEAR(loss / record.lm_loss, 1, tolerance(DType::fp64, Comparison::other_order).loss);
      }
    }
  }
}

TEST(Guards, FindExpertsThatDiffer) {
  if (world().size() != 4) GTEST_SKIP() << "needs four ranks, two for each expert";
  TrainingRunConfig config = FaultyRun::config({});
  config.model.linear_bias = false;
  config.model.experts.count = 4;
  TrainingRun run(world(), config, "ep 2");
  run.step();
  run.trainer.check_replicas();
  // Ranks 1 and 3 hold the experts 2 and 3.
  const std::string name = "h.2.mlp.experts.3.proj.weight";
  if (world().rank() == 3) run.gpt.parameters().at(name).value.data()[0] ^= std::byte{1};
  EXPECT_THAT(message_of<MachineError>([&] { run.trainer.check_replicas(); }),
              AllOf(HasSubstr("after iteration 1: the weight " + name + " differ among rank"), HasSubstr(named_rank(1)),
                    HasSubstr(named_rank(3)), Not(HasSubstr(named_rank(2)))));
}

TEST(Guards, FindExpertsThatDifferWhereNothingElseHasReplicas) {
  if (world().size() != 2) GTEST_SKIP() << "needs two ranks, which split all but the experts";
  TrainingRunConfig config = FaultyRun::config({});
  config.model.linear_bias = false;
  config.model.experts.count = 4;
  TrainingRun run(world(), config, "tp 2 ep 1 etp 1");
  run.step();
  run.trainer.check_replicas();
  const std::string name = "h.2.mlp.experts.3.proj.weight";
  if (world().rank() == 1) run.gpt.parameters().at(name).value.data()[0] ^= std::byte{1};
  EXPECT_THAT(message_of<MachineError>([&] { run.trainer.check_replicas(); }), HasSubstr("the weight " + name));
}

TEST(Guards, FindReplicasThatDiffer) {
  for (const Layout& layout : guarded_layouts()) {
    SCOPED_TRACE(testing::Message() << layout);
    FaultyRun run(layout);
    train::Trainer& trainer = run.run.trainer;
    run.run.step();
    trainer.check_replicas();
    if (run.run.gpt.gradient_group().size() == 1) continue;
    // The last rank is of the last stage.
    const bool here = world().rank() + 1 == world().size();
    const auto flip = [&](TensorView data) {
      if (here) data.data()[8 * (data.numel() / 2)] ^= std::byte{1};
    };
    const std::string others = run.run.gpt.gradient_group().size() == 2 ? "of which none is in the majority"
                                                                        : "differ from those on rank 0 on host";
    const auto expect_found = [&](const std::string& tensor) {
      EXPECT_THAT(message_of<MachineError>([&] { trainer.check_replicas(); }),
                  AllOf(HasSubstr("are not the same after iteration 1: " + tensor), HasSubstr(others),
                        HasSubstr(named_rank(world().size() - 1))));
    };
    const std::string name = "h.3.mlp.proj.weight";
    const parallel::Parameter* parameter = here ? &run.run.gpt.parameters().at(name) : nullptr;
    if (here) flip(parameter->value);
    expect_found("the weight " + name + " ");
    if (here) flip(parameter->value);
    trainer.check_replicas();
    if (layout.options.parallel.data_parallel.sharding != DataSharding::none) continue;
    const std::vector<checkpoint::StateTensor> state = trainer.state_tensors();
    const auto moment = std::ranges::find(state, "adamw_m/" + name, &checkpoint::StateTensor::name);
    if (here) flip(moment->data);
    expect_found("adamw_m/" + name + " ");
  }
}

}  // namespace
}  // namespace trireme::test
