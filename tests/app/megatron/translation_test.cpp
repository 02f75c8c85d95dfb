#include "src/app/megatron/translation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "src/app/commands/eval/eval_options.hpp"
#include "src/app/commands/finetune/task_options.hpp"
#include "src/app/commands/generate/generate_options.hpp"
#include "tests/app/megatron/train_options.hpp"

namespace trireme::app::megatron {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using FlagTable = TrainOptionsTest;
using Translate = TrainOptionsTest;

TEST_F(FlagTable, HasEveryFlagOnceWithItsReleaseAndMeaning) {
  std::set<std::string_view> names;
  for (const Flag& flag : all_flags()) {
    const std::string_view name = flag.name.substr(0, flag.name.find(' '));
    const bool is_of_value = name != flag.name;
    const bool has_reason = flag.kind == Kind::satisfied || flag.kind == Kind::absent;
    const bool loses_values = !has_reason && !is_of_value && !flag.text.empty() && flag.values != Values::none &&
                              flag.text.find('@') == flag.text.npos;
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_EQ(name.find('_'), name.npos) << flag.name;
    EXPECT_EQ(flag.releases.empty(), name.ends_with('*')) << flag.name;
    EXPECT_TRUE(!has_reason || flag.text.size() > 10) << flag.name;
    EXPECT_TRUE(flag.kind != Kind::absent || flag.text.find("nearest: ") != flag.text.npos) << flag.name;
    EXPECT_TRUE(!is_of_value || find_flag(name) != nullptr) << flag.name;
    EXPECT_FALSE(loses_values) << flag.name;
  }
  EXPECT_GT(names.size(), 700U);
}

TEST_F(FlagTable, LeadsToOptionsOfTrain) {
  std::set<std::string> missing;
  for (const Flag& flag : all_flags()) {
    if (flag.kind != Kind::works && flag.kind != Kind::writes) continue;
    const std::string name(flag.name.substr(0, flag.name.find(' ')));
    for (const std::string& option : flag.text.empty() ? std::vector{name} : options_in(flag.text)) {
      if (options_.spelling(option).empty()) missing.insert(option);
    }
  }
  EXPECT_THAT(missing, testing::IsEmpty());
}

TEST_F(FlagTable, RefusesNoOptionOfTrain) {
  for (const Flag& flag : all_flags()) {
    if (flag.kind == Kind::absent || flag.kind == Kind::satisfied) {
      EXPECT_EQ(options_.spelling(std::string(flag.name)), "") << flag.name;
    }
  }
  for (const OptionManual& option : options_.manual().options) {
    const Flag* row = find_flag(option.names.front());
    EXPECT_TRUE(row == nullptr || !row->name.ends_with('*')) << option.names.front();
  }
}

TEST(FlagPrefix, RefusesFlagsWithoutARowOfTheirOwn) {
  EXPECT_EQ(find_flag("moe-per-layer-logging"), find_flag("moe-apply-probs-on-input"));
  EXPECT_EQ(find_flag("moe-per-layer-logging")->name, "moe-*");
  EXPECT_EQ(find_flag("moe-paged-stash-page-size")->name, "moe-paged-stash*");
  EXPECT_EQ(find_flag("moe-expert-parallel-size", "1")->kind, Kind::satisfied);
  EXPECT_EQ(find_flag("moe"), nullptr);
  Options eval("trireme eval", "");
  EvalOptions own;
  own.declare(eval);
  EXPECT_EQ(translate(Words("--logits-file x.h5"), eval, "eval").refusal(), "");
  EXPECT_NE(translate(Words("--logits-file x.h5"), Options("trireme train", ""), "train").refusal(), "");
}

/// Returns the options with values that a reason names after "nearest: ".
std::vector<Words> nearest_words(const std::string& reason, const Options& options) {
  const Words text(reason.substr(std::min(reason.find("nearest: "), reason.size())));
  const std::set<std::string> no_values = {"and", "or", "with", "for", "because", "then", "that", "instead", "on"};
  const std::vector<std::pair<std::string, std::string>> defaults = options.values();
  std::vector<Words> list;
  for (std::size_t i = 0; i < text.size() && text[i] != "instead"; ++i) {
    const std::string option = text[i].substr(0, text[i].find_first_of(",;"));
    if (!option.starts_with("--") || option.ends_with('-') || option == "--help" || option == "--config") continue;
    const std::string own = options.spelling(option.substr(2));
    list.push_back({option});
    if (!own.empty() && !options.takes_value(own)) continue;
    if (option == text[i] && i + 1 < text.size() && !text[i + 1].starts_with("--") &&
        !no_values.contains(text[i + 1])) {
      list.back().push_back(text[i + 1].substr(0, text[i + 1].find_first_of(",;")));
    } else if (!own.empty()) {
      const CommandManual manual = options.manual();
      const auto known = std::ranges::find_if(
          manual.options, [&](const OptionManual& each) { return std::ranges::count(each.names, own) > 0; });
      const auto standard = std::ranges::find(defaults, own, &std::pair<std::string, std::string>::first);
      const bool has_default = standard != defaults.end() && standard->second != "0";
      list.back().push_back(known->takes_path         ? "/dev/null"
                            : !known->words().empty() ? known->words().front()
                            : has_default             ? standard->second
                                                      : "1");
    }
  }
  return list;
}

// The nearest option that the error about a flag names is taken, with the value that it gives.
TEST_F(FlagTable, NamesNearestOptionsThatAreTaken) {
  int taken = 0;
  for (const auto* table : {&all_flags(), &deepspeed_settings()}) {
    for (const Flag& flag : *table) {
      const bool is_of_other_command = flag.text.find("nearest: trireme") != flag.text.npos;
      if (flag.kind != Kind::absent || is_of_other_command) continue;
      for (const Words& option : nearest_words(std::string(flag.text), options_)) {
        SCOPED_TRACE(flag.text);
        const Translation translation = translate(option, options_);
        EXPECT_EQ(translation.refusal(), "");
        Options train("trireme train", "");
        const RunConfigReader reader(train);
        EXPECT_NO_THROW(train.parse(Words("--lr 1") + Words(fmt::format("{}", fmt::join(translation.arguments, " ")))))
            << fmt::format("{}", fmt::join(option, " "));
        ++taken;
      }
    }
  }
  EXPECT_GT(taken, 100);
}

// Rows of other commands lead to their options, or give a reason.
TEST_F(FlagTable, LeadsToOptionsOfOtherCommands) {
  Options eval("trireme eval", ""), generate("trireme generate", "");
  EvalOptions eval_options;
  GenerateOptions generate_options;
  eval_options.declare(eval);
  generate_options.declare(generate);
  for (const CommandFlag& row : flags_of_commands()) {
    const bool has_reason = row.flag.kind == Kind::satisfied || row.flag.kind == Kind::absent;
    EXPECT_TRUE(row.flag.kind != Kind::absent || row.flag.text.find("nearest: ") != row.flag.text.npos)
        << row.flag.name;
    if (has_reason) continue;
    ASSERT_TRUE(row.command == "eval" || row.command == "generate");
    const Options& options = row.command == "eval" ? eval : generate;
    for (const std::string& option : options_in(row.flag.text)) {
      EXPECT_NE(options.spelling(option), "") << row.flag.name;
    }
  }
}

TEST_F(Translate, TranslatesOldNames) {
  EXPECT_EQ(words("--batch-size 4 --model-parallel-size 2 --warmup .01"),
            Words("--micro-batch-size 4 --tensor-model-parallel-size 2 --lr-warmup-fraction .01"));
  EXPECT_EQ(words("--checkpoint-activations --checkpoint-num-layers 2"),
            Words("--recompute-granularity full --recompute-num-layers 2"));
  EXPECT_EQ(words("--activations-checkpoint-method block"),
            Words("--recompute-granularity full --recompute-method block"));
  EXPECT_EQ(words("--num-key-value-heads 8"), Words("--group-query-attention --num-query-groups 8"));
  EXPECT_EQ(words("--train-data a b --lr 1"), Words("--data-path a b --lr 1"));
  const std::string path = ::testing::TempDir() + "data_args.txt";
  std::ofstream(path) << "0.7 a.h5\n0.3  b.h5\n";
  EXPECT_EQ(words({"--data_args_path", path, "--lr", "1"}), Words("--data-path 0.7 a.h5 0.3 b.h5 --lr 1"));
  EXPECT_THAT(translate({"--data-args-path", "nowhere"}, options_).refusal(), HasSubstr("nowhere"));
  std::ofstream(path) << R"({"valid": "c.h5", "train": [0.7, "a.h5", "0.3", "b.h5"], "test": null})";
  EXPECT_EQ(words({"--per-split-data-args-path", path, "--lr", "1"}),
            Words("--train-data-path 0.7 a.h5 0.3 b.h5 --valid-data-path c.h5 --lr 1"));
  for (const auto& [text, fault] : {std::pair(R"({"dev": ["c.h5"]})", "'dev' is no split"),
                                    {R"({"train": 1})", "1 instead of a list under \"train\""},
                                    {R"({"train": [[]]})", "an array in the list \"train\""},
                                    {R"({"train": []})", "names no corpus"},
                                    {"[]", "instead of an object"}}) {
    std::ofstream(path) << text;
    EXPECT_THAT(translate({"--per-split-data-args-path", path}, options_).refusal(), HasSubstr(fault));
  }
  EXPECT_EQ(words("--num-microbatches-in-minibatch 8 --intermediate-size 64"),
            Words("--micro-batches 8 --ffn-hidden-size 64"));
  EXPECT_EQ(words("--grad-reduce-in-bf16 --pad-vocab-size-to 128 --calculate-per-token-loss"),
            Words("--main-grads-dtype bf16 --padded-vocab-size 128 --loss-average tokens"));
}

TEST_F(Translate, TranslatesSpellingsOfNamesAndValues) {
  EXPECT_EQ(words("--global_batch_size=8 --train_samples 300_000_000 --split '99,1,0'"),
            Words("--global-batch-size 8 --train-samples 300000000 --split 99,1,0"));
  EXPECT_EQ(words("--normalization rmsnorm --normalization RMSNorm --normalization layernorm"),
            Words("--normalization RMSNorm --normalization RMSNorm --normalization LayerNorm"));
  EXPECT_EQ(words("--eval-iters -1 --position-embedding-type rotary"),
            Words("--eval-iters 0 --position-embedding-type rope"));
  EXPECT_EQ(words("--save 2026_01 --lr -1"), Words("--save 2026_01 --lr -1"))
      << "a path is no number, and a negative value is still a value";
  EXPECT_EQ(words("--validation-set-names 2023_12 2024_01"), Words("--validation-set-names 2023_12 2024_01"));
}

TEST_F(Translate, LeavesOtherWordsToTheParser) {
  EXPECT_THAT(words({"corpus.h5", "--tp", "2", "--frobnicate", "7", "--data-check=none", "-lr", "1"}),
              ElementsAre("corpus.h5", "--tp", "2", "--frobnicate", "7", "--data-check=none", "-lr", "1"));
  EXPECT_EQ(words("--lr --bf16"), Words("--lr --bf16")) << "the parser reports the missing value";
  EXPECT_EQ(words("--bf16=1 -- --batch-size"), Words("--bf16=1 -- --batch-size"));
}

TEST_F(Translate, DropsFlagsThatAreSatisfied) {
  EXPECT_EQ(words("--use-flash-attn --num-workers 2 --DDP-impl local --manual-gc --lr 1"), Words("--lr 1"));
  EXPECT_EQ(kind_of("--dataloader-type single"), Kind::satisfied);
  EXPECT_EQ(kind_of("--expert-model-parallel-size 2"), Kind::works);
  EXPECT_EQ(translate(Words("--use-flash-attn --num-experts 1"), options_).refusal(), "");
}

TEST_F(Translate, RefusesWhatIsAbsentAllAtOnceWithTheNearestAlternative) {
  const Translation line = translate(
      Words("--linear-attention-freq 8 --fp4-format e2m1 --position-embedding-type relative --ds-inference --lr 1 "
            "--linear-attention-freq 8"),
      options_);
  EXPECT_EQ(line.arguments, Words("--lr 1"));
  EXPECT_THAT(line.refusal(), AllOf(HasSubstr("--linear-attention-freq 8: this form of attention is absent; nearest: "),
                                    HasSubstr("--fp4-format e2m1: "), HasSubstr("--position-embedding-type relative: "),
                                    HasSubstr("--ds-inference: ")));
  EXPECT_EQ(line.refusal().find("--linear-attention-freq"), line.refusal().rfind("--linear-attention-freq"))
      << line.refusal();
}

TEST_F(Translate, TakesTheExpertsOfLaunchScripts) {
  EXPECT_EQ(words("--num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768 --moe-grouped-gemm "
                  "--moe-permute-fusion --moe-token-dispatcher-type alltoall --moe-aux-loss-coeff 1e-3 "
                  "--moe-router-load-balancing-type aux_loss --moe-expert-capacity-factor -1"),
            Words("--num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768 --moe-token-dispatcher-type "
                  "alltoall --moe-aux-loss-coeff 1e-3 "
                  "--moe-router-load-balancing-type aux_loss --moe-expert-capacity-factor 0"));
  const char* biased =
      "--moe-router-score-function sigmoid --moe-router-enable-expert-bias "
      "--moe-router-bias-update-rate 1e-3 --moe-router-load-balancing-type none";
  EXPECT_EQ(words(biased), Words(biased));
  EXPECT_EQ(words("--moe-input-jitter-eps 0.1 --moe-use-upcycling --moe-upcycling-granularity 1"),
            Words("--moe-input-jitter-eps 0.1 --moe-use-upcycling"));
  EXPECT_EQ(words("--moe-use-upcycling --moe-upcycling-granularity 2"),
            Words("--moe-use-upcycling --moe-upcycling-granularity 2"));
  EXPECT_EQ(words("--moe-shared-expert-overlap --moe-layer-recompute"),
            Words("--moe-shared-expert-overlap --recompute-granularity selective --recompute-modules moe"));
  EXPECT_EQ(words("--recompute-modules core_attn moe_act"), Words("--recompute-modules core_attn moe_act"));
  EXPECT_EQ(words({"--moe-layer-freq", "'([1]*48)'"}), Words("--moe-layer-freq ([1]*48)"));
  for (const char* refused : {"--moe-router-load-balancing-type sinkhorn", "--moe-per-layer-logging"}) {
    EXPECT_EQ(kind_of(refused), Kind::absent) << refused;
  }
}

TEST_F(Translate, RefusesFlagsWhoseOptionIsNotThereYet) {
  Options options("trireme train", "");
  double lr = 0;
  options.add("lr", &lr, "X", "");
  const Translation line = translate(Words("--batch-size 4 --lr 1"), options);
  EXPECT_EQ(line.arguments, Words("--lr 1"));
  EXPECT_THAT(line.refusal(), HasSubstr("--batch-size 4: not in this release of Trireme"));
}

TEST_F(Translate, TakesFillInTheMiddleAndRangesOfAProfiler) {
  EXPECT_EQ(words("--fim-data"), Words("--fim-rate 0.5"));
  EXPECT_EQ(words("--fim-data --fim-rate 0.2"), Words("--fim-rate 0.2"));
  EXPECT_EQ(words("--fim-pad-token <fim_pad> --profile --nvtx-ranges"), Words("--profile"));
  EXPECT_EQ(words("--nvtx-ranges"), Words("--profile"));
  EXPECT_THAT(words("--step-batch-size-schedule 0:16 2.4B:320"),
              ElementsAre("--step-batch-size-schedule", "0:16 2.4B:320"));
}

TEST_F(Translate, NamesTokenizersByOneName) {
  EXPECT_EQ(words("--tokenizer-file a.json --vocab b --tokenizer_type GPT2BPETokenizer"),
            Words("--tokenizer-model a.json --vocab-file b --tokenizer-type GPT2BPETokenizer"));
  EXPECT_EQ(words("--tokenizer-name-or-path bigscience/tokenizer"), Words("--tokenizer-model bigscience/tokenizer"));
}

// A script of a task gives the options of a model and of training: the first are checked against the checkpoint, the
// others have no use.
TEST(TranslateEval, ChecksAModelAgainstTheCheckpoint) {
  Options options("trireme eval", "");
  EvalOptions eval;
  eval.declare(options);
  const Translation line =
      translate(Words("--task LAMBADA --valid-data a.jsonl --strict-lambada --model-parallel-size 2 --num-layers 4 "
                      "--batch-size 8 --checkpoint-activations --lr 0.1 --no-load-rng --keep-last "
                      "--use-checkpoint-args"),
                options, "eval");
  EXPECT_EQ(
      line.arguments,
      Words("--task LAMBADA --data-path a.jsonl --strict-lambada --tensor-model-parallel-size 2 --micro-batch-size 8"));
  EXPECT_EQ(line.model_words, Words("--num-layers 4"));
  EXPECT_EQ(line.refusal(), "");
  model::ModelConfig stored;
  stored.layers = 4;
  EXPECT_NO_THROW(line.check_model(stored));
  stored.layers = 5;
  EXPECT_THROW(line.check_model(stored), CheckpointError);
  EXPECT_EQ(translate(Words("--num-experts 8"), options, "eval").model_words, Words("--num-experts 8"));
  EXPECT_THAT(translate(Words("--moe-use-upcycling"), options, "eval").refusal(),
              HasSubstr("dense models are converted only by trireme train"));
}

TEST(TranslateFinetune, DistinguishesKeepLastOfTasksFromThatOfCheckpoints) {
  Options options("trireme finetune", "");
  TaskOptions task;
  task.declare(options);
  RunConfigReader reader(options, RunKind::task);
  EXPECT_EQ(translate(Words("--keep-last 2 --eval-iters 5"), options, "finetune").arguments, Words("--keep-last 2"));
  EXPECT_THAT(translate(Words("--keep-last --fp16"), options, "finetune").refusal(),
              HasSubstr("--keep-last: an epoch has only full batches"));
}

TEST(TranslateGenerate, TakesTheWordsOfMegatronsPrograms) {
  Options options("trireme generate", "");
  GenerateOptions generate;
  generate.declare(options);
  EXPECT_THAT(
      translate(
          Words("--out-seq-length 9 --top_p 0.9 --recompute --greedy --max-tokens-to-oom 12000 --seq-length 1024"),
          options, "generate")
          .arguments,
      ElementsAre("--max-new-tokens", "9", "--top-p", "0.9", "--temperature", "0"));
  EXPECT_THAT(
      translate(Words("--sample-input-file x --inference-dynamic-batching-block-size 8"), options, "generate")
          .refusal(),
      AllOf(HasSubstr("--sample-input-file x: prompts are lines of JSON; nearest: --prompts FILE --output FILE"),
            HasSubstr("--inference-dynamic-batching-block-size 8: this kind of generation is absent")));
}

TEST_F(Translate, TakesPaisFlagsOfCorporaThatAreTokens) {
  EXPECT_EQ(
      words("--patch-tokenizer-type Qwen2Tokenizer --extra-vocab-size 293 --max-padding-length 128 --dataset MMAP "
            "--train-mode pretrain "
            "--use-llama2-rotary-position-embeddings --rotary-scale-factor 2"),
      Words("--position-embedding-type rope --rotary-seq-len-interpolation-factor 2"));
  EXPECT_THAT(translate(Words("--max-padding-length 128 --dataset LLama-Pretrain-Raw --train-mode finetune"), options_)
                  .refusal(),
              AllOf(HasSubstr("--train-mode finetune: samples of conversations are absent"),
                    HasSubstr("--max-padding-length 128: samples of text are not padded"),
                    HasSubstr("--dataset LLama-Pretrain-Raw: text is read by trireme corpus build")));
}

TEST_F(Translate, AcceptsFlagsOfLogsAndTextsThatItReplaces) {
  EXPECT_EQ(words("--wandb-project a --wandb-entity b --structured-logs --structured-logs-dir c --cache-dir d "
                  "--presplit-sentences --loose-json --text-key text --max-preds-per-seq 80 --scalar-loss-mask 0.0 "
                  "--deepspeed_mpi --deepspeed-activation-checkpointing --lr 1"),
            Words("--lr 1"));
  EXPECT_EQ(translate(Words("--wandb-project a"), options_).refusal(), "");
  EXPECT_EQ(words("--kill_switch_file a --no-scaled-init --do-layernorm-bias-weight-decay"),
            Words("--kill-switch-path a --no-scaled-init --do-layernorm-bias-weight-decay"));
  for (const char* refused : {"--max-preds-per-seq 30", "--scalar-loss-mask 0.5", "--no-seq-len-plus-one-tokens"}) {
    EXPECT_EQ(kind_of(refused), Kind::absent) << refused;
  }
}

/// Reads a file of options for `train`; the command line wins over it.
TEST_F(Translate, ReadsFilesOfOptions) {
  const std::string path = ::testing::TempDir() + "megatron.ini";
  std::ofstream(path) << "num_layers = 2\nhidden-size = 16\nnum-attention-heads = 2\nbatch-size = 4\n"
                         "use-flash-attn = true\ncheckpoint-activations = true\nbf16 = true\nfp16 = false\n"
                         "no-masked-softmax-fusion = false\nnormalization = rmsnorm\ndata-path = a.h5\n"
                         "train_samples = 3_000\nnum-workers = 2\n";
  const std::optional<Translation> line =
      read(CommandLine("train", {"--config", path, "--lr", "1"}, nullptr), options_);
  ASSERT_TRUE(line);
  const RunConfig& config = reader_.parsed();
  EXPECT_EQ(config.model.fields.integer("num-layers"), 2);
  EXPECT_EQ(config.batch.micro_batch_size, 4);
  EXPECT_EQ(config.batch.train_samples, 3000);
  EXPECT_EQ(config.model.fields.integer("normalization"), static_cast<std::int64_t>(model::Normalization::rms_norm));
  EXPECT_TRUE(config.precision.bf16);
  EXPECT_FALSE(config.precision.fp16);
  EXPECT_TRUE(options_.given("recompute-granularity"));
  EXPECT_FALSE(options_.given("use-flash-attn"));

  std::ofstream(path) << "linear-attention-freq = 8\nfrobnicate = 1\n";
  Options options("trireme train", "");
  const RunConfigReader reader(options);
  try {
    read(CommandLine("train", {"--config", path}, nullptr), options);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("megatron.ini: flags of Megatron-LM that are absent here"),
                                    HasSubstr("--linear-attention-freq 8: this form of attention"),
                                    HasSubstr("there is no option --frobnicate in ")));
  }
}

TEST_F(Translate, HeedsTheOtherFlagsOfTheLine) {
  EXPECT_EQ(kind_of("--no-position-embedding --position-embedding-type=rope"), Kind::satisfied);
  EXPECT_EQ(kind_of("--no-position-embedding"), Kind::absent);
  EXPECT_EQ(kind_of("--no-position-embedding --position_embedding_type rope"), Kind::satisfied);
  EXPECT_EQ(words("--no-bias-gelu-fusion"), Words("--gelu erf"));
  EXPECT_EQ(words("--swiglu --no-bias-gelu-fusion"), Words("--swiglu"));
  EXPECT_EQ(words("--openai-gelu --no-bias-gelu-fusion"), Words("--gelu tanh"));
  EXPECT_EQ(words("--moe-token-dispatcher-type flex"), Words("--moe-token-dispatcher-type alltoall"));
  EXPECT_EQ(kind_of("--moe-router-dtype fp64"), Kind::absent);
}

}  // namespace
}  // namespace trireme::app::megatron
