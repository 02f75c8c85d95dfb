#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "io/corpus/corpus_store.hpp"
#include "src/app/commands/commands.hpp"
#include "src/app/job/job.hpp"
#include "src/app/options/options.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/data/dataset/bert/bert_data.hpp"
#include "src/data/dataset/gpt/packed_samples.hpp"
#include "src/data/dataset/gpt_data.hpp"
#include "src/model/model_config.hpp"

namespace trireme::app {
namespace {

using model::ModelFamily;
using Numbers = std::vector<std::int32_t>;

struct SamplesOptions {
  std::string path;
  std::optional<ModelFamily> family;
  std::optional<std::int64_t> sequence_length;
  std::int64_t seed = 1234;
  std::optional<std::int64_t> epochs, max_samples;
  std::int64_t first = 0;
  std::optional<std::int64_t> count;
  std::string split_text = "1";
  data::SplitBy split_by = data::SplitBy::automatic;
  data::Split split = data::Split::train;
  MaskingOptions masking;
  bool no_binary_head = false;

  void declare(Options& options) {
    options.add_argument("FILE.h5", &path, "A corpus.");
    options.add_choice<std::optional<ModelFamily>>("model-type", &family,
                                                   {{"gpt", ModelFamily::gpt}, {"bert", ModelFamily::bert}},
                                                   "Kind of model that reads the samples.");
    options.add("seq-length", &sequence_length, "S", "Tokens of a sample.", countable());
    options.add("seed", &seed, "N", "Seed of the order of samples and of masking.", between(0, 4294967295.0));
    options.section("Samples");
    options.add("epochs", &epochs, "E", "Number of epochs; default 1 without --max-samples.", countable());
    options.add("max-samples", &max_samples, "M",
                "Samples that training needs. The epochs that yield at least as many are shuffled and numbered "
                "completely.",
                at_least(1));
    options.add("first", &first, "I", "Number of the first sample to print.", at_least(0));
    options.add("count", &count, "K", "Samples to print; default all.", at_least(1));
    options.section("Split");
    options.add("split", &split_text, "A,B,C",
                "Proportions of training, validation and test; default all documents for training.");
    add_split_by(options, &split_by);
    options.add_choice("from-split", &split,
                       {{"train", data::Split::train}, {"valid", data::Split::valid}, {"test", data::Split::test}},
                       "Split whose samples are printed.");
    options.section("BERT");
    masking.declare(options);
    options.add_flag("bert-no-binary-head", &no_binary_head, "Samples of a single segment.");
    options.require({"model-type", "seq-length"});
  }

  void check(const Options& options) const {
    if (family == ModelFamily::bert) return;
    for (const char* name : {"mask-prob", "short-seq-prob", "bert-no-binary-head"}) {
      TRIREME_CHECK(!options.given(name), ConfigError, "--{} needs --model-type bert", name);
    }
  }

  data::DocumentRange range(const data::TokenStore& store) const {
    return data::documents_of(store, split, data::parse_split(split_text), split_by);
  }
};

void print_line(const std::string& line) {
  TRIREME_CHECK(std::fwrite(line.data(), 1, line.size(), stdout) == line.size(), IoError,
                "cannot write to standard output: {}", std::strerror(errno));
}

/// Prints the requested samples, each as returned by `text_of(index)`.
template <class TextOf>
void print_samples(const SamplesOptions& asked, const data::SampleSource& samples, const TextOf& text_of) {
  const std::int64_t size = samples.size();
  TRIREME_CHECK(asked.first < size && asked.count.value_or(1) <= size - asked.first, ConfigError,
                "--first {}{} request samples beyond the last: there are {}", asked.first,
                asked.count ? fmt::format(" --count {}", *asked.count) : "", size);
  const std::int64_t end = asked.first + asked.count.value_or(size - asked.first);
  log::info("{}: {} samples, printing {} to {}", asked.path, size, asked.first, end - 1);
  for (std::int64_t index = asked.first; index < end; ++index) print_line(text_of(index));
  samples.check_unchanged();
}

/// Returns one JSON object with Megatron-LM's names. `map` is the sample's row: first sentence, one past the last,
/// tokens.
std::string text_of(const data::BertSample& sample, std::int64_t sequence_length, std::int32_t pad) {
  const auto padded = [&](Numbers numbers, std::int32_t rest) {
    numbers.resize(static_cast<std::size_t>(sequence_length), rest);
    return numbers;
  };
  const Numbers labels = padded(sample.labels, -1);
  Numbers loss_mask;
  for (const std::int32_t label : labels) loss_mask.push_back(label >= 0);
  const data::BertSampleRow& row = sample.row;
  return fmt::format(R"({{"text": [{}], "types": [{}], "labels": [{}], "is_random": {:d}, "loss_mask": [{}], )"
                     R"("padding_mask": [{}], "truncated": {:d}, "map": [{}, {}, {}]}})"
                     "\n",
                     fmt::join(padded(sample.tokens, pad), ", "), fmt::join(padded(sample.token_types, 0), ", "),
                     fmt::join(labels, ", "), sample.is_random, fmt::join(loss_mask, ", "),
                     fmt::join(padded(Numbers(sample.tokens.size(), 1), 0), ", "), sample.is_truncated,
                     row.first_sentence, row.end_sentence, row.target_length);
}

void print_bert(const SamplesOptions& asked, const std::shared_ptr<const data::TokenStore>& store) {
  constexpr std::int64_t no_limit = data::BertSampleMapOptions::no_limit;
  data::BertSampleOptions options;
  options.sequence_length = *asked.sequence_length;
  options.seed = asked.seed;
  options.short_sequence_probability = asked.masking.short_sequence_probability;
  options.masking.mask_probability = asked.masking.mask_probability;
  options.masking.binary_head = !asked.no_binary_head;
  options.max_epochs = asked.epochs.value_or(asked.max_samples ? no_limit : 1);
  data::validate(options);
  options.masking.vocabulary = bert_vocabulary(*store);
  const std::int64_t budget = asked.max_samples.value_or(no_limit);
  const data::BertSamples samples(store, asked.range(*store), options, std::span(&budget, 1));
  print_samples(asked, samples, [&](std::int64_t index) {
    return text_of(samples.make(index), *asked.sequence_length, options.masking.vocabulary.pad);
  });
}

/// Returns the samples that training needs: those of the epochs or --max-samples, whichever is less.
std::int64_t gpt_budget(const SamplesOptions& asked, std::int64_t tokens_in_epoch) {
  if (asked.max_samples && !asked.epochs) return *asked.max_samples;
  std::int64_t tokens = 0;
  TRIREME_CHECK(!__builtin_mul_overflow(asked.epochs.value_or(1), tokens_in_epoch, &tokens), ConfigError,
                "--epochs {} of {} tokens exceed 64 bits", asked.epochs.value_or(1), tokens_in_epoch);
  const std::int64_t samples = std::max<std::int64_t>((tokens - 1) / *asked.sequence_length, 1);
  return std::min(samples, asked.max_samples.value_or(samples));
}

/// Prints packed conversations with their labels; with --epochs the same samples in the order of each epoch.
void print_packed(const SamplesOptions& asked, const std::shared_ptr<const data::TokenStore>& store) {
  auto epoch = std::make_unique<data::PackedSamples>(data::CheckedTokens(store, store->info().vocabulary_size),
                                                     asked.range(*store), *asked.sequence_length,
                                                     static_cast<std::uint32_t>(asked.seed));
  const std::int64_t in_epoch = epoch->size();
  std::int64_t budget = 0;
  TRIREME_CHECK(!__builtin_mul_overflow(asked.epochs.value_or(1), in_epoch, &budget), ConfigError,
                "--epochs {} of {} samples exceed 64 bits", asked.epochs.value_or(1), in_epoch);
  if (asked.max_samples) budget = asked.epochs ? std::min(budget, *asked.max_samples) : *asked.max_samples;
  const data::CyclicSamples samples(std::move(epoch), budget);
  const data::SampleBuffer buffer(*asked.sequence_length, {.positions = true});
  const data::SampleView& view = buffer.view();
  print_samples(asked, samples, [&](std::int64_t index) {
    samples.read(index, view);
    return fmt::format("{{\"text\": [{}], \"labels\": [{}], \"positions\": [{}]}}\n", fmt::join(view.tokens, ", "),
                       fmt::join(view.labels, ", "), fmt::join(view.positions, ", "));
  });
}

void print_gpt(const SamplesOptions& asked, const std::shared_ptr<const data::TokenStore>& store) {
  const std::int64_t budget = gpt_budget(asked, asked.range(*store).tokens());
  const auto budget_of = [&](data::Split split) { return split == asked.split ? budget : 0; };
  data::GptDataOptions options;
  options.sequence_length = *asked.sequence_length;
  options.seed = asked.seed;
  options.split_fractions = data::parse_split(asked.split_text);
  options.split_by = asked.split_by;
  options.budgets = {{budget_of(data::Split::train), budget_of(data::Split::valid), budget_of(data::Split::test)}};
  const data::SampleSplits splits = data::make_gpt_data({{store}}, options);
  const data::SampleSource& samples = *(splits.train ? splits.train : splits.valid ? splits.valid : splits.test);
  const data::SampleBuffer buffer(*asked.sequence_length, {});
  const data::SampleView& view = buffer.view();
  print_samples(asked, samples, [&](std::int64_t index) {
    samples.read(index, view);
    return fmt::format("{{\"text\": [{}, {}]}}\n", fmt::join(view.tokens, ", "), view.labels.back());
  });
}

}  // namespace

int corpus_samples_command(const CommandLine& line) {
  SamplesOptions asked;
  Options options(
      line.command(),
      "Prints the samples that training reads from a corpus, one JSON object per line, with Megatron-LM's names. bert: "
      "text, types, labels (-1: none), is_random, loss_mask, padding_mask, truncated, and map: the sample's first "
      "sentence, the one after its last, and its target length. gpt: text, the tokens of a sample and the one after "
      "them; of conversations text, labels (-1: none) and positions.");
  asked.declare(options);
  if (!line.read(options)) return 0;
  asked.check(options);
  const auto store = std::make_shared<io::CorpusStore>(asked.path);
  if (asked.family == ModelFamily::bert) {
    print_bert(asked, store);
  } else if (store->learned_ranges()) {
    print_packed(asked, store);
  } else {
    print_gpt(asked, store);
  }
  return 0;
}

}  // namespace trireme::app
