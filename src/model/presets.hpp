#pragma once

#include <string>

#include "src/model/model_config.hpp"

namespace trireme::model {

/// The GPT-2 shapes of Radford et al. 2019 (gpt2-124m, 355m, 774m, 1.5b) and of Shoeybi et al. 2019, arXiv:1909.08053,
/// which need no "gpt2-": of the scaling study (1.2b, 2.5b, 4.2b, 8.3b-scaling: heads of 96) and the largest model that
/// was trained (8.3b: 24 heads of 128, section 5.2). Llama 2 of 7 billion parameters (Touvron et
/// al. 2023, arXiv:2307.09288), Llama 3 and 3.1 of 8 and 3.2 of 1.2 (Dubey et al. 2024, arXiv:2407.21783), Qwen 2.5 of
/// 0.5 (Yang et al. 2024, arXiv:2412.15115) and Qwen 3 of 0.6 (Yang et al. 2025, arXiv:2505.09388). Throws ConfigError,
/// with the known names, for another name.
ModelConfig preset(const std::string& name);

/// "gpt2-124m, gpt2-355m, ..."
std::string preset_names();

}  // namespace trireme::model
