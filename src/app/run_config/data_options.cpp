#include "src/app/run_config/data_options.hpp"

#include <algorithm>
#include <charconv>

#include "src/app/options/terminal_text.hpp"
#include "src/data/dataset/blend.hpp"

namespace trireme::app {

void DataOptions::declare(Options& options) {
  options.section("Data");
  options.add("data-path", &path, "FILE...", "Corpus, or weight, corpus, weight, corpus ...");
  options.add(
      "split", &split, "A,B,C",
      "Proportions of training, validation and test. The test split is evaluated once, at the end of the run; the "
      "default's only where it has a sample.");
  options.add_choice(
      "split-by", &split_by,
      {{"auto", data::SplitBy::automatic}, {"documents", data::SplitBy::documents}, {"tokens", data::SplitBy::tokens}},
      "Unit of --split; auto: tokens where there are fewer documents than 100.");
  options.add_choice(
      "sampling", &sampling, {{"shuffled", data::Sampling::shuffled}, {"sequential", data::Sampling::sequential}},
      "sequential reads the corpus from its start, ignores --split, evaluates only where --eval-iters is given, and "
      "has no test.");
  masking.declare(options);
  options.add("data-cache-path", &cache_path, "DIR",
              "Folder that keeps the order of samples of large corpora for later runs; default index-cache beside each "
              "corpus.");
  options.add_choice("data-check", &check_level,
                     {{"none", CorpusCheck::none}, {"sample", CorpusCheck::sample}, {"full", CorpusCheck::full}},
                     "Tokens compared with their digests before training: none, 32 blocks of a million, or all.");
  options.require("data-path");
}

void DataOptions::settle(const Options& options, const std::optional<model::ModelConfig>& model, Problems& problems) {
  has_default_split = !options.given("split");
  problems.attempt([&] {
    std::vector<double> weights;
    for (const WeightedPath& corpus : corpora()) weights.push_back(corpus.weight);
    data::normalized_weights(weights);
  });
  problems.attempt([&] { data::parse_split(split); });
  if (!model) return;
  problems.expect(!model->is_bert() || sampling == data::Sampling::shuffled,
                  "--sampling sequential reads running text, but a BERT's samples are always shuffled: leave it out");
  problems.expect(
      model->is_bert() || (!options.given("mask-prob") && !options.given("short-seq-prob")),
      "--mask-prob and --short-seq-prob are options of a BERT: give --model bert-336m or --model-type bert");
}

std::vector<DataOptions::WeightedPath> DataOptions::corpora() const {
  constexpr const char* remedy = "give one corpus, or a weight before each: 0.7 a.h5 0.3 b.h5";
  if (path.size() == 1) return {{path[0], 1}};
  std::vector<WeightedPath> list;
  for (std::size_t i = 0; i < path.size(); i += 2) {
    double weight = 0;
    const std::string& text = path[i];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), weight);
    const bool is_weight = error == std::errc() && end == text.data() + text.size();
    const std::size_t stray = std::max<std::size_t>(i, 1);  // the first word may be the only corpus
    TRIREME_CHECK(is_weight, ConfigError, "--data-path: unexpected '{}' after '{}'; {}", shortened(path[stray]),
                  shortened(path[stray - 1]), remedy);
    TRIREME_CHECK(i + 1 < path.size(), ConfigError, "--data-path: no corpus follows the weight {}; {}", text, remedy);
    list.push_back({path[i + 1], weight});
  }
  return list;
}

}  // namespace trireme::app
