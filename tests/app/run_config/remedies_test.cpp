// Errors of a command line name a remedy. Followed, it leads to no further error. Errors about files and of other
// commands: tests/app/commands.
#include "tests/app/run_config/followed.hpp"

namespace trireme::app {
namespace {

TEST(Remedies, OfModelsLeadToARun) {
  expect_remedies(
      run,
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
       {"--data-path must be given, or --blend, --train-data-path or --mock-data", "", "--blend b.txt"},
       {"--mock-data replaces --data-path", "--data-path c.h5 --mock-data --vocab-size 300",
        "--mock-data --vocab-size 300"},
       {"--data-path and --train-data-path exclude each other", "--data-path c.h5 --train-data-path d.h5",
        "--data-path c.h5"},
       {"or --valid-data-path leave it out", "--train-data-path c.h5 --split 9,1,0", "--train-data-path c.h5"},
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

TEST(Remedies, OfProductsInFp8LeadToARun) {
  expect_remedies(
      iterations + corpus + "--num-layers 4 --hidden-size 64 --num-attention-heads 8 --micro-batch-size 2 " +
          "--fp8-format hybrid ",
      {{"--fp8-format does not support fp16: use --bf16", "--fp16", "--bf16"},
       {"leave none of the 4 layers to --fp8-format", "--first-last-layers-bf16 --num-layers-at-start-in-bf16 3",
        "--first-last-layers-bf16 --num-layers-at-start-in-bf16 2"},
       {"needs all of its rows. Try --fp8-recipe delayed",
        "--fp8-recipe tensorwise --tp 2 --sequence-parallel --tp-comm-overlap-chunks 2",
        "--fp8-recipe delayed --tp 2 --sequence-parallel --tp-comm-overlap-chunks 2", 2},
       {"blocks are of 128 tokens. Try --fp8-recipe delayed", "--fp8-recipe blockwise --variable-seq-lengths",
        "--fp8-recipe delayed --variable-seq-lengths"},
       {"must be a multiple of 16. Try fewer tensor ranks, or leave it out", "--tp 8", "", 8, 1},
       {"Try fewer tensor ranks, --fp8-recipe delayed, or leave it out", "--fp8-recipe blockwise",
        "--fp8-recipe delayed"}});
}

TEST(Remedies, OfGridsLeadToARun) {
  expect_remedies(
      run,
      {{"Start 2 or 4 ranks", "--tp 2", "--tp 2", 3, 4},
       {"or choose a grid for 4 into which the model divides: --tp 4 --pp 1 (data 1)", "--tp 3", "--tp 4 --pp 1", 4},
       {"do not split over 3 tensor ranks; --tensor-model-parallel-size must divide both", "--tp 3", "--tp 1", 3},
       {"--tensor-model-parallel-size must divide them", "--group-query-attention --num-query-groups 1 --tp 2",
        "--group-query-attention --num-query-groups 2 --tp 2", 2},
       {"experts do not split over 2 tensor ranks; --tensor-model-parallel-size must divide both",
        "--disable-bias-linear --num-experts 4 --moe-ffn-hidden-size 33 --tp 2",
        "--disable-bias-linear --num-experts 4 --moe-ffn-hidden-size 34 --tp 2", 2},
       {"--expert-tensor-parallel-size must divide it",
        "--disable-bias-linear --num-experts 4 --moe-ffn-hidden-size 33 --expert-tensor-parallel-size 2",
        "--disable-bias-linear --num-experts 4 --moe-ffn-hidden-size 34 --expert-tensor-parallel-size 2", 2},
       {"the shared expert does not split over 2 tensor ranks; --tensor-model-parallel-size must divide it",
        "--disable-bias-linear --num-experts 4 --moe-shared-expert-intermediate-size 33 --tp 2 "
        "--expert-tensor-parallel-size 1",
        "--disable-bias-linear --num-experts 4 --moe-shared-expert-intermediate-size 34 --tp 2 "
        "--expert-tensor-parallel-size 1",
        2},
       {"Try one of 1 that divides --num-experts, or start more ranks", "--disable-bias-linear --num-experts 4 --ep 2",
        "--disable-bias-linear --num-experts 4 --ep 2", 1, 2},
       {"Try one of 1, 2, 4 that divides --num-experts", "--disable-bias-linear --num-experts 4 --ep 3",
        "--disable-bias-linear --num-experts 4 --ep 4", 4},
       {"Try one of 1, 2, 4 that divides the width of experts",
        "--disable-bias-linear --num-experts 4 --expert-tensor-parallel-size 3",
        "--disable-bias-linear --num-experts 4 --expert-tensor-parallel-size 4", 4},
       {"Try --ep 1, 2 that divides --num-experts",
        "--disable-bias-linear --num-experts 4 --expert-tensor-parallel-size 2 --ep 4",
        "--disable-bias-linear --num-experts 4 --expert-tensor-parallel-size 2 --ep 2", 4},
       {"--expert-model-parallel-size 2: the model has no experts. Leave it out", "--ep 2", "", 2},
       {"--expert-tensor-parallel-size: the model has no experts. Leave it out",
        "--tp 2 --expert-tensor-parallel-size 1", "--tp 2", 2},
       {"--moe-pad-expert-input-to-capacity: the model has no experts. Leave it out",
        "--moe-pad-expert-input-to-capacity", ""},
       {"needs --moe-expert-capacity-factor",
        "--disable-bias-linear --num-experts 4 --moe-pad-expert-input-to-capacity",
        "--disable-bias-linear --num-experts 4 --moe-pad-expert-input-to-capacity --moe-expert-capacity-factor 2"},
       {"--moe-shared-expert-overlap: the model has no experts. Leave it out", "--moe-shared-expert-overlap", ""},
       {"needs --moe-shared-expert-intermediate-size",
        "--disable-bias-linear --num-experts 4 --moe-shared-expert-overlap",
        "--disable-bias-linear --num-experts 4 --moe-shared-expert-overlap --moe-shared-expert-intermediate-size 8"},
       {"--recompute-modules moe: the model has no experts. Leave it out",
        "--recompute-granularity selective --recompute-modules moe", "--recompute-granularity selective"},
       {"with --sequence-parallel needs --expert-tensor-parallel-size equal to --tensor-model-parallel-size",
        "--disable-bias-linear --num-experts 4 --tp 2 --expert-tensor-parallel-size 1 --sequence-parallel "
        "--tp-comm-overlap-chunks 2",
        "--disable-bias-linear --num-experts 4 --tp 2 --expert-tensor-parallel-size 2 --sequence-parallel "
        "--tp-comm-overlap-chunks 2",
        2},
       {"--variable-seq-lengths needs --expert-tensor-parallel-size equal to --tensor-model-parallel-size",
        "--disable-bias-linear --num-experts 4 --tp 2 --expert-tensor-parallel-size 1 --variable-seq-lengths",
        "--disable-bias-linear --num-experts 4 --tp 2 --expert-tensor-parallel-size 2 --variable-seq-lengths", 2},
       {"moving biases (--moe-router-enable-expert-bias). Leave it out",
        "--disable-bias-linear --num-experts 4 --moe-aux-loss-coeff 0.1 --variable-seq-lengths",
        "--disable-bias-linear --num-experts 4 --moe-aux-loss-coeff 0.1"},
       {"with --context-parallel-size 3 it must be a multiple of 6", "--cp 3", "--cp 2", 3, 2},
       {"must be at least the vocabulary's 257 and a multiple of the 2 tensor ranks", "--tp 2 --padded-vocab-size 301",
        "--tp 2 --padded-vocab-size 302", 2}});
  const std::string odd = "--lr 0.01 --train-iters 8 " + shape + corpus;
  expect_remedies(
      odd,
      {{"Try a smaller --micro-batch-size or --seq-length", "--seq-length 1000000 --micro-batch-size 2000000000",
        "--seq-length 16 --micro-batch-size 2"},
       {"--sequence-parallel: a sequence of 15 (of one context rank) does not split over 2 tensor ranks; --seq-length "
        "over "
        "--context-parallel-size must be a multiple of 2",
        "--seq-length 15 --tp 2 --sequence-parallel", "--seq-length 16 --tp 2 --sequence-parallel", 2},
       {"each of which sends its tokens to experts; --seq-length over --context-parallel-size must be a multiple of 2",
        "--seq-length 15 --tp 2 --expert-tensor-parallel-size 1 --disable-bias-linear --num-experts 4",
        "--seq-length 16 --tp 2 --expert-tensor-parallel-size 1 --disable-bias-linear --num-experts 4", 2}});
}

TEST(Remedies, OfPipelinesLeadToARun) {
  expect_remedies(iterations + corpus + "--hidden-size 16 --num-attention-heads 4 ",
                  {{"choose --num-layers as a multiple of 3", "--num-layers 4 --pp 3", "--num-layers 6 --pp 3", 3},
                   {"another --pipeline-model-parallel-size", "--num-layers 4 --pp 3", "--num-layers 4 --pp 1", 3},
                   {"or the layers of each with --pipeline-model-parallel-layout", "--num-layers 4 --pp 3",
                    "--num-layers 4 --pp 3 --pipeline-model-parallel-layout 1,2,1", 3}});
  const std::string four = run + "--global-batch-size 4 ";
  expect_remedies(
      four,
      {{"choose --vpp of at least 2, or --schedule 1f1b", "--pp 2 --schedule interleaved",
        "--pp 2 --schedule interleaved --vpp 2", 2},
       {"or --schedule 1f1b", "--pp 2 --schedule interleaved", "--pp 2 --schedule 1f1b", 2},
       {"choose --schedule interleaved, or --vpp 1", "--pp 2 --vpp 2 --schedule 1f1b",
        "--pp 2 --vpp 2 --schedule interleaved", 2},
       {"or --vpp 1", "--pp 2 --vpp 2 --schedule 1f1b", "--pp 2 --vpp 1 --schedule 1f1b", 2},
       {"it must divide the layers of a stage (2)", "--pp 2 --num-layers-per-virtual-pipeline-stage 3",
        "--pp 2 --num-layers-per-virtual-pipeline-stage 1", 2},
       {"but --vpp is 1: leave one of the two out", "--pp 2 --vpp 1 --num-layers-per-virtual-pipeline-stage 1",
        "--pp 2 --num-layers-per-virtual-pipeline-stage 1", 2},
       {"but --vpp is 1: leave one of the two out", "--pp 2 --vpp 1 --num-layers-per-virtual-pipeline-stage 1",
        "--pp 2 --vpp 1", 2},
       {"is for stages of equal size: use --vpp instead",
        "--pp 2 --num-layers-per-virtual-pipeline-stage 1 --decoder-first-pipeline-num-layers 2",
        "--pp 2 --vpp 2 --decoder-first-pipeline-num-layers 2", 2},
       {"leave out --decoder-first-pipeline-num-layers",
        "--pp 2 --pipeline-model-parallel-layout 1,3 --decoder-first-pipeline-num-layers 1",
        "--pp 2 --pipeline-model-parallel-layout 1,3", 2},
       {"With --vpp, use --pipeline-model-parallel-layout 0,... instead", "--pp 2 --vpp 2 --standalone-embedding-stage",
        "--pp 2 --vpp 2 --pipeline-model-parallel-layout 0,2,1,1", 2},
       {"need --pipeline-model-parallel-size of at least 2, not 1", "--decoder-first-pipeline-num-layers 1",
        "--pp 2 --decoder-first-pipeline-num-layers 1", 2},
       {"m, a multi-token prediction, is not supported; leave it out",
        "--pp 2 --pipeline-model-parallel-layout Ett|ttmL", "--pp 2 --pipeline-model-parallel-layout Ett|ttL", 2},
       {"only the first chunk (the embedding) and the last one (the output head) may have none",
        "--pp 4 --pipeline-model-parallel-layout 2,0,1,1", "--pp 4 --pipeline-model-parallel-layout 0,2,1,1", 4}});
}

TEST(Remedies, OfBatchesAndExecutionLeadToARun) {
  expect_remedies(
      run,
      {{"choose 2 or 4, another micro-batch size or number of ranks", "--global-batch-size 3", "--global-batch-size 4",
        2},
       {"or --decrease-batch-size-if-needed", "--global-batch-size 3",
        "--global-batch-size 3 --decrease-batch-size-if-needed", 2},
       {"number of ranks", "--global-batch-size 3", "--global-batch-size 3", 2, 3},
       {"leave one of the three out", "--global-batch-size 8 --micro-batch-size 2 --micro-batches 2",
        "--global-batch-size 8 --micro-batch-size 2"},
       {"choose a multiple of 3", "--global-batch-size 8 --micro-batches 3", "--global-batch-size 9 --micro-batches 3"},
       {"or leave --micro-batches out", "--global-batch-size 8 --micro-batches 3", "--global-batch-size 8"},
       {"choose a smaller one, or a larger --micro-batch-size", "--global-batch-size 2147483647 --micro-batch-size 1",
        "--global-batch-size 8 --micro-batch-size 1"},
       {"must be from 1 to the 16 tokens of a micro-batch", "--cross-entropy-chunks 17", "--cross-entropy-chunks 16"},
       {"Give --recompute-method block, or", "--cpu-offloading-num-layers 1 --recompute-granularity full",
        "--cpu-offloading-num-layers 1 --recompute-granularity full --recompute-method block"},
       {"or --recompute-granularity selective or none", "--cpu-offloading-num-layers 1 --recompute-granularity full",
        "--cpu-offloading-num-layers 1 --recompute-granularity selective"},
       {"exclude each other: recorded work cannot wait for copies", "--cpu-offloading-num-layers 1 --cuda-graphs",
        "--cpu-offloading-num-layers 1"},
       {"whose state is on the device. Try --optimizer adam", "--optimizer-cpu-offload --optimizer muon",
        "--optimizer-cpu-offload --optimizer adam"},
       {"have no single matrix of queries, keys and values. Leave it out",
        "--optimizer muon --muon-no-split-qkv --group-query-attention --num-query-groups 2",
        "--optimizer muon --group-query-attention --num-query-groups 2"},
       {"Try ZeRO 1", "--cuda-graphs --overlap-grad-reduce --data-parallel-sharding-strategy optim_grads",
        "--cuda-graphs --overlap-grad-reduce --data-parallel-sharding-strategy optim"},
       {"Give --moe-expert-capacity-factor and --moe-pad-expert-input-to-capacity",
        "--disable-bias-linear --num-experts 4 --cuda-graphs",
        "--disable-bias-linear --num-experts 4 --cuda-graphs --moe-expert-capacity-factor 2 "
        "--moe-pad-expert-input-to-capacity"},
       {"or leave out --cuda-graphs", "--disable-bias-linear --num-experts 4 --cuda-graphs",
        "--disable-bias-linear --num-experts 4"},
       {"Leave out --main-grads-dtype",
        "--bf16 --main-grads-dtype bf16 --data-parallel-sharding-strategy optim_grads --overlap-grad-reduce",
        "--bf16 --data-parallel-sharding-strategy optim_grads --overlap-grad-reduce"},
       {"Try bf16, which has the range of fp32", "--use-precision-aware-optimizer --exp-avg-dtype fp16",
        "--use-precision-aware-optimizer --exp-avg-dtype bf16"},
       {"Try --exp-avg-sq-dtype fp32", "--use-precision-aware-optimizer --exp-avg-sq-dtype bf16",
        "--use-precision-aware-optimizer --exp-avg-sq-dtype fp32"},
       {"or --adam-beta2 of at most 0.996, such as 0.95", "--use-precision-aware-optimizer --exp-avg-sq-dtype bf16",
        "--use-precision-aware-optimizer --exp-avg-sq-dtype bf16 --adam-beta2 0.95"},
       {"unless --check-for-spiky-loss is given", "--max-machine-faults 2 --no-check-for-nan-in-loss-and-grad",
        "--max-machine-faults 2 --no-check-for-nan-in-loss-and-grad --check-for-spiky-loss"},
       {"needs --fp16", "--loss-scale 0", "--loss-scale 0 --fp16"},
       {"--init-method normal", "--init-method hashed-uniform --init-method-std 0.1",
        "--init-method normal --init-method-std 0.1"},
       {"--num-query-groups 3 must divide --num-attention-heads 4", "--group-query-attention --num-query-groups 3",
        "--group-query-attention --num-query-groups 2"},
       {"--moe-router-num-groups 3 must divide --num-experts 4",
        "--disable-bias-linear --num-experts 4 --moe-router-num-groups 3 --moe-router-group-topk 1",
        "--disable-bias-linear --num-experts 4 --moe-router-num-groups 2 --moe-router-group-topk 1"},
       {"--moe-router-group-topk 2 must divide --moe-router-topk 3",
        "--disable-bias-linear --num-experts 4 --moe-router-num-groups 2 --moe-router-group-topk 2 --moe-router-topk 3",
        "--disable-bias-linear --num-experts 4 --moe-router-num-groups 2 --moe-router-group-topk 2 --moe-router-topk "
        "2"},
       {"give 0 or 1 for each", "--window-size 4,0 --window-attn-skip-freq [1,0]",
        "--window-size 4,0 --window-attn-skip-freq [1,0]*2"},
       {"give as many coefficients as losses", "--disable-bias-linear --num-experts 4 --moe-aux-loss-coeff 0.1 0.2",
        "--disable-bias-linear --num-experts 4 --moe-aux-loss-coeff 0.1 0.2 --moe-router-load-balancing-type aux_loss "
        "seq_aux_loss"},
       {"with --multi-latent-attention: a head has --qk-head-dim 128 + --qk-pos-emb-head-dim 64 channels: leave it out",
        "--multi-latent-attention --position-embedding-type rope --disable-bias-linear --kv-channels 8",
        "--multi-latent-attention --position-embedding-type rope --disable-bias-linear"}});
  expect_remedies(
      length + shape + corpus,
      {{"--rampup-batch-size needs --train-samples instead of --train-iters",
        "--train-iters 8 --rampup-batch-size 1 1 8 --global-batch-size 4",
        "--train-samples 32 --rampup-batch-size 1 1 8 --global-batch-size 4"},
       {"must begin at 0, as '0:16 1M:32' does", "--train-samples 32 --step-batch-size-schedule 64:2",
        "--train-samples 32 --step-batch-size-schedule 0:2"},
       {"choose larger ones", "--train-samples 99999999 --rampup-batch-size 1 1 8000000 --global-batch-size 9999999",
        "--train-samples 99999999 --rampup-batch-size 1 9 80 --global-batch-size 10"}});
}

TEST(Remedies, OfABertLeadToARun) {
  expect_remedies(
      run + "--model-type bert ",
      {{"a BERT's samples alike in every epoch: leave it out", "--dataloader-type cyclic", ""},
       {"a BERT's samples are always shuffled: leave it out", "--sampling sequential", ""},
       {"each sample of a BERT is of one document: leave them out", "--reset-position-ids --eod-mask-loss", ""},
       {"a BERT attends to both sides: leave it out", "--window-size 4,0", ""}});
  expect_remedies(iterations + shape + "--model-type bert ",
                  {{"a BERT needs --data-path", "--mock-data --vocab-size 300", "--data-path c.h5"}});
}

TEST(Remedies, OfValidationSetsLeadToARun) {
  expect_remedies(
      iterations + shape,
      {{"give a name for each",
        "--train-data-path c.h5 --valid-data-path v.h5 w.h5 --multiple-validation-sets --validation-set-names a",
        "--train-data-path c.h5 --valid-data-path v.h5 w.h5 --multiple-validation-sets --validation-set-names a b"},
       {"have no weights; leave 1 out", "--train-data-path c.h5 --valid-data-path 1 v.h5 --multiple-validation-sets",
        "--train-data-path c.h5 --valid-data-path v.h5 --multiple-validation-sets"},
       {"give only corpora, or a weight before each: 0.7 a.h5 0.3 b.h5", "--data-path 0.7 c.h5 d.h5",
        "--data-path 0.7 c.h5 0.3 d.h5"},
       {"names have only letters, digits and - _ .", "--data-path c.h5 --valid-set v.h5",
        "--data-path c.h5 --valid-set v=v.h5"},
       {"and a validation split in --split", "--data-path c.h5 --valid-set v=v.h5 --split-valid-sets --split 9,0,1",
        "--data-path c.h5 --valid-set v=v.h5 --split-valid-sets --split 8,1,1"}});
}

}  // namespace
}  // namespace trireme::app
