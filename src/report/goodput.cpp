#include "src/report/goodput.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "src/report/markup.hpp"
#include "src/report/table.hpp"
#include "src/report/time_text.hpp"

namespace trireme::report {
namespace {

/// Returns when the ranks of an attempt started, as far as it was recorded.
std::optional<std::int64_t> began(const Attempt& attempt) {
  if (attempt.start && attempt.start->began > 0) return attempt.start->began;
  if (attempt.job_time) return attempt.job_time;
  return attempt.start ? std::optional(attempt.start->time) : std::nullopt;
}

std::int64_t newest_sign(const Attempt& attempt) {
  std::int64_t time = began(attempt).value_or(0);
  if (attempt.start) time = std::max(time, attempt.start->time);
  if (!attempt.saves.empty()) time = std::max(time, attempt.saves.back().time);
  if (attempt.job_end) time = std::max(time, *attempt.job_end);
  return attempt.end ? std::max(time, attempt.end->time) : time;
}

/// Returns whether the attempts after `index` go on from a rewind of it. Otherwise its iterations were lost.
bool is_kept(const RewindNote& rewind, const std::vector<Attempt>& attempts, std::size_t index) {
  return std::all_of(attempts.begin() + static_cast<std::ptrdiff_t>(index) + 1, attempts.end(),
                     [&](const Attempt& later) { return !later.start || later.start->iteration >= rewind.iteration; });
}

std::string share_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

Goodput goodput_of(const std::vector<Attempt>& attempts, double trained_ms, double repeated_ms,
                   std::optional<std::int64_t> now) {
  Goodput goodput{.trained_s = trained_ms / 1000};
  goodput.lost(Loss::repeated) = repeated_ms / 1000;
  std::optional<std::int64_t> first, ended;
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    const Attempt& attempt = attempts[i];
    const std::optional<std::int64_t> start = began(attempt);
    if (!start) continue;
    if (!first) first = start;
    if (attempt.start && attempt.start->previous_written > 0) {
      ended = std::max(ended.value_or(0), std::min(attempt.start->previous_written, *start));
    }
    if (ended) goodput.lost(Loss::waiting) += static_cast<double>(std::max<std::int64_t>(*start - *ended, 0));
    ended = std::max(ended.value_or(0), newest_sign(attempt));
    if (!attempt.start) continue;
    goodput.lost(Loss::repeated) += attempt.start->lost_ms / 1000;
    const double load_s = attempt.start->load_ms / 1000;
    goodput.lost(Loss::loading) += load_s;
    goodput.lost(Loss::start_up) += std::max(static_cast<double>(attempt.start->time - *start) - load_s, 0.0);
    goodput.lost(Loss::saving) += attempt.spent.saving_ms / 1000;
    goodput.lost(Loss::evaluation) += attempt.spent.evaluating_ms / 1000;
    for (const RewindNote& rewind : attempt.rewinds) {
      if (!is_kept(rewind, attempts, i)) continue;
      goodput.trained_s -= rewind.lost_ms / 1000;
      goodput.lost(Loss::rewound) += rewind.lost_ms / 1000;
    }
  }
  if (!first) return {};
  const bool is_open = !attempts.back().end && !attempts.back().job_end;
  if (now && is_open) ended = std::max(*ended, *now);
  const double known = std::reduce(goodput.lost_s.begin(), goodput.lost_s.end(), goodput.trained_s);
  goodput.total_s = std::max(static_cast<double>(*ended - *first), known);  // clocks count whole seconds
  goodput.lost(Loss::other) = goodput.total_s - known;
  return goodput;
}

std::string text_of(const Goodput& goodput) {
  std::string lost;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (goodput.share(goodput.lost_s[i]) < 0.001) continue;
    lost += fmt::format("{}{} {}", lost.empty() ? "; lost: " : ", ", losses[i], duration_text(goodput.lost_s[i]));
  }
  return fmt::format("{} of {}{}", share_text(goodput.share(goodput.trained_s)), duration_text(goodput.total_s), lost);
}

std::string goodput_section_of(const Run& run) {
  const Goodput goodput = goodput_of(run.attempts, run.trained_ms, run.repeated_ms, run.last_written);
  if (goodput.total_s <= 0) return "";
  std::vector<Row> rows;
  const auto add = [&](std::string_view name, double seconds) {
    const double share = goodput.share(seconds);
    rows.push_back({escaped(name),
                    element("div", fmt::format(R"(class="share" style="width:{:.1f}%")", 100 * share), ""),
                    duration_text(seconds), share_text(share)});
  };
  add("training", goodput.trained_s);
  for (std::size_t i = 0; i < losses.size(); ++i) add(losses[i], goodput.lost_s[i]);
  add("all, since the first start", goodput.total_s);
  return text_element("h3", "", "Where the time went") + table_of({"", "", "time", "share"}, rows, 2);
}

}  // namespace trireme::report
