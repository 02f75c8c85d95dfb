#include "src/model/presets.hpp"

#include <algorithm>
#include <iterator>

#include "src/base/check.hpp"

namespace trireme::model {
namespace {
struct Preset {
  const char* name;
  int layers;
  std::int64_t hidden;
  std::int64_t heads;
};
constexpr Preset presets[] = {
    {"gpt2-124m", 12, 768, 12},  {"gpt2-355m", 24, 1024, 16}, {"gpt2-774m", 36, 1280, 20}, {"gpt2-1.5b", 48, 1600, 25},
    {"gpt2-1.2b", 40, 1536, 16}, {"gpt2-2.5b", 54, 1920, 20}, {"gpt2-4.2b", 64, 2304, 24}, {"gpt2-8.3b", 72, 3072, 32},
};
constexpr const char* family = "gpt2-";
}  // namespace

GptConfig preset(const std::string& name) {
  const std::string full = name.starts_with(family) ? name : family + name;
  const auto* found = std::ranges::find_if(presets, [&](const Preset& p) { return full == p.name; });
  TRIREME_CHECK(found != std::end(presets), ConfigError, "--model '{}' is not known; there are {}", name,
                preset_names());
  GptConfig config;
  config.layers = found->layers;
  config.hidden = found->hidden;
  config.heads = found->heads;
  config.ffn_hidden = 4 * found->hidden;
  return config;
}

std::string preset_names() {
  std::string names;
  for (const Preset& p : presets) names += (names.empty() ? "" : ", ") + std::string(p.name);
  return names;
}

}  // namespace trireme::model
