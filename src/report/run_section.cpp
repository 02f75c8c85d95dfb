#include "src/report/run_section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "src/report/attempt_table.hpp"
#include "src/report/chart.hpp"
#include "src/report/goodput.hpp"
#include "src/report/markup.hpp"
#include "src/report/scale.hpp"
#include "src/report/table.hpp"
#include "src/report/time_text.hpp"

namespace trireme::report {
namespace {

/// Returns a loss with four decimals, or with four significant digits for small values.
std::string loss_text(double loss) {
  return loss != 0 && std::abs(loss) < 1e-3 ? short_number(loss) : fmt::format("{:.4f}", loss);
}

std::string measure_text(const Measure& measure, double value) {
  return measure.is_fraction ? fmt::format("{:.2f} %", 100 * value) : loss_text(value);
}

std::string size_text(double bytes) {
  for (const auto& [unit, name] : {std::pair{1099511627776.0, "TiB"}, {1073741824.0, "GiB"}, {1048576.0, "MiB"}}) {
    if (bytes >= unit) return fmt::format("{:.1f} {}", bytes / unit, name);
  }
  return bytes >= 1024 ? fmt::format("{:.1f} KiB", bytes / 1024) : fmt::format("{:.0f} bytes", bytes);
}

std::string steps_of(const Run& run, const Page& page) {
  const std::string heading = text_element("h3", "", "Checkpoints");
  std::map<std::int64_t, std::int64_t> saved_at;
  for (const Attempt& attempt : run.attempts) {
    for (const SaveNote& save : attempt.saves) saved_at[save.iteration] = save.time;
  }
  std::vector<Row> rows;
  for (const StoredStep& step : run.steps) {
    const auto saved = step.iteration ? saved_at.find(*step.iteration) : saved_at.end();
    rows.push_back({step.iteration ? grouped(*step.iteration) : escaped(step.name),
                    saved == saved_at.end() ? dash : time_cell(saved->second),
                    step.problem.empty() ? "in the folder"
                                         : badge({"bad", "damaged"}) + text_element("div", "reason", step.problem),
                    step.problem.empty() ? escaped(size_text(static_cast<double>(step.size_bytes))) : dash,
                    step.problem.empty() ? grouped(step.files) : dash});
    if (step.iteration) saved_at.erase(*step.iteration);
  }
  const std::size_t stored = rows.size();
  for (auto saved = saved_at.rbegin(); saved != saved_at.rend(); ++saved) {
    rows.push_back({grouped(saved->first), time_cell(saved->second),
                    run.steps.empty() ? "not found" : "no longer in the folder", dash, dash});
  }
  if (rows.empty()) {
    return heading + text_element("p", "none", page.spell("None. <save> of a run writes checkpoints."));
  }
  constexpr std::size_t shown = 12;
  const Row head = {"iteration", "saved, UTC", "state", "size", "files"};
  const std::size_t first = std::min(std::max(stored, std::size_t{1}), std::min(shown, rows.size()));
  const auto middle = rows.begin() + static_cast<std::ptrdiff_t>(first);
  std::string text = heading + table_of(head, {rows.begin(), middle}, 3);
  if (middle != rows.end()) {
    text += details_of(counted(rows.end() - middle, "older checkpoint"), table_of(head, {middle, rows.end()}, 3));
  }
  return text;
}

/// Returns the options that changed between consecutive attempts, as lines.
std::string changes_of(const Run& run) {
  std::string items;
  const Attempt* before = nullptr;
  for (std::size_t i = 0; i < run.attempts.size(); ++i) {
    const Attempt& attempt = run.attempts[i];
    if (!attempt.start) continue;
    if (before != nullptr) {
      std::map<std::string, std::pair<std::string, std::string>> options;
      for (const OptionValue& option : before->start->options) options[option.name].first = option.value;
      for (const OptionValue& option : attempt.start->options) options[option.name].second = option.value;
      const auto named = [](const std::string& value) { return value.empty() ? "not set" : value; };
      for (const auto& [name, values] : options) {
        if (values.first == values.second) continue;
        items += text_element(
            "li", "",
            fmt::format("attempt {}: {} was {}, now {}", i + 1, name, named(values.first), named(values.second)));
      }
    }
    before = &attempt;
  }
  return items.empty() ? "" : text_element("p", "", "Changes between attempts:") + element("ul", "", items);
}

std::string configuration_of(const Run& run, const Page& page) {
  std::string text = text_element("h3", "", "Configuration");
  const AttemptStart* start = run.newest_start();
  if (start != nullptr) {
    std::vector<Row> given, defaults;
    for (const OptionValue& option : start->options) {
      (option.given ? given : defaults).push_back({escaped(option.name), escaped(option.value)});
    }
    text += table_of({"option, as given", "value"}, given, 2) + changes_of(run);
    if (!defaults.empty()) {
      text += details_of(counted(std::ssize(defaults), "default"), table_of({"option", "default"}, defaults, 2));
    }
  } else {
    text += text_element(
        "p", "none", page.spell("Not recorded. <metrics_file> of a run also keeps its grid and options, from now on."));
  }
  if (!run.attributes.empty()) {
    std::vector<Row> rows;
    for (const auto& [name, value] : run.attributes) rows.push_back({escaped(name), escaped(value)});
    text += details_of(counted(std::ssize(rows), "attribute") + " of the newest checkpoint",
                       table_of({"attribute", "value"}, rows, 2));
  }
  return text;
}

std::string experts_of(const Run& run) {
  if (run.expert_layers.empty()) return "";
  Row head{"layer"};
  for (const LayerQuantity& quantity : layer_quantities) head.emplace_back(quantity.head);
  std::vector<Row> rows;
  for (const ExpertLayer& layer : run.expert_layers) {
    Row& row = rows.emplace_back(Row{std::to_string(layer.layer)});
    for (const std::optional<double>& value : layer.values) row.push_back(value ? escaped(short_number(*value)) : dash);
  }
  return text_element("h3", "", fmt::format("Experts by layer, iteration {}", grouped(run.last_iteration))) +
         table_of(head, rows, 1);
}

/// Returns the samples of a run, by prompt: the newest texts, and the earlier ones in a list that is closed.
std::string samples_of(const Run& run) {
  if (run.samples.empty()) return "";
  constexpr std::ptrdiff_t shown = 3;
  std::vector<std::string> prompts;
  for (const SampleSet::Sample& sample : run.samples.back().samples) {
    if (std::ranges::find(prompts, sample.prompt) == prompts.end()) prompts.push_back(sample.prompt);
  }
  std::string text = text_element("h3", "", "Samples");
  for (const std::string& prompt : prompts) {
    std::vector<Row> rows;
    for (auto set = run.samples.rbegin(); set != run.samples.rend(); ++set) {
      for (const SampleSet::Sample& sample : set->samples) {
        if (sample.prompt == prompt) {
          rows.push_back({grouped(set->iteration), text_element("div", "text", sample.text)});
        }
      }
    }
    const auto middle = rows.begin() + std::min(shown, std::ssize(rows));
    const Row head{"iteration", "continued by the model"};
    text +=
        text_element("h4", "text", prompt.empty() ? "(no prompt)" : prompt) + table_of(head, {rows.begin(), middle}, 2);
    if (middle != rows.end()) {
      text += details_of(counted(rows.end() - middle, "earlier text"), table_of({}, {middle, rows.end()}, 2));
    }
  }
  return element("div", R"(class="samples")", text);
}

std::string grid_of(const Run& run) {
  const AttemptStart* start = run.newest_start();
  if (start == nullptr) return "";
  std::vector<Row> rows{{"ranks", std::to_string(start->ranks)}};
  for (const auto& [axis, size] : start->axes) rows.push_back({escaped(axis), std::to_string(size)});
  std::string text = text_element("h3", "", "Grid") + table_of({}, rows, 1);
  text += text_element("p", "", fmt::format("{}; Trireme {}", start->device, start->version));
  return text;
}

std::string notes_of(const Run& run) {
  std::string items;
  if (run.damaged_lines > 0) {
    items += text_element(
        "li", "",
        fmt::format("{} of the metrics could not be read and {} left out, the first is line {}.",
                    counted(run.damaged_lines, "line"), run.damaged_lines == 1 ? "is" : "are", run.first_damaged_line));
  }
  if (run.repeated_iterations > 0) {
    items += text_element(
        "li", "",
        fmt::format("{} {} in the metrics twice: the newest record counts.",
                    counted(run.repeated_iterations, "iteration"), run.repeated_iterations == 1 ? "is" : "are"));
  }
  for (const std::string& note : run.notes) items += text_element("li", "", note);
  return items.empty() ? "" : element("ul", R"(class="notes")", items);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> summary_of(const Run& run) {
  std::vector<std::pair<std::string, std::string>> rows;
  const auto add = [&](const char* name, const std::string& markup) { rows.emplace_back(name, markup); };
  const auto figure = [](const Measure& measure, const std::optional<Curve::Point>& point) {
    return point ? fmt::format("{} at {}", measure_text(measure, point->value), grouped(point->x)) : dash;
  };
  const Measure& loss = measures.front();
  const auto evaluated = [&](const Measure& measure, const std::optional<Curve::Point>& point) {
    const std::string text = figure(measure, point);
    if (!point || &measure != &loss) return text;
    return fmt::format("{}, perplexity {}", text, short_number(std::exp(std::min(20.0, point->value))));
  };
  const std::optional<Curve>& training = run.curves[lm_loss];
  add("state", badge(run.attempts.empty() ? State{"unknown", "not recorded"} : state_of(run.attempts.back(), true)));
  add("last written, UTC", time_cell(run.last_written));
  add("iterations", run.iterations > 0 ? grouped(run.last_iteration) : dash);
  add("samples", run.iterations > 0 ? grouped(run.consumed_samples) : dash);
  add("last training loss", training ? figure(loss, training->last()) : dash);
  for (const Measure& measure : measures) {
    const ValidationCurves& sets = run.*measure.validation;
    const std::string name = fmt::format("best validation {}", measure.name);
    for (const auto& [set, curve] : sets) {
      rows.emplace_back(set.empty() ? name : fmt::format("{}, {}", name, set),
                        evaluated(measure, measure.is_fraction ? curve.greatest() : curve.least()));
    }
    const bool is_shown = &measure == &loss;
    if (sets.empty() && is_shown) rows.emplace_back(name, dash);
    const std::optional<double> test = run.test ? measure.test(*run.test) : std::nullopt;
    if (!test && !is_shown) continue;
    rows.emplace_back(
        fmt::format("test {}", measure.name),
        evaluated(measure, test ? std::optional(Curve::Point{run.test->iteration, *test}) : std::nullopt));
  }
  add("mean speed, tokens/s", run.trained_ms > 0 ? escaped(short_number(run.mean_tokens_per_second())) : dash);
  add("TFLOP/s of a rank", run.trained_ms > 0 ? escaped(short_number(run.mean_tflops(), 3)) : dash);
  const AttemptStart* start = run.newest_start();
  const double mfu = start != nullptr && start->peak_tflops > 0 ? run.mean_tflops() / start->peak_tflops : -1;
  add("MFU", mfu >= 0 && mfu < 1e6 ? fmt::format("{:.1f} % of {:g}", 100 * mfu, start->peak_tflops) : dash);
  const std::optional<Curve>& bytes = run.curves[memory];
  add("memory of rank 0", bytes && bytes->last() ? escaped(size_text(bytes->last()->value)) : dash);
  add("skipped updates", run.iterations > 0 ? grouped(run.skipped_updates) : dash);
  add("losses not finite", run.iterations > 0 ? grouped(run.not_finite) : dash);
  add("training time", run.trained_ms > 0 ? duration_text(run.trained_ms / 1000) : dash);
  std::int64_t wall_clock = 0;
  for (std::size_t i = 0; i < run.attempts.size(); ++i) wall_clock += span_of(run, i).seconds();
  add("wall clock of the attempts", wall_clock > 0 ? duration_text(static_cast<double>(wall_clock)) : dash);
  const Goodput goodput = goodput_of(run.attempts, run.trained_ms, run.repeated_ms, run.last_written);
  add("goodput", goodput.total_s > 0 ? fmt::format("{:.1f} %", 100 * goodput.share(goodput.trained_s)) : dash);
  add("attempts", run.attempts.empty() ? dash : std::to_string(run.attempts.size()));
  const std::int64_t lost = run.lost_iterations();
  add("lost work", lost == 0 ? "none"
                             : fmt::format("{}, {} of training time", counted(lost, "iteration"),
                                           duration_text(run.lost_ms() / 1000)));
  add("grid", start != nullptr ? escaped(grid_text(*start)) : dash);
  add("parameters", start != nullptr ? grouped(start->parameters) : dash);
  return rows;
}

std::string section_of(const Run& run, std::size_t index, const Page& page) {
  const std::string title = swatch(static_cast<int>(index)) + " " + escaped(run.name);
  std::string text = element("h2", fmt::format("id=\"run{}\"", index), title) + notes_of(run) + attempts_of(run, page);
  text += goodput_section_of(run);
  text += samples_of(run);
  text += element("div", R"(class="columns")",
                  element("div", "", steps_of(run, page) + experts_of(run) + grid_of(run)) +
                      element("div", "", configuration_of(run, page)));
  return element("section", fmt::format("data-part=\"run{}\"", index), text);
}

}  // namespace trireme::report
