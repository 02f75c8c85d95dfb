#!/bin/bash
# Trains a dense model, and one with 8 experts of half the width of which each token uses two: as many operations a token. Prints
# their validation losses for three seeds, and the largest load of an expert at the end.
# usage: bench/experts/run.sh TRIREME [TEXT_FILE...]
#
# The text is that of prose_corpus in bench/common.sh. ITERATIONS (300) and RATE (0.003) set length and learning rate. One core.
set -euo pipefail
source "$(dirname "$0")/../common.sh"
trireme=$(realpath "$1")
shift
iterations=${ITERATIONS:-300} batch=64
prose_corpus "$trireme" "$@"
form="--lr ${RATE:-0.003} --swiglu --disable-bias-linear"
dense="--ffn-hidden-size 384"
experts="--ffn-hidden-size 384 --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 192 --moe-router-topk-scaling-factor 2"
experts+=" --moe-aux-loss-coeff 0.001"

echo "$iterations iterations of 64 x 64 bytes; 4 layers, hidden 128, SwiGLU; cosine from ${RATE:-0.003} to 0, 10 % warm-up"
echo
echo "| model | seed 1 | seed 2 | seed 3 | mean | largest load of an expert, over the mean |"
echo "| --- | ---: | ---: | ---: | ---: | ---: |"
for model in dense experts; do
  line="" sum=0
  for seed in 1 2 3; do
    # shellcheck disable=SC2086  # words of the model
    loss=$(final_loss "$trireme" $model-$seed --seed $seed $form ${!model})
    line+=" $loss |"
    sum=$(awk "BEGIN { print $sum + $loss }")
  done
  load=$(grep lm_loss "$work/$model-3.jsonl" | tail -1 | grep -o '"max_expert_load": [0-9.]*' | head -1 | cut -d' ' -f2 || true)
  echo "| $model |$line $(awk "BEGIN { printf \"%.4f\", $sum / 3 }") | ${load:--} |"
done
