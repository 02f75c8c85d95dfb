#!/usr/bin/env bash
# The 175B benchmark: knobs of a system file, options that are appended, a choice by if and case.
: "${LOCAL_RANK:=0}"
SYSTEM=${SYSTEM:-large}
USE_BF16="true"
SCALE=1
TP=8
PP=8
EXTERNAL_MODEL_CHECKPOINT_DIR=${EXTERNAL_MODEL_CHECKPOINT_DIR:-}
case "${SYSTEM}" in
    small) GBS=768 ;;
    large|huge) GBS=1536 ;;
esac
ARGS="--tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP}"
ARGS+=" --num-layers-per-virtual-pipeline-stage 4 --sequence-parallel --recompute-activations"
ARGS+=" --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048"
ARGS+=" --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size $(( GBS * SCALE ))"
ARGS+=" --train-samples 20000000 --lr-warmup-samples 407040 --lr-decay-samples 166809600"
ARGS+=" --lr 2.0e-5 --min-lr 2.0e-6 --lr-decay-style cosine --log-interval 1 --eval-iters -1 --eval-interval 16"
ARGS+=" --attention-dropout 0.0 --hidden-dropout 0.0 --train-data-path train.h5 --valid-data-path valid.h5"
ARGS+=" --clip-grad 1.0 --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006"
ARGS+=" --no-scatter-gather-tensors-in-pipeline --distributed-timeout-minutes 20"
if [ ${USE_BF16} == true ]; then
  ARGS+=" --bf16"
else
  ARGS+=" --fp16"
fi
if [[ -n "$EXTERNAL_MODEL_CHECKPOINT_DIR" ]]; then
  ARGS+=" --load $EXTERNAL_MODEL_CHECKPOINT_DIR"
fi
torchrun --nproc-per-node=8 --nnodes=16 --no-python python -u pretrain_gpt.py ${ARGS[@]} || exit 1
