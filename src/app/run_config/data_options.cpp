#include "src/app/run_config/data_options.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include "src/app/manual/terminal_text.hpp"
#include "src/app/options/text_files.hpp"
#include "src/base/parse_number.hpp"
#include "src/data/dataset/sample_splits.hpp"

namespace trireme::app {

void MaskingOptions::declare(Options& options) {
  options.add("mask-prob", &mask_probability, "P", "BERT: fraction of a sample's tokens that are masked.",
              between(0, 1));
  options.add("short-seq-prob", &short_sequence_probability, "P",
              "BERT: probability of a sample that is shorter than the sequence, rounded to 1/N.", between(0, 1));
}

void add_split_by(Options& options, data::SplitBy* by) {
  using data::SplitBy;
  options.add_choice("split-by", by,
                     {{"auto", SplitBy::automatic}, {"documents", SplitBy::documents}, {"tokens", SplitBy::tokens}},
                     "Unit of --split; auto: tokens if there are fewer than 100 documents, except of conversations.");
}

void DataOptions::declare(Options& options) {
  options.section("Data");
  options.add("data-path", &path, "FILE",
              "Corpora, or weight, corpus, weight, corpus ...; without weights each is weighted by its tokens.");
  options.add(
      "blend", &blend, "FILE",
      "Instead of --data-path or --train-data-path: a file with a line 'WEIGHT CORPUS' or 'N epochs CORPUS' for "
      "each corpus, and other weights after lines 'from step N', 'from sample N' or 'from token N'.");
  options.add("train-data-path", &train_path, "FILE",
              "Instead of --data-path and --split: corpora for training only, in the form of --data-path.");
  options.add("valid-data-path", &valid_path, "FILE", "With --train-data-path or --blend: corpora for validation.");
  options.add("test-data-path", &test_path, "FILE", "With --train-data-path or --blend: corpora for the test.");
  options.add("valid-set", &valid_set_words, "FILE",
              "Validation sets, each with its own loss, in addition to the validation split: NAME=FILE NAME=FILE ... "
              "NAME= may be followed by weight, corpus, weight, corpus ..., as in --data-path.");
  options.add_flag("split-valid-sets", &valid_sets_split,
                   "Divide the corpora of --valid-set by --split, too, and use only their validation split.");
  options.add_flag("multiple-validation-sets", &valid_apart,
                   "Make each corpus of --valid-data-path a validation set with its own loss, named 0, 1, 2 ...");
  options.add("validation-set-names", &valid_names, "NAME", "Names of these sets.");
  options.add_flag(
      "mock-data", &mock,
      "Instead of corpora: 21 million synthetic tokens, drawn from --seed, for trials and benchmarks. Needs "
      "--vocab-size.");
  options.add(
      "split", &split, "A,B,C",
      "Proportions of training, validation and test. The test split is evaluated once, at the end of the run; that of "
      "the default only if it has a sample.");
  add_split_by(options, &split_by);
  options.add_choice("sampling", &sampling,
                     {{"shuffled", data::Sampling::shuffled}, {"sequential", data::Sampling::sequential}},
                     "sequential reads the corpus from its start, without --split, evaluates only if --eval-iters is "
                     "given, and has no test.");
  options.add_choice(
      "dataloader-type", &loader, {{"single", data::Sampling::shuffled}, {"cyclic", data::Sampling::cyclic}},
      "single: one pass over the samples in the order of --sampling. cyclic: each epoch of the corpus in its own "
      "random order, whatever the length of the run.");
  options.add_flag("reset-position-ids", &documents.reset_position_ids,
                   "Count positions from the start of each document in a sample.");
  options.add_flag("reset-attention-mask", &documents.reset_attention_mask,
                   "Mask attention across the documents of a sample.");
  options.add_flag(
      "eod-mask-loss", &documents.eod_mask_loss,
      "Mask the loss of the last token of each document, which would predict the first token of the next.");
  options.add_choice("packed-documents", &packed_apart, {{"apart", true}, {"joined", false}},
                     "Conversations (corpus build --chat) that share a sample. apart: as with --reset-position-ids and "
                     "--reset-attention-mask. joined: positions and attention go on from one to the next, unless these "
                     "options are given.");
  masking.declare(options);
  fim.declare(options);
  tokenizer.declare(options);
  options.add("data-cache-path", &cache_path, "DIR",
              "Folder that caches the order of samples of large corpora for later runs; default index-cache beside "
              "each corpus.");
  options.add_choice("data-check", &check_level,
                     {{"none", CorpusCheck::none}, {"sample", CorpusCheck::sample}, {"full", CorpusCheck::full}},
                     "Tokens verified against their digests before training: none, 32 blocks of a million, or all.");
}

void DataOptions::settle(const Options& options, const std::optional<model::ModelConfig>& model, Problems& problems) {
  has_default_split = !options.given("split");
  check_paths(options, problems);
  problems.attempt([&] { data::parse_split(split); });
  problems.expect(sampling == data::Sampling::shuffled ||
                      (!options.given("split") && !options.given("split-by") && !valid_sets_split),
                  "--sampling sequential has no splits: leave out --split, --split-by and --split-valid-sets");
  if (loader == data::Sampling::cyclic) {
    problems.exclude(sampling != data::Sampling::sequential, "sampling sequential", "dataloader-type cyclic");
    sampling = loader;
  }
  fim.check(options, problems);
  if (!model) return;
  problems.expect(fim.rate == 0 || !model->is_bert(), "--fim-rate rearranges running text, which a BERT does not read");
  problems.expect(!mock || !model->is_bert(), "--mock-data is running text: a BERT needs --data-path");
  problems.expect(!mock || model->is_bert() || model->vocabulary > 1,
                  "--mock-data has no tokenizer: give --vocab-size of at least 2, or a preset of a GPT");
  problems.expect(!model->is_bert() || sampling != data::Sampling::cyclic,
                  "--dataloader-type cyclic would mask a BERT's samples alike in every epoch: leave it out");
  problems.expect(!model->is_bert() || sampling != data::Sampling::sequential,
                  "--sampling sequential reads running text, but a BERT's samples are always shuffled: leave it out");
  const bool has_documents = documents.reset_position_ids || documents.reset_attention_mask || documents.eod_mask_loss;
  problems.expect(!model->is_bert() || !has_documents,
                  "--reset-position-ids, --reset-attention-mask and --eod-mask-loss are for running text, but each "
                  "sample of a BERT is of one document: leave them out");
  problems.expect(
      model->is_bert() || (!options.given("mask-prob") && !options.given("short-seq-prob")),
      "--mask-prob and --short-seq-prob are options of a BERT: give --model bert-336m or --model-type bert");
}

void DataOptions::check_paths(const Options& options, Problems& problems) const {
  problems.expect(!path.empty() || !train_path.empty() || !blend.empty() || mock,
                  "--data-path must be given, or --blend, --train-data-path or --mock-data");
  problems.expect(!mock || (path.empty() && train_path.empty() && blend.empty()),
                  "--mock-data replaces --data-path, --blend and --train-data-path: give one of them");
  problems.expect(path.empty() || train_path.empty(),
                  "--data-path and --train-data-path exclude each other: --split divides the corpora of --data-path, "
                  "--train-data-path has no other split");
  problems.exclude(blend.empty() || path.empty(), "data-path", "blend");
  problems.exclude(blend.empty() || train_path.empty(), "train-data-path", "blend");
  problems.need(options, {"valid-data-path", "test-data-path"}, has_own_splits(),
                "--train-data-path or --blend instead of --data-path, which --split divides");
  for (const char* flag : {"split", "split-by"}) {
    problems.expect(
        !options.given(flag) || !has_own_splits(),
        fmt::format("--{} divides the corpora of training: with --train-data-path or --valid-data-path leave it out",
                    flag));
  }
  problems.need(options, {"split-valid-sets"}, !valid_set_words.empty(), "--valid-set");
  problems.expect(!valid_sets_split || ((!path.empty() || !blend.empty()) && !has_own_splits() && fractions()[1] > 0),
                  "--split-valid-sets needs --data-path or --blend, and a validation split in --split");
  const char* const valid = "--valid-data-path and --train-data-path instead of --data-path";
  problems.need(options, {"multiple-validation-sets"}, !valid_path.empty(), valid);
  problems.need(options, {"validation-set-names"}, valid_apart, fmt::format("--multiple-validation-sets, {}", valid));
  const auto check_weights = [](const std::vector<WeightedPath>& corpora) {
    std::vector<double> weights;
    for (const WeightedPath& corpus : corpora) weights.push_back(corpus.weight.value_or(1));
    data::normalized_weights(weights);
  };
  if (!path.empty() || !train_path.empty()) problems.attempt([&] { check_weights(corpora()); });
  problems.attempt([&] {
    for (const SplitPaths& other : other_corpora()) check_weights(other.corpora);
  });
}

namespace {

/// Reads the words of an option: only corpora, or weight, corpus, weight, corpus ...
std::vector<WeightedPath> weighted_paths(const std::string& flag, const std::vector<std::string>& path) {
  constexpr const char* remedy = "give only corpora, or a weight before each: 0.7 a.h5 0.3 b.h5";
  const bool has_weights = path.size() > 1 && parse_number<double>(path[0]);
  std::vector<WeightedPath> list;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const std::optional<double> weight = path.size() > 1 ? parse_number<double>(path[i]) : std::nullopt;
    const bool weight_is_next = has_weights && (list.empty() || !list.back().path.empty());
    TRIREME_CHECK(weight.has_value() == weight_is_next, ConfigError, "--{}: unexpected '{}' after '{}'; {}", flag,
                  shortened(path[i]), shortened(path[std::max<std::size_t>(i, 1) - 1]), remedy);
    if (!has_weights) {
      list.push_back({path[i]});
    } else if (weight) {
      list.push_back({"", weight});
    } else {
      list.back().path = path[i];
    }
  }
  TRIREME_CHECK(list.empty() || !list.back().path.empty(), ConfigError, "--{}: no corpus follows the weight {}; {}",
                flag, path.back(), remedy);
  return list;
}

/// Returns the length of the name in "NAME=...", 0 if there is none. A name has only letters, digits and - _ . so that
/// paths with = are not mistaken for one.
std::size_t name_length(const std::string& word) {
  const auto end = std::ranges::find_if_not(word, [](unsigned char character) {
    return std::isalnum(character) != 0 || character == '-' || character == '_' || character == '.';
  });
  return end != word.end() && *end == '=' ? static_cast<std::size_t>(end - word.begin()) : 0;
}

}  // namespace

std::vector<WeightedPath> DataOptions::corpora() const {
  return path.empty() ? weighted_paths("train-data-path", train_path) : weighted_paths("data-path", path);
}

std::vector<BlendFileStage> DataOptions::stages() const {
  return blend.empty() ? std::vector{BlendFileStage{.corpora = corpora()}}
                       : parse_blend(read_text_file("blend", blend), blend);
}

std::vector<std::string> DataOptions::files() const {
  std::vector<std::string> list = {blend, tokenizer.vocabulary_file, tokenizer.merge_file, tokenizer.model};
  const auto add = [&](const auto& part) {
    std::ranges::transform(part.corpora, std::back_inserter(list), &WeightedPath::path);
  };
  std::ranges::for_each(stages(), add);
  std::ranges::for_each(other_corpora(), add);
  return list;
}

std::vector<DataOptions::SplitPaths> DataOptions::named_corpora() const {
  std::vector<SplitPaths> list;
  const std::vector<WeightedPath> paths = weighted_paths("valid-data-path", valid_path);
  TRIREME_CHECK(valid_names.empty() || valid_names.size() == paths.size(), ConfigError,
                "--validation-set-names has {} names, --valid-data-path {} corpora: give a name for each",
                valid_names.size(), paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    TRIREME_CHECK(!paths[i].weight, ConfigError,
                  "--multiple-validation-sets: the sets of --valid-data-path have no weights; leave {} out",
                  *paths[i].weight);
    const std::string name = valid_names.empty() ? std::to_string(i) : valid_names[i];
    TRIREME_CHECK(!name.empty() && name_length(name + "=") == name.size(), ConfigError,
                  "--validation-set-names: '{}' is not a name: names have only letters, digits and - _ .",
                  shortened(name));
    list.push_back({data::Split::valid, name, {paths[i]}});
  }
  return list;
}

std::vector<DataOptions::SplitPaths> DataOptions::other_corpora() const {
  std::vector<SplitPaths> list;
  if (valid_apart) list = named_corpora();
  if (!valid_path.empty() && !valid_apart)
    list.push_back({data::Split::valid, "", weighted_paths("valid-data-path", valid_path)});
  if (!test_path.empty()) list.push_back({data::Split::test, "", weighted_paths("test-data-path", test_path)});
  for (std::size_t i = 0; i < valid_set_words.size();) {
    const std::string& first = valid_set_words[i];
    const std::size_t length = name_length(first);
    TRIREME_CHECK(length > 0 && length + 1 < first.size(), ConfigError,
                  "--valid-set: '{}' is not NAME=FILE: names have only letters, digits and - _ .", shortened(first));
    SplitPaths set{data::Split::valid, first.substr(0, length), {}};
    std::vector<std::string> words = {first.substr(length + 1)};
    for (++i; i < valid_set_words.size() && name_length(valid_set_words[i]) == 0; ++i) {
      words.push_back(valid_set_words[i]);
    }
    set.corpora = weighted_paths("valid-set " + set.set, words);
    list.push_back(std::move(set));
  }
  for (auto set = list.begin(); set != list.end(); ++set) {
    const bool is_known = !set->set.empty() && std::ranges::find(list.begin(), set, set->set, &SplitPaths::set) != set;
    TRIREME_CHECK(!is_known, ConfigError, "--{}: the name {} occurs twice",
                  valid_set_words.empty() ? "validation-set-names" : "valid-set", set->set);
  }
  return list;
}

}  // namespace trireme::app
