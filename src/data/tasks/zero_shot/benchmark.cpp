#include "src/data/tasks/zero_shot/benchmark.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"
#include "src/base/utf8.hpp"
#include "src/data/tasks/task_text.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

constexpr std::size_t letters = 26;

constexpr std::string_view arc_choices = "choices.text|question.choices.text";
constexpr std::string_view arc_labels = "choices.label|question.choices.label";

/// AI2's reasoning challenge, whose two sets differ only in difficulty.
constexpr Benchmark arc(std::string_view name) {
  return {.name = name,
          .prompt = "Question: {question|question.stem}\nAnswer:",
          .choices = arc_choices,
          .answer = "answerKey",
          .labels = arc_labels,
          .split = "test",
          .shots = ShotChoice::drawn};
}

constexpr Benchmark table[] = {
    {.name = "hellaswag",
     .prompt = "{activity_label}: {ctx_a} {ctx_b:capitalize}",
     .choices = "endings",
     .answer = "label",
     .is_cleaned = true},
    arc("arc_easy"),
    arc("arc_challenge"),
    {.name = "piqa", .prompt = "Question: {goal}\nAnswer:", .choices = "sol1,sol2", .answer = "label"},
    {.name = "winogrande",
     .prompt = "{sentence:before_blank}{*}",
     .continuation = " {sentence:after_blank}",
     .choices = "option1,option2",
     .answer = "answer",
     .first_number = 1,
     .normalizes = false},
    {.name = "boolq",
     .prompt = "{passage}\nQuestion: {question}?\nAnswer:",
     .choices = "=no,yes",
     .answer = "label|answer",
     .normalizes = false,
     .version = 2},
    {.name = "openbookqa",
     .prompt = "{question_stem|question.stem}",
     .choices = arc_choices,
     .answer = "answerKey",
     .labels = arc_labels,
     .split = "test",
     .shots = ShotChoice::drawn},
    {.name = "mmlu",
     .prompt = "{question:strip}{choices:lines}\nAnswer:",
     .choices = ":choices",
     .answer = "answer",
     .description = "The following are multiple choice questions (with answers) about {subject:spaces}.\n\n",
     .normalizes = false,
     .split = "test",
     .shot_split = "dev",
     .shots = ShotChoice::first,
     .group_field = "subject"},
    {.name = "lambada_openai",
     .kind = BenchmarkKind::word,
     .prompt = "{text:but_last}",
     .continuation = " {text:last}",
     .split = "test",
     .shot_split = "test",
     .shots = ShotChoice::drawn,
     .shot_space = " "},
    {.name = "lambada_standard",
     .kind = BenchmarkKind::word,
     .prompt = "{text:but_last}",
     .continuation = " {text:last}",
     .split = "test",
     .shot_split = "validation",
     .shots = ShotChoice::drawn,
     .shot_space = " "},
    {.name = "wikitext", .kind = BenchmarkKind::pages, .continuation = "page", .split = "test", .version = 2},
    {.name = "multiple_choice",
     .prompt = "{ctx|context|question|query}",
     .choices = "choices|endings",
     .answer = "label|answer|gold",
     .is_published = false},
};

/// Removes WikiHow's brackets and their content within a line.
std::string without_brackets(std::string_view given) {
  std::string text = replaced(stripped(given), " [title]", ". ");
  for (std::size_t open = 0; (open = text.find('[', open)) != text.npos;) {
    const std::size_t end = text.find_first_of("]\n", open);
    if (end != text.npos && text[end] == ']') {
      text.erase(open, end - open + 1);
    } else {
      ++open;
    }
  }
  return replaced(text, "  ", " ");
}

std::string filtered(const TaskDocument& document, std::string_view names, std::string_view filter) {
  std::string result;
  if (filter == "lines") {
    const std::vector<std::string>& choices = document.list(names);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      result += fmt::format("\n{}. {}", static_cast<char>('A' + i), choices[i]);
    }
    return result;
  }
  const std::string& text = document.text(names);
  if (filter == "strip") return std::string(stripped(text));
  if (filter == "capitalize") return capitalized(text);
  if (filter == "spaces") return replaced(text, "_", " ");
  const bool by_blank = filter.ends_with("_blank");
  const std::size_t at = by_blank ? text.find('_') : text.rfind(' ');
  TRIREME_CHECK(!by_blank || at != text.npos, DataError, "the sentence '{}' has no blank, the sign _", shortened(text));
  if (filter == "before_blank" || filter == "but_last") return at == text.npos ? "" : text.substr(0, at);
  const std::string rest = at == text.npos ? text : text.substr(at + 1);
  return by_blank ? std::string(stripped(rest)) : rest;
}

std::string rendered(std::string_view given, const TaskDocument& document, std::string_view choice) {
  std::string result;
  for (std::string_view rest = given;;) {
    const std::size_t open = rest.find('{');
    result += rest.substr(0, open);
    if (open == rest.npos) return result;
    const std::size_t close = rest.find('}', open);
    const std::string_view inside = rest.substr(open + 1, close - open - 1);
    rest.remove_prefix(close + 1);
    const std::size_t colon = inside.find(':');
    if (inside == "*") {
      result += choice;
    } else if (colon == inside.npos) {
      result += document.text(inside);
    } else {
      result += filtered(document, inside.substr(0, colon), inside.substr(colon + 1));
    }
  }
}

std::vector<std::string> choices_of(const Benchmark& benchmark, const TaskDocument& document) {
  const std::string_view given = benchmark.choices;
  std::vector<std::string> choices;
  if (given.starts_with('=')) {
    for (const std::string_view choice : split(given.substr(1), ',')) choices.emplace_back(choice);
  } else if (given.starts_with(':')) {
    const std::size_t count = document.list(given.substr(1)).size();
    TRIREME_CHECK(count <= letters, DataError, "{} choices: there are letters for {}", count, letters);
    for (std::size_t i = 0; i < count; ++i) choices.emplace_back(1, static_cast<char>('A' + i));
  } else if (given.find(',') != given.npos) {
    for (const std::string_view field : split(given, ',')) choices.push_back(document.text(field));
  } else {
    choices = document.list(given);
  }
  TRIREME_CHECK(choices.size() >= 2, DataError, "the question has {} choices: it needs at least 2", choices.size());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    TRIREME_CHECK(!choices[i].empty(), DataError, "choice {} is empty", i);
  }
  return choices;
}

std::int64_t answer_of(const Benchmark& benchmark, const TaskDocument& document, std::int64_t choices) {
  const std::string& given = document.text(benchmark.answer);
  if (!benchmark.labels.empty()) {
    const std::vector<std::string>& labels = document.list(benchmark.labels);
    const auto found = std::ranges::find(labels, stripped(given));
    TRIREME_CHECK(found != labels.end() && found - labels.begin() < choices, DataError,
                  "the answer '{}' is none of the choices {}", given, fmt::join(labels, ", "));
    return found - labels.begin();
  }
  const bool is_letter = given.size() == 1 && given[0] >= 'A' && given[0] <= 'Z';
  const auto number = is_letter ? std::optional<std::int64_t>(given[0] - 'A') : parse_number<std::int64_t>(given);
  TRIREME_CHECK(number, DataError, "the value of '{}' is \"{}\": neither the number of a choice nor its letter",
                document.found(benchmark.answer), shortened(given));
  const std::int64_t first = is_letter ? 0 : benchmark.first_number;
  TRIREME_CHECK(*number >= first && *number < first + choices, DataError,
                "the answer {} is not one of the {} choices, {} to {}", given, choices, first, first + choices - 1);
  return *number - first;
}

}  // namespace

std::span<const Benchmark> benchmarks() { return table; }

const Benchmark* find_benchmark(std::string_view name) {
  const std::string lower = lower_case(name);
  const auto found = std::ranges::find(table, std::string_view(lower), &Benchmark::name);
  return found == std::end(table) ? nullptr : found;
}

ChoiceExample example_of(const Benchmark& given, const TaskDocument& document) {
  // A question that is in one piece already is not cleaned either.
  const bool is_whole = given.is_cleaned && document.found("activity_label").empty();
  const Benchmark& benchmark = is_whole ? *find_benchmark("multiple_choice") : given;
  ChoiceExample example;
  if (benchmark.kind == BenchmarkKind::word) {
    const std::string text = rendered(benchmark.continuation, document, "");
    example.choices.push_back({rendered(benchmark.prompt, document, ""), text, count_characters(text)});
    return example;
  }
  for (std::string choice : choices_of(benchmark, document)) {
    if (benchmark.is_cleaned) choice = without_brackets(choice);
    std::string context = rendered(benchmark.prompt, document, choice);
    if (benchmark.is_cleaned) context = without_brackets(context);
    std::string text = rendered(benchmark.continuation, document, choice);
    example.choices.push_back({std::move(context), std::move(text), count_characters(choice)});
  }
  example.answer = answer_of(benchmark, document, std::ssize(example.choices));
  return example;
}

const std::string& page_of(const Benchmark& benchmark, const TaskDocument& document) {
  return document.text(benchmark.continuation);
}

Shots::Shots(const Benchmark& benchmark, std::vector<TaskDocument> pool, std::int64_t count, std::uint64_t seed)
    : benchmark_(benchmark), pool_(std::move(pool)), count_(count), random_(seed) {
  const std::int64_t needed = count == 0 ? 0 : count + (benchmark.shots == ShotChoice::drawn_others ? 1 : 0);
  TRIREME_CHECK(needed <= std::ssize(pool_), ConfigError,
                "<num_fewshot> {} needs {} examples of {}, but its {} data have {}. Try a smaller number", count,
                needed, benchmark.name, benchmark.shot_split, pool_.size());
}

std::vector<std::int64_t> Shots::choose(const TaskDocument& document) {
  std::vector<std::int64_t> chosen(static_cast<std::size_t>(count_));
  std::iota(chosen.begin(), chosen.end(), 0);
  if (benchmark_.shots == ShotChoice::first || count_ == 0) return chosen;
  if (benchmark_.shots == ShotChoice::drawn) return random_.sample(std::ssize(pool_), count_);
  const auto is_own = [&](std::int64_t i) { return pool_[static_cast<std::size_t>(i)].fields == document.fields; };
  chosen = random_.sample(std::ssize(pool_), count_ + 1);
  std::erase_if(chosen, is_own);
  if (std::ssize(chosen) < count_) {  // the question occurs several times
    std::vector<std::int64_t> others(pool_.size());
    std::iota(others.begin(), others.end(), 0);
    std::erase_if(others, is_own);
    chosen = random_.sample(std::ssize(others), count_);
    for (std::int64_t& i : chosen) i = others[static_cast<std::size_t>(i)];
  }
  chosen.resize(static_cast<std::size_t>(count_));
  return chosen;
}

std::string Shots::before(const TaskDocument& document) {
  std::string text;
  if (!benchmark_.description.empty() && !document.found(benchmark_.group_field).empty()) {
    text = rendered(benchmark_.description, document, "");
  }
  for (const std::int64_t i : choose(document)) {
    const TaskDocument& example = pool_[static_cast<std::size_t>(i)];
    ChoiceExample shown;
    try {
      shown = example_of(benchmark_, example);
    } catch (const DataError& error) {
      throw DataError("{}: {}", example.where, error.what());
    }
    const Continuation& right = shown.choices[static_cast<std::size_t>(shown.answer)];
    text += right.context + std::string(benchmark_.shot_space) + right.text + "\n\n";
  }
  return text;
}

namespace {

constexpr std::pair<std::string_view, std::string_view> categories[] = {
    {"stem",
     "abstract_algebra,anatomy,astronomy,college_biology,college_chemistry,college_computer_science,"
     "college_mathematics,college_physics,computer_security,conceptual_physics,electrical_engineering,"
     "elementary_mathematics,high_school_biology,high_school_chemistry,high_school_computer_science,"
     "high_school_mathematics,high_school_physics,high_school_statistics,machine_learning"},
    {"other",
     "business_ethics,clinical_knowledge,college_medicine,global_facts,human_aging,management,marketing,"
     "medical_genetics,miscellaneous,nutrition,professional_accounting,professional_medicine,virology"},
    {"social_sciences",
     "econometrics,high_school_geography,high_school_government_and_politics,high_school_macroeconomics,"
     "high_school_microeconomics,high_school_psychology,human_sexuality,professional_psychology,public_relations,"
     "security_studies,sociology,us_foreign_policy"},
    {"humanities",
     "formal_logic,high_school_european_history,high_school_us_history,high_school_world_history,international_law,"
     "jurisprudence,logical_fallacies,moral_disputes,moral_scenarios,philosophy,prehistory,professional_law,"
     "world_religions"},
};

}  // namespace

std::string_view mmlu_category(std::string_view subject) {
  for (const auto& [category, subjects] : categories) {
    if (std::ranges::count(split(subjects, ','), subject) > 0) return category;
  }
  return {};
}

}  // namespace trireme::data
