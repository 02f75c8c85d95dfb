// Each option of train, given alone, works or leads to a run by what its error asks for.
#include <fmt/ranges.h>

#include <map>
#include <regex>
#include <set>

#include "tests/app/run_config/followed.hpp"

namespace trireme::app {
namespace {

/// Values for options without a default, and for those whose default means that they are not used.
const std::map<std::string, std::string> values = {{"adam-beta2", "0.99"},
                                                   {"attention-dropout", "0.1"},
                                                   {"blend", "b.txt"},
                                                   {"check-weight-hash-across-dp-replicas-interval", "4"},
                                                   {"ckpt-step", "4"},
                                                   {"data-path", "c.h5"},
                                                   {"decoupled-lr", "0.1"},
                                                   {"decoupled-min-lr", "0"},
                                                   {"end-weight-decay", "0.1"},
                                                   {"eval-tasks", "piqa"},
                                                   {"eval-tasks-path", "x"},
                                                   {"exit-interval", "4"},
                                                   {"ffn-hidden-size", "64"},
                                                   {"fim-rate", "0.5"},
                                                   {"fim-fragment-rate", "0.5"},
                                                   {"fim-split-sample", "a"},
                                                   {"fp8-format", "hybrid"},
                                                   {"hidden-dropout", "0.1"},
                                                   {"kv-channels", "4"},
                                                   {"load", "x"},
                                                   {"local-checkpoint-dir", "local"},
                                                   {"local-checkpoint-interval", "2"},
                                                   {"lora-alpha", "8"},
                                                   {"lora-rank", "2"},
                                                   {"lora-targets", "qkv"},
                                                   {"lr-decay-iters", "8"},
                                                   {"lr-warmup-fraction", "0.5"},
                                                   {"lr-warmup-iters", "2"},
                                                   {"lr-wsd-decay-iters", "2"},
                                                   {"max-position-embeddings", "32"},
                                                   {"metrics-file", "x"},
                                                   {"model", "gpt2-124m"},
                                                   {"moe-router-group-topk", "1"},
                                                   {"moe-router-load-balancing-type", "aux_loss"},
                                                   {"moe-router-num-groups", "2"},
                                                   {"moe-router-topk", "2"},
                                                   {"mtp-num-layers", "1"},
                                                   {"normalization", "RMSNorm"},
                                                   {"num-experts", "4"},
                                                   {"num-query-groups", "2"},
                                                   {"pipeline-model-parallel-layout", "4"},
                                                   {"pipeline-model-parallel-size", "2"},
                                                   {"qk-head-dim", "128"},
                                                   {"qk-pos-emb-head-dim", "64"},
                                                   {"rampup-batch-size", "1 1 8 --global-batch-size 2"},
                                                   {"sample-prompts", "x"},
                                                   {"save", "x"},
                                                   {"save-interval", "2"},
                                                   {"save-retain-interval", "4"},
                                                   {"split", "8,1,1"},
                                                   {"start-weight-decay", "0"},
                                                   {"step-batch-size-schedule", "0:1"},
                                                   {"train-data-path", "c.h5"},
                                                   {"train-samples", "32"},
                                                   {"v-head-dim", "64"},
                                                   {"valid-data-path", "v.h5"},
                                                   {"valid-set", "v=v.h5"},
                                                   {"validation-set-names", "a"},
                                                   {"vocab-file", "x"},
                                                   {"vocab-size", "300"},
                                                   {"window-attn-skip-freq", "2"},
                                                   {"window-size", "4,0"},
                                                   {"yarn-beta-fast", "32"},
                                                   {"yarn-rotary-scaling-factor", "4"}};

/// Returns the words without an option and its values.
Words without(const Words& words, const std::string& option) {
  Words rest;
  bool is_inside = false;
  for (const std::string& word : words) {
    if (word.starts_with("--")) is_inside = word == option;
    if (!is_inside) rest.push_back(word);
  }
  return rest;
}

/// Adds an option, with its value if it takes one: that of `values`, or `given`.
void put(Words& words, const std::string& option, const std::string& given, const Options& options) {
  words = without(words, option);
  words.push_back(option);
  if (!options.takes_value(option.substr(2))) return;
  const auto sample = values.find(option.substr(2));
  EXPECT_TRUE(sample != values.end() || !given.empty()) << "a value is needed for " << option;
  words.push_back(given.empty() && sample != values.end() ? sample->second : given);
}

/// Returns the words with what the error about `option` asks for: the options after "needs" or "give", "--a, --b VALUE
/// and --c instead of --d, without --e", of several with "or" between them the first. After "exclude each other",
/// "leave it out" and "with --train-iters give" an option is left out.
Words followed(Words words, const std::string& option, std::string message, const Options& options) {
  std::smatch found;
  if (const std::size_t other = message.find("; with --train-iters give"); other != message.npos) {
    message.erase(0, other);
    words = without(words, option);
  }
  if (std::regex_search(message, std::regex("[Ll]eave (it|them|this option) out"))) return without(words, option);
  if (std::regex_search(message, found,
                        std::regex("(--[a-z-]+)[^;\\n]* (?:and|replaces) (--[a-z-]+).* exclude each "
                                   "other|(--mock-data) replaces (--data-path)"))) {
    for (int i = 1; i <= 4; ++i) {
      if (found[i].matched && found[i] != option) words = without(words, found[i]);
    }
  }
  if (std::regex_search(
          message, found,
          std::regex(
              "(--[a-z-]+) and (--[a-z-]+) need each other|(--[a-z-]+) and (--[a-z-]+) must be given together"))) {
    for (int i = 1; i <= 4; ++i) {
      if (found[i].matched && found[i] != option) put(words, found[i], "", options);
    }
  }
  static const std::regex clause("(?:needs?|give) (?:a BERT: give |a GPT[^:\\n]*: give )?(--[^;:\\n]*|a --[^;:\\n]*)");
  for (std::sregex_iterator match(message.begin(), message.end(), clause), end; match != end; ++match) {
    const Words asked(match->str(1));
    bool is_skipped = false;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      std::string word = asked[i];
      if (word == "and") is_skipped = false;
      if (word == "or" || word == "without") is_skipped = true;
      if (word == "instead") {
        words = without(words, asked.at(i + 2).substr(0, asked[i + 2].find(',')));
        break;
      }
      const bool ends = word.ends_with(',');
      if (ends) word.pop_back();
      if (!is_skipped && word.starts_with("--")) {
        static const std::set<std::string> no_values = {"and", "or", "of", "above", "instead", "equal", "not"};
        std::string value = !ends && i + 1 < asked.size() && !asked[i + 1].starts_with("--") ? asked[i + 1] : "";
        if (value.ends_with(',')) value.pop_back();
        put(words, word, no_values.contains(value) ? "" : value, options);
      }
      if (ends) is_skipped = false;
    }
  }
  return words;
}

// Every option beside those of a plain run works, or its error says all that it needs.
TEST(Remedies, OfAnOptionGivenAloneLeadToARun) {
  Options options("trireme train", "");
  RunConfigReader reader(options);
  std::map<std::string, std::string> defaults;
  for (const auto& [name, value] : options.values()) defaults[name] = value;
  int needy = 0;
  for (const OptionManual& each : options.manual().options) {
    const std::string& name = each.names.front();
    Words words(run);
    if (name == "config" || std::ranges::find(words, "--" + name) != words.end()) continue;
    words.push_back("--" + name);
    const auto sample = values.find(name);
    if (sample != values.end()) {
      words = words + Words(sample->second);
    } else if (!each.words().empty()) {
      words.push_back(defaults.contains(name) ? defaults[name] : each.words().front());
    } else if (options.takes_value(name)) {
      words.push_back(defaults.contains(name) ? defaults[name] : each.takes_path ? "x" : "1");
    }
    std::string message = error_of(words);
    if (std::smatch first; std::regex_search(message, first, std::regex("is not one of ([^,\\n]+)"))) {
      words.back() = first[1];
      message = error_of(words);
    }
    if (message == "nothing was thrown") continue;
    ++needy;
    const Words more = followed(words, "--" + name, message, options);
    const int ranks = std::ranges::find(more, "--pipeline-model-parallel-size") == more.end() ? 1 : 2;
    EXPECT_EQ(error_of(more, ranks), "nothing was thrown")
        << fmt::format("{}\nafter {}", fmt::join(more, " "), message);
  }
  EXPECT_GT(needy, 90);
}

}  // namespace
}  // namespace trireme::app
