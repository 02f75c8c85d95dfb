#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "src/app/megatron/script_report.hpp"

namespace trireme::app::megatron {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

/// Returns the report on a script in the folder scripts.
ScriptReport report_on(const std::string& name) {
  std::ifstream file(TRIREME_SCRIPTS "/" + name);
  EXPECT_TRUE(file.is_open()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return report_on_script(text.str(), name);
}

TEST(Scripts, OfFamiliesThatWereVastlyUsedRun) {
  for (const char* name :
       {"bert_2019.sh", "gpt2_model_parallel_2019.sh", "gpt3_slurm_2021.sh", "gpt3_arrays_2024.sh", "starcoder_fim.sh",
        "gpt3_mlperf.sh", "llama3_8b.sh", "bert_resume_two_lives.sh", "race_2021.sh", "lambada_2020.sh"}) {
    const ScriptReport report = report_on(name);
    EXPECT_TRUE(report.runs) << name << ":\n" << report.text;
  }
}

TEST(Scripts, NamePlacesToFillIn) {
  EXPECT_THAT(report_on("bert_2019.sh").text,
              AllOf(HasSubstr("--model-type bert"), HasSubstr("${Specify_path}"),
                    ContainsRegex("without a value in the script: Specify_path, Specify_path_and_file_prefix")));
  EXPECT_THAT(
      report_on("gpt3_slurm_2021.sh").text,
      AllOf(HasSubstr("--rampup-batch-size 16 16 5859375"), HasSubstr("--save ${PATH_TO_CHECKPOINTS_DIRECTORY}"),
            HasSubstr("not run: `pwd`; write its output in its place"), Not(HasSubstr("not run: `date"))));
  EXPECT_THAT(report_on("gpt3_arrays_2024.sh").text,
              AllOf(HasSubstr("mpirun -np 128 trireme train"), HasSubstr("--data-path \"${3}\"")));
}

TEST(Scripts, AreFollowedThroughTheirShell) {
  EXPECT_THAT(report_on("gpt3_mlperf.sh").text,
              AllOf(HasSubstr("mpirun -np 128"), HasSubstr("--global-batch-size 1536"), HasSubstr("--eval-iters 0"),
                    HasSubstr(" --bf16"), Not(HasSubstr("--fp16")), Not(HasSubstr("--load"))));
  EXPECT_THAT(report_on("llama3_8b.sh").text, AllOf(HasSubstr("--mock-data"), HasSubstr("--vocab-size 128256"),
                                                    HasSubstr("--split 99,1,0"), HasSubstr("--main-grads-dtype bf16"),
                                                    HasSubstr("--save checkpoints/llama3_8b"), Not(HasSubstr("fp8"))));
  EXPECT_THAT(report_on("starcoder_fim.sh").text,
              AllOf(HasSubstr("mpirun -np 32"), HasSubstr("--num-query-groups 1"), HasSubstr("--fim-rate 0.5"),
                    HasSubstr("--tokenizer-model /fsx/starcoder/tokenizer.json")));
  const std::string lives = report_on("bert_resume_two_lives.sh").text;
  EXPECT_THAT(lives, AllOf(HasSubstr("--exit-interval 50"), HasSubstr("--exit-interval 100")));
}

TEST(Scripts, AreNotRefusedForWhatIsNotInThem) {
  const ScriptReport open =
      report_on_script("OUT=out/`date +'%y %m'`\npython pretrain_gpt.py ${PARAMS} --fp16 $MORE --save $OUT", "open.sh");
  EXPECT_TRUE(open.runs) << open.text;
  EXPECT_THAT(open.text,
              AllOf(HasSubstr("without a value in the script: MORE, PARAMS"), HasSubstr("not run: `date +'%y %m'`")));
  const ScriptReport few = report_on_script(
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 16 --hidden-size 64 --num-attention-heads 16 "
      "--seq-length 8 "
      "--tensor-model-parallel-size 16 --lr 1 --train-iters 1 --data-path a.h5",
      "few.sh");
  EXPECT_TRUE(few.runs) << few.text;
  EXPECT_THAT(few.text, HasSubstr("start a multiple of 16 ranks, which share a model, not 8"));
}

TEST(Scripts, OfTasksBecomeTheirCommands) {
  EXPECT_THAT(report_on("race_2021.sh").text, AllOf(HasSubstr("mpirun -np 8 trireme finetune"),
                                                    ContainsRegex("--num-layers 24 .*held against the checkpoint"),
                                                    ContainsRegex("--eval-iters 50 .*no use in this command"),
                                                    HasSubstr("--valid-data data/RACE/dev/middle data/RACE/dev/high")));
  EXPECT_THAT(report_on("lambada_2020.sh").text,
              AllOf(HasSubstr("mpirun -np 8 trireme eval"), HasSubstr("--data-path ${lambada_path}"),
                    HasSubstr("--strict-lambada"), HasSubstr("--micro-batch-size 8"), HasSubstr("--fp16")));
  const ScriptReport generation = report_on("generate_2020.sh");
  EXPECT_FALSE(generation.runs);
  EXPECT_THAT(generation.text,
              AllOf(HasSubstr("trireme generate"), HasSubstr("--max-new-tokens 1024"),
                    ContainsRegex("--genfile unconditional.json .*nearest: > FILE"), HasSubstr("2 flags are refused")));
}

TEST(Scripts, OfOtherModelsAreRefusedByName) {
  const ScriptReport bloom = report_on("bloom_slurm.sh");
  EXPECT_FALSE(bloom.runs);
  EXPECT_THAT(bloom.text, AllOf(ContainsRegex("--position-embedding-type alibi .*absent"),
                                ContainsRegex("--embed-layernorm .*absent"), ContainsRegex("--deepspeed  .*absent"),
                                ContainsRegex("--rampup-batch-size 192 16 9_765_625 .*works .*9765625")));
  const ScriptReport mixtral = report_on("mixtral.sh");
  EXPECT_FALSE(mixtral.runs);
  EXPECT_THAT(mixtral.text,
              AllOf(ContainsRegex("--num-experts 8 .*absent .*layers of experts"),
                    ContainsRegex("--no-position-embedding .*satisfied"), HasSubstr("5 flags are refused")));
  const ScriptReport mamba = report_on("mamba.sh");
  EXPECT_FALSE(mamba.runs);
  EXPECT_THAT(mamba.text, HasSubstr("pretrain_mamba.py trains a kind of model that is absent"));
}

TEST(Scripts, WithAShapeOfACheckpointAreReadAsFarAsTheyGo) {
  const ScriptReport report = report_on("megatron_llm_llama.sh");
  EXPECT_THAT(report.text, AllOf(HasSubstr("--use-checkpoint-args"), HasSubstr("--normalization RMSNorm"),
                                 ContainsRegex("--model_name llama2 .*works"), HasSubstr("nothing is refused")));
  EXPECT_TRUE(report.runs) << report.text;
}

}  // namespace
}  // namespace trireme::app::megatron
