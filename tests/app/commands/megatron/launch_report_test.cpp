#include "src/app/commands/megatron/launch_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "src/base/error.hpp"

namespace trireme::app::megatron {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

/// Returns the report on a launch whose words stand between blanks.
LaunchReport report_on(const std::string& line) {
  std::istringstream stream(line);
  return report_on_launch({std::istream_iterator<std::string>(stream), {}});
}

const std::string gpt2_of_2019 =
    "python -m torch.distributed.launch --nproc_per_node 8 --nnodes 1 pretrain_gpt2.py --model-parallel-size 8 "
    "--num-layers 72 --hidden-size 3072 --num-attention-heads 24 --batch-size 4 --seq-length 1024 "
    "--max-position-embeddings 1024 --train-iters 300000 --lr-decay-iters 300000 --save checkpoints/big --data-path "
    "corpus.h5 --vocab-file vocab.json --merge-file merges.txt --data-impl mmap --split 949,50,1 --distributed-backend "
    "nccl --lr 0.00015 --lr-decay-style cosine --min-lr 1.0e-5 --weight-decay 1e-2 --clip-grad 1.0 --warmup .01 "
    "--checkpoint-activations --log-interval 100 --save-interval 10000 --eval-interval 1000 --eval-iters 10 --fp16";

const std::string bert_of_2021 =
    "python -u /opt/megatron/pretrain_bert.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 "
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 512 --max-position-embeddings 512 "
    "--micro-batch-size 4 --global-batch-size 1024 --train-samples 5_000_000 --lr 1.0e-4 --min-lr 1.0e-5 "
    "--lr-decay-style linear --lr-decay-samples 4000000 --lr-warmup-samples 10000 --data-path corpus.h5 "
    "--log-interval 10 --bf16 --DDP-impl local";

const std::string bloom_like =
    "python -u -m torch.distributed.run --node_rank 0 pretrain_gpt.py --tensor-model-parallel-size 4 --num-layers 70 "
    "--hidden-size 14336 --num-attention-heads 112 --seq-length 2048 --micro-batch-size 2 --global-batch-size 2048 "
    "--train-samples 220_000_000 --lr 6e-5 --bf16 --embed-layernorm --position-embedding-type alibi "
    "--pad-vocab-size-to 250880 --data-path corpus.h5 --deepspeed --deepspeed_config ds.json --zero-stage 1";

const std::string lambada_of_2020 =
    "python -m torch.distributed.launch --nproc_per_node 8 --nnodes 1 ./tasks/main.py --task LAMBADA --valid-data "
    "test.jsonl --strict-lambada --load checkpoints/gpt2_345m --model-parallel-size 1 --num-layers 24 --hidden-size "
    "1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 --fp16 --tokenizer-type "
    "GPT2BPETokenizer --batch-size 8 --checkpoint-activations --log-interval 10 --no-load-optim";

const std::string race_of_2021 =
    "torchrun --nproc_per_node 8 tasks/main.py --task RACE --train-data RACE/train/middle RACE/train/high --valid-data "
    "RACE/dev/middle RACE/dev/high --epochs 3 --pretrained-checkpoint run --num-layers 24 --hidden-size 1024 "
    "--num-attention-heads 16 --seq-length 512 --max-position-embeddings 512 --micro-batch-size 4 --lr 1.0e-5 "
    "--eval-iters 50 --save race";

TEST(LaunchReport, TakesRunsOfEveryYear) {
  const LaunchReport gpt2 = report_on(gpt2_of_2019);
  EXPECT_TRUE(gpt2.runs) << gpt2.text;
  EXPECT_THAT(gpt2.text, AllOf(ContainsRegex("--model-parallel-size 8 .*works .*--tensor-model-parallel-size 8"),
                               ContainsRegex("--warmup .01 .*works .*--lr-warmup-fraction .01"),
                               ContainsRegex("--data-impl mmap .*satisfied"), HasSubstr("mpirun -np 8 trireme train"),
                               HasSubstr("nothing is refused")));
  const LaunchReport bert = report_on(bert_of_2021);
  EXPECT_TRUE(bert.runs) << bert.text;
  EXPECT_THAT(bert.text, AllOf(HasSubstr("\ntrireme train \\\n    --model-type bert"),
                               ContainsRegex("--train-samples 5000000"), Not(HasSubstr("mpirun"))));
}

TEST(LaunchReport, RefusesFlagsByName) {
  const LaunchReport bloom = report_on(bloom_like);
  EXPECT_FALSE(bloom.runs);
  EXPECT_THAT(
      bloom.text,
      AllOf(ContainsRegex("--deepspeed  .*satisfied"), ContainsRegex("--deepspeed_config ds.json .*absent .*ds.json"),
            ContainsRegex("--position-embedding-type alibi .*works"), ContainsRegex("--embed-layernorm .*works"),
            ContainsRegex("--zero-stage 1 .*works .* optim"),
            ContainsRegex("--pad-vocab-size-to 250880 .*works .*--padded-vocab-size 250880"),
            HasSubstr("1 flag is refused")));
  EXPECT_THAT(report_on("python pretrain_gpt.py --num-layerz 2").text,
              ContainsRegex("--num-layerz .*unknown .*did you mean --num-layers"));
  const LaunchReport t5 = report_on("python pretrain_t5.py --lr 1");
  EXPECT_FALSE(t5.runs);
  EXPECT_THAT(t5.text, HasSubstr("pretrain_t5.py trains a kind of model that is absent"));
  const std::string run =
      " --num-layers 2 --hidden-size 8 --num-attention-heads 2 --seq-length 8 --train-iters 1 --lr 1 "
      "--micro-batch-size 1 --data-path a";
  EXPECT_TRUE(report_on("python pretrain_gpt.py" + run).runs);
  EXPECT_FALSE(report_on("python pretrain_prefix_lm.py" + run).runs) << "its attention is not causal";
  EXPECT_THAT(report_on("python pretrain_megatron_falcon.py" + run).text,
              HasSubstr("pretrain_megatron_falcon.py trains a model that its flags do not describe"));
  EXPECT_FALSE(report_on("python pretrain_gpt.py --lr x --data-path a").runs) << "--lr is no number";
}

TEST(LaunchReport, GivesEachProgramItsCommand) {
  const LaunchReport race = report_on(race_of_2021), lambada = report_on(lambada_of_2020);
  EXPECT_TRUE(race.runs) << race.text;
  EXPECT_TRUE(lambada.runs) << lambada.text;
  EXPECT_THAT(race.text, AllOf(HasSubstr("mpirun -np 8 trireme finetune"),
                               ContainsRegex("--num-layers 24 .*checked against the checkpoint"),
                               ContainsRegex("--eval-iters 50 .*ignored by this command"),
                               HasSubstr("--valid-data RACE/dev/middle RACE/dev/high")));
  EXPECT_THAT(lambada.text, AllOf(HasSubstr("mpirun -np 8 trireme eval"), HasSubstr("--data-path test.jsonl"),
                                  HasSubstr("--strict-lambada"), HasSubstr("--micro-batch-size 8")));
  const LaunchReport generation = report_on(
      "python generate_samples_gpt2.py --load run --out-seq-length 1024 --genfile unconditional.json --num-samples 2");
  EXPECT_TRUE(generation.runs) << generation.text;
  EXPECT_THAT(generation.text,
              AllOf(HasSubstr("trireme generate"), HasSubstr("--max-new-tokens 1024"), HasSubstr("--num-samples 2"),
                    ContainsRegex("--genfile unconditional.json .*works .*--output")));
}

TEST(LaunchReport, NamesTheRanksThatShareAModel) {
  const LaunchReport few = report_on(
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 16 --hidden-size 64 --num-attention-heads 16 "
      "--seq-length 8 --tensor-model-parallel-size 16 --lr 1 --train-iters 1 --data-path a.h5");
  EXPECT_TRUE(few.runs) << few.text;
  EXPECT_THAT(few.text, HasSubstr("start a multiple of 16 ranks, which share a model, not 8"));
}

TEST(LaunchReport, RefusesMoreRanksThanThereAre) {
  const LaunchReport many = report_on(
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 16 --hidden-size 64 --num-attention-heads 16 "
      "--seq-length 8 --tensor-model-parallel-size 65536 --pipeline-model-parallel-size 65536 --lr 1 --train-iters 1 "
      "--data-path a.h5");
  EXPECT_FALSE(many.runs);
  EXPECT_THAT(many.text, HasSubstr("a job has at most 99999 ranks"));
}

TEST(LaunchReport, CountsTheRanksOfDeepSpeed) {
  const std::string path = testing::TempDir() + "launch_report_ds.json";
  std::ofstream(path) << R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2,
                            "gradient_accumulation_steps": 2, "scheduler": {"type": "WarmupLR"}})";
  const std::string words =
      "pretrain_gpt.py --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 8 "
      "--lr 1 --train-iters 1 --data-path a.h5 --deepspeed --deepspeed_config " +
      path;
  const LaunchReport refused = report_on("deepspeed --num_gpus 8 " + words);
  EXPECT_THAT(refused.text, AllOf(ContainsRegex("train_batch_size 32 .*works .*--global-batch-size 32"),
                                  ContainsRegex("scheduler.type WarmupLR .*absent"), HasSubstr("1 flag is refused")));
  std::ofstream(path) << R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2,
                            "gradient_accumulation_steps": 2})";
  for (const char* launcher : {"deepspeed --num_gpus 4 --num_nodes=2 ", "python "}) {
    const LaunchReport report = report_on(launcher + words);
    EXPECT_TRUE(report.runs) << report.text;
  }
  EXPECT_THAT(report_on("deepspeed --num_gpus 4 " + words).text,
              HasSubstr("--global-batch-size 32 is not --micro-batch-size 2 x --micro-batches 2 x 4 data ranks"));
}

TEST(LaunchReport, RefusesOtherCommands) {
  EXPECT_THAT([] { report_on("echo done"); },
              ThrowsMessage<ConfigError>(HasSubstr("no word is a program of Megatron-LM")));
  EXPECT_THAT([] { report_on("python pretrain_gpt.py --save \033]0;x"); },
              ThrowsMessage<ConfigError>(HasSubstr("control character, \\x1b")));
}

}  // namespace
}  // namespace trireme::app::megatron
