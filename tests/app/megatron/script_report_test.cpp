#include "src/app/megatron/script_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"

namespace trireme::app::megatron {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// A run of 2019: the words of that time.
constexpr const char* gpt2_of_2019 = R"(
GPUS_PER_NODE=8
DATA=corpus.h5
ARGS="--model-parallel-size $GPUS_PER_NODE --num-layers 72 --hidden-size 3072 --num-attention-heads 24 \
      --batch-size 4 --seq-length 1024 --max-position-embeddings 1024 --train-iters 300000 --lr-decay-iters 300000 \
      --save checkpoints/big --data-path $DATA --vocab-file vocab.json --merge-file merges.txt --data-impl mmap \
      --split 949,50,1 --distributed-backend nccl --lr 0.00015 --lr-decay-style cosine --min-lr 1.0e-5 \
      --weight-decay 1e-2 --clip-grad 1.0 --warmup .01 --checkpoint-activations --log-interval 100 \
      --save-interval 10000 --eval-interval 1000 --eval-iters 10 --fp16"
python -m torch.distributed.launch --nproc_per_node $GPUS_PER_NODE --nnodes 1 pretrain_gpt2.py $ARGS
)";

// A SLURM job of 2021, for a BERT.
constexpr const char* bert_of_2021 = R"(#!/bin/bash
#SBATCH -p queue -N 16
NAME="bert"
options=" \
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 --num-layers 24 --hidden-size 1024 \
    --num-attention-heads 16 --seq-length 512 --max-position-embeddings 512 --micro-batch-size 4 \
    --global-batch-size 1024 --train-samples 5_000_000 --lr 1.0e-4 --min-lr 1.0e-5 --lr-decay-style linear \
    --lr-decay-samples 4000000 --lr-warmup-samples 10000 --data-path ${CORPUS} --log-interval 10 --bf16 --DDP-impl local"
run_cmd="python -u ${DIR}/pretrain_bert.py $@ ${options}"
srun -l --output=$DIR/logs/%x.log sh -c "${run_cmd}"
)";

// A run with DeepSpeed and ALiBi, as BLOOM's.
constexpr const char* bloom_like = R"(
config=ds.json
cat <<EOT > $config
{ "zero_optimization": { "stage": 0 } }
EOT
GPT_ARGS=" --num-layers 70 --hidden-size 14336 --num-attention-heads 112 --seq-length 2048 --micro-batch-size 2 \
    --global-batch-size 2048 --train-samples 220_000_000 --lr 6e-5 --bf16 --embed-layernorm \
    --position-embedding-type alibi --pad-vocab-size-to 250880 --data-path corpus.h5 "
export CMD=" pretrain_gpt.py --tensor-model-parallel-size 4 $GPT_ARGS --deepspeed --deepspeed_config $config --zero-stage 1 "
srun bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD' 2>&1 | tee log
)";

// A Llama of 2025, in arrays.
constexpr const char* llama_of_2025 = R"(
export CUDA_DEVICE_MAX_CONNECTIONS=1
CHECKPOINTS=${1:-"checkpoints/llama"}
GPUS=8
NODES=2
DISTRIBUTED=( --nproc_per_node $GPUS --nnodes $NODES )
MODEL=(
    --use-mcore-models
    --num-layers 32   # as published
    --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --seq-length 8192 --max-position-embeddings 8192 --position-embedding-type rope --rotary-base 1000000
    --swiglu --normalization RMSNorm --untie-embeddings-and-output-weights --disable-bias-linear
    --attention-dropout 0.0 --hidden-dropout 0.0
)
TRAINING=( --micro-batch-size 1 --global-batch-size $((GPUS * NODES * 8)) --train-iters 1000 --lr 3e-4 --bf16
           --use-distributed-optimizer --overlap-grad-reduce --save "$CHECKPOINTS" )
if [ -n "$FP8" ]; then TRAINING+=(--fp8-format hybrid); fi
torchrun ${DISTRIBUTED[@]} pretrain_gpt.py ${MODEL[@]} ${TRAINING[@]} --tensor-model-parallel-size 2 --data-path corpus.h5
)";

TEST(ScriptReport, TakesARunOf2019) {
  const ScriptReport report = report_on_script(gpt2_of_2019, "run.sh");
  EXPECT_TRUE(report.runs) << report.text;
  EXPECT_THAT(report.text, AllOf(ContainsRegex("--model-parallel-size 8 .*works .*--tensor-model-parallel-size 8"),
                                 ContainsRegex("--warmup .01 .*works .*--lr-warmup-fraction .01"),
                                 ContainsRegex("--data-impl mmap .*satisfied"), HasSubstr("mpirun -np 8 trireme train"),
                                 HasSubstr("nothing is refused")));
}

TEST(ScriptReport, TakesABertOfWhichTheUserGivesTheCorpus) {
  const ScriptReport report = report_on_script(bert_of_2021, "run.sh");
  EXPECT_TRUE(report.runs) << report.text;
  EXPECT_THAT(report.text, AllOf(HasSubstr("--model-type bert"), ContainsRegex("--train-samples 5000000"),
                                 ContainsRegex("without a value in the script: .*CORPUS"), HasSubstr("${CORPUS}")));
}

TEST(ScriptReport, RefusesDeepSpeedAndAlibiByName) {
  const ScriptReport report = report_on_script(bloom_like, "run.sh");
  EXPECT_FALSE(report.runs);
  EXPECT_THAT(report.text,
              AllOf(ContainsRegex("--deepspeed  .*absent"), ContainsRegex("--position-embedding-type alibi .*absent"),
                    ContainsRegex("--embed-layernorm .*absent"), ContainsRegex("--zero-stage 1 .*works .* optim"),
                    ContainsRegex("--pad-vocab-size-to 250880 .*works .*--padded-vocab-size 250880"),
                    HasSubstr("4 flags are refused")));
}

TEST(ScriptReport, TakesALlamaOf2025) {
  const ScriptReport report = report_on_script(llama_of_2025, "run.sh");
  EXPECT_TRUE(report.runs) << report.text;
  EXPECT_THAT(report.text, AllOf(HasSubstr("mpirun -np 16 trireme train"), HasSubstr("--global-batch-size 128"),
                                 HasSubstr("--save checkpoints/llama"), Not(HasSubstr("fp8"))));
}

TEST(ScriptReport, PrintsNoMarksOfPartsThatAreCut) {
  const std::string text = report_on_script("python pretrain_gpt.py --sa${A:?b=c} x --save a\"$B\"'$C'", "run.sh").text;
  EXPECT_EQ(text.find_first_of("\1\2\3"), text.npos) << text;
  EXPECT_THAT(text, HasSubstr("--save a\"${B}\"'$C'"));
}

TEST(ScriptReport, NamesMistakesAndOtherModels) {
  EXPECT_THAT(report_on_script("python pretrain_gpt.py --num-layerz 2", "run.sh").text,
              ContainsRegex("--num-layerz .*unknown .*did you mean --num-layers"));
  const ScriptReport t5 = report_on_script("python pretrain_t5.py --lr 1", "run.sh");
  EXPECT_FALSE(t5.runs);
  EXPECT_THAT(t5.text, HasSubstr("pretrain_t5.py trains a kind of model that is absent"));
  EXPECT_FALSE(report_on_script("python pretrain_gpt.py --lr x --data-path a", "run.sh").runs) << "--lr is no number";
  EXPECT_THROW(report_on_script("echo done", "run.sh"), ConfigError);
}

}  // namespace
}  // namespace trireme::app::megatron
