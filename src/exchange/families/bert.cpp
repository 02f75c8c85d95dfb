#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

using model::ModelOutput;

/// Logit for which the probability of a token is 0 in every type.
constexpr double never = -10000;

TensorMap map_bert(const model::ModelConfig& config, const MapOptions& options) {
  TensorMapBuilder map(config);
  const std::string embeddings = "bert.embeddings.";
  map.tokens("emb.word", embeddings + "word_embeddings.weight", options.vocabulary_rows,
             config.predicts_tokens() ? std::vector<std::string>{"cls.predictions.decoder.weight"}
                                      : std::vector<std::string>{},
             0);
  map.same("emb.pos", embeddings + "position_embeddings.weight");
  map.same("emb.type", embeddings + "token_type_embeddings.weight");
  map_layer(map, "emb.ln", embeddings + "LayerNorm");
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string ours = layer_prefix(layer);
    const std::string theirs = fmt::format("bert.encoder.layer.{}.", layer);
    for (const std::string suffix : {"weight", "bias"}) {
      const std::string self = theirs + "attention.self.";
      map.split_heads(ours + ".attn", suffix, self + "query." + suffix, self + "key." + suffix,
                      self + "value." + suffix);
    }
    map_layer(map, ours + ".attn.proj", theirs + "attention.output.dense");
    map_layer(map, ours + ".ln_1", theirs + "attention.output.LayerNorm");
    map_layer(map, ours + ".mlp.fc", theirs + "intermediate.dense");
    map_layer(map, ours + ".mlp.proj", theirs + "output.dense");
    map_layer(map, ours + ".ln_2", theirs + "output.LayerNorm");
  }
  map_layer(map, "pooler", "bert.pooler.dense");
  if (config.predicts_tokens()) {
    map_layer(map, "mlm.dense", "cls.predictions.transform.dense");
    map_layer(map, "mlm.ln", "cls.predictions.transform.LayerNorm");
    map.tokens("mlm.out.bias", "cls.predictions.bias", options.vocabulary_rows, {"cls.predictions.decoder.bias"},
               never);
    map_layer(map, "sop", "cls.seq_relationship");
  } else if (config.output == ModelOutput::spans) {
    map_layer(map, "spans", "qa_outputs");
  } else {
    map_layer(map, "classifier", "classifier");
  }
  return map.finish();
}

template <ModelOutput output>
ModelClass bert_class(std::string_view name) {
  return {
      .name = name,
      .type = "bert",
      .defaults =
          "model-type bert apply-residual-connection-post-layernorm gelu erf layernorm-epsilon 1e-12 "
          "max-position-embeddings 512 vocab-size 30522",
      .fits = [](const model::ModelConfig& config) { return config.is_bert() && config.output == output; },
      .keys = &model::ConfigKeys::bert,
      .fixed = {{"type_vocab_size", std::int64_t{2}, "samples have two segments", true},
                {"position_embedding_type", std::string_view("absolute"), "only learned positions are supported"},
                {"is_decoder", false, "a BERT attends to the entire sequence"},
                {"tie_word_embeddings", true, "the output of a BERT is tied to its token embedding"}},
      .output = output,
      .map = map_bert,
      .base = "bert.",
      .older = {{".LayerNorm.weight", ".LayerNorm.gamma"}, {".LayerNorm.bias", ".LayerNorm.beta"}},
      .buffers = {"embeddings.position_ids", "embeddings.token_type_ids"},
  };
}

}  // namespace

std::vector<ModelClass> bert_family() {
  return {bert_class<ModelOutput::pretraining>("BertForPreTraining"),
          bert_class<ModelOutput::classes>("BertForSequenceClassification"),
          bert_class<ModelOutput::choices>("BertForMultipleChoice"),
          bert_class<ModelOutput::spans>("BertForQuestionAnswering")};
}

}  // namespace trireme::exchange
