#pragma once

#include <string>

#include "src/model/model_config.hpp"

namespace trireme::model {

/// Returns a published model; throws ConfigError, with the known names, for another name.
/// * GPT-2, whose prefix "gpt2-" is optional. Radford et al. 2019: 124m, 355m, 774m, 1.5b. Shoeybi et al. 2019,
///   arXiv:1909.08053: 1.2b, 2.5b, 4.2b and 8.3b-scaling (heads of 96) of the scaling study, and 8.3b (24 heads of 128,
///   section 5.2), the largest one trained.
/// * Llama 2 7B (Touvron et al. 2023, arXiv:2307.09288); Llama 3 8B, 3.1 8B and 3.2 1B (Dubey et al. 2024,
///   arXiv:2407.21783).
/// * Qwen 2.5 0.5B (Yang et al. 2024, arXiv:2412.15115), Qwen 3 0.6B (Yang et al. 2025, arXiv:2505.09388).
/// * With experts: Mixtral 8x7B (Jiang et al. 2024, arXiv:2401.04088) and Qwen 3 30B-A3B. The coefficient of the
///   balance loss is `router_aux_loss_coef` of their config.json.
/// * StarCoder2 3B and 7B (Lozhkov et al. 2024, arXiv:2402.19173); Phi-3 mini with 4096 positions (Abdin et al. 2024,
///   arXiv:2404.14219).
/// * Gemma 2 2B (Gemma Team 2024, arXiv:2408.00118), Gemma 3 1B (Gemma Team 2025, arXiv:2503.19786).
/// * Pythia 1.4B (Biderman et al. 2023, arXiv:2304.01373), with GPT-NeoX's layers; Falcon 7B (Almazrouei et al. 2023,
///   arXiv:2311.16867).
/// * OLMo 2 7B (OLMo Team 2024, arXiv:2501.00656), and with experts OLMoE 1B-7B (Muennighoff et al. 2024,
///   arXiv:2409.02060).
/// * BERT as first published (Devlin et al. 2019, arXiv:1810.04805) and as in Megatron-LM.
ModelConfig preset(const std::string& name);

/// "gpt2-124m, gpt2-355m, ..."
std::string preset_names();

}  // namespace trireme::model
