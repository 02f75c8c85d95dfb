#pragma once

#include <string>

#include "src/model/gpt_config.hpp"

namespace trireme::model {

/// The GPT-2 shapes of Radford et al. 2019 (gpt2-124m, 355m, 774m, 1.5b) and of the scaling study of Shoeybi et al.
/// 2019, arXiv:1909.08053 (1.2b, 2.5b, 4.2b, 8.3b). ConfigError, with the names there are, for another name.
GptConfig preset(const std::string& name);

/// "gpt2-124m, gpt2-355m, ..."
std::string preset_names();

}  // namespace trireme::model
