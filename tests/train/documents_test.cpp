// Samples of several documents: a model computes the same as for each document alone.
#include <gtest/gtest.h>

#include <cmath>

#include "src/base/hash.hpp"
#include "tests/train/one_rank.hpp"

namespace trireme::train {
namespace {

using Texts = std::vector<std::vector<std::int32_t>>;

/// Samples of packed documents, all of the same total length. The last token of each document predicts nothing.
class PackedRows final : public data::NextTokenSamples {
 public:
  explicit PackedRows(std::vector<Texts> rows)
      : NextTokenSamples(data::DocumentEnds::unlabelled), rows_(std::move(rows)) {}
  std::int64_t size() const override { return std::ssize(rows_); }
  std::int64_t sequence_length() const override {
    std::int64_t length = 0;
    for (const auto& document : rows_.front()) length += std::ssize(document);
    return length;
  }
  void read_text(std::int64_t index, std::span<std::int32_t> text) const override {
    std::size_t place = 0;
    for (const auto& document : rows_.at(static_cast<std::size_t>(index))) {
      for (const std::int32_t token : document) text[place++] = token;
    }
    text[place] = -1;
  }
  std::vector<std::int64_t> document_starts(std::int64_t index) const override {
    std::vector<std::int64_t> starts;
    for (const auto& document : rows_.at(static_cast<std::size_t>(index))) {
      starts.push_back((starts.empty() ? 0 : starts.back()) + std::ssize(document));
    }
    return starts;
  }

 private:
  std::vector<Texts> rows_;
};

struct Result {
  double loss = 0;
  std::vector<double> gradients;
};

/// Computes the sum of losses of a micro-batch of these rows, and the parameter gradients.
Result compute(const model::ModelConfig& config, const model::Recomputation& recomputation,
               const std::vector<Texts>& rows, const DocumentOptions& documents) {
  const PackedRows source(rows);
  const std::int64_t s = source.sequence_length(), b = source.size();
  ExecutionConfig layout = layout_of(DType::fp64, s, b);
  layout.recomputation = recomputation;
  Rig rig(layout, config, 0.3);
  BatchLoader loader(*rig.backend, parallel::SequenceShard::of(s), b, 1, DType::fp64, sample_fields(config, documents));
  std::vector<BatchLoader::Sample> samples;
  for (std::int64_t i = 0; i < b; ++i) samples.push_back({i, i});
  model::StageMode mode;
  mode.backward = true;
  rig.gpt.run(loader.load(source, samples), mode);
  rig.gpt.reduce_gradients();
  const TensorView gradients = rig.gpt.parameters().gradients();
  return {rig.gpt.take_global_loss_sums().tokens, {gradients.as<double>(), gradients.as<double>() + gradients.numel()}};
}

std::vector<Texts> packed_rows() {
  std::vector<Texts> rows;
  std::uint64_t tokens = 0;
  for (const std::vector<std::size_t>& lengths : {std::vector<std::size_t>{5, 1, 7, 3}, {4, 12}, {16}}) {
    Texts& documents = rows.emplace_back();
    for (const std::size_t length : lengths) {
      std::vector<std::int32_t>& document = documents.emplace_back(length);
      for (std::int32_t& token : document) token = static_cast<std::int32_t>(splitmix64(1, tokens++) % 50);
    }
  }
  return rows;
}

TEST(Documents, PackedInARowMatchSeparateDocuments) {
  const std::vector<Texts> rows = packed_rows();
  const DocumentOptions apart{.reset_position_ids = true, .reset_attention_mask = true};
  for (const test::ModelVariant& variant : test::model_variants()) {
    const model::ModelConfig config = small_config(variant, 0);
    if (config.is_bert()) continue;
    Result alone;
    for (const Texts& documents : rows) {
      for (const auto& document : documents) {
        const Result result = compute(config, {}, {{document}}, {});
        alone.loss += result.loss;
        alone.gradients.resize(result.gradients.size());
        for (std::size_t i = 0; i < result.gradients.size(); ++i) alone.gradients[i] += result.gradients[i];
      }
    }
    double norm = 0;
    for (const double gradient : alone.gradients) norm += gradient * gradient;
    norm = std::sqrt(norm);
    const bool is_plain = variant.name == "GPT-2" || variant.name == "rope";
    for (const auto granularity : {model::RecomputeGranularity::none, model::RecomputeGranularity::selective,
                                   model::RecomputeGranularity::full}) {
      if (!is_plain && granularity != model::RecomputeGranularity::none) continue;
      SCOPED_TRACE(testing::Message() << variant.name << ", recomputation " << static_cast<int>(granularity));
      const Result packed = compute(config, {.granularity = granularity}, rows, apart);
      EXPECT_NEAR(packed.loss / alone.loss, 1, 1e-12);
      ASSERT_EQ(packed.gradients.size(), alone.gradients.size());
      for (std::size_t i = 0; i < alone.gradients.size(); ++i) {
        ASSERT_NEAR(packed.gradients[i], alone.gradients[i], 1e-12 * norm) << "gradient " << i;
      }
    }
    if (!is_plain) continue;
    // Neither option suffices alone, except with rotary positions, where scores depend only on the distance.
    const bool rotates = config.position_embedding == model::PositionEmbedding::rope;
    for (const DocumentOptions& half : {DocumentOptions{.reset_position_ids = true}, {.reset_attention_mask = true}}) {
      const double loss = compute(config, {}, rows, half).loss;
      EXPECT_EQ(std::abs(loss / alone.loss - 1) < 1e-9, rotates && half.reset_attention_mask) << variant.name;
    }
  }
}

}  // namespace
}  // namespace trireme::train
