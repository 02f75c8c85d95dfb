// Errors of a command line name a remedy. Followed, it leads to no further error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/app/options/field_names.hpp"
#include "src/app/run_config/run_config.hpp"
#include "tests/app/words.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::app {
namespace {

/// Reads and checks the options of a run on one rank, with a corpus of 257 tokens.
void settle(const Words& words) {
  Options options("trireme train", "");
  RunConfigReader reader(options);
  options.parse(words);
  const parallel::ProcessGrid grid = reader.parsed().parallel.grid.of(1);
  const RunConfig config = reader.settle(grid.data_size());
  const model::ModelConfig model = config.model.config(*config.batch.sequence_length, 257);
  model::validate(model);
  model::check_sequence_length(model, *config.batch.sequence_length);
}

/// A remedy in the message that the first options cause, and options that follow it.
struct Remedy {
  const char* message;
  const char* wrong;
  const char* right;
};

const std::string length = "--seq-length 16 --lr 0.01 ", iterations = length + "--train-iters 8 ",
                  shape = "--num-layers 4 --hidden-size 16 --num-attention-heads 4 ", corpus = "--data-path c.h5 ";

void expect_remedies(const std::string& base, std::initializer_list<Remedy> remedies) {
  for (const Remedy& each : remedies) {
    SCOPED_TRACE(each.message);
    EXPECT_THAT(with_flags(test::message_of([&] { settle(base + each.wrong); })), testing::HasSubstr(each.message));
    EXPECT_NO_THROW(settle(base + each.right)) << each.right;
  }
}

TEST(Remedies, OfModelsLeadToARun) {
  expect_remedies(
      iterations + shape + corpus,
      {{"give --disable-bias-linear", "--num-experts 4", "--num-experts 4 --disable-bias-linear"},
       {"give --moe-router-pre-softmax", "--num-experts 4 --disable-bias-linear --moe-router-topk 1",
        "--num-experts 4 --disable-bias-linear --moe-router-topk 1 --moe-router-pre-softmax"},
       {"give --moe-router-score-function sigmoid",
        "--num-experts 4 --disable-bias-linear --moe-router-enable-expert-bias",
        "--num-experts 4 --disable-bias-linear --moe-router-enable-expert-bias --moe-router-score-function sigmoid"},
       {"leave out --num-experts", "--num-experts 4 --disable-bias-linear --moe-layer-freq [0]*4",
        "--disable-bias-linear"},
       {"give --position-embedding-type rope", "--multi-latent-attention --disable-bias-linear",
        "--multi-latent-attention --disable-bias-linear --position-embedding-type rope"},
       {"give --disable-bias-linear, without --add-qkv-bias",
        "--multi-latent-attention --position-embedding-type rope --add-qkv-bias",
        "--multi-latent-attention --position-embedding-type rope --disable-bias-linear"},
       {"give --qk-pos-emb-head-dim instead",
        "--multi-latent-attention --position-embedding-type rope --disable-bias-linear --rotary-percent 0.5",
        "--multi-latent-attention --position-embedding-type rope --disable-bias-linear --qk-pos-emb-head-dim 32"},
       {"give --window-size", "--position-embedding-type rope --rotary-base-local 100",
        "--position-embedding-type rope --rotary-base-local 100 --window-size 4,0"},
       {"give --position-embedding-type rope, without --embed-layernorm", "--mtp-num-layers 1 --embed-layernorm",
        "--mtp-num-layers 1 --position-embedding-type rope"},
       {"give --parallel-residual", "--shared-norm", "--shared-norm --parallel-residual"},
       {"or train with --max-position-embeddings 16", "--max-position-embeddings 8", "--max-position-embeddings 16"},
       {"name different positions: leave one out", "--rope-type yarn --position-embedding-type learned_absolute",
        "--position-embedding-type learned_absolute"},
       {"needs --position-embedding-type rope", "--use-rope-scaling",
        "--use-rope-scaling --position-embedding-type rope"},
       {"leave out --window-size", "--window-size 4,0 --window-attn-skip-freq [0]*4", ""},
       {"give 4,0", "--window-size 4,4", "--window-size 4,0"},
       {"give --model bert-336m or --model-type bert", "--mask-prob 0.2", "--mask-prob 0.2 --model-type bert"}});
  expect_remedies(iterations + corpus,
                  {{"the model's shape is missing: give --model, or --num-layers", "", shape.c_str()},
                   {"the model's shape is missing: give --model", "", "--model gpt2-124m"},
                   {"Try one of gpt2-124m", "--model gtp2-124m", "--model gpt2-124m"},
                   {"leave out --model-type", "--model bert-336m --model-type gpt", "--model bert-336m"},
                   {"give --ffn-hidden-size", "--num-layers 2 --hidden-size 8 --num-attention-heads 2 --swiglu",
                    "--num-layers 2 --hidden-size 8 --num-attention-heads 2 --swiglu --ffn-hidden-size 24"}});
}

TEST(Remedies, OfDataLeadToARun) {
  expect_remedies(
      iterations + shape,
      {{"--mock-data has no tokenizer: give --vocab-size", "--mock-data", "--mock-data --vocab-size 300"},
       {"--data-path must be given, or --train-data-path, or --mock-data", "", "--train-data-path c.h5"},
       {"--mock-data replaces --data-path", "--data-path c.h5 --mock-data --vocab-size 300",
        "--mock-data --vocab-size 300"},
       {"--data-path and --train-data-path exclude each other", "--data-path c.h5 --train-data-path d.h5",
        "--data-path c.h5"},
       {"with --train-data-path leave it out", "--train-data-path c.h5 --split 9,1,0", "--train-data-path c.h5"},
       {"leave out --split", "--data-path c.h5 --sampling sequential --split 9,1,0",
        "--data-path c.h5 --sampling sequential"}});
}

TEST(Remedies, OfTrainingLeadToARun) {
  expect_remedies(length + shape + corpus,
                  {{"either --train-iters or --train-samples", "", "--train-samples 8"},
                   {"give --lr-warmup-samples of at least 1", "--train-samples 32 --lr-decay-style inverse-square-root",
                    "--train-samples 32 --lr-decay-style inverse-square-root --lr-warmup-samples 4"},
                   {"with --train-iters give --lr-warmup-iters", "--train-iters 8 --lr-warmup-samples 4",
                    "--train-iters 8 --lr-warmup-iters 4"}});
  expect_remedies(
      iterations + shape + corpus,
      {{"--fp16 contradicts --dtype bf16", "--dtype bf16 --fp16", "--fp16"},
       {"--overlap-param-gather needs --use-distributed-optimizer", "--overlap-param-gather --overlap-grad-reduce",
        "--overlap-param-gather --overlap-grad-reduce --use-distributed-optimizer"},
       {"contradicts --data-parallel-sharding-strategy no_shard",
        "--use-distributed-optimizer --data-parallel-sharding-strategy no_shard", "--use-distributed-optimizer"},
       {"needs --eval-iters of at least 1", "--skip-train --load x --eval-iters 0",
        "--skip-train --load x --eval-iters 1"},
       {"is not supported with --dtype fp64",
        "--dtype fp64 --use-precision-aware-optimizer --use-distributed-optimizer --exp-avg-dtype bf16",
        "--dtype bf16 --use-precision-aware-optimizer --use-distributed-optimizer --exp-avg-dtype bf16"}});
}

}  // namespace
}  // namespace trireme::app
