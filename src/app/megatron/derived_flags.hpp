#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::app::megatron {

/// Words for a flag whose translation depends on others. They replace those options among them that the line has.
struct DerivedWords {
  std::vector<std::string> words;  ///< empty: the flag has no effect
  std::string reason;              ///< why it has none
};

/// Returns whether a flag is counted in tokens, or divides layers and embeddings together.
bool is_derived(std::string_view name);

/// Translates such a flag of Megatron-DeepSpeed. `given` returns the value of a translated option, empty if it is
/// absent.
/// * train-tokens N: --exit-interval, the first iteration with N tokens; the samples stay those of --train-samples.
/// * lr-decay-tokens, lr-warmup-tokens: the same in samples, rounded.
/// * pp-partition-method type:transformer|embedding: stages of equally many layers, where each of the two embeddings
///   counts as one.
/// Throws ConfigError with the reason where that is impossible.
DerivedWords derived_words(std::string_view name, const std::string& value,
                           const std::function<std::string(const std::string&)>& given);

}  // namespace trireme::app::megatron
