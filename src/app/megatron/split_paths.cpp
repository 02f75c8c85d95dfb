#include "src/app/megatron/split_paths.hpp"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "io/json/settings_json.hpp"
#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme::app::megatron {
namespace {

using Words = std::vector<std::string>;

/// Corpora of a group.
struct CorpusGroup {
  std::string name;
  Words corpora;  ///< weight and path of each
  double begin = 0;
  double end = 1;
  bool has_one_range = true;  ///< `begin` and `end` are those of every corpus

  bool is_complete() const { return has_one_range && begin == 0 && end == 1; }
  /// Returns the corpora as an option takes them: the weight of a single one has no effect.
  Words words() const { return corpora.size() == 2 ? Words{corpora[1]} : corpora; }
};

CorpusGroup parse_group(const std::string& text) {
  const std::size_t colon = text.find(':');
  CorpusGroup group{.name = text.substr(0, colon), .corpora = {}};
  const std::string list = colon == std::string::npos ? "" : text.substr(colon + 1);
  for (const std::string_view item : split(list, ',')) {
    std::istringstream stream{std::string(item)};
    const Words words{std::istream_iterator<std::string>(stream), {}};
    const std::size_t middle = words.size() == 3 ? words[1].find(':') : std::string::npos;
    std::optional<double> begin, end;
    if (middle != std::string::npos) {
      begin = parse_number<double>(words[1].substr(0, middle));
      end = parse_number<double>(words[1].substr(middle + 1));
    }
    TRIREME_CHECK(begin && end && 0 <= *begin && *begin < *end && *end <= 1 && parse_number<double>(words[0]),
                  ConfigError, "'{}' in '{}' is not WEIGHT START:END PATH; nearest: NAME: 1 0:1 corpus.h5",
                  shortened(item), shortened(text));
    if (group.corpora.empty()) {
      group.begin = *begin;
      group.end = *end;
    }
    group.has_one_range = group.has_one_range && group.begin == *begin && group.end == *end;
    group.corpora.insert(group.corpora.end(), {words[0], words[2]});
  }
  TRIREME_CHECK(!group.corpora.empty(), ConfigError, "'{}' has no corpus; nearest: NAME: 1 0:1 corpus.h5",
                shortened(text));
  return group;
}

Words joined(const std::string& option, const Words& values) {
  Words words = {option};
  words.insert(words.end(), values.begin(), values.end());
  return words;
}

/// Returns validation sets NAME=CORPUS, or NAME=WEIGHT CORPUS WEIGHT CORPUS ...
Words validation_sets(const std::vector<CorpusGroup>& groups) {
  Words words = {"--valid-set"};
  for (const CorpusGroup& group : groups) {
    Words own = group.words();
    own.front().insert(0, group.name + "=");
    words.insert(words.end(), own.begin(), own.end());
  }
  return words;
}

/// Returns the options of parts of the same corpora. Further groups of validation are the same part of any corpora.
PerSplit shares_of(const std::array<std::vector<CorpusGroup>, 3>& groups) {
  const Words& corpora = groups[0].front().corpora;
  std::string shares;
  double end = 0;
  std::vector<CorpusGroup> sets;
  for (const std::vector<CorpusGroup>& of_split : groups) {
    const double begin = end;
    const auto same = std::ranges::find(of_split, corpora, &CorpusGroup::corpora);
    if (same != of_split.end()) end = same->end;
    for (auto group = of_split.begin(); group != of_split.end(); ++group) {
      TRIREME_CHECK(group->has_one_range && group->begin == begin && group->end == end, ConfigError,
                    "parts of corpora are shares of one --split; nearest: the same corpora and weights for every "
                    "split, or --train-data-path and --valid-data-path with complete corpora");
      if (group != same) sets.push_back(*group);
    }
    shares += fmt::format("{}{:.10g}", shares.empty() ? "" : ",", end - begin);
  }
  TRIREME_CHECK(end == 1, ConfigError,
                "the last part ends at {}, and --split has no part without use; nearest: a test split up to 1", end);
  PerSplit words = {joined("--data-path", groups[0].front().words())};
  words[0].insert(words[0].end(), {"--split", shares});
  if (sets.empty()) return words;
  words[1] = validation_sets(sets);
  words[1].emplace_back("--split-valid-sets");
  return words;
}

}  // namespace

PerSplit split_path_words(const PerSplit& texts) {
  std::array<std::vector<CorpusGroup>, 3> groups;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const std::string& text : texts[i]) groups[i].push_back(parse_group(text));
  }
  const auto& [train, valid, test] = groups;
  TRIREME_CHECK(train.size() == 1 && test.size() <= 1, ConfigError,
                "training needs one group of corpora, and the test takes at most one; nearest: one group with weights");
  const bool are_complete = std::ranges::all_of(
      groups, [](const auto& list) { return std::ranges::all_of(list, &CorpusGroup::is_complete); });
  if (!are_complete) return shares_of(groups);
  PerSplit words = {joined("--train-data-path", train.front().words())};
  if (valid.size() == 1) words[1] = joined("--valid-data-path", valid.front().words());
  if (valid.size() > 1) words[1] = validation_sets(valid);
  if (!test.empty()) words[2] = joined("--test-data-path", test.front().words());
  return words;
}

std::vector<std::string> split_path_groups(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  TRIREME_CHECK(text.size() > 2 && text.front() == '"' && text.back() == '"' && text.find('\n') == std::string::npos,
                ConfigError, "'{}' is not one line \"GROUP\" \"GROUP\" ...; nearest: \"NAME: 1 0:1 corpus.h5\"",
                shortened(text));
  constexpr std::string_view separator = "\" \"";
  Words groups;
  std::size_t begin = 1;
  for (std::size_t end = text.find(separator); end != std::string::npos; end = text.find(separator, begin)) {
    groups.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  groups.push_back(text.substr(begin, text.size() - 1 - begin));
  return groups;
}

std::vector<std::string> words_of_splits(const std::string& text, const std::string& path) {
  constexpr std::string_view splits[] = {"train", "valid", "test"};
  std::vector<std::string> words;
  for (const auto& [split, values] : io::json_words(text, path)) {
    TRIREME_CHECK(std::ranges::find(splits, split) != std::end(splits), ConfigError,
                  "{}: '{}' is no split; nearest: the lists train, valid and test", path, shortened(split));
    if (values.empty()) continue;
    words.push_back(fmt::format("--{}-data-path", split));
    words.insert(words.end(), values.begin(), values.end());
  }
  TRIREME_CHECK(!words.empty(), ConfigError, "{} names no corpus; nearest: the lists train, valid and test", path);
  return words;
}

}  // namespace trireme::app::megatron
