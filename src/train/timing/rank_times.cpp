#include "src/train/timing/rank_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/comm/host_collectives.hpp"

namespace trireme::train {
namespace {

/// Part of an iteration, and the spans that it consists of.
struct Part {
  std::string_view name;
  std::array<std::string_view, 3> spans;
};

// Level 1, then the parts that level 2 adds. The first part encloses the spans of the pipeline.
constexpr std::size_t parts_of_level_1 = 4;
constexpr auto all_parts = std::to_array<Part>({
    {"forward-backward", {}},
    {"all-grads-sync", {"reduce gradients"}},
    {"optimizer-clip-main-grad", {"loss and gradient norm"}},
    {"optimizer", {"optimizer"}},
    {"batch-generator", {"read samples"}},
    {"forward-compute", {"forward"}},
    {"backward-compute", {"backward", "backward input", "backward weight"}},
    {"forward-recv", {"wait for activation"}},
    {"backward-recv", {"wait for gradient"}},
});

double length_ms(const TraceSpan& span) { return (span.end_us - span.start_us) / 1000; }

bool is_pipeline(const TraceSpan& span) {
  return std::string_view(span.category) == "pipeline" || std::string_view(span.name).starts_with("wait for ");
}

}  // namespace

std::size_t RankTimes::parts(int level) { return level == 0 ? 0 : level == 1 ? parts_of_level_1 : all_parts.size(); }

void RankTimes::add(std::span<const TraceSpan> spans, double iteration_ms, double waited_ms) {
  iterations_ += 1;
  iteration_ms_ += iteration_ms;
  waited_ms_ += waited_ms;
  if (sums_ms_.empty()) return;
  const auto iteration =
      std::ranges::find_if(spans, [](const TraceSpan& span) { return std::string_view(span.name) == "iteration"; });
  if (iteration == spans.end()) return;
  double first_us = iteration->end_us, last_us = iteration->start_us;
  for (const TraceSpan& span : spans) {
    if (span.start_us < iteration->start_us || span.end_us > iteration->end_us) continue;  // an evaluation's
    if (is_pipeline(span)) {
      first_us = std::min(first_us, span.start_us);
      last_us = std::max(last_us, span.end_us);
    }
    for (std::size_t part = 0; part < sums_ms_.size(); ++part) {
      if (std::ranges::find(all_parts[part].spans, span.name) != all_parts[part].spans.end()) {
        sums_ms_[part] += length_ms(span);
      }
    }
  }
  sums_ms_.front() += std::max(0.0, last_us - first_us) / 1000;
}

RankTimes::Report RankTimes::take(Communicator& world) {
  std::vector<double> mine = sums_ms_;
  mine.push_back(iteration_ms_);
  mine.push_back(waited_ms_);
  for (double& sum : mine) sum /= static_cast<double>(std::max<std::int64_t>(iterations_, 1));
  const auto ranks = static_cast<std::size_t>(world.size());
  const std::vector<double> all = all_gather_numbers<double>(world, mine);
  const auto column = [&](std::size_t number) {
    std::vector<double> values(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) values[rank] = all[rank * mine.size() + number];
    return values;
  };

  Report report{.iterations = iterations_, .parts = {}, .straggler = {}};
  for (std::size_t part = 0; part < sums_ms_.size(); ++part) {
    PartTimes times{all_parts[part].name, column(part)};
    const auto before = [](double a, double b) { return a > 0 && (b <= 0 || a < b); };
    times.least = static_cast<int>(std::ranges::min_element(times.ms, before) - times.ms.begin());
    times.greatest = static_cast<int>(std::ranges::max_element(times.ms) - times.ms.begin());
    if (times.ms[static_cast<std::size_t>(times.greatest)] > 0) report.parts.push_back(std::move(times));
  }
  std::vector<double> work = column(sums_ms_.size());
  const std::vector<double> waited = column(sums_ms_.size() + 1);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    report.straggler.iteration_ms += work[rank] / static_cast<double>(ranks);
    work[rank] -= waited[rank];
  }
  const auto most = std::ranges::max_element(work);
  report.straggler.rank = static_cast<int>(most - work.begin());
  const double greatest = *most;
  const auto median = work.begin() + static_cast<std::ptrdiff_t>((ranks - 1) / 2);
  std::ranges::nth_element(work, median);
  report.straggler.delay_ms = greatest - *median;
  std::ranges::fill(sums_ms_, 0);
  iteration_ms_ = waited_ms_ = 0;
  iterations_ = 0;
  return report;
}

std::vector<std::string> lines_of(const RankTimes::Report& report, TimingOption option,
                                  std::span<const std::string> places) {
  std::vector<std::string> lines;
  if (report.parts.empty()) return lines;
  const char* title = option == TimingOption::max      ? "max time across ranks"
                      : option == TimingOption::minmax ? "(min, max) time across ranks"
                                                       : "times across ranks";
  lines.push_back(fmt::format("{} (ms), mean of {} iterations:", title, report.iterations));
  const auto place = [&](int rank) { return places[static_cast<std::size_t>(rank)]; };
  for (const PartTimes& part : report.parts) {
    const std::string name = fmt::format("    {:.<48}", fmt::format("{} ", part.name));
    const double least = part.ms[static_cast<std::size_t>(part.least)];
    const double greatest = part.ms[static_cast<std::size_t>(part.greatest)];
    if (option == TimingOption::max) {
      lines.push_back(fmt::format("{}: {:.2f} {}", name, greatest, place(part.greatest)));
    } else if (option == TimingOption::minmax) {
      lines.push_back(
          fmt::format("{}: ({:.2f}, {:.2f}) {}, {}", name, least, greatest, place(part.least), place(part.greatest)));
    } else {
      lines.push_back(fmt::format("  {}:", part.name));
      for (std::size_t rank = 0; rank < part.ms.size(); ++rank) {
        if (part.ms[rank] > 0) lines.push_back(fmt::format("     {}: {:.2f}", places[rank], part.ms[rank]));
      }
    }
  }
  return lines;
}

}  // namespace trireme::train
