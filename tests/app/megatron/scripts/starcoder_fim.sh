#!/bin/bash
# Multi-query attention and fill in the middle, as StarCoder's runs.
GPUS_PER_NODE=8
NNODES=4
CHECKPOINT_PATH=/fsx/starcoder/checkpoints
TOKENIZER_FILE=/fsx/starcoder/tokenizer.json

GPT_ARGS="\
       --tensor-model-parallel-size 4 \
       --pipeline-model-parallel-size 2 \
       --sequence-parallel \
       --num-layers 40 \
       --hidden-size 6144 \
       --num-attention-heads 48 \
       --attention-head-type multiquery \
       --init-method-std 0.01275 \
       --seq-length 8192 \
       --max-position-embeddings 8192 \
       --attention-dropout 0.1 \
       --hidden-dropout 0.1 \
       --micro-batch-size 1 \
       --global-batch-size 512 \
       --lr 0.0003 \
       --min-lr 0.00003 \
       --train-iters 250000 \
       --lr-decay-iters 250000 \
       --lr-decay-style cosine \
       --lr-warmup-iters 2000 \
       --weight-decay .1 \
       --adam-beta2 .95 \
       --clip-grad 1.0 \
       --bf16 \
       --use-flash-attn \
       --fim-rate 0.5 \
       --log-interval 10 \
       --save-interval 2500 \
       --eval-interval 2500 \
       --eval-iters 2 \
       --use-distributed-optimizer \
       --valid-num-workers 0 \
"
CMD=" \
    pretrain_gpt.py \
    $GPT_ARGS \
    --tokenizer-type TokenizerFromFile \
    --tokenizer-file $TOKENIZER_FILE \
    --save $CHECKPOINT_PATH \
    --load $CHECKPOINT_PATH \
    --train-data-path train.h5 --valid-data-path valid.h5 \
    "
export LAUNCHER="python -u -m torch.distributed.run --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES"
# 2>&1 goes to a log, too.
$LAUNCHER $CMD 2>&1 | tee $CHECKPOINT_PATH/log.txt
