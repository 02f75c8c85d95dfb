#include "src/app/megatron/shell_script.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/app/megatron/open_parts.hpp"
#include "src/base/error.hpp"

namespace trireme::app::megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Returns the words behind the program of the only launch, without marks.
std::vector<std::string> arguments_of(const std::string& script) {
  const ShellScript content = read_shell_script(script);
  EXPECT_EQ(content.launches.size(), 1U) << script;
  std::vector<std::string> words;
  if (!content.launches.empty()) {
    for (const std::string& word : content.launches.front().arguments) words.push_back(written(word));
  }
  return words;
}

TEST(ShellScript, FollowsVariablesQuotesAndContinuedLines) {
  EXPECT_THAT(arguments_of("#!/bin/bash\n"
                           "LAYERS=24  # of 2019\n"
                           "export HIDDEN='1024' HEADS=\"16\"\n"
                           "ARGS=\"--num-layers $LAYERS \\\n  --hidden-size ${HIDDEN}\"\n"
                           "ARGS+=\" --split '99,1,0'\"\n"
                           "python -m torch.distributed.launch --nproc_per_node 8 pretrain_gpt2.py \\\n"
                           "   $ARGS --heads ${HEADS}x >log 2>&1 &\n"),
              ElementsAre("--num-layers", "24", "--hidden-size", "1024", "--split", "'99,1,0'", "--heads", "16x"));
  EXPECT_THAT(arguments_of("A='one two'\npython pretrain_gpt.py \"$A\" $A \"\" '$A' \"x\"y\\ z"),
              ElementsAre("one two", "one", "two", "", "$A", "xy z"));
}

TEST(ShellScript, FollowsArraysSumsAndDefaults) {
  EXPECT_THAT(
      arguments_of("GPUS=8; NODES=$((4 / 2)); BATCH=$(( GPUS * NODES * (1 + 2) ))\n"
                   "MODEL=(\n  --num-layers 2  # comment\n  --name \"two words\"\n)\n"
                   "MODEL+=(--seq ${LENGTH:-128})\n"
                   "torchrun --nnodes $NODES pretrain_gpt.py \"${MODEL[@]}\" --batch $BATCH --first ${MODEL[1]}"),
      ElementsAre("--num-layers", "2", "--name", "two words", "--seq", "128", "--batch", "48", "--first", "2"));
  const std::string open = "python pretrain_gpt.py --lr $LR --seed $(date +%s) --x $((1 / 0))";
  EXPECT_THAT(arguments_of(open), ElementsAre("--lr", "$LR", "--seed", "$(date +%s)", "--x", "$((1 / 0))"));
  EXPECT_EQ(read_shell_script(open).unknown.count("LR"), 1U);
}

TEST(ShellScript, TakesTheBranchesThatItsValuesDecide) {
  const std::string script =
      "MODE=mock\n"
      "if [ -z \"$NODES\" ]; then NODES=3; fi\n"
      "if [[ $MODE == \"mock\" || $MODE == none ]]; then DATA=--mock-data; else DATA=--data-path; fi\n"
      "if [ $NODES -gt 3 ]; then SIZE=big\nelif [ $NODES -eq 3 ]\nthen SIZE=middle\nelse SIZE=small\nfi\n"
      "case $MODE in\n  real|true) KIND=1 ;;\n  mo*) KIND=2 ;;\n  *) KIND=3 ;;\nesac\n"
      "[ $KIND = 1 ] && KIND=wrong\n"
      "for LR in 0.1 0.2; do\n  python pretrain_gpt.py $DATA $SIZE $KIND $LR\ndone\n";
  EXPECT_THAT(arguments_of(script), ElementsAre("--mock-data", "middle", "2", "0.1"));
}

TEST(ShellScript, LooksIntoEvalBashAndSrun) {
  EXPECT_THAT(arguments_of("CMD=\"python train_gpt.py --lr 1\"\nsrun -n 8 --label bash -c \"cd x; ${CMD} --seed 2\""),
              ElementsAre("--lr", "1", "--seed", "2"));
  EXPECT_THAT(arguments_of("export CMD='pretrain_gpt.py --lr 1'\nsrun bash -c '$LAUNCHER --rank 0 $CMD' | tee log"),
              ElementsAre("--lr", "1"));
  EXPECT_THAT(arguments_of("cat > ds.json <<EOT\n{\"a\": \"it's\"}\nEOT\necho pretrain_gpt.py --no\n"
                           "RUN=\"python pretrain_bert.py --lr 1\"\neval $RUN"),
              ElementsAre("--lr", "1"));
  EXPECT_THAT(
      arguments_of("LR=1\ncat >run.sh <<'END'\ntorchrun pretrain_gpt.py --lr $LR\nEND\ncat >a <<END\nit's\nEND\n"),
      ElementsAre("--lr", "1"));
  EXPECT_THAT(read_shell_script("source other.sh\nrm -rf /\n").sourced, ElementsAre("other.sh"));
  EXPECT_THAT(read_shell_script("python preprocess_data.py --x 1").launches, IsEmpty());
}

TEST(ShellScript, TakesPlacesToFillInAsVariables) {
  EXPECT_THAT(arguments_of("A=<Specify path>_text\nB=\"<two words>/vocab.txt\"\n"
                           "python pretrain_gpt.py --a $A --b $B --c <x> <in.txt >out.txt 2>&1"),
              ElementsAre("--a", "${Specify_path}_text", "--b", "${two_words}/vocab.txt", "--c", "${x}"));
  const ShellScript content = read_shell_script("python pretrain_gpt.py --s $(nproc) --t `date`");
  EXPECT_THAT(content.commands, ElementsAre("$(nproc)", "`date`"));
}

TEST(ShellScript, RefusesWhatDoesNotCloseAndWhatGrowsWithoutEnd) {
  EXPECT_THROW(read_shell_script("A='open"), ConfigError);
  EXPECT_THROW(read_shell_script("A=(1 2"), ConfigError);
  EXPECT_THROW(read_shell_script("A=${B"), ConfigError);
  std::string doubling = "A=aaaaaaaa\n", nested = "A=";
  for (int i = 0; i < 40; ++i) doubling += "A=$A$A\n";
  for (int i = 0; i < 10000; ++i) nested += "${A:-";
  EXPECT_THROW(read_shell_script(doubling), ConfigError);
  EXPECT_THROW(read_shell_script(nested + std::string(10000, '}')), ConfigError);
  EXPECT_THROW(read_shell_script("A='eval $A'\neval $A"), ConfigError);
  EXPECT_THROW(read_shell_script("python pretrain_gpt.py --save 'a\x03'"), ConfigError);
}

}  // namespace
}  // namespace trireme::app::megatron
