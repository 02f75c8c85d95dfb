#!/bin/bash
# A test of NVIDIA's kind: two lives of one BERT, the second from the first one's checkpoint.
set -eu
for ARGUMENT in "$@"; do
    KEY=$(echo $ARGUMENT | cut -f1 -d=)
done
CHECKPOINT_PATH=/tmp/checkpoints
COMMON="--use-checkpoint-args --use-checkpoint-opt_param-scheduler --num-layers 24 --hidden-size 1024 \
        --num-attention-heads 16 --log-params-norm --log-num-zeros-in-grad --log-validation-ppl-to-tensorboard \
        --log-timers-to-tensorboard --tensorboard-dir /tmp/curves --micro-batch-size 4 --global-batch-size 128 \
        --seq-length 512 --max-position-embeddings 512 --train-iters 100 --timing-log-level 2 --lr-decay-iters 990000 \
        --save $CHECKPOINT_PATH --load $CHECKPOINT_PATH --data-path corpus.h5 --vocab-file vocab.txt --data-impl mmap \
        --split 949,50,1 --distributed-backend nccl --lr 0.0001 --min-lr 0.00001 --lr-warmup-fraction 0.01 \
        --log-interval 1 --save-interval 50 --eval-interval 1000 --eval-iters 10 --no-gradient-accumulation-fusion --fp16"
launch="torchrun --nproc_per_node 8 --nnodes 1"
command="$launch pretrain_bert.py $COMMON --tensor-model-parallel-size 2 --exit-interval 50"
eval $command
command="$launch pretrain_bert.py $COMMON --tensor-model-parallel-size 2 --exit-interval 100"
eval $command
