#include "src/exchange/families/family.hpp"

namespace trireme::exchange {
namespace {

using model::ModelOutput;

/// Logit for which the probability of a token is 0 in every type.
constexpr double never = -10000;

/// Parts of a pretrained model that the tensors of a class or of files have besides the layers.
struct Parts {
  bool pooler = true;  ///< dense layer over the first position
  bool tokens = true;  ///< the head that predicts tokens
  bool order = true;   ///< the head that predicts the order of segments
  std::string base = "bert.";
};

TensorMap map_parts(const model::ModelConfig& config, const MapOptions& options, const Parts& parts) {
  TensorMapBuilder map(config);
  const std::string embeddings = parts.base + "embeddings.";
  map.tokens("emb.word", embeddings + "word_embeddings.weight", options.vocabulary_rows,
             config.predicts_tokens() && parts.tokens ? std::vector<std::string>{"cls.predictions.decoder.weight"}
                                                      : std::vector<std::string>{},
             0);
  map.same("emb.pos", embeddings + "position_embeddings.weight");
  map.same("emb.type", embeddings + "token_type_embeddings.weight");
  map_layer(map, "emb.ln", embeddings + "LayerNorm");
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string ours = layer_prefix(layer);
    const std::string theirs = fmt::format("{}encoder.layer.{}.", parts.base, layer);
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
  if (parts.pooler) map_layer(map, "pooler", parts.base + "pooler.dense");
  if (config.predicts_tokens()) {
    for (const auto& [prefix, is_there] :
         {std::pair{"pooler.", parts.pooler}, {"mlm.", parts.tokens}, {"sop.", parts.order}}) {
      if (!is_there) map.initial(prefix);
    }
    if (parts.order) map_layer(map, "sop", "cls.seq_relationship");
    if (!parts.tokens) return map.finish();
    map_layer(map, "mlm.dense", "cls.predictions.transform.dense");
    map_layer(map, "mlm.ln", "cls.predictions.transform.LayerNorm");
    map.tokens("mlm.out.bias", "cls.predictions.bias", options.vocabulary_rows, {"cls.predictions.decoder.bias"},
               never);
  } else if (config.output == ModelOutput::spans) {
    map_layer(map, "spans", "qa_outputs");
  } else {
    map_layer(map, "classifier", "classifier");
  }
  return map.finish();
}

/// Maps the parts of a class, and further ones that files have. Tensors of the model without any head lack the prefix;
/// its files may lack the pooler.
template <bool pooler, bool tokens, bool order>
TensorMap map_bert(const model::ModelConfig& config, const MapOptions& options) {
  constexpr bool is_base = pooler && !tokens;
  const std::string base = is_base ? "" : "bert.";
  const auto has = [&](const std::string& tensor) { return options.has_tensor && options.has_tensor(tensor); };
  const bool needs_pooler = pooler && !(is_base && options.has_tensor);
  return map_parts(config, options,
                   {.pooler = needs_pooler || has(base + "pooler.dense.weight"),
                    .tokens = tokens || has("cls.predictions.transform.dense.weight"),
                    .order = order || has("cls.seq_relationship.weight"),
                    .base = base});
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
      .map = map_bert<true, true, true>,
      .base = "bert.",
      .older = {{".LayerNorm.weight", ".LayerNorm.gamma"}, {".LayerNorm.bias", ".LayerNorm.beta"}},
      .buffers = {"embeddings.position_ids", "embeddings.token_type_ids"},
  };
}

}  // namespace

std::vector<ModelClass> bert_family() {
  ModelClass masked = bert_class<ModelOutput::pretraining>("BertForMaskedLM");
  masked.map = map_bert<false, true, false>;
  masked.fuller = "BertForPreTraining";  // which the files of the first published models have
  ModelClass base = bert_class<ModelOutput::pretraining>("BertModel");
  base.map = map_bert<true, false, false>;
  base.base = "";
  // The encoder alone: each task has another head.
  ModelClass tokens = bert_class<ModelOutput::pretraining>("BertForTokenClassification");
  tokens.map = map_bert<false, false, false>;
  tokens.left_out = {"classifier.weight", "classifier.bias"};
  tokens.exported_as = base.name;
  ModelClass spans = bert_class<ModelOutput::spans>("BertForQuestionAnswering");
  spans.left_out = {"bert.pooler.dense.weight", "bert.pooler.dense.bias"};  // parts of older files without effect
  return {bert_class<ModelOutput::pretraining>("BertForPreTraining"),
          masked,
          base,
          tokens,
          bert_class<ModelOutput::classes>("BertForSequenceClassification"),
          bert_class<ModelOutput::choices>("BertForMultipleChoice"),
          spans};
}

}  // namespace trireme::exchange
