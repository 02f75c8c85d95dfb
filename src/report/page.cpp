#include "src/report/page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "src/report/chart.hpp"
#include "src/report/markup.hpp"
#include "src/report/page_files.hpp"
#include "src/report/run_section.hpp"
#include "src/report/table.hpp"
#include "src/report/time_text.hpp"

namespace trireme::report {
namespace {

/// Returns an attribute that names a part of the page: page.js renews each part separately.
std::string part(std::string_view name) { return fmt::format("data-part=\"{}\"", name); }

/// Returns a figure: a heading, the curves, and a legend for several.
std::string figure_of(const Chart& chart, const std::string& missing) {
  std::string content = text_element("h3", "", chart.title);
  const bool is_empty = std::ranges::all_of(chart.series, [](const Series& series) { return series.columns.empty(); });
  if (is_empty) {
    content += text_element("p", "none", missing);
  } else {
    content += svg_of(chart);
  }
  if (chart.series.size() > 1 && !is_empty) {
    std::string items;
    for (const Series& series : chart.series) {
      items += element("li", "", swatch(series.style) + " " + escaped(series.label));
    }
    content += element("ul", R"(class="legend")", items);
  }
  const bool is_lead = chart.width > Chart().width;
  return element("figure", part(chart.id) + (is_lead ? R"( class="lead")" : ""), content);
}

/// Returns a chart with the marks of all runs, and no curves yet.
Chart empty_chart(const std::vector<Run>& runs) {
  Chart chart;
  chart.first_x = std::numeric_limits<double>::infinity();
  chart.last_x = 1;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    chart.first_x = std::min(chart.first_x, static_cast<double>(run.first_iteration));
    chart.last_x = std::max(chart.last_x, static_cast<double>(run.last_iteration));
    for (std::size_t attempt = 1; attempt < run.attempts.size(); ++attempt) {
      const std::optional<AttemptStart>& start = run.attempts[attempt].start;
      if (!start) continue;
      chart.begins.push_back(
          {static_cast<double>(start->iteration), static_cast<int>(i),
           fmt::format("{}: attempt {} continued after iteration {}", run.name, attempt + 1, start->iteration)});
    }
  }
  return chart;
}

std::vector<Mark> skipped_marks(const std::vector<Run>& runs) {
  std::vector<Mark> marks;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].skipped) continue;
    for (const Column& column : runs[i].skipped->columns()) {
      const std::string where = column.first_x == column.last_x
                                    ? fmt::format("{}", column.first_x)
                                    : fmt::format("{} to {}", column.first_x, column.last_x);
      marks.push_back({column.middle_x(), static_cast<int>(i),
                       fmt::format("{}: {} update{} skipped at iteration {}", runs[i].name, column.count,
                                   column.count == 1 ? "" : "s", where)});
    }
  }
  return marks;
}

/// Returns whether an optional curve varies.
bool varies(const std::vector<Run>& runs, std::size_t quantity) {
  return std::ranges::any_of(runs,
                             [&](const Run& run) { return run.curves[quantity] && run.curves[quantity]->varies(); });
}

/// Returns the figure of curves by set of each run; empty if no run has any, unless a text tells that they are missing.
template <class CurvesOf>
std::string sets_figure(const std::vector<Run>& runs, Chart chart, CurvesOf curves_of, const std::string& missing) {
  std::size_t most = 0;
  for (const Run& run : runs) most = std::max(most, curves_of(run).size());
  if (most == 0 && missing.empty()) return "";
  for (std::size_t i = 0, style = 0; i < runs.size(); ++i) {
    for (const auto& [set, curve] : curves_of(runs[i])) {
      const std::string label = set.empty() ? runs[i].name : runs.size() == 1 ? set : runs[i].name + ", " + set;
      chart.series.push_back(
          {label, static_cast<int>(most > 1 ? style++ : i), curve.columns(), curve.count() <= 60, static_cast<int>(i)});
    }
  }
  return figure_of(chart, missing);
}

/// Returns the figure of a measure on validation data. That of the loss is always there.
std::string validation_figure(const Page& page, const Measure& measure) {
  Chart chart = empty_chart(page.runs);
  chart.id = fmt::format("valid_{}", measure.key);
  chart.title = fmt::format("Validation {}", measure.name);
  chart.unit = measure.is_fraction ? "%" : "";
  chart.axis = measure.axis;
  const bool is_needed = &measure == &measures.front();
  const std::string missing = page.spell(
      "Not recorded. Training measures it by <eval_interval> and <eval_iters>; fine-tuning for a task prints its "
      "scores.");
  return sets_figure(
      page.runs, std::move(chart), [&](const Run& run) -> const ValidationCurves& { return run.*measure.validation; },
      is_needed ? missing : "");
}

std::string task_figure(const std::vector<Run>& runs, std::size_t quantity) {
  const TaskQuantity& kind = task_quantities[quantity];
  Chart chart = empty_chart(runs);
  chart.id = fmt::format("task_{}", kind.key);
  chart.title = kind.title;
  chart.unit = kind.is_fraction ? "%" : "";
  chart.axis = kind.is_fraction ? Axis::fitted : Axis::decades;
  return sets_figure(
      runs, std::move(chart), [&](const Run& run) -> const ValidationCurves& { return run.tasks[quantity]; }, "");
}

/// Returns the second half of a chart of losses, whose first iterations hide what happens later.
Chart second_half(Chart chart) {
  const double middle = std::floor(0.5 * (chart.first_x + chart.last_x));
  chart.id += "-late";
  chart.title += ", second half";
  chart.first_x = middle;
  for (Series& series : chart.series) {
    std::erase_if(series.columns, [&](const Column& column) { return static_cast<double>(column.first_x) < middle; });
  }
  for (std::vector<Mark>* marks : {&chart.begins, &chart.skipped}) {
    std::erase_if(*marks, [&](const Mark& mark) { return mark.x <= middle; });
  }
  return chart;
}

Chart quantity_chart(const std::vector<Run>& runs, std::size_t quantity) {
  const Quantity& kind = quantities[quantity];
  Chart chart = empty_chart(runs);
  chart.id = std::string(kind.key);
  chart.title = kind.title;
  chart.unit = kind.unit;
  chart.axis = kind.axis;
  if (quantity == lm_loss || quantity == grad_norm || quantity == loss_scale) chart.skipped = skipped_marks(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::optional<Curve>& curve = runs[i].curves[quantity];
    if (!curve || curve->count() + curve->not_finite() == 0) continue;
    chart.series.push_back({runs[i].name, static_cast<int>(i), curve->columns(), false, static_cast<int>(i)});
  }
  return chart;
}

/// Returns the figures; the first, which a page begins with, is that of the training loss.
std::vector<std::string> figures_of(const Page& page) {
  std::vector<std::string> figures;
  const auto add = [&](std::string figure) {
    if (!figure.empty()) figures.push_back(std::move(figure));
  };
  for (std::size_t quantity = 0; quantity < quantities.size(); ++quantity) {
    const Quantity& kind = quantities[quantity];
    Chart chart = quantity_chart(page.runs, quantity);
    if (quantity == lm_loss) chart.width = 800, chart.height = 340;
    if (kind.always_shown || varies(page.runs, quantity)) {
      add(figure_of(chart, page.spell("Not recorded. <metrics_file> of a run records it.")));
    }
    for (const Measure& measure : measures) {
      if (measure.beside == quantity) add(validation_figure(page, measure));
    }
    if (quantity == lm_loss && chart.last_x - chart.first_x >= 20) {
      chart.width = Chart().width, chart.height = Chart().height;
      add(figure_of(second_half(std::move(chart)), ""));
    }
    if (quantity != lm_loss) continue;
    for (std::size_t i = 0; i < task_quantities.size(); ++i) add(task_figure(page.runs, i));
  }
  return figures;
}

/// Returns a sentence on reading the charts that are present.
std::string reading_of(const std::vector<Run>& runs) {
  bool is_reduced = false, is_continued = false, has_skipped = false, has_gaps = false;
  const Chart frame = empty_chart(runs);
  for (const Run& run : runs) {
    const auto add = [&](const Curve& curve) {
      const std::vector<Column> columns = merged(curve.columns(), frame.first_x, frame.last_x, chart_columns);
      is_reduced = is_reduced || std::ranges::any_of(columns, [](const Column& column) { return column.points() > 1; });
      has_gaps = has_gaps || curve.not_finite() > 0;
    };
    for (const std::optional<Curve>& curve : run.curves) {
      if (curve) add(*curve);
    }
    for (const Measure& measure : measures) {
      for (const auto& [set, curve] : run.*measure.validation) add(curve);
    }
    for (const ValidationCurves& tasks : run.tasks) {
      for (const auto& [task, curve] : tasks) add(curve);
    }
    is_continued = is_continued || run.attempts.size() > 1;
    has_skipped = has_skipped || run.skipped_updates > 0;
  }
  std::string text;
  if (is_reduced) {
    text +=
        "A line is the mean of the iterations in a column of the picture, the band around it their least and "
        "greatest values. ";
  }
  if (is_continued) text += "A dotted vertical line is the iteration from which a run was continued. ";
  if (has_skipped) text += "A cross at the bottom is a skipped update. ";
  if (has_gaps) text += "A triangle at the top is a value that is not finite. ";
  return element("p", R"(class="reading" data-part="reading")", escaped(text));
}

/// Returns tables that compare runs. Each has the first column, headed `name`, and those of at most six runs, which fit
/// on paper.
std::string comparison_of(std::string_view css_class, const std::string& name, const std::vector<Run>& all_runs,
                          const std::vector<Row>& rows, std::size_t text_columns) {
  constexpr std::size_t most = 6;
  const std::size_t runs = all_runs.size(), tables = (runs + most - 1) / most;
  Row head{name};
  for (const Run& run : all_runs) head.push_back(run.name);
  std::string text;
  for (std::size_t i = 0; i < tables; ++i) {
    const auto part = [&](const Row& row) {
      Row cells{row.front()};
      const auto column = [&](std::size_t table) {
        return row.begin() + 1 + static_cast<std::ptrdiff_t>(table * runs / tables);
      };
      cells.insert(cells.end(), column(i), column(i + 1));
      return cells;
    };
    std::vector<Row> parts;
    for (const Row& row : rows) parts.push_back(part(row));
    text += table_of(part(head), parts, text_columns);
  }
  return element("div", fmt::format("class=\"compared {}\"", css_class), text);
}

/// Returns the figures of one run as a list, of several as a table.
std::string summary_table(const std::vector<Run>& runs) {
  if (runs.size() == 1) {
    std::string items;
    for (const auto& [name, markup] : summary_of(runs.front())) {
      items += element("div", "", text_element("dt", "", name) + element("dd", "", markup));
    }
    return element("dl", R"(class="facts")", items);
  }
  std::vector<std::string> names;
  std::vector<std::map<std::string, std::string>> cells(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const auto& [name, markup] : summary_of(runs[i])) {
      cells[i][name] = markup;
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  std::vector<Row> rows;
  for (const std::string& name : names) {
    Row row{escaped(name)};
    for (const auto& of_run : cells) {
      const auto found = of_run.find(name);
      row.push_back(found == of_run.end() ? dash : found->second);
    }
    rows.push_back(std::move(row));
  }
  return comparison_of("summary", "", runs, rows, 1);
}

/// Returns the options that differ between runs; empty if fewer than two runs recorded theirs.
std::string differences_of(const std::vector<Run>& runs) {
  std::map<std::string, std::vector<std::string>> values;
  std::vector<std::size_t> recorded;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const AttemptStart* start = runs[i].newest_start();
    if (start == nullptr) continue;
    recorded.push_back(i);
    for (const OptionValue& option : start->options) {
      auto& row = values[option.name];
      row.resize(runs.size(), dash);
      row[i] = escaped(option.value);
    }
  }
  std::vector<Row> rows;
  for (const auto& [name, row] : values) {
    const auto value_of = [&row = row](std::size_t run) -> const std::string& { return row[run]; };
    if (std::ranges::adjacent_find(recorded, std::not_equal_to<>(), value_of) == recorded.end()) continue;
    rows.push_back({escaped(name)});
    rows.back().insert(rows.back().end(), row.begin(), row.end());
  }
  if (rows.empty()) return "";
  return element(
      "section", part("differences"),
      text_element("h2", "", "Options that differ") + comparison_of("options", "option", runs, rows, runs.size() + 1));
}

std::string document_of(const Page& page, const std::string& title, const std::string& main) {
  std::string head = R"(<meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>)";
  head += R"(<meta name="color-scheme" content="light dark"/>)" + text_element("title", "", title);
  if (page.renewal_seconds > 0) {  // for readers without scripts
    head +=
        element("noscript", "", fmt::format(R"(<meta http-equiv="refresh" content="{}"/>)", 10 * page.renewal_seconds));
  }
  head += element("style", "", style_sheet);
  std::string body =
      element("header", "",
              text_element("h1", "", title) +
                  element("p", R"(class="made" data-part="made")",
                          escaped(fmt::format("Trireme {}, {} UTC", page.version, utc_text(page.made_at)))));
  body += element("main", "", main) + element("script", "", page_script);
  return "<!DOCTYPE html>\n" +
         element("html", R"(lang="en")",
                 element("head", "", head) +
                     element("body", fmt::format("data-renewal=\"{}\"", page.renewal_seconds), body)) +
         "\n";
}

}  // namespace

std::string html_of_message(const Page& page, const std::string& message) {
  return document_of(page, "Trireme", element("p", R"(class="none" data-part="message")", escaped(message)));
}

std::string html_of(const Page& page) {
  std::string title, legend;
  for (std::size_t i = 0; i < page.runs.size(); ++i) {
    const std::string& name = page.runs[i].name;
    title += (title.empty() ? "" : ", ") + name;
    legend +=
        element("li", fmt::format("data-run=\"{}\"", i),
                swatch(static_cast<int>(i)) + " " + element("a", fmt::format("href=\"#run{}\"", i), escaped(name)));
  }
  const bool is_alone = page.runs.size() == 1;
  const std::vector<std::string> figures = figures_of(page);
  std::string main = is_alone ? "" : element("ul", R"(class="legend runs")", legend);
  main += element("div", fmt::format("class=\"overview{}\"", is_alone ? " alone" : ""),
                  figures.front() + element("section", part("facts"), summary_table(page.runs)));
  main += reading_of(page.runs);
  main += element("div", R"(class="figures")", fmt::format("{}", fmt::join(figures.begin() + 1, figures.end(), "")));
  main += differences_of(page.runs);
  for (std::size_t i = 0; i < page.runs.size(); ++i) main += section_of(page.runs[i], i, page);
  return document_of(page, title, main);
}

}  // namespace trireme::report
