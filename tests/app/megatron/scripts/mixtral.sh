#!/bin/bash
# Layers of experts, which are absent.
MODEL_ARGS=(--use-mcore-models --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --seq-length 4096 --max-position-embeddings 32768 --position-embedding-type rope --normalization RMSNorm --swiglu
    --disable-bias-linear --untie-embeddings-and-output-weights --group-query-attention --num-query-groups 8
    --no-masked-softmax-fusion --no-position-embedding --rotary-base 1000000)
MOE_ARGS=(
    --num-experts 8
    --moe-router-topk 2
    --moe-aux-loss-coeff 1e-2
    --moe-token-dispatcher-type alltoall
)
TRAINING_ARGS=(--micro-batch-size 1 --global-batch-size 256 --lr 1e-4 --train-iters 500000 --lr-decay-style cosine --bf16)
PARALLEL=(--tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8)
torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py ${MODEL_ARGS[@]} ${MOE_ARGS[@]} ${TRAINING_ARGS[@]} \
    ${PARALLEL[@]} --data-path corpus.h5 --tokenizer-type Llama2Tokenizer --tokenizer-model tokenizer.model
