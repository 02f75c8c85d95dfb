#include "src/optim/optimizer.hpp"

#include <gtest/gtest.h>

#include "src/backend/forwarding_backend.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/optim/make_optimizer.hpp"
#include "tests/optim/optimizer_rig.hpp"

namespace trireme::optim {
namespace {

using namespace test;

/// Type of AdamW's moments.
enum class Moments { fp32, bf16 };

/// Every optimizer, in every training type.
class AnyOptimizer : public testing::TestWithParam<std::tuple<OptimizerKind, DType, Moments>> {
 protected:
  OptimizerKind kind() const { return std::get<OptimizerKind>(GetParam()); }
  DType dtype() const { return std::get<DType>(GetParam()); }
  std::unique_ptr<Optimizer> make(ParameterBuffer& buffer) {
    OptimizerOptions options{.kind = kind()};
    options.offload = offload_;
    if (std::get<Moments>(GetParam()) == Moments::bf16) options.adamw = {0.9, 0.95, 1e-8, DType::bf16, DType::bf16};
    return make_optimizer(*backend_, buffer, {{self_, self_, self_}}, options);
  }
  std::unique_ptr<Backend> backend_ = make_backend(BackendChoice::cpu, 1);
  SelfCommunicator self_;
  Offload offload_;
};
INSTANTIATE_TEST_SUITE_P(Types, AnyOptimizer,
                         testing::Combine(testing::Values(OptimizerKind::adam, OptimizerKind::sgd, OptimizerKind::muon),
                                          testing::Values(DType::fp64, DType::fp32, DType::bf16, DType::fp16),
                                          testing::Values(Moments::fp32)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", name_of(std::get<0>(info.param)),
                                              name_of(std::get<1>(info.param)));
                         });

INSTANTIATE_TEST_SUITE_P(MomentsOfSixteenBits, AnyOptimizer,
                         testing::Combine(testing::Values(OptimizerKind::adam),
                                          testing::Values(DType::fp32, DType::bf16, DType::fp16),
                                          testing::Values(Moments::bf16)),
                         [](const auto& info) { return std::string(name_of(std::get<1>(info.param))); });

TEST_P(AnyOptimizer, LeavesPaddingAndTheGapsBetweenParametersZero) {
  Backend& b = *backend_;
  ParameterBuffer buffer(b, dtype(), parameters());
  fill_values(b, buffer);
  const std::unique_ptr<Optimizer> optimizer = make(buffer);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    fill_gradients(b, buffer, step);
    optimizer->step(0.1, 1);
  }
  const std::vector<double> values = values_of(b, buffer.values());
  std::vector<bool> held(values.size(), false);
  for (std::size_t i = 0; i < buffer.parameters().size(); ++i) {
    const auto begin = held.begin() + buffer.layout().offset(i);
    std::fill(begin, begin + buffer.parameters()[i].box.numel(), true);
  }
  std::size_t others = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (held[i]) continue;
    EXPECT_EQ(values[i], 0) << "element " << i;
    ++others;
  }
  EXPECT_GE(others, 6u);
  for (const Optimizer::State& state : optimizer->state(0)) {
    EXPECT_EQ(values_of(b, state.data.flat(15, 6)), std::vector<double>(6, 0)) << state.kind;
  }
}

/// Counts the kernels that update.
class CountingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  int updates = 0;

 private:
  void begin(Stream&, const KernelCall& call) override { updates += call.kind == KernelKind::optimizer ? 1 : 0; }
};

TEST(UpdateOfABucket, TakesOneCallForAllRates) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::sgd}) {
    for (const std::int64_t bucket_elements : {0, 50}) {
      CountingBackend b(*backend);
      SelfCommunicator self;
      ParameterBuffer buffer(b, DType::bf16, parameters(), {.bucket_elements = bucket_elements});
      const std::unique_ptr<Optimizer> optimizer = make_optimizer(b, buffer, {{self, self, self}}, {.kind = kind});
      optimizer->step(0.1, 1);
      EXPECT_EQ(b.updates, bucket_elements == 0 ? 1 : 4) << name_of(kind) << ", " << bucket_elements;
      EXPECT_EQ(static_cast<std::size_t>(b.updates), buffer.layout().buckets().size());
    }
  }
}

// Pieces end inside parameters, and more of them than slots are in flight.
TEST_P(AnyOptimizer, ComputesTheSameBitsWithItsStateInHostMemory) {
  if (kind() == OptimizerKind::muon) {
    EXPECT_THROW(check_offload({.kind = OptimizerKind::muon, .offload = {.fraction = 0.5}}), ConfigError);
    return;
  }
  Backend& b = *backend_;
  ParameterBuffer kept(b, dtype(), parameters(), {.bucket_elements = 50});
  fill_values(b, kept);
  const std::unique_ptr<Optimizer> reference = make(kept);
  std::size_t last_host_bytes = 0;
  for (const double fraction : {0.4, 1.0}) {
    offload_ = {.fraction = fraction, .piece_elements = 16};
    ParameterBuffer buffer(b, dtype(), parameters(), {.bucket_elements = 50});
    fill_values(b, buffer);
    const std::unique_ptr<Optimizer> optimizer = make(buffer);
    // The host may write the state at once, as a load does.
    for (std::size_t i = 0; i < kept.parameters().size(); ++i) {
      const std::vector<Optimizer::State> from = reference->state(i), to = optimizer->state(i);
      for (std::size_t k = 0; k < from.size(); ++k) {
        b.elementwise().convert(b.compute_stream(), from[k].data, to[k].data);
      }
    }
    optimizer->restore(reference->updates());
    EXPECT_EQ(bytes_of(b, buffer.values()), bytes_of(b, kept.values()));
    for (int step = 1; step <= 3; ++step) {
      const auto seed = static_cast<std::uint64_t>(reference->updates() + 1);
      for (const auto& [parameters, updated] : {std::pair{&kept, reference.get()}, {&buffer, optimizer.get()}}) {
        fill_gradients(b, *parameters, seed);
        updated->step(0.01, 0.5);
      }
    }
    EXPECT_EQ(bytes_of(b, buffer.values()), bytes_of(b, kept.values()));
    for (std::size_t i = 0; i < kept.parameters().size(); ++i) {
      const std::vector<Optimizer::State> expected = reference->state(i), actual = optimizer->state(i);
      for (std::size_t k = 0; k < expected.size(); ++k) {
        EXPECT_EQ(bytes_of(b, actual[k].data), bytes_of(b, expected[k].data)) << kept.parameters()[i].name;
      }
    }
    EXPECT_GE(static_cast<double>(optimizer->host_bytes()), fraction * static_cast<double>(reference->bytes()));
    EXPECT_GT(optimizer->host_bytes(), last_host_bytes);
    last_host_bytes = optimizer->host_bytes();
  }
  EXPECT_EQ(last_host_bytes, reference->bytes());
  EXPECT_EQ(reference->host_bytes(), 0u);
}

TEST_P(AnyOptimizer, ContinuesBitwiseFromARestoredState) {
  Backend& b = *backend_;
  ParameterBuffer first(b, dtype(), parameters());
  fill_values(b, first);
  const std::unique_ptr<Optimizer> one = make(first);
  fill_gradients(b, first, 1);
  one->step(0.01, 1);

  ParameterBuffer second(b, dtype(), parameters());
  const std::unique_ptr<Optimizer> other = make(second);
  for (std::size_t i = 0; i < first.parameters().size(); ++i) {
    const std::vector<Optimizer::State> from = one->state(i), to = other->state(i);
    for (std::size_t k = 0; k < from.size(); ++k) {
      b.elementwise().convert(b.compute_stream(), from[k].data, to[k].data);
    }
  }
  other->restore(one->updates());
  EXPECT_EQ(bytes_of(b, second.values()), bytes_of(b, first.values()));
  for (std::uint64_t step = 2; step <= 4; ++step) {
    fill_gradients(b, first, step);
    fill_gradients(b, second, step);
    one->step(0.01, 0.5);
    other->step(0.01, 0.5);
  }
  EXPECT_EQ(other->updates(), 4);
  EXPECT_EQ(bytes_of(b, second.values()), bytes_of(b, first.values()));
}

TEST_P(AnyOptimizer, UpdatesShardsLikeTheUnshardedParameter) {
  if (kind() == OptimizerKind::muon) GTEST_SKIP() << "shards of matrices are brought together: see muon_test";
  Backend& b = *backend_;
  ParameterBuffer whole(b, dtype(), parameters());
  fill_values(b, whole);
  const std::unique_ptr<Optimizer> reference = make(whole);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    fill_gradients(b, whole, step);
    reference->step(0.01, 0.5);
  }
  constexpr int shards = 3;
  std::size_t bytes = 0;
  for (int shard = 0; shard < shards; ++shard) {
    // Small buckets, whose bounds divide parameters.
    ParameterBuffer buffer(b, dtype(), parameters(),
                           {.sharding = parallel::DataSharding::optimizer, .bucket_elements = 50}, {{shards, shard}});
    fill_values(b, buffer);
    const std::unique_ptr<Optimizer> optimizer = make(buffer);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      fill_gradients(b, buffer, step);
      optimizer->step(0.01, 0.5);
    }
    for (std::size_t i = 0; i < buffer.parameters().size(); ++i) {
      const parallel::ShardRange own = buffer.shard_range(i);
      const std::vector<Optimizer::State> actual = optimizer->state(i), expected = reference->state(i);
      for (std::size_t k = 0; k < expected.size(); ++k) {
        EXPECT_EQ(actual[k].kind, expected[k].kind);
        EXPECT_EQ(values_of(b, actual[k].data), values_of(b, expected[k].data.flat(own.begin, own.count)))
            << expected[k].kind << " of " << buffer.parameters()[i].name << ", shard " << shard;
      }
    }
    bytes += optimizer->bytes();
  }
  EXPECT_GE(bytes, reference->bytes());
  EXPECT_LT(bytes, 2 * reference->bytes());
}

TEST(MomentBytes, AreThoseOfTheArraysOfAParameter) {
  OptimizerOptions options;
  EXPECT_EQ(moment_bytes(options, DType::fp64), 16u);
  EXPECT_EQ(moment_bytes(options, DType::bf16), 8u);
  options.adamw.exp_avg_dtype = DType::bf16;
  EXPECT_EQ(moment_bytes(options, DType::bf16), 6u);
  options.adamw.exp_avg_sq_dtype = DType::bf16;
  EXPECT_EQ(moment_bytes(options, DType::fp32), 4u);
  options.kind = OptimizerKind::sgd;
  EXPECT_EQ(moment_bytes(options, DType::fp32), 4u);
}

TEST(OptimizerAttributes, KeepTheKindAndItsOptions) {
  OptimizerOptions options;
  EXPECT_EQ(attributes_of(options), (Attributes{{"optimizer", "adam"},
                                                {"training.weight-decay", "0.01"},
                                                {"training.adam-beta1", "0.9"},
                                                {"training.adam-beta2", "0.999"},
                                                {"training.adam-eps", "1e-08"}}));
  options.decays_all = true;
  EXPECT_EQ(attributes_of(options).texts().at("training.do-layernorm-bias-weight-decay"), "true");
  options.adamw.exp_avg_dtype = DType::bf16;
  EXPECT_EQ(attributes_of(options).texts().at("training.exp-avg-dtype"), "bf16");
  EXPECT_FALSE(attributes_of(options).contains("training.exp-avg-sq-dtype"));
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::muon, OptimizerKind::sgd}) {
    options.kind = kind;
    EXPECT_EQ(optimizer_from(attributes_of(options)), kind);
    EXPECT_EQ(attributes_of(options).texts().at("optimizer"), name_of(kind));
  }
  EXPECT_EQ(attributes_of(options).texts().at("training.sgd-momentum"), "0.9");
  EXPECT_EQ(optimizer_from({}), OptimizerKind::adam);  // an older checkpoint
  EXPECT_THROW(optimizer_from({{"optimizer", "lion"}}), CheckpointError);
}

}  // namespace
}  // namespace trireme::optim
