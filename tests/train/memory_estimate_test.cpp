#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/train/memory_estimate.hpp"
#include "tests/train/one_rank.hpp"

namespace trireme::train {
namespace {

TEST(MemoryEstimate, MatchesTheAllocator) {
  for (const test::ModelVariant& variant : test::model_variants()) {
    for (const auto& [dtype, granularity] : std::vector<std::pair<DType, model::RecomputeGranularity>>{
             {DType::fp64, model::RecomputeGranularity::none},
             {DType::bf16, model::RecomputeGranularity::none},
             {DType::fp16, model::RecomputeGranularity::full},
             {DType::bf16, model::RecomputeGranularity::selective}}) {
      SCOPED_TRACE(testing::Message() << variant.name << ", " << name_of(dtype));
      ExecutionConfig layout = layout_of(dtype, 16, 4);
      layout.recomputation.granularity = granularity;
      layout.max_predictions = 8;
      Rig rig(layout, small_config(variant, 0));
      TrainOptions options = train_options(8);
      const bool packed = granularity == model::RecomputeGranularity::none && !rig.gpt.config().is_bert();
      options.documents = {.reset_position_ids = packed, .reset_attention_mask = packed};
      Trainer trainer(rig.gpt, options);
      const auto samples = formula_samples(rig.gpt.config());
      trainer.step(*samples);
      trainer.evaluate(*samples, 0, 1);
      const MemoryEstimate estimate =
          estimate_memory(*rig.backend, rig.gpt.config(), rig.gpt.execution(), options, rig.grid, 0);
      EXPECT_EQ(rig.backend->peak_allocated_bytes(), estimate.total());
      EXPECT_EQ(rig.gpt.parameters().values().size_bytes(), estimate.parameters);
      EXPECT_EQ(rig.gpt.parameters().gradients().size_bytes(), estimate.gradients);
      EXPECT_GE(estimate.activations, rig.gpt.stage().activations().peak_bytes());
      // Ids, targets, weights and numbers of the batch and the next one; the rest are three sums, one of them the
      // guard's. A BERT has targets and weights, with their rows, of at most 8 positions, and the inverse of these
      // rows.
      const bool selects = rig.gpt.config().is_bert() && rig.gpt.config().predicts_tokens();
      const std::size_t of_target = 4 + size_of(accumulation_type(dtype));
      const std::size_t targets = selects ? 8 * (of_target + 4) + 16 * 4 : 16 * of_target;
      const std::size_t batch = 2 * 4 * (16 * 4 + targets + 8);
      // A BERT's samples have a length, and for a binary head token types, a label and its weight. The rest has then
      // one sum more, and the scores of two micro-batches evaluated.
      const std::size_t binary = rig.gpt.config().has_binary_head() ? 1 : 0;
      const std::size_t of_bert = (rig.gpt.config().is_bert() ? 64 : 0) + binary * (2 * 4 * 16 * 4 + 2 * 64);
      const std::size_t of_documents = packed ? 2 * 2 * 4 * 16 * 4 : 0;  // positions and first visible ones
      // Tokens, targets and weights further ahead, and a sum of their losses.
      const auto depths = static_cast<std::size_t>(rig.gpt.config().ahead.depths);
      const std::size_t of_ahead = 2 * 4 * depths * 16 * (4 + 4 + size_of(accumulation_type(dtype)));
      const std::size_t sums = 3 + 3 * binary + (depths > 0 ? 1 : 0);
      // Loads of the experts of each layer.
      const model::ModelConfig& model = rig.gpt.config();
      const auto count = static_cast<std::size_t>(model.experts.count);
      std::size_t of_experts = 0;
      for (int layer = 0; layer < model.all_layers(); ++layer) {
        const std::size_t size_bytes = (2 * count + 3) * size_of(accumulation_type(dtype));
        if (model.has_experts(layer)) of_experts += (size_bytes + 63) / 64 * 64;
      }
      // Two tables of ranges, of at most as many rows as there are parameters.
      const std::size_t others = 2 * (batch + of_bert + of_documents + of_ahead) + sums * 64 + of_experts;
      const std::size_t table =
          64 + sizeof(std::int64_t) * UpdateRanges::columns * rig.gpt.parameters().parameters().size();
      EXPECT_GE(estimate.batches, others + 2 * 64);
      EXPECT_LE(estimate.batches, others + 2 * table);
      std::size_t state = 0;
      for (const checkpoint::StateTensor& tensor : trainer.state_tensors()) state += tensor.data.size_bytes();
      EXPECT_EQ(estimate.state.all, state);
      const MinMemory minimum = min_memory(rig.gpt.config(), rig.gpt.execution(), rig.grid, options.optimizer);
      const auto parameters = static_cast<double>(estimate.parameters + estimate.gradients + estimate.optimizer);
      EXPECT_LE(minimum.parameters, parameters);
      EXPECT_GE(minimum.parameters, 0.5 * parameters);
      EXPECT_LE(minimum.total(), static_cast<double>(estimate.total()));

      // SGD keeps one moment less.
      options.optimizer.kind = optim::OptimizerKind::sgd;
      const std::size_t moment = trainer.optimizer_bytes() / (2 + (accumulation_type(dtype) == dtype ? 0 : 1));
      const MemoryEstimate of_sgd =
          estimate_memory(*rig.backend, rig.gpt.config(), rig.gpt.execution(), options, rig.grid, 0);
      EXPECT_EQ(of_sgd.optimizer, estimate.optimizer - moment);
      const MinMemory min_of_sgd = min_memory(rig.gpt.config(), rig.gpt.execution(), rig.grid, options.optimizer);
      EXPECT_LT(min_of_sgd.parameters, minimum.parameters);
      EXPECT_LE(min_of_sgd.total(), static_cast<double>(of_sgd.total()));
    }
  }
}

TEST(MemoryEstimate, CountsTensorsInDedicatedBlocks) {
  model::ModelConfig config = small_config();
  config.layers = 2;
  config.hidden = 128;
  config.ffn_hidden = 512;
  config.max_positions = 256;
  Rig rig(layout_of(DType::fp32, 256, 4), config);
  TrainOptions options = train_options(4);
  Trainer trainer(rig.gpt, options);
  trainer.step(FormulaSamples(256));
  const MemoryEstimate estimate =
      estimate_memory(*rig.backend, rig.gpt.config(), rig.gpt.execution(), options, rig.grid, 0);
  EXPECT_EQ(rig.backend->peak_allocated_bytes(), estimate.total());
  // The small allocations of all layers share one block of 4 MiB.
  EXPECT_LT(estimate.activations, rig.gpt.stage().activations().peak_bytes() + (std::size_t{4} << 20));
}

/// Memory of training with a vocabulary whose logits are the largest tensor, as the allocator counts it. Also expects
/// the estimate to be that.
std::size_t peak_with_chunks(DType dtype, std::int64_t chunks, bool is_bert) {
  model::ModelConfig config = small_config();
  config.vocabulary = 20'000;
  if (is_bert) config.family = model::ModelFamily::bert;
  ExecutionConfig layout = layout_of(dtype, 16, 8);
  layout.cross_entropy_chunks = chunks;
  Rig rig(layout, config);
  TrainOptions options = train_options(16);
  Trainer trainer(rig.gpt, options);
  const auto samples = formula_samples(config);
  trainer.step(*samples);
  trainer.evaluate(*samples, 0, 1);
  const std::size_t peak = rig.backend->peak_allocated_bytes();
  EXPECT_EQ(peak, estimate_memory(*rig.backend, config, layout, options, rig.grid, 0).total());
  const MinMemory minimum = min_memory(config, layout, rig.grid, options.optimizer);
  EXPECT_LE(minimum.total(), static_cast<double>(peak));
  return peak;
}

TEST(MemoryEstimate, ChunksOfTheCrossEntropyRemoveTheLogits) {
  for (const bool is_bert : {false, true}) {
    SCOPED_TRACE(is_bert);
    const DType dtype = is_bert ? DType::fp32 : DType::bf16;
    const std::size_t whole = peak_with_chunks(dtype, 1, is_bert);
    const std::size_t row = 20'096 * size_of(dtype);  // the vocabulary is padded to a multiple of 128
    const std::size_t logits = 16 * 8 * row, of_chunk = 43 * row;
    EXPECT_NEAR(static_cast<double>(whole - peak_with_chunks(dtype, 3, is_bert)),
                static_cast<double>(logits - of_chunk), 0.02 * static_cast<double>(logits));
    // A chunk of one row fits into the memory that other work has left.
    EXPECT_GT(whole - peak_with_chunks(dtype, 128, is_bert), logits * 95 / 100);
  }
}

TEST(LayerActivations, OneFormulaOfTheLiteratureApplies) {
  model::ModelConfig config = small_config();
  config.heads = 4;
  ExecutionConfig layout = layout_of(DType::bf16, 16, 4);
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  const double sbh = 16 * 4 * 32;
  const auto applying = [&](int tensor_size) {
    double bytes = 0;
    for (const auto& published : layer_activations(*backend, config, layout, {tensor_size, tensor_size, 1}).published) {
      if (published.applies) bytes += published.bytes;
    }
    return bytes / sbh;
  };
  EXPECT_DOUBLE_EQ(applying(1), 10 + 24 + 5 * 4 * 16 / 32.0);
  EXPECT_DOUBLE_EQ(applying(2), 10 + 12 + 5 * 4 * 16 / 64.0);
  layout.parallel.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(applying(2), 17 + 5 * 4 * 16 / 64.0);
  layout.recomputation.granularity = model::RecomputeGranularity::selective;
  EXPECT_DOUBLE_EQ(applying(2), 17);
  layout.parallel.sequence_parallel = false;
  EXPECT_DOUBLE_EQ(applying(2), 22);
  layout.recomputation.granularity = model::RecomputeGranularity::full;
  EXPECT_DOUBLE_EQ(applying(2), 2);
  layout.recomputation.distribute = true;
  EXPECT_DOUBLE_EQ(applying(2), 1);
  // A layer alone keeps its input only.
  EXPECT_EQ(layer_activations(*backend, config, layout, {2, 2, 1}).kept, sbh);
}

}  // namespace
}  // namespace trireme::train
