#!/bin/bash
# A hybrid of Mamba and attention, which is absent.
options=" --num-layers 56 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 \
    --is-hybrid-model --hybrid-attention-ratio 0.08 --mamba-state-dim 128 --spec megatron.core.models.mamba \
    --lr 2e-4 --train-iters 100 --micro-batch-size 4 --data-path corpus.h5 --bf16 "
torchrun --nproc_per_node 8 ../../pretrain_mamba.py ${options}
