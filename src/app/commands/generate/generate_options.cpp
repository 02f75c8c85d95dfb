#include "src/app/commands/generate/generate_options.hpp"

namespace trireme::app {

void GenerateOptions::declare(Options& options) {
  options.section("Text");
  options.add("prompt", &prompt, "TEXT", "The text to continue.");
  options.add("max-new-tokens", &max_new_tokens, "N", "Tokens to add to a text at most.", at_least(0));
  options.add("temperature", &sampling.temperature, "X", "Divides the logits; 0: always the likeliest token.",
              at_least(0));
  options.add("top-k", &sampling.top_k, "K", "Choose among the K likeliest tokens; 0: all.", at_least(0));
  options.add("top-p", &sampling.top_p, "P", "Choose among the likeliest tokens of this probability together; 0: all.",
              between(0, 1));
  options.add("seed", &sampling.seed, "N", "The same seed gives the same text.", at_least(0));
  batch.declare(options);
  model.declare(options);
}

}  // namespace trireme::app
