#pragma once

#include <cstdint>

#include "src/backend/kernels/gemm.hpp"
#include "src/base/attributes.hpp"
#include "src/model/attention_window.hpp"
#include "src/model/rotary_scaling.hpp"

namespace trireme::model {

/// Far beyond any model that is trained; planning takes time and memory for each layer.
constexpr int max_layers = 2'000;

/// Kind of model. gpt: causal attention, predicts the next token. bert: attention to the full sequence, predicts
/// masked tokens and with a binary head the order of two segments (Devlin et al. 2019, arXiv:1810.04805).
enum class ModelFamily { gpt, bert };
enum class Normalization { layer_norm, rms_norm };
enum class PositionEmbedding { learned_absolute, rope };
/// Place of a layer's normalisations. pre: before attention and feed-forward block, outside the residual stream, and
/// one after the last layer. post: on each sum of residual and branch, and on the embeddings (BERT's original).
enum class NormPlacement { pre, post };
/// Result that a model is trained for. pretraining: tokens, and of a BERT with a binary head the order of two segments.
/// classes: the class of a sample. choices: the right one of several samples that follow one another. spans: the first
/// and the last position of an answer in the sample. A BERT classifies by the first position and a pooler, a GPT by
/// its last token.
enum class ModelOutput { pretraining, classes, choices, spans };

/// The shape of a model. The defaults are GPT-2's: pre-norm layers, layer normalisation, learned positions, GELU,
/// biases, output head tied to the token embedding. A Llama has RMSNorm, rotary positions, SwiGLU, an untied head and
/// no biases. Often it has fewer heads of keys and values (grouped-query attention, Ainslie et al. 2023,
/// arXiv:2305.13245). A BERT has token types and two output heads; its layers are pre- or post-norm.
struct ModelConfig {
  ModelFamily family = ModelFamily::gpt;
  int layers = 12;
  std::int64_t hidden = 768;
  std::int64_t heads = 12;
  std::int64_t kv_channels = 0;   ///< channels of a head; 0: hidden / heads
  std::int64_t query_groups = 0;  ///< heads of keys and values, each read by as many query heads; 0: `heads`
  std::int64_t ffn_hidden = 3072;
  std::int64_t max_positions = 1024;
  std::int64_t vocabulary = 50257;  ///< true size, without padding
  Activation activation = Activation::gelu_tanh;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  double norm_epsilon = 1e-5;
  Normalization normalization = Normalization::layer_norm;
  bool norm_1p = false;  ///< the weights of norms are stored as the difference from 1
  PositionEmbedding position_embedding = PositionEmbedding::learned_absolute;
  double rotary_base = 10000;
  double rotary_percent = 1;  ///< fraction of a head's channels that rotate
  RotaryScaling rotary_scaling = {};
  AttentionWindow window = {};
  bool gated = false;  ///< the feed-forward block has a gate with SiLU (SwiGLU) instead of `activation`
  bool linear_bias = true;
  bool qk_norm = false;   ///< the channels of each head of queries and keys are normalised, before they rotate
  bool qkv_bias = false;  ///< queries, keys and values have biases even where other linear layers have none
  bool tied_output = true;
  NormPlacement norm_placement = NormPlacement::pre;  ///< post: BERT alone
  bool binary_head = true;  ///< BERT: token types, a pooler and the prediction of the order of segments
  ModelOutput output = ModelOutput::pretraining;
  std::int64_t classes = 2;  ///< number of classes or choices, where the output is one of these

  bool is_bert() const { return family == ModelFamily::bert; }
  /// Returns whether a position attends to itself and earlier ones only.
  bool causal() const { return !is_bert(); }
  /// Returns whether the model predicts tokens, as in pretraining.
  bool predicts_tokens() const { return output == ModelOutput::pretraining; }
  /// Returns whether the model tells two segments apart.
  bool has_token_types() const { return is_bert() && binary_head; }
  /// Returns whether the model predicts the order of two segments.
  bool has_binary_head() const { return has_token_types() && predicts_tokens(); }
  /// Returns whether the output head shares the token embedding.
  bool has_tied_head() const { return tied_output && predicts_tokens(); }
  /// Returns whether the model classifies by a pooled first position, rather than its last token.
  bool has_task_pooler() const { return is_bert() && !predicts_tokens() && output != ModelOutput::spans; }
  /// Consecutive samples that have a label in common.
  std::int64_t samples_per_label() const { return output == ModelOutput::choices ? classes : 1; }
  /// Outputs of the last linear layer of a task's head.
  std::int64_t task_outputs() const {
    return output == ModelOutput::classes ? classes : output == ModelOutput::spans ? 2 : 1;
  }
  bool post_norm() const { return norm_placement == NormPlacement::post; }
  std::int64_t head_dim() const { return kv_channels == 0 ? hidden / heads : kv_channels; }
  /// Columns of all heads of queries: the input of attention's last product.
  std::int64_t attention_columns() const { return heads * head_dim(); }
  bool has_qkv_bias() const { return linear_bias || qkv_bias; }
  std::int64_t kv_heads() const { return query_groups == 0 ? heads : query_groups; }
  /// Channels of a head that rotate; 0 without rotary positions.
  std::int64_t rotary_channels() const {
    return position_embedding == PositionEmbedding::rope
               ? static_cast<std::int64_t>(rotary_percent * static_cast<double>(head_dim()))
               : 0;
  }
  /// Columns of the feed-forward block's first product; with a gate those of gate and up.
  std::int64_t expansion() const { return gated ? 2 * ffn_hidden : ffn_hidden; }
};

/// The default feed-forward width of a hidden size: 4 h, or with a gate two thirds of it, down to a multiple of 64,
/// so that three matrices have about the parameters of two.
std::int64_t default_ffn_hidden(std::int64_t hidden, bool gated);

/// Throws one ConfigError that lists everything that cannot work.
void validate(const ModelConfig& config);
/// Throws ConfigError if a sequence is longer than the model's positions.
void check_sequence_length(const ModelConfig& config, std::int64_t sequence_length);

/// Name of a model's architecture. `gpt` is any mix of the parts of gpt2 and llama.
enum class Architecture { gpt2, llama, gpt, bert };
/// gpt2: layer normalisation, learned positions, GELU, biases, a tied output head, heads of hidden / heads channels, as
/// many of keys and values as of queries. llama: RMSNorm, rotary positions over full heads, SwiGLU and no biases; its
/// output may be tied, and its queries grouped. Neither has windows of attention. bert: every model of that family.
Architecture architecture_of(const ModelConfig& config);

/// The shape as the attributes "model.*" of a checkpoint, and back; dropout is not one of them. CheckpointError if a
/// value is missing or malformed, or the model impossible.
Attributes attributes_of(const ModelConfig& config);
ModelConfig config_from(const Attributes& attributes);

}  // namespace trireme::model
