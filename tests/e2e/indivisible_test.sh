#!/bin/bash
# Sizes that do not divide: each is refused before anything runs, in words that name the values and those that would do.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
job=(--data-path corpus.h5 --train-iters 1 --lr 0.01 --eval-iters 0)
shape=(--seq-length 16 --num-layers 4 --hidden-size 16 --num-attention-heads 4)

# refusal RANKS ARGUMENT... -- TEXT...: exit code 2, and the one message has every TEXT.
refusal() {
  local ranks=$1 arguments=() text
  shift
  while [ "$1" != -- ]; do
    arguments+=("$1")
    shift
  done
  shift
  refused 2 "$1" "$ranks" train "${job[@]}" "${arguments[@]}"
  for text in "${@:2}"; do check "... \"$text\"" grep -qF -- "$text" err; done
}

# The ranks and the grid.
refusal 3 "${shape[@]}" --tp 2 -- "3 ranks do not make a grid of tensor size 2 (--tp)" "Start 2 or 4 ranks" "--tp 3 --pp 1"
refusal 4 "${shape[@]}" --pp 3 -- "4 ranks do not make a grid" "pipeline size 3 (--pp)" "Start 3 or 6 ranks" "--pp 4"

# Heads and feed-forward columns by tensor ranks, the width by heads.
refusal 3 "${shape[@]}" --tp 3 -- "4 attention heads and 64 feed-forward columns do not split over 3 tensor ranks" \
  "must divide both"
refusal 4 "${shape[@]}" --ffn-hidden-size 66 --tp 4 -- "66 feed-forward columns do not split over 4 tensor ranks"
refusal 4 "${shape[@]}" --group-query-attention --num-query-groups 2 --tp 4 -- \
  "--num-query-groups 2: heads of keys and values do not split over 4 tensor ranks"
refusal 1 --seq-length 16 --num-layers 4 --hidden-size 18 --num-attention-heads 4 -- \
  "--hidden-size 18 must be a multiple of --num-attention-heads 4"
refusal 1 "${shape[@]}" --group-query-attention --num-query-groups 3 -- \
  "--num-query-groups 3 must divide --num-attention-heads 4"

# Layers by stages and chunks.
refusal 3 "${shape[@]}" --pp 3 -- "4 layers do not divide into 3 pipeline stages" "a multiple of 3" \
  "--pipeline-model-parallel-layout"
refusal 2 "${shape[@]}" --pp 2 --vpp 3 -- "4 layers do not divide into 2 pipeline stages of 3 chunks" "a multiple of 6"
refusal 2 "${shape[@]}" --pp 2 --num-layers-per-virtual-pipeline-stage 3 -- \
  "--num-layers-per-virtual-pipeline-stage 3: 4 layers on 2 stages do not divide" "must divide the layers of a stage (2)"
refusal 2 "${shape[@]}" --pp 2 --pipeline-model-parallel-layout 1,2 -- "1,2 holds 3 layers, the model has 4"
refusal 2 "${shape[@]}" --pp 2 --pipeline-model-parallel-layout 1,1,2 -- "names 3 chunks; 2 stages of 1 chunks are 2"
refusal 3 "${shape[@]}" --pp 3 --decoder-first-pipeline-num-layers 1 -- \
  "of 4 layers 3 are left for the other 2 of 3 stages" "equal numbers of at least one"

# Samples by micro-batches and data ranks; the sequence by tensor ranks.
refusal 2 "${shape[@]}" --global-batch-size 3 -- \
  "--global-batch-size 3 is not a multiple of --micro-batch-size 1 times 2 data ranks (= 2)" "choose 2 or 4"
refusal 2 "${shape[@]}" --micro-batch-size 3 --global-batch-size 8 -- "(= 6)" "choose 6 or 12"
refusal 2 --seq-length 15 --num-layers 4 --hidden-size 16 --num-attention-heads 4 --tp 2 --sequence-parallel -- \
  "a sequence of 15 (of one context rank) does not split over 2 tensor ranks" "must be a multiple of 2"

# The vocabulary is padded by itself, but a size given for it must do.
refusal 2 "${shape[@]}" --tp 2 --padded-vocab-size 301 -- \
  "--padded-vocab-size 301 must be at least the vocabulary's 257 and a multiple of the 2 tensor ranks"
refusal 1 "${shape[@]}" --padded-vocab-size 100 -- \
  "--padded-vocab-size 100 must be at least the vocabulary's 257"
