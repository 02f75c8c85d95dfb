#include "src/report/markup.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/report/page.hpp"

namespace trireme::test {
namespace {

using report::escaped;

TEST(Escaped, LeavesNoMarkup) {
  EXPECT_EQ(escaped("a < b & \"c\" > 'd'"), "a &lt; b &amp; &quot;c&quot; &gt; &#39;d&#39;");
  EXPECT_EQ(escaped("Grüße, 船 🚢\n"), "Grüße, 船 🚢\n");
}

TEST(Escaped, ReplacesWhatIsNotUtf8AndControlCharacters) {
  const std::string replacement = "\xef\xbf\xbd";
  for (const char* text : {"\x80", "\xc0", "\xff", "\x1b", "\x7f"}) EXPECT_EQ(escaped(text), replacement);
  EXPECT_EQ(escaped("\xc3"), replacement);                       // cut short
  EXPECT_EQ(escaped("\xc0\xaf"), replacement + replacement);     // too long a form of "/"
  EXPECT_EQ(escaped("\xed\xa0\x80").substr(0, 3), replacement);  // a surrogate
  EXPECT_EQ(escaped(std::string("\0", 1)), replacement);
}

/// Returns the first fault in the nesting of the elements of `html`, all of which have end tags or end in "/>".
std::string fault_of(const std::string& html) {
  std::vector<std::string> open;
  for (std::size_t begin = html.find('<'); begin != std::string::npos; begin = html.find('<', begin + 1)) {
    const std::size_t end = html.find('>', begin);
    if (end == std::string::npos) return "an open tag at the end";
    const std::string tag = html.substr(begin + 1, end - begin - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag.starts_with("!DOCTYPE") || tag.ends_with('/')) continue;
    if (!tag.starts_with('/')) {
      open.push_back(name);
    } else if (open.empty() || "/" + open.back() != tag) {
      return "<" + tag + "> ends " + (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back() + " has no end";
}

TEST(Page, EscapesEveryTextOfARun) {
  const std::string bad = "<script>alert('x')</script>\"&";
  report::Run run;
  run.name = bad;
  run.first_iteration = run.last_iteration = run.iterations = 1;
  run.curves[report::lm_loss] = report::Curve(1, 1, 10);
  run.curves[report::lm_loss]->add(1, 2.5);
  run.validation.try_emplace(bad, report::Curve(1, 1, 10)).first->second.add(1, 2.6);
  report::Life life;
  life.start = report::LifeStart{};
  life.start->job = life.start->host = life.start->version = life.start->device = bad;
  life.start->axes = {{bad, 2}};
  life.start->options = {{bad, bad, true}, {bad, bad, false}};
  life.end = report::LifeEnd{0, 1, 3, bad};
  run.lives = {life, life};
  run.steps = {{bad, {}, 0, 0, bad}};
  run.attributes = {{bad, bad}};
  run.notes = {bad};
  report::Page page;
  page.version = bad;
  page.spell = [](std::string_view text) { return std::string(text); };
  page.runs = {run, run};
  const std::string html = html_of(page);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("'x'"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;alert(&#39;x&#39;)"), std::string::npos);
  EXPECT_EQ(html.find("http"), std::string::npos);
  EXPECT_EQ(fault_of(html), "");
}

TEST(Page, OfARunWithoutRecordsNamesTheFieldsThatRecordThem) {
  report::Run run;
  run.name = "old";
  report::Page page;
  page.spell = [](std::string_view text) {
    return text.find("<metrics_file>") == std::string_view::npos ? std::string(text) : "SPELT";
  };
  page.runs = {run};
  const std::string html = html_of(page);
  EXPECT_NE(html.find("SPELT"), std::string::npos);
  EXPECT_EQ(html.find("metrics_file"), std::string::npos);
  EXPECT_EQ(fault_of(html), "");
}

}  // namespace
}  // namespace trireme::test
