#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/backend/kernels/experts.hpp"
#include "src/backend/kernels/gemm.hpp"
#include "src/backend/kernels/rotary.hpp"
#include "src/base/attributes.hpp"

namespace trireme::model {

/// Far beyond any real model. Bounds the time and memory of planning, which grow with the layers.
constexpr int max_layers = 2'000;
/// Experts of a layer that the routing kernels support.
constexpr std::int64_t max_experts = 512;

/// Kind of model. gpt: causal attention, predicts the next token. bert: attention to the full sequence, predicts
/// masked tokens and with a binary head the order of two segments (Devlin et al. 2019, arXiv:1810.04805).
enum class ModelFamily { gpt, bert };
enum class Normalization { layer_norm, rms_norm };
/// alibi: none but biases of attention scores (AttentionProblem::alibi_heads).
enum class PositionEmbedding { learned_absolute, rope, alibi };
/// Place of a layer's norms. pre: on the input of attention and feed-forward block, and on the last layer's result.
/// post: on each sum of residual and branch, and on the embeddings (BERT's original).
enum class NormPlacement { pre, post };
/// Output that a model is trained for. pretraining: tokens, and for a BERT with a binary head the order of two
/// segments. classes: the class of a sample, or its value. choices: the right one of several consecutive samples.
/// spans: the first and last position of an answer in the sample. A BERT classifies by the first position and a pooler,
/// a GPT by its last token.
enum class ModelOutput { pretraining, classes, choices, spans };

/// Sliding-window attention of a causal model: in some or all layers, a query attends to itself and to the `left`
/// positions before it, as in Mistral (Jiang et al. 2023, arXiv:2310.06825). Other layers attend to all earlier
/// positions.
struct AttentionWindow {
  std::int64_t left = -1;  ///< negative: all earlier positions in every layer
  /// For each layer, '1' if it has a window and '0' if it attends to all earlier positions; empty: all have one.
  std::string layers;

  /// Windows in all of `layers` except every `frequency`-th.
  static AttentionWindow every(std::int64_t left, std::int64_t frequency, int layers);
  /// Windows in the layers that have a '1' in `pattern`. Equal windows compare equal, whichever function made them.
  static AttentionWindow of_layers(std::int64_t left, std::string pattern);

  bool any() const { return left >= 0; }
  /// AttentionProblem::window of a layer, counted from 0 over the full model. Repeats `layers` past their end.
  std::int64_t of(int layer) const {
    return layers.empty() || layers[static_cast<std::size_t>(layer) % layers.size()] == '1' ? left : -1;
  }
};

/// Loss that balances the load of the experts: for each micro-batch, for each sequence, or with the loads of the last
/// global batch.
enum class BalanceLoss { micro_batch, sequence, global, none };
/// One of the losses that are added up, each times its coefficient.
struct BalanceTerm {
  BalanceLoss loss = BalanceLoss::micro_batch;
  double coefficient = 0;

  bool operator==(const BalanceTerm&) const = default;
};

/// Feed-forward blocks with experts (mixture of experts: Shazeer et al. 2017, arXiv:1701.06538): each token is computed
/// by a few of them. Names and meanings are Megatron Core's.
struct ExpertConfig {
  std::int64_t count = 0;          ///< experts of a layer; 0: no layer has any
  std::int64_t per_token = 2;      ///< experts that compute a token
  std::int64_t ffn_hidden = 0;     ///< width of an expert; 0: that of a dense block
  std::int64_t shared_hidden = 0;  ///< width of a block that computes every token too; 0: none
  /// For each layer, '1' if it has experts and '0' if it is dense; empty: all have.
  std::string layers = {};
  RouterScore score = RouterScore::softmax;
  bool pre_softmax = false;  ///< softmax over all experts, not over the chosen ones: RouterProblem::softmax_of_chosen
  double scaling = 1;        ///< factor of the weights of the chosen experts
  std::int64_t groups = 1;
  std::int64_t groups_per_token = 1;
  bool fp32_router =
      false;  ///< logits are computed in fp32 from inputs and weights of 16 bits, not in the training type
  /// Experts are chosen by sigmoid scores plus a bias, which updates move against their load (Wang et al. 2024,
  /// arXiv:2408.15664).
  bool router_bias = false;
  // Training only.
  std::vector<BalanceTerm> balance = {{}};  ///< each loss once
  double z_coefficient = 0;
  double bias_update_rate = 1e-3;  ///< change of a router's bias in an update
  double capacity_factor = 0;      ///< an expert computes at most factor x its even share of a micro-batch; 0: no limit
  double jitter_eps = 0;           ///< RouterJitter::eps of the routers' inputs
  bool drop_by_position = false;   ///< beyond the capacity, later tokens are dropped, not those of smaller weight

  /// Value of `layers` for experts in layer 0 and every `frequency`-th after it, of `layers` layers.
  static std::string every(std::int64_t frequency, int layers);

  bool any() const { return count > 0; }
  /// The terms of `balance` that have an effect.
  std::vector<BalanceTerm> balance_terms() const;
  /// Returns whether such a term has this loss.
  bool balances_by(BalanceLoss loss) const;
  /// Returns whether layer `layer`, counted from 0 over the full model, has experts. Repeats `layers` past their end.
  bool in_layer(int layer) const {
    return any() && (layers.empty() || layers[static_cast<std::size_t>(layer) % layers.size()] == '1');
  }
};

/// Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434): low-rank products compute keys and values, and
/// optionally queries, from latents. Names and meanings are Megatron Core's.
struct LatentAttention {
  bool used = false;
  std::int64_t query_rank = 0;   ///< width of the latent of queries; 0: they are computed from the layer's input
  std::int64_t kv_rank = 32;     ///< width of the latent of keys and values
  std::int64_t head_dim = 128;   ///< channels of a head of queries and keys that do not rotate
  std::int64_t rotary_dim = 64;  ///< further channels, which rotate; all heads share those of keys
  std::int64_t value_dim = 128;  ///< channels of a head of values
};

/// Multi-token prediction (DeepSeek-AI 2024, arXiv:2412.19437, section 2.2): in training, module k = 1 ... `depths`
/// also predicts the token k places after the next one (AheadPrediction). Names and meanings are Megatron Core's.
struct MultiTokenPrediction {
  int depths = 0;            ///< modules; 0: none
  double loss_factor = 0.1;  ///< factor of the mean of their losses in the training loss
};

/// Adapters of low rank (LoRA: Hu et al. 2021, arXiv:2106.09685): each linear layer W x of the layers that is a target
/// becomes W x + scale() B A x, and only A [rank, in] and B [out, rank] are trained. Linear layers are named as in
/// Megatron Bridge, without "linear_". A layer's fused weights share an A: queries, keys and values, or with grouped
/// queries keys and values; gate and up.
struct LowRankAdapters {
  static constexpr int target_count = 4;
  std::int64_t rank = 0;  ///< 0: none
  double alpha = 32;
  bool rank_stabilised = false;  ///< scale alpha / sqrt(rank) (Kalajdzievski 2023, arXiv:2312.03732)
  /// Linear layers with adapters: qkv, proj (attention's output), fc1 and fc2. Those of latents count as qkv, those of
  /// experts and of the shared block beside them as fc1 and fc2; routers have none.
  std::array<bool, target_count> targets = {true, true, true, true};

  bool any() const { return rank > 0; }
  /// alpha / rank, or alpha / sqrt(rank).
  double scale() const;
  /// Returns whether there is an adapter of the linear layer called `prefix`: "h.0.attn.qkv".
  bool adapt(std::string_view prefix) const;
  /// Returns whether a parameter is part of an adapter, by its name.
  static bool has(std::string_view parameter) { return parameter.find(".lora_") != std::string_view::npos; }
};

enum class RotaryScalingKind { none, llama3, yarn };

/// Scaling of the rotary frequencies for sequences longer than those of an earlier training. There, channel pair i of
/// frequency f = base^(-2 i / channels) made n = positions f / 2 pi turns. Pairs with many turns keep their frequency,
/// those with few get f / factor, and those in between f (t + (1 - t) / factor):
///   llama3 (Llama 3.1; Dubey et al. 2024, arXiv:2407.21783): t = (n - slow_turns) / (fast_turns - slow_turns);
///   yarn (Peng et al. 2023, arXiv:2309.00071): t = (last - i) / (last - first), where first and last are the pairs of
///   fast_turns and slow_turns, i = channels ln(positions / 2 pi n) / (2 ln base), rounded down and up. Sines and
///   cosines are multiplied by m(mscale) / m(mscale_all_dim), m(x) = 0.1 x ln(factor) + 1, hence scores by its square.
///   In latent attention all scores are further multiplied by m(mscale_all_dim)^2.
/// Interpolation divides all positions, with every kind (Chen et al. 2023, arXiv:2306.15595).
struct RotaryScaling {
  RotaryScalingKind kind = RotaryScalingKind::none;
  double factor = 1;           ///< ratio of the new sequence length to the earlier one
  std::int64_t positions = 0;  ///< positions of the earlier training
  double slow_turns = 1;
  double fast_turns = 32;
  double mscale = 1;          ///< yarn
  double mscale_all_dim = 0;  ///< yarn
  double interpolation = 1;   ///< divides positions

  /// m(x) of yarn.
  double yarn_magnitude(double x) const;
  /// Returns Llama 3.1's constants: 8192 positions, 1 and 4 turns.
  static RotaryScaling llama3(double factor) { return {RotaryScalingKind::llama3, factor, 8192, 1, 4}; }

  /// Rotation for `channels` channels of a head.
  RotaryEmbedding embedding(std::int64_t channels, double base) const;
};

/// The shape of a model. The defaults are GPT-2's: pre-norm layers, layer normalisation, learned positions, GELU,
/// biases, output head tied to the token embedding. A Llama has RMSNorm, rotary positions, SwiGLU, an untied head, no
/// biases, and often grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245). A BERT has token types and two
/// output heads; its layers are pre- or post-norm.
struct ModelConfig {
  ModelFamily family = ModelFamily::gpt;
  int layers = 12;
  std::int64_t hidden = 768;
  std::int64_t heads = 12;
  std::int64_t kv_channels = 0;  ///< channels of a head; 0: hidden / heads
  LatentAttention latent = {};
  std::int64_t query_groups = 0;  ///< heads of keys and values; each serves heads / query_groups queries; 0: `heads`
  std::int64_t ffn_hidden = 3072;
  std::int64_t max_positions = 1024;
  std::int64_t vocabulary = 50257;  ///< true size, without padding
  Activation activation = Activation::gelu_tanh;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  double norm_epsilon = 1e-5;
  Normalization normalization = Normalization::layer_norm;
  bool norm_1p = false;  ///< norm weights are stored as the difference from 1
  PositionEmbedding position_embedding = PositionEmbedding::learned_absolute;
  double rotary_base = 10000;
  double rotary_base_local = 0;  ///< base of layers with a window, whose frequencies are not scaled; 0: as in others
  double rotary_percent = 1;     ///< fraction of a head's channels that rotate
  RotaryScaling rotary_scaling = {};
  AttentionWindow window = {};
  bool gated = false;                  ///< the feed-forward block is gated; replaces `activation`
  Activation gate = Activation::silu;  ///< silu (SwiGLU) or gelu_tanh (GeGLU), of the gates
  bool linear_bias = true;
  /// Each head of queries and keys is normalised over its channels, before rotation; in latent attention, the latents.
  bool qk_norm = false;
  bool qk_norm_across_heads = false;  ///< QK norm is over the channels of all heads together
  bool qkv_bias = false;              ///< queries, keys and values have biases even if other linear layers have none
  bool embedding_norm = false;        ///< token embeddings are normalised
  bool scaled_alibi = false;          ///< ALiBi's biases are divided by the root of a head's channels
  bool scaled_embedding = false;      ///< token embeddings are multiplied by sqrt(hidden)
  std::int64_t query_scalar = 0;      ///< scores are divided by its square root; 0: channels of a head
  double attention_soft_cap = 0;      ///< scores x become c tanh(x / c); 0: they stay
  double logit_soft_cap = 0;          ///< the same of the logits of tokens
  bool tied_output = true;
  bool parallel_residual = false;  ///< attention and feed-forward block read the same input: ResidualForm
  bool post_branch_norm = false;   ///< norms are on the results of branches, not on their inputs: ResidualForm
  bool sandwich_norm = false;      ///< norms are on the inputs of branches and on their results: ResidualForm
  bool shared_norm = false;        ///< the two branches of a parallel layer read one norm's result
  ExpertConfig experts = {};
  MultiTokenPrediction ahead = {};
  LowRankAdapters adapters = {};
  NormPlacement norm_placement = NormPlacement::pre;  ///< post: BERT only
  bool binary_head = true;  ///< BERT: token types, a pooler and the prediction of the order of segments
  ModelOutput output = ModelOutput::pretraining;
  std::int64_t classes = 2;  ///< number of classes or choices, if the output is one of these; one class is a value

  bool is_bert() const { return family == ModelFamily::bert; }
  /// Returns whether a position attends only to itself and earlier ones.
  bool causal() const { return !is_bert(); }
  /// Returns whether the model predicts tokens, as in pretraining.
  bool predicts_tokens() const { return output == ModelOutput::pretraining; }
  /// Returns whether the model embeds the segment of each token.
  bool has_token_types() const { return is_bert() && binary_head; }
  /// Returns whether the model predicts the order of two segments.
  bool has_binary_head() const { return has_token_types() && predicts_tokens(); }
  /// Returns whether the output head shares the token embedding.
  bool has_tied_head() const { return tied_output && predicts_tokens(); }
  /// Returns whether the model has modules that predict further tokens in training.
  bool predicts_ahead() const { return ahead.depths > 0 && predicts_tokens(); }
  /// Returns whether the last stage reads the token embedding: for the output, or to predict further tokens.
  bool has_table_in_head() const { return has_tied_head() || predicts_ahead(); }
  /// Transformer layers, with those that predict further tokens. The latter follow the others in number.
  int all_layers() const { return layers + (predicts_ahead() ? ahead.depths : 0); }
  /// Layer whose kind (experts, window, rotation) layer `layer` has: itself, or the last layer before those that
  /// predict further tokens.
  int kind_of(int layer) const { return layer < layers ? layer : layers - 1; }
  bool has_experts(int layer) const { return experts.in_layer(kind_of(layer)); }
  /// Returns whether updates move the biases of routers.
  bool moves_router_biases() const { return experts.router_bias && experts.bias_update_rate > 0 && !adapters.any(); }
  /// Returns whether an update depends on the number of tokens in a micro-batch, padding included: by losses of
  /// routers, by capacities, or by biases that move.
  bool counts_padding() const {
    return experts.any() && (!experts.balance_terms().empty() || experts.z_coefficient > 0 ||
                             experts.capacity_factor > 0 || moves_router_biases());
  }
  /// Returns whether the model classifies by a pooled first position, rather than its last token.
  bool has_task_pooler() const { return is_bert() && !predicts_tokens() && output != ModelOutput::spans; }
  /// Consecutive samples that share a label.
  std::int64_t samples_per_label() const { return output == ModelOutput::choices ? classes : 1; }
  /// Outputs of the last linear layer of a task's head.
  std::int64_t task_outputs() const {
    return output == ModelOutput::classes ? classes : output == ModelOutput::spans ? 2 : 1;
  }
  bool post_norm() const { return norm_placement == NormPlacement::post; }
  /// Channels of a head of queries and keys.
  std::int64_t head_dim() const {
    if (latent.used) return latent.head_dim + latent.rotary_dim;
    return kv_channels == 0 ? hidden / heads : kv_channels;
  }
  /// Channels of a head of values.
  std::int64_t value_dim() const { return latent.used ? latent.value_dim : head_dim(); }
  std::int64_t attention_columns() const { return heads * head_dim(); }
  /// Columns of the output of all heads: the input width of attention's output projection.
  std::int64_t value_columns() const { return heads * value_dim(); }
  bool has_qkv_bias() const { return linear_bias || qkv_bias; }
  std::int64_t kv_heads() const { return query_groups == 0 ? heads : query_groups; }
  /// Factor of the products of queries and keys.
  double score_scale() const;
  /// Rotation of queries and keys in a layer, counted from 0 over the full model.
  RotaryEmbedding rotary_of(int layer) const;
  /// Channels of a head that rotate; 0 without rotary positions.
  std::int64_t rotary_channels() const {
    if (latent.used) return latent.rotary_dim;
    return position_embedding == PositionEmbedding::rope
               ? static_cast<std::int64_t>(rotary_percent * static_cast<double>(head_dim()))
               : 0;
  }
  /// Columns of a dense feed-forward block's first layer; with a gate, of gate and up together.
  std::int64_t expansion() const { return gated ? 2 * ffn_hidden : ffn_hidden; }
  /// Width of an expert.
  std::int64_t expert_ffn_hidden() const { return experts.ffn_hidden == 0 ? ffn_hidden : experts.ffn_hidden; }
};

/// Default feed-forward width: 4 h, or with a gate two thirds of that, rounded down to a multiple of 64, so that three
/// matrices have about as many parameters as two.
std::int64_t default_ffn_hidden(std::int64_t hidden, bool gated);

/// Throws one ConfigError that lists all invalid fields and combinations.
void validate(const ModelConfig& config);
/// Throws ConfigError if a sequence is longer than the model's positions.
void check_sequence_length(const ModelConfig& config, std::int64_t sequence_length);

/// Architecture of a model. `gpt` is any other mix of the parts of gpt2 and llama, and every GPT with experts.
enum class Architecture { gpt2, llama, gpt, bert };
/// gpt2: layer normalisation, learned positions, GELU, biases, a tied output head, heads of hidden / heads channels, no
/// grouped queries. llama: RMSNorm, rotary positions over full heads, SwiGLU and no biases; its output may be tied, and
/// its queries grouped. Neither has sliding windows, parallel branches, soft caps or experts. bert: every model of that
/// family.
Architecture architecture_of(const ModelConfig& config);

/// Converts the shape to the attributes "model.*" of a checkpoint, and back; dropout is not among them. Throws
/// CheckpointError if a value is missing or malformed, or the model is invalid.
Attributes attributes_of(const ModelConfig& config);
ModelConfig config_from(const Attributes& attributes);

}  // namespace trireme::model
