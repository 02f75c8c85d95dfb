#include "src/report/attempt_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "src/report/markup.hpp"
#include "src/report/time_text.hpp"

namespace trireme::report {
namespace {

/// Returns the meaning of an exit code of the program or of a launcher.
std::string exit_text(int code) {
  static const std::map<int, const char*> texts = {{0, "done"},
                                                   {2, "options that cannot work"},
                                                   {3, "bad data or checkpoint"},
                                                   {4, "the machine lacks something"},
                                                   {5, "reading or writing failed"},
                                                   {6, "a rank died"},
                                                   {7, "a rank hung"},
                                                   {8, "numbers not finite"},
                                                   {9, "a machine computed wrong or failed"},
                                                   {75, "stopped early, saved"}};
  if (const auto found = texts.find(code); found != texts.end()) return found->second;
  return code > 128 && code < 160 ? fmt::format("ended by signal {}", code - 128) : "unknown exit code";
}

/// Returns the end of an attempt by the program or the batch file, empty if neither recorded it.
std::optional<std::int64_t> end_of(const Attempt& attempt) { return attempt.end ? attempt.end->time : attempt.job_end; }

std::string duration_cell_of(const Span& span) {
  if (!span.began || !span.ended) return dash;
  const std::string text = duration_text(static_cast<double>(span.seconds()));
  return text_element("span", "time", span.is_open ? "at least " + text : text);
}

std::string end_cell_of(const Span& span) {
  return span.is_open && span.ended ? fmt::format("after {}", time_cell(span.ended)) : time_cell(span.ended);
}

/// Returns the next attempt after `attempt` that trained; null if none. A job may end before it trains.
const AttemptStart* next_start(const Run& run, std::size_t attempt) {
  for (std::size_t i = attempt + 1; i < run.attempts.size(); ++i) {
    if (run.attempts[i].start) return &*run.attempts[i].start;
  }
  return nullptr;
}

}  // namespace

State state_of(const Attempt& attempt, bool is_last) {
  const std::optional<int> code = attempt.end ? std::optional(attempt.end->exit_code) : attempt.job_status;
  if (code) {
    return {*code == 0    ? "good"
            : *code == 75 ? "paused"
                          : "bad",
            fmt::format("{}, exit code {}", exit_text(*code), *code)};
  }
  if (is_last) return {"unknown", "no end recorded: it runs, or was killed"};
  return {"bad", "no end recorded: killed"};
}

std::string grid_text(const AttemptStart& start) {
  std::vector<std::string> parts;
  for (const auto& [axis, size] : start.axes) {
    if (size > 1) parts.push_back(fmt::format("{} {}", axis, size));
  }
  return fmt::format("{}{}", counted(start.ranks, "rank"),
                     parts.empty() ? "" : fmt::format(": {}", fmt::join(parts, " \u00d7 ")));
}

Span span_of(const Run& run, std::size_t index) {
  const Attempt& attempt = run.attempts[index];
  Span span{attempt.start ? std::optional(attempt.start->time) : attempt.job_time, end_of(attempt)};
  span.is_open = !span.ended;
  if (!span.is_open) return span;
  if (!attempt.saves.empty()) span.ended = attempt.saves.back().time;
  // The next attempt recorded when the metrics had last been written before it.
  const AttemptStart* const next = next_start(run, index);
  const std::optional<std::int64_t> written = next == nullptr ? run.last_written : next->previous_written;
  if (written > span.began && (next == nullptr || written <= next->time)) span.ended = std::max(span.ended, written);
  return span;
}

std::optional<std::int64_t> restart_seconds(const Run& run, std::size_t index) {
  if (index == 0) return {};
  const Attempt &before = run.attempts[index - 1], &attempt = run.attempts[index];
  if (!before.job_end || !attempt.start || !attempt.job_time || before.job != attempt.job) return {};
  return attempt.start->time - *before.job_end;
}

std::string attempts_of(const Run& run, const Page& page) {
  const std::string heading = text_element("h3", "", "Attempts");
  if (run.attempts.empty()) {
    return heading +
           text_element("p", "none",
                        page.spell("Not recorded. <metrics_file> of a run also keeps its attempts; this run is "
                                   "of an older version, or had none."));
  }
  std::vector<Row> rows;
  for (std::size_t i = 0; i < run.attempts.size(); ++i) {
    const Attempt& attempt = run.attempts[i];
    const bool is_last = i + 1 == run.attempts.size();
    const AttemptStart* start = attempt.start ? &*attempt.start : nullptr;
    // The next attempt tells the progress of this one beyond its checkpoints.
    std::int64_t reached = start ? start->iteration : 0;
    for (const SaveNote& save : attempt.saves) reached = std::max(reached, save.iteration);
    if (attempt.end) reached = std::max(reached, attempt.end->iteration);
    const AttemptStart* next = start ? next_start(run, i) : nullptr;
    const std::int64_t lost = next != nullptr ? next->lost_iterations : 0;
    if (next == nullptr && !attempt.end) reached = std::max(reached, run.last_iteration);
    if (lost > 0) reached = std::max(reached, next->iteration + lost);
    const Span span = span_of(run, i);
    std::string end_cell = badge(state_of(attempt, is_last));
    if (attempt.end && !attempt.end->reason.empty()) end_cell += text_element("div", "reason", attempt.end->reason);
    for (const RewindNote& rewind : attempt.rewinds) {
      end_cell += text_element(
          "div", "reason",
          fmt::format("spike: at iteration {} back to the state of {}", grouped(rewind.iteration), grouped(rewind.to)));
    }
    if (!start) end_cell += text_element("div", "reason", "ended before it began to train");
    const std::string& job = start && !start->job.empty() ? start->job : attempt.job;
    const auto figures = [](const std::string& text) { return text_element("span", "time", text); };
    const std::string place =
        start == nullptr ? job : fmt::format("{}{}{}", job, job.empty() ? "" : " on ", start->host);
    std::string place_cell = text_element("div", "", place.empty() ? dash : place);
    if (start) place_cell += text_element("div", "reason", grid_text(*start));
    if (const auto seconds = restart_seconds(run, i)) {
      place_cell += text_element(
          "div", "reason",
          fmt::format("trained {} after the ranks before ended", duration_text(static_cast<double>(*seconds))));
    }
    rows.push_back({std::to_string(i + 1), end_cell,
                    start ? figures(fmt::format("{} \u2192 {}", grouped(start->iteration), grouped(reached))) : dash,
                    lost > 0 ? figures(fmt::format("{}, {}", grouped(lost), duration_text(next->lost_ms / 1000))) : "0",
                    duration_cell_of(span), time_cell(span.began), end_cell_of(span), place_cell});
  }
  return heading + element("div", R"(class="lives")",
                           table_of({"attempt", "end", "iterations", "lost iterations, training time", "wall clock",
                                     "began, UTC", "ended, UTC", "job, host of rank 0, grid"},
                                    rows, 8));
}

}  // namespace trireme::report
