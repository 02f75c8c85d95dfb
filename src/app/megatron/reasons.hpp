#pragma once

#include <string_view>

/// Reasons shared by several flags of Megatron-LM. Those of absent flags end with the nearest alternative.
namespace trireme::app::megatron::why {

inline constexpr std::string_view activation =
    "this variant of the model is absent; nearest: leave it out, or another option of the model in trireme train "
    "--help";
inline constexpr std::string_view attention = "there is only one implementation; its attention is tiled";
inline constexpr std::string_view bits = "this type of 8 or 4 bits is absent; nearest: --fp8-format";
inline constexpr std::string_view checkpoints = "nearest: --load, --save";
inline constexpr std::string_view clusters = "nearest: leave it out";
inline constexpr std::string_view deepspeed =
    "this part of DeepSpeed is absent; nearest: --data-parallel-sharding-strategy, --recompute-granularity";
inline constexpr std::string_view distillation =
    "distillation and quantisation are absent; nearest: a run without the option";
inline constexpr std::string_view encoders = "this kind of model is absent; nearest: --model-type gpt or bert";
inline constexpr std::string_view every_example = "every example counts";
inline constexpr std::string_view experts =
    "this setting of experts is absent; nearest: leave it out, or another --moe- option in trireme train --help";
inline constexpr std::string_view experts_of_deepspeed =
    "DeepSpeed's experts drop tokens at random, which is absent; nearest: --disable-moe-token-dropping, and "
    "--disable-bias-linear because experts have no biases here";
inline constexpr std::string_view experts_keep_tokens = "--disable-moe-token-dropping: no expert has a capacity";
inline constexpr std::string_view faults =
    "nearest: --distributed-timeout-minutes, --save-interval and exit codes that a batch file reads";
inline constexpr std::string_view format = "one format: any grid loads any checkpoint, and corpora are read in place";
inline constexpr std::string_view fsdp =
    "parameters are not sharded over data ranks; nearest: --data-parallel-sharding-strategy optim_grads";
inline constexpr std::string_view fusion = "chooses among Megatron-LM's kernels; results agree to rounding";
inline constexpr std::string_view generation = "this kind of generation is absent; nearest: leave it out";
inline constexpr std::string_view graphs = "nearest: --cuda-graphs";
inline constexpr std::string_view held = "is checked against the checkpoint";
inline constexpr std::string_view hybrid =
    "layers other than attention and feed-forward are absent; nearest: a GPT of as many --num-layers";
inline constexpr std::string_view images = "models of images are absent; nearest: --model-type gpt or bert, on text";
inline constexpr std::string_view inference = "training generates no text; nearest: trireme generate";
inline constexpr std::string_view initial = "this initialisation is absent; nearest: --init-method-std, --init-scale";
inline constexpr std::string_view latent = "this form of attention is absent; nearest: --group-query-attention";
inline constexpr std::string_view loaded = "checkpoints are saved and loaded completely";
inline constexpr std::string_view network = "tunes Megatron-LM's communication; results do not depend on it";
inline constexpr std::string_view not_yet = "not in this release of Trireme";
inline constexpr std::string_view nothing = "is the default";
inline constexpr std::string_view offload =
    "host memory keeps entire layers' activations and the optimizer's state; nearest: --cpu-offloading-num-layers, "
    "--optimizer-cpu-offload";
inline constexpr std::string_view one_expert = "one expert is a dense layer";
inline constexpr std::string_view optimizers = "nearest: --optimizer adam or sgd";
inline constexpr std::string_view positions =
    "this form of positions is absent; nearest: --position-embedding-type rope";
inline constexpr std::string_view curves = "is how TensorBoard's files are written";
inline constexpr std::string_view process = "tunes Python, PyTorch or their loaders, which are not used";
inline constexpr std::string_view profilers = "this profiler is absent; nearest: --trace-file";
inline constexpr std::string_view retrieval = "retrieval is absent; nearest: --model-type bert";
inline constexpr std::string_view rng = "random numbers depend only on --seed and the sample, so no state is saved";
inline constexpr std::string_view samples =
    "this choice of samples is absent; nearest: --data-path with weights, --split";
inline constexpr std::string_view server = "tunes the memory of a server";
inline constexpr std::string_view signals = "SIGUSR1 and SIGTERM always save and stop";
inline constexpr std::string_view softmax = "softmax, normalisation and attention scores are computed in fp32";
inline constexpr std::string_view prompt_lines =
    "prompts are lines of JSON; nearest: --prompts FILE --output FILE, with {\"prompt\": TEXT} for each text";
inline constexpr std::string_view standard_output =
    "the text goes to standard output; nearest: > FILE, or --output FILE beside --prompts";
inline constexpr std::string_view text = "trireme corpus build read the text: the corpus has its tokens";
inline constexpr std::string_view tokenizer = "the corpus holds its tokenizer";
inline constexpr std::string_view two_experts =
    "the balance loss of two experts counts first choices alone there; nearest: --moe-router-topk 2 instead of --topk "
    "2";
inline constexpr std::string_view upcycling =
    "dense models are converted only by trireme train; nearest: trireme train --moe-use-upcycling";
inline constexpr std::string_view unwritten =
    "is not written; --tensorboard-dir and --metrics-file write the same numbers";
inline constexpr std::string_view unlogged = "logs what is not measured here; the run is the same";
inline constexpr std::string_view unused = "is ignored by this command";
inline constexpr std::string_view zero_shot = "training has no zero-shot tasks; nearest: trireme eval --task";

}  // namespace trireme::app::megatron::why
