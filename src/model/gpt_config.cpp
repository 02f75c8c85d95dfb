#include "src/model/gpt_config.hpp"

#include <string>

#include "src/base/check.hpp"

namespace trireme::model {

void validate(const GptConfig& config) {
  std::string problems;
  const auto expect = [&](bool holds, const std::string& problem) {
    if (!holds) problems += (problems.empty() ? "" : "; ") + problem;
  };
  expect(config.layers >= 1, fmt::format("--num-layers {} must be at least 1", config.layers));
  expect(config.hidden >= 1 && config.heads >= 1 && config.hidden % config.heads == 0,
         fmt::format("--hidden-size {} must be a multiple of --num-attention-heads {}", config.hidden, config.heads));
  expect(config.ffn_hidden >= 1, fmt::format("--ffn-hidden-size {} must be at least 1", config.ffn_hidden));
  expect(config.max_positions >= 1,
         fmt::format("--max-position-embeddings {} must be at least 1", config.max_positions));
  expect(config.vocabulary >= 1, fmt::format("--vocab-size {} must be at least 1", config.vocabulary));
  expect(config.hidden_dropout >= 0 && config.hidden_dropout < 1,
         fmt::format("--hidden-dropout {} must be from 0 to less than 1", config.hidden_dropout));
  expect(config.attention_dropout >= 0 && config.attention_dropout < 1,
         fmt::format("--attention-dropout {} must be from 0 to less than 1", config.attention_dropout));
  expect(config.norm_epsilon >= 0, fmt::format("--layernorm-epsilon {} must not be negative", config.norm_epsilon));
  TRIREME_CHECK(problems.empty(), ConfigError, "{}", problems);
}

std::int64_t parameter_count(const GptConfig& config) {
  const std::int64_t h = config.hidden;
  const std::int64_t f = config.ffn_hidden;
  const std::int64_t layer = 4 * h * h + 2 * h * f + 9 * h + f;
  return (config.vocabulary + config.max_positions + 2) * h + config.layers * layer;
}

double model_flops(const GptConfig& config, std::int64_t batch, std::int64_t s) {
  const auto h = static_cast<double>(config.hidden);
  const auto f = static_cast<double>(config.ffn_hidden);
  const auto sequence = static_cast<double>(s);
  // Multiply-adds a token, forward: the matrices, scores and weighted sums, the logits. Times 2 for FLOPs, times 3 for
  // forward and the two halves of backward.
  const double per_token =
      config.layers * (4 * h * h + 2 * h * f + 2 * sequence * h) + static_cast<double>(config.vocabulary) * h;
  return 6 * static_cast<double>(batch) * sequence * per_token;
}

}  // namespace trireme::model
