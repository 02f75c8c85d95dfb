#include "io/huggingface/adapter_json.hpp"

#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/json/json_text.hpp"
#include "io/posix/file.hpp"
#include "src/base/check.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;

constexpr std::int64_t max_adapter_bytes = std::int64_t{16} << 20;
constexpr int max_adapter_depth = 16;

/// Settings that change what an adapter computes, and the values that leave it as it is here; null always does.
const std::pair<const char*, json> plain_settings[] = {{"peft_type", "LORA"},
                                                       {"bias", "none"},
                                                       {"use_dora", false},
                                                       {"lora_bias", false},
                                                       {"use_qalora", false},
                                                       {"use_bdlora", nullptr},
                                                       {"alora_invocation_tokens", nullptr},
                                                       {"arrow_config", nullptr},
                                                       {"kasa_config", nullptr},
                                                       {"monteclora_config", nullptr},
                                                       {"velora_config", nullptr},
                                                       {"modules_to_save", json::array()},
                                                       {"trainable_token_indices", nullptr},
                                                       {"target_parameters", json::array()},
                                                       {"layer_replication", nullptr},
                                                       {"rank_pattern", json::object()},
                                                       {"alpha_pattern", json::object()}};

}  // namespace

model::LowRankAdapters parse_adapter_json(const std::string& text, const std::string& path) {
  const json object = parse_json(text, path, max_adapter_depth);
  TRIREME_CHECK(object.is_object(), DataError, "{} is not a JSON object", path);
  std::vector<std::string> problems;
  for (const auto& [name, wanted] : plain_settings) {
    const json& found = json_member(object, name);
    if (!found.is_null() && found != wanted) {
      problems.push_back(fmt::format("{} is {}, which is not supported", name, json_quotation(found)));
    }
  }
  // Others change the weights of the model, too.
  const json& initial = json_member(object, "init_lora_weights");
  if (initial.is_string() && initial != "gaussian" && initial != "orthogonal" && initial != "eva") {
    problems.push_back(fmt::format("init_lora_weights is {}, which is not supported", json_quotation(initial)));
  }
  model::LowRankAdapters adapters;
  const json &rank = json_member(object, "r"), &alpha = json_member(object, "lora_alpha");
  constexpr std::int64_t max_rank = 1 << 16;
  if (rank.is_number_unsigned() && rank.get<std::uint64_t>() >= 1 && rank.get<std::uint64_t>() <= max_rank) {
    adapters.rank = rank.get<std::int64_t>();
  } else {
    problems.push_back(fmt::format("r is {}, not a rank from 1 to {}", json_quotation(rank), max_rank));
  }
  if (alpha.is_number() && alpha.get<double>() > 0 && std::isfinite(alpha.get<double>())) {
    adapters.alpha = alpha.get<double>();
  } else {
    problems.push_back(fmt::format("lora_alpha is {}, not a number above 0", json_quotation(alpha)));
  }
  adapters.rank_stabilised = json_member(object, "use_rslora") == json(true);
  TRIREME_CHECK(problems.empty(), DataError, "{}: {}", path, fmt::join(problems, "; "));
  return adapters;
}

model::LowRankAdapters read_adapter_json(const std::string& path) {
  return parse_adapter_json(read_whole_file(path, max_adapter_bytes, Symlinks::follow), path);
}

std::string adapter_json(const exchange::PeftAdapters& peft, bool predicts_next) {
  nlohmann::ordered_json file;
  file["peft_type"] = "LORA";
  file["task_type"] = predicts_next ? nlohmann::ordered_json("CAUSAL_LM") : nlohmann::ordered_json();
  file["base_model_name_or_path"] = nullptr;
  file["r"] = peft.adapters.rank;
  const double alpha = peft.adapters.alpha;
  if (alpha == std::floor(alpha) && alpha < 1e15) {
    file["lora_alpha"] = static_cast<std::int64_t>(alpha);
  } else {
    file["lora_alpha"] = alpha;
  }
  file["use_rslora"] = peft.adapters.rank_stabilised;
  file["target_modules"] = peft.modules;
  file["fan_in_fan_out"] = peft.is_transposed;
  file["lora_dropout"] = 0.0;
  file["bias"] = "none";
  file["inference_mode"] = true;
  return file.dump(2) + "\n";
}

}  // namespace trireme::io
