#include "src/app/run_config/precision_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/app/run_config/device_options.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/forwarding_backend.hpp"
#include "tests/app/run_config/read_config.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::app {
namespace {

train::TrainOptions options_of(const Words& words) { return read(gpt + words).train_options(); }

TEST(PrecisionOptions, RefusesGuardsThatWouldDoNothing) {
  expect_refused(gpt + "--max-skipped 3", "--max-skipped needs --no-check-for-nan-in-loss-and-grad or fp16");
  EXPECT_EQ(options_of("--max-skipped 3 --no-check-for-nan-in-loss-and-grad").max_skipped, 3);
  EXPECT_EQ(options_of("--max-skipped 3 --fp16").max_skipped, 3);
  expect_refused(gpt + "--max-machine-faults 1 --fp16", "--max-machine-faults excludes");
  EXPECT_EQ(options_of("--max-machine-faults 1").guards.max_machine_faults, 1);
  expect_refused(gpt + "--skip-spiky-loss", "--skip-spiky-loss needs --check-for-spiky-loss");
  expect_refused(gpt + "--spiky-loss-factor 5", "--spiky-loss-factor needs --check-for-spiky-loss");
  EXPECT_EQ(options_of("--check-for-spiky-loss").guards.spiky_loss_factor, 10);
  expect_refused(gpt + "--rewind-on-spike --save saved", "--rewind-on-spike needs --save and --save-interval");
  expect_refused(gpt + "--rewind-on-spike --save saved --save-interval 5 --no-save-optim",
                 "--rewind-on-spike and --no-save-optim exclude each other");
  for (const char* option : {"--spike-z-score 3", "--spike-iterations 4", "--rewind-distance 5", "--max-rewinds 6"}) {
    expect_refused(gpt + option, "needs --rewind-on-spike");
  }
  const train::TrainOptions rewinds = options_of(
      "--rewind-on-spike --save saved --save-interval 5 --spike-z-score 3 --spike-iterations 4 --rewind-distance 5 "
      "--max-rewinds 6");
  EXPECT_EQ(rewinds.guards.rewinds->z_score, 3);
  EXPECT_EQ(rewinds.guards.rewinds->iterations, 4);
  EXPECT_EQ(rewinds.guards.rewinds->distance, 5);
  EXPECT_EQ(rewinds.guards.rewinds->max_rewinds, 6);
  EXPECT_EQ(attributes_of(rewinds).texts().at("training.spike-z-score"), "3");
  EXPECT_FALSE(options_of("").guards.rewinds);
  expect_refused(gpt + "--iterations-to-skip 3 0",
                 "--iterations-to-skip 3 0 has the element '0', which must be at least 1");
  EXPECT_EQ(options_of("--iterations-to-skip 7 3").guards.iterations_to_skip, (std::set<std::int64_t>{3, 7}));
  const Attributes attributes = attributes_of(options_of("--iterations-to-skip 7 3"));
  EXPECT_EQ(attributes.texts().at("training.iterations-to-skip"), "3 7");
}

parallel::Fp8Options fp8_of(const Words& words) { return read(gpt + words).execution_config().fp8; }

TEST(PrecisionOptions, ChooseProductsInFp8) {
  EXPECT_FALSE(fp8_of("--bf16").used);
  const parallel::Fp8Options plain = fp8_of("--fp8-format hybrid");
  EXPECT_TRUE(plain.used && plain.hybrid && plain.weight_gradients && !plain.largest_of_history);
  EXPECT_EQ(plain.recipe, parallel::Fp8Recipe::delayed);
  const parallel::Fp8Options other = fp8_of(
      "--fp8-format e4m3 --fp8-margin 1 --fp8-amax-history-len 1024 --fp8-amax-compute-algo max --no-fp8-wgrad "
      "--first-last-layers-bf16 --num-layers-at-end-in-bf16 2");
  EXPECT_TRUE(other.used && !other.hybrid && !other.weight_gradients && other.largest_of_history);
  EXPECT_EQ(other.margin, 1);
  EXPECT_EQ(other.history, 1024);
  EXPECT_EQ(other.first_layers, 1);
  EXPECT_EQ(other.last_layers, 2);
  const Attributes attributes = train::attributes_of(other);
  EXPECT_EQ(attributes.texts().at("training.fp8-format"), "e4m3");
  EXPECT_EQ(attributes.texts().at("training.num-layers-at-end-in-bf16"), "2");
  EXPECT_TRUE(train::attributes_of(parallel::Fp8Options{}).texts().empty());
}

TEST(PrecisionOptions, RefuseWhatFp8DoesNotSupport) {
  expect_refused(gpt + "--fp8-recipe tensorwise", "--fp8-recipe needs --fp8-format");
  expect_refused(gpt + "--no-fp8-wgrad", "--no-fp8-wgrad needs --fp8-format");
  const Words hybrid = gpt + "--fp8-format hybrid";
  expect_refused(hybrid + "--fp8-recipe tensorwise --fp8-amax-history-len 2",
                 "--fp8-amax-history-len needs --fp8-recipe delayed");
  expect_refused(hybrid + "--num-layers-at-start-in-bf16 2",
                 "--num-layers-at-start-in-bf16 needs --fp8-format and --first-last-layers-bf16");
  expect_refused(hybrid + "--fp16", "--fp8-format does not support fp16: use --bf16");
  expect_refused(hybrid + "--first-last-layers-bf16 --num-layers-at-start-in-bf16 11",
                 "--num-layers-at-start-in-bf16 11 and --num-layers-at-end-in-bf16 1 leave none of the 12 layers");
  expect_refused(
      hybrid + "--fp8-recipe blockwise --tp 4",
      "--fp8-format with --fp8-recipe blockwise: channels of a tensor rank's heads, 192, must be a multiple of "
      "128");
  expect_refused(hybrid + "--context-parallel-size 2",
                 "tokens of a micro-batch on a rank, 8, must be a multiple of 16");
  expect_refused(hybrid + "--fp8-recipe tensorwise --tp 2 --sequence-parallel --tp-comm-overlap-chunks 2",
                 "--fp8-recipe tensorwise and --tp-comm-overlap-chunks exclude each other");
  expect_refused(hybrid + "--fp8-recipe blockwise --variable-seq-lengths",
                 "--fp8-recipe blockwise and --variable-seq-lengths exclude each other");
}

/// A backend that lacks an ability.
class Without final : public ForwardingBackend {
 public:
  Without(Backend& inner, Capability missing) : ForwardingBackend(inner), missing_(missing) {}
  std::string description() const override { return "GPU 0"; }
  bool supports(Capability capability) const override { return capability != missing_ && inner().supports(capability); }

 private:
  Capability missing_;
};

TEST(PrecisionOptions, ProductsInFp8NeedAGpuThatHasThem) {
  const std::unique_ptr<Backend> cpu = cpu::make_backend(1);
  const Without old(*cpu, Capability::fp8), ada(*cpu, Capability::fp8_blocks);
  const parallel::Fp8Options tensorwise{.used = true, .recipe = parallel::Fp8Recipe::tensorwise};
  const parallel::Fp8Options blockwise{.used = true, .recipe = parallel::Fp8Recipe::blockwise};
  check_training_type(old, DType::bf16);
  EXPECT_EQ(test::message_of([&] { check_training_type(old, DType::bf16, tensorwise); }),
            "--fp8-format: GPUs have products in FP8 from compute capability 8.9 on (L40S, H100), and this is GPU 0; "
            "leave it out, or use --backend cpu");
  check_training_type(ada, DType::bf16, tensorwise);
  EXPECT_EQ(test::message_of([&] { check_training_type(ada, DType::bf16, blockwise); }),
            "--fp8-recipe blockwise needs a GPU of compute capability 9.0 (H100, H200) and cuBLASLt of CUDA 12.9; "
            "use --fp8-recipe delayed, or --backend cpu");
  check_training_type(*cpu, DType::bf16, blockwise);
}

}  // namespace
}  // namespace trireme::app
