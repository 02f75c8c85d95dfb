#include "src/report/histogram.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/report/markup.hpp"
#include "src/report/scale.hpp"

namespace trireme::report {

std::string svg_of(const Histogram& histogram) {
  constexpr double left = 66, right = 24, top = 40, bottom = 50, height = 320, group = 46;
  constexpr const char* colours[] = {"#0072b2", "#d55e00", "#008a64", "#b8558f"};
  const double width = left + right + group * static_cast<double>(std::max<std::size_t>(histogram.bars.size(), 8));
  double greatest = 0;
  for (const Histogram::Bar& bar : histogram.bars) {
    for (const double share : bar.shares) greatest = std::max(greatest, 100 * share);
  }
  const Scale y = vertical_scale(0, greatest, Axis::from_zero, 6);
  const auto at_y = [&](double percent) { return height - bottom - y.place(percent) * (height - top - bottom); };
  std::string text = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" )"
      R"(font-family="sans-serif" font-size="12"><title>{2}</title><rect width="100%" height="100%" fill="white"/>)",
      width, height, escaped(histogram.title));
  text += fmt::format(
      "\n"
      R"(<text x="{}" y="20" font-size="14">{}</text>)",
      left, escaped(histogram.title));
  for (const Tick& tick : y.ticks) {
    text += fmt::format(
        "\n"
        R"(<path d="M{} {:.1f}H{}" stroke="#e4e7eb"/><text x="{}" y="{:.1f}" text-anchor="end">)"
        "{} %</text>",
        left, at_y(tick.value), width - right, left - 6, at_y(tick.value) + 4, tick.label);
  }
  const double bar_width = (group - 8) / static_cast<double>(std::max<std::size_t>(histogram.series.size(), 1));
  for (std::size_t i = 0; i < histogram.bars.size(); ++i) {
    const Histogram::Bar& bar = histogram.bars[i];
    const double x = left + group * static_cast<double>(i) + 4;
    for (std::size_t s = 0; s < bar.shares.size(); ++s) {
      const double percent = 100 * bar.shares[s], begin = at_y(percent);
      text += fmt::format(
          "\n"
          R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"><title>{}</title></rect>)",
          x + bar_width * static_cast<double>(s), begin, bar_width, at_y(0) - begin, colours[s % std::size(colours)],
          escaped(fmt::format("{}: {:.2f} % of the {}", bar.range, percent, histogram.series[s])));
    }
    text += fmt::format(
        "\n"
        R"(<text x="{:.1f}" y="{}">{}</text>)",
        x, height - bottom + 18, escaped(bar.label));
  }
  text += fmt::format(
      "\n"
      R"(<text x="{}" y="{}" text-anchor="end">{}</text>)",
      width - right, height - 10, escaped(histogram.axis));
  for (std::size_t s = 0; s < histogram.series.size(); ++s) {
    const double x = left + 110 * static_cast<double>(s);
    text += fmt::format(
        "\n"
        R"(<rect x="{0}" y="{1}" width="10" height="10" fill="{2}"/><text x="{3}" y="{4}">{5}</text>)",
        x, height - 20, colours[s % std::size(colours)], x + 15, height - 10, escaped(histogram.series[s]));
  }
  return text + "\n</svg>\n";
}

}  // namespace trireme::report
