#include <fmt/ranges.h>

#include <algorithm>

#include "src/app/megatron/reasons.hpp"
#include "src/app/megatron/translation.hpp"
#include "src/app/run_config/model_options.hpp"
#include "src/app/run_config/run_attributes.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"

namespace trireme::app::megatron {

std::string Translation::refusal() const {
  std::string text;
  for (const Verdict& verdict : verdicts) {
    if (verdict.kind != Kind::absent) continue;
    const std::string line = fmt::format("\n  {}: {}", shortened(verdict.flag), verdict.reason);
    if (text.find(line) == std::string::npos) text += line;
  }
  return text.empty() ? "" : "flags of Megatron-LM that are absent here or contradict others:" + text;
}

void Translation::log() const {
  std::vector<std::string> renamed, satisfied, held, unused, unwritten, unlogged;
  for (const Verdict& verdict : verdicts) {
    const std::string words = fmt::format("{}", fmt::join(verdict.words, " "));
    std::string flag = hyphenated(verdict.flag);
    std::ranges::replace(flag, '=', ' ');
    const bool is_renamed = verdict.row != nullptr && !verdict.words.empty() && flag != hyphenated(words);
    if (is_renamed) renamed.push_back(fmt::format("{} is {}", verdict.flag, words));
    if (verdict.kind != Kind::satisfied) continue;
    (verdict.reason == why::held        ? held
     : verdict.reason == why::unused    ? unused
     : verdict.reason == why::unwritten ? unwritten
     : verdict.reason == why::unlogged  ? unlogged
                                        : satisfied)
        .push_back(verdict.flag);
  }
  const auto list = [](const char* which, const std::vector<std::string>& flags) {
    if (!flags.empty()) log::info("flags of Megatron-LM {}: {}", which, fmt::join(flags, ", "));
  };
  list("by another name", renamed);
  list("that are satisfied already", satisfied);
  list("that are checked against the checkpoint", held);
  list("ignored by this command", unused);
  list("that log what is not measured here; the run is the same", unlogged);
  list("that write other logs; --tensorboard-dir and --metrics-file write the same numbers", unwritten);
}

void Translation::check_model(const model::ModelConfig& stored) const {
  Options options("trireme train", "");
  ModelOptions model;
  model.declare(options);
  options.parse(model_words);
  model.checkpoint = stored;
  const model::ModelConfig asked = model.config(1, 1);
  require_same_model(attributes_of(stored), attributes_of(asked));
}

}  // namespace trireme::app::megatron
