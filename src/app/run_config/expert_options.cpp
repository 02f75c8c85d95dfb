#include "src/app/run_config/layer_choice.hpp"
#include "src/app/run_config/model_options.hpp"

namespace trireme::app {

void ExpertOptions::declare(Options& options) {
  options.add(
      "moe-layer-freq", &layer_frequency, "N",
      "Layers 0, N, 2N ... have experts, others are dense; or a list of 1 (experts) and 0 for the layers, as in "
      "[0]+[1]*23. Default all.");
}

void ExpertOptions::apply(const FieldOptions& fields, model::ModelConfig& config, Problems& problems) const {
  problems.expect(config.experts.any() || !layer_frequency,
                  "--moe-layer-freq needs --num-experts and --disable-bias-linear");
  problems.expect(fields.given("moe-router-num-groups") == fields.given("moe-router-group-topk"),
                  "--moe-router-num-groups and --moe-router-group-topk need each other");
  if (!layer_frequency) return;
  problems.attempt([&] {
    const LayerChoice layers = read_layer_choice("moe-layer-freq", *layer_frequency, config.layers);
    config.experts.layers =
        layers.frequency ? model::ExpertConfig::every(*layers.frequency, config.layers) : layers.digits;
    config.experts.layers = model::canonical(config).experts.layers;
  });
}

}  // namespace trireme::app
