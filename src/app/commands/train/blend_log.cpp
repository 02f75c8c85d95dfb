#include <algorithm>
#include <optional>

#include "src/app/commands/train/train_plan.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"

namespace trireme::app {
namespace {

/// Tokens of a corpus in the training split; nothing for a BERT, whose samples have no fixed number of them.
std::optional<std::int64_t> training_tokens(const data::TokenStore& store, const SampleOptions& samples) {
  const auto* gpt = std::get_if<data::GptDataOptions>(&samples);
  if (gpt == nullptr) return {};
  return data::documents_of(store, data::Split::train, gpt->split_fractions, gpt->split_by).tokens();
}

std::string row_of(const std::string& tokens, const std::string& weight, const std::string& samples,
                   const std::string& seen, const std::string& epochs, const std::string& corpus) {
  return fmt::format("  {:>15}  {:>6}  {:>12}  {:>15}  {:>7}  {}", tokens, weight, samples, seen, epochs, corpus);
}

}  // namespace

void log_blend(const Job& job, const RunConfig& config, const TrainPlan& plan, const data::SampleSplits& data) {
  if (!data.blend || !job.is_root()) return;
  const bool is_asked = config.run.log_options || config.run.dry_run;
  if (config.data.blend.empty() && !is_asked) return;
  const std::int64_t sequence_length = *config.batch.sequence_length;
  const std::int64_t total = std::min(training_samples(config, plan, job.grid.data_size()), data.blend->size());
  std::vector<std::string> lines;
  const auto add = [&](std::size_t corpus, std::optional<double> weight, std::int64_t samples) {
    const data::TokenStore& store = *plan.stores[corpus].store;
    const std::optional<std::int64_t> tokens = training_tokens(store, plan.samples);
    const std::int64_t seen = samples * sequence_length;
    lines.push_back(
        row_of(tokens ? std::to_string(*tokens) : "-", weight ? fmt::format("{:.4f}", *weight) : "",
               std::to_string(samples), tokens ? std::to_string(seen) : "-",
               tokens ? fmt::format("{:.3f}", static_cast<double>(seen) / static_cast<double>(*tokens)) : "-",
               printable(store.name())));
  };
  const std::vector<data::BlendStage>& stages = data.blend->stages();
  std::vector<std::int64_t> before(plan.stores.size());
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const std::int64_t first = stages[s].first_sample;
    const std::int64_t end = s + 1 < stages.size() ? std::min(stages[s + 1].first_sample, total) : total;
    if (stages.size() > 1) {
      lines.push_back(fmt::format("  from sample {}{}:", first, first >= total ? ", after the end of this run" : ""));
    }
    const std::vector<std::int64_t> counts = data.blend->counts(end);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (stages[s].weights[i] > 0) add(i, stages[s].weights[i], counts[i] - before[i]);
    }
    before = counts;
  }
  if (stages.size() > 1) {
    lines.emplace_back("  all stages:");
    for (std::size_t i = 0; i < before.size(); ++i) add(i, {}, before[i]);
  }
  log::info("training reads {} samples of {} tokens:", total, sequence_length);
  log::info("{}", row_of("tokens", "weight", "samples", "tokens read", "epochs", "corpus"));
  constexpr std::size_t max_lines = 8;
  const bool logs_all = is_asked || lines.size() <= max_lines;
  const std::size_t logged = logs_all ? lines.size() : max_lines - 1;
  for (std::size_t i = 0; i < logged; ++i) log::info("{}", lines[i]);
  if (!logs_all) log::info("  ... {} more lines; --log-options or --dry-run lists them", lines.size() - logged);
}

}  // namespace trireme::app
