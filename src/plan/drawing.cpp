#include "src/plan/drawing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trireme::plan {
namespace {

using parallel::Schedule;
using parallel::Step;
using parallel::StepKind;

char letter(StepKind kind) { return "FBIW"[static_cast<int>(kind)]; }

/// "F3", or "F1.3" for micro-batch 3 of chunk 1.
std::string label(const Step& step, const Schedule& schedule) {
  return schedule.chunks > 1 ? fmt::format("{}{}.{}", letter(step.kind), step.chunk, step.micro_batch)
                             : fmt::format("{}{}", letter(step.kind), step.micro_batch);
}

/// Hue by kind of step; the lightness distinguishes chunks.
std::string colour(const Step& step, const Schedule& schedule) {
  const int hues[] = {210, 130, 130, 45};
  const double fraction = schedule.chunks > 1 ? static_cast<double>(step.chunk) / (schedule.chunks - 1) : 0;
  return fmt::format("hsl({}, 60%, {:.0f}%)", hues[static_cast<int>(step.kind)], 78 - 24 * fraction);
}

}  // namespace

std::string text_of(const Simulation& simulation, const Schedule& schedule) {
  std::size_t max_label = 0;
  for (const auto& steps : simulation.ranks) {
    for (const TimedStep& timed : steps) max_label = std::max(max_label, label(timed.step, schedule).size());
  }
  const std::size_t cell = max_label + 1;  // characters of a unit of time
  const auto column = [&](double time) { return static_cast<std::size_t>(std::llround(time)) * cell; };
  const std::size_t title = fmt::format("rank {}", schedule.stages - 1).size();

  std::string text;
  for (std::size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
    std::string row(column(simulation.makespan), ' ');
    for (std::size_t i = 0; i < row.size(); i += cell) row[i] = '.';
    for (const TimedStep& timed : simulation.ranks[rank]) {
      const std::size_t begin = column(timed.start);
      const std::size_t length = column(timed.end) - begin;
      const std::string name = label(timed.step, schedule);
      if (length == 0) continue;
      row.replace(begin, length, name + std::string(length - 1 - name.size(), '-') + " ");
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += fmt::format("{:<{}} | {}\n", fmt::format("rank {}", rank), title, row);
  }
  return text;
}

std::string svg_of(const Simulation& simulation, const Schedule& schedule, const DrawingScale& scale) {
  constexpr double letter_width = 6.5, row = 34, left = 70, top = 16;
  const double unit = scale.pixels;
  const double width = left + unit * simulation.makespan + 16;
  const double axis = top + row * static_cast<double>(simulation.ranks.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, axis + 30);
  for (std::size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
    const double y = top + row * static_cast<double>(rank);
    svg += fmt::format(
        "<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">rank {}</text>\n"
        "<rect x=\"{:.0f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#eeeeee\"/>\n",
        left - 8, y + row / 2 + 3, rank, left, y + 2, unit * simulation.makespan, row - 4);
    for (const TimedStep& timed : simulation.ranks[rank]) {
      const double x = left + unit * timed.start;
      const double length = unit * (timed.end - timed.start);
      svg += fmt::format(
          "<g><title>{} of micro-batch {}, chunk {}: {:g} to {:g}{}</title>"
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" stroke=\"white\"/>",
          name_of(timed.step.kind), timed.step.micro_batch, timed.step.chunk, timed.start, timed.end,
          scale.unit.empty() ? "" : " " + scale.unit, x, y + 2, length, row - 4, colour(timed.step, schedule));
      const std::string name = label(timed.step, schedule);
      if (length >= letter_width * static_cast<double>(name.size())) {
        svg += fmt::format("<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", x + length / 2,
                           y + row / 2 + 3, name);
      }
      svg += "</g>\n";
    }
  }
  constexpr int ticks = 20;
  double tick = simulation.makespan / ticks;
  if (scale.unit.empty() || tick >= 1) tick = std::max(1.0, std::round(tick));
  for (int i = 0; i * tick <= simulation.makespan && tick > 0; ++i) {
    const double time = i * tick;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\" fill=\"#666666\">{:.6g}</text>\n",
                       left + unit * time, axis + 16, time);
  }
  if (!scale.unit.empty()) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"end\" fill=\"#666666\">{}</text>\n", left - 8,
                       axis + 16, scale.unit);
  }
  return svg + "</svg>\n";
}

}  // namespace trireme::plan
