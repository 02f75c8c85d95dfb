#include "src/report/markup.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/report/page.hpp"

namespace trireme::test {
namespace {

using report::escaped;

int count_of(std::string_view text, std::string_view part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Escaped, RemovesMarkup) {
  EXPECT_EQ(escaped("a < b & \"c\" > 'd'"), "a &lt; b &amp; &quot;c&quot; &gt; &#39;d&#39;");
  EXPECT_EQ(escaped("Grüße, 船 🚢\n"), "Grüße, 船 🚢\n");
}

TEST(Escaped, ReplacesInvalidUtf8AndControlCharacters) {
  const std::string replacement = "\xef\xbf\xbd";
  for (const char* text : {"\x80", "\xc0", "\xff", "\x1b", "\x7f"}) EXPECT_EQ(escaped(text), replacement);
  EXPECT_EQ(escaped("\xc3"), replacement);                       // truncated
  EXPECT_EQ(escaped("\xc0\xaf"), replacement + replacement);     // overlong form of "/"
  EXPECT_EQ(escaped("\xed\xa0\x80").substr(0, 3), replacement);  // a surrogate
  EXPECT_EQ(escaped(std::string("\0", 1)), replacement);
}

TEST(Page, EscapesEveryTextOfARun) {
  const std::string bad = "<script>alert('x')</script>\"&";
  report::Run run;
  run.name = bad;
  run.first_iteration = run.last_iteration = run.iterations = 1;
  run.curves[report::lm_loss] = report::Curve(1, 1, 10);
  run.curves[report::lm_loss]->add(1, 2.5);
  run.validation.try_emplace(bad, report::Curve(1, 1, 10)).first->second.add(1, 2.6);
  report::Attempt attempt;
  attempt.start = report::AttemptStart{};
  attempt.start->job = attempt.start->host = attempt.start->version = attempt.start->device = bad;
  attempt.start->axes = {{bad, 2}};
  attempt.start->options = {{bad, bad, true}, {bad, bad, false}};
  attempt.end = report::AttemptEnd{0, 1, 3, bad};
  run.attempts = {attempt, attempt};
  run.steps = {{bad, {}, 0, 0, bad}};
  run.attributes = {{bad, bad}};
  run.notes = {bad};
  report::Page page;
  page.version = bad;
  page.spell = [](std::string_view text) { return std::string(text); };
  page.runs = {run, run};
  run.samples = {{1, {{bad, bad}}}};
  page.runs = {run, run};
  const std::string html = html_of(page);
  EXPECT_EQ(count_of(html, "<script"), 1);  // the page's own
  EXPECT_EQ(count_of(html, "</script"), 1);
  EXPECT_EQ(html.find("'x'"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;alert(&#39;x&#39;)"), std::string::npos);
  EXPECT_EQ(html.find("://"), std::string::npos);
  EXPECT_EQ(html_of_message(page, bad).find("alert('x')"), std::string::npos);
}

/// Returns a page of runs of one iteration with the given losses.
report::Page page_of(const std::vector<double>& losses) {
  report::Page page;
  page.spell = [](std::string_view text) { return std::string(text); };
  for (std::size_t i = 0; i < losses.size(); ++i) {
    report::Run run;
    run.name = "run" + std::to_string(i);
    run.first_iteration = run.last_iteration = run.iterations = 1;
    run.curves[report::lm_loss] = report::Curve(1, 1, 10);
    run.curves[report::lm_loss]->add(1, losses[i]);
    page.runs.push_back(run);
  }
  return page;
}

TEST(Page, ComparesAtMostSixRunsInATable) {
  std::vector<double> losses;
  for (int i = 0; i < 13; ++i) losses.push_back(1.5 + i);
  std::string html = html_of(page_of(losses));
  html = html.substr(html.find("<div class=\"compared summary\">"));
  html = html.substr(0, html.find("</section>"));
  std::vector<int> sizes;
  int run = 0;
  for (std::size_t at = html.find("<thead>"); at != std::string::npos; at = html.find("<thead>", at + 1)) {
    const std::string head = html.substr(at, html.find("</thead>", at) - at);
    const int first = run;
    while (head.find(">run" + std::to_string(run) + "<") != std::string::npos) ++run;
    sizes.push_back(run - first);
  }
  EXPECT_EQ(sizes, (std::vector{4, 4, 5}));
  for (int i = 0; i < 13; ++i) EXPECT_NE(html.find(">" + std::to_string(i + 1) + ".5000 at 1<"), std::string::npos);
}

TEST(Page, ShowsExpertsByLayer) {
  report::Page page = page_of({1});
  page.runs.front().expert_layers = {{3, {1.5, std::nullopt, 1.25, 2, 0.5, 0.125}}};
  const std::string html = html_of(page);
  for (const char* text : {"<h3>Experts by layer, iteration 1</h3>", ">router entropy</th>",
                           ">3</th><td class=\"number\" data-head=\"balance loss\">1.5</td>",
                           " data-head=\"z-loss\">\u2013</td>", " data-head=\"router entropy\">1.25</td>"}) {
    EXPECT_NE(html.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(html_of(page_of({1})).find("Experts by layer"), std::string::npos);
}

TEST(Page, ShowsTheValidationOfSegmentOrder) {
  report::Page page = page_of({1, 2});
  report::Run& run = page.runs.front();
  run.last_iteration = run.iterations = 3;
  for (const report::Measure& measure : report::measures) {
    report::Curve& curve = (run.*measure.validation).try_emplace("", report::Curve(1, 3, 10)).first->second;
    for (const int x : {1, 2, 3}) curve.add(x, x == 2 ? 0.75 : 0.625);
  }
  run.test = report::TestResult{3, 0.5, 0.25, 0.875};
  const std::string html = html_of(page);
  for (const char* text :
       {"<h3>Validation loss</h3>", "<h3>Validation loss of the segments&#39; order</h3>",
        "<h3>Validation accuracy of the segments&#39; order</h3>", "run0: 62.5 to 75, last 62.5 %.",
        ">best validation loss</th><td class=\"number\" data-head=\"run0\">0.6250 at 1, perplexity 1.868</td>",
        ">best validation loss of the segments&#39; order</th><td class=\"number\" data-head=\"run0\">0.6250 at 1</td>",
        ">best validation accuracy of the segments&#39; order</th><td class=\"number\" data-head=\"run0\">75.00 % at "
        "2</td>",
        ">test loss</th><td class=\"number\" data-head=\"run0\">0.5000 at 3, perplexity 1.649</td>",
        ">test loss of the segments&#39; order</th><td class=\"number\" data-head=\"run0\">0.2500 at 3</td>",
        ">test accuracy of the segments&#39; order</th><td class=\"number\" data-head=\"run0\">87.50 % at 3</td>"}) {
    EXPECT_NE(html.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(html_of(page_of({1})).find("segments"), std::string::npos);
}

TEST(Page, ShowsAQuantityThatEndsAtItsMinimum) {
  report::Page page = page_of({1});
  page.runs.front().last_iteration = 2;
  report::Curve& scale = page.runs.front().curves[report::loss_scale].emplace(1, 2, 10);
  scale.add(1, 65536);
  EXPECT_EQ(html_of(page).find("<h3>Loss scale</h3>"), std::string::npos);
  scale.add(2, 32768);
  EXPECT_NE(html_of(page).find("<h3>Loss scale</h3>"), std::string::npos);
}

TEST(Page, ExplainsTheTrianglesOfEachFigure) {
  report::Page page = page_of({1});
  page.runs.front().curves[report::grad_norm].emplace(1, 1, 10).add(1, std::nullopt);
  EXPECT_NE(html_of(page).find("A triangle at the top is a value that is not finite."), std::string::npos);
  EXPECT_EQ(html_of(page_of({1})).find("A triangle"), std::string::npos);
}

TEST(Page, ChargesLostWorkToTheAttemptThatDidIt) {
  report::Page page = page_of({1});
  report::Attempt attempt;
  attempt.start = report::AttemptStart{};
  report::Attempt resumed = attempt;
  resumed.start->iteration = 100;
  resumed.start->lost_iterations = 37;
  resumed.start->lost_ms = 5000;
  page.runs.front().attempts = {attempt, report::Attempt{}, resumed};  // the job between them ended before training
  const std::string html = html_of(page);
  EXPECT_NE(
      html.find(">0 \u2192 137</span></td><td data-head=\"lost iterations, training time\"><span class=\"time\">37, "
                "5.0 s<"),
      std::string::npos)
      << html;
}

TEST(Page, ShowsTheProgressOfAnAttemptBeforeAJobThatDidNotTrain) {
  report::Page page = page_of({1});
  page.runs.front().last_iteration = 137;
  report::Attempt attempt;
  attempt.start = report::AttemptStart{};
  attempt.saves = {{0, 100}};
  page.runs.front().attempts = {attempt, report::Attempt{}};
  EXPECT_NE(html_of(page).find(">0 \u2192 137</span>"), std::string::npos);
}

TEST(Page, ComparesTheRecordedOptionsOfRuns) {
  report::Page page = page_of({1, 2, 3});
  const auto record = [&](std::size_t run, const std::string& rate) {
    page.runs[run].attempts.emplace_back().start.emplace().options = {{"lr", rate, true}, {"seed", "1", false}};
  };
  record(0, "0.1");
  EXPECT_EQ(html_of(page).find("Options that differ"), std::string::npos);
  record(2, "0.2");
  std::string html = html_of(page);
  html = html.substr(html.find("Options that differ"));
  html = html.substr(0, html.find("</section>"));
  EXPECT_NE(html.find(">lr</th><td data-head=\"run0\">0.1</td><td data-head=\"run1\">\u2013</td><td "
                      "data-head=\"run2\">0.2</td>"),
            std::string::npos)
      << html;
  EXPECT_EQ(html.find("seed"), std::string::npos);
}

TEST(Page, BeginsWithTheTrainingLoss) {
  for (const std::vector<double>& losses : {std::vector<double>{1}, {1, 2}}) {
    const std::string html = html_of(page_of(losses));
    EXPECT_LT(html.find("<h3>Training loss</h3>"), html.find("data-part=\"facts\""));
  }
}

TEST(Page, RenewsItselfOnlyIfItIsServed) {
  report::Page page = page_of({1});
  EXPECT_NE(html_of(page).find("<body data-renewal=\"0\">"), std::string::npos);
  EXPECT_EQ(html_of(page).find("http-equiv"), std::string::npos);
  page.renewal_seconds = 2;
  EXPECT_NE(html_of(page).find("<body data-renewal=\"2\">"), std::string::npos);
  EXPECT_NE(html_of(page).find("<noscript><meta http-equiv=\"refresh\" content=\"20\"/></noscript>"),
            std::string::npos);
}

TEST(Page, ShowsTheNewestSamplesOfEachPrompt) {
  report::Page page = page_of({1});
  report::Run& run = page.runs.front();
  for (int i = 1; i <= 5; ++i) {
    const std::string text = "text" + std::to_string(i);
    run.add_samples({10 * i, {{"The ship", text}, {"Once", "other " + text}}});
  }
  std::string html = html_of(page);
  html = html.substr(html.find("<div class=\"samples\">"));
  EXPECT_LT(html.find(">text5<"), html.find(">text3<"));
  EXPECT_LT(html.find(">text3<"), html.find("<summary>2 earlier texts</summary>"));
  EXPECT_LT(html.find("<summary>2 earlier texts</summary>"), html.find(">text1<"));
  EXPECT_LT(html.find(">text1<"), html.find(">Once</h4>"));
  EXPECT_NE(html.find(">50</th><td><div class=\"text\">other text5<"), std::string::npos);
}

TEST(Page, DrawsTheTasksOfAllRuns) {
  report::Page page = page_of({1, 2});
  for (report::Run& run : page.runs) {
    run.last_iteration = 100;
    for (const char* task : {"arc", "piqa"})
      run.tasks[0].try_emplace(task, report::Curve(1, 100, 10)).first->second.add(5, 0.25);
  }
  std::string html = html_of(page);
  html = html.substr(html.find("<h3>Accuracy on tasks</h3>"));
  html = html.substr(0, html.find("</figure>"));
  for (const char* text :
       {"run0, arc: 25 to 25, last 25 %.", "data-label=\"run1, piqa\" data-style=\"3\" data-run=\"1\""}) {
    EXPECT_NE(html.find(text), std::string::npos) << html;
  }
  EXPECT_EQ(html_of(page_of({1})).find("on tasks"), std::string::npos);
}

TEST(Run, KeepsABoundedNumberOfSamplesWithTheNewest) {
  report::Run run;
  for (int i = 1; i <= 1000; ++i) run.add_samples({i, {}});
  EXPECT_LE(run.samples.size(), report::max_sample_sets);
  EXPECT_GE(run.samples.size(), report::max_sample_sets / 2);
  EXPECT_EQ(run.samples.back().iteration, 1000);
  EXPECT_EQ(run.samples.front().iteration, 1);
}

TEST(Page, TellsTheWallClockOfAttempts) {
  report::Page page = page_of({1});
  report::Run& run = page.runs.front();
  report::Attempt ended, killed, running;
  for (report::Attempt* attempt : {&ended, &killed, &running}) attempt->start.emplace();
  ended.end = report::AttemptEnd{60, 1, 0, ""};
  killed.start->time = 100;
  killed.saves = {{120, 1}};
  running.start->time = 1000;
  running.start->previous_written = 140;
  run.attempts = {ended, killed, running};
  run.last_written = 1030;
  const std::string html = html_of(page);
  for (const char* text : {">1 min 00 s<", ">at least 40 s<", ">at least 30 s<"}) {
    EXPECT_NE(html.find(text), std::string::npos) << text;
  }
  EXPECT_NE(html.find("<dt>wall clock of the attempts</dt><dd>2 min 10 s</dd>"), std::string::npos);
}

TEST(Page, ShowsTheDigitsOfSmallLosses) {
  const std::string html = html_of(page_of({3e-6}));
  EXPECT_NE(html.find(">3e-6 at 1<"), std::string::npos);
  EXPECT_NE(html_of(page_of({0.0})).find(">0.0000 at 1<"), std::string::npos);
}

}  // namespace
}  // namespace trireme::test
