#!/bin/bash
# The figure of the 2019 Megatron-LM paper on the arrangement of BERT's residual, in small: BERTs of several depths in both
# arrangements, with everything else equal: the same samples, several seeds. The paper's matrices begin with a deviation of 0.02
# at 2560 channels, a gain of 0.02 sqrt(2560) = 1; 64 channels have that gain at 0.125.
# Prints a table, and draws the curves of each depth on a page. Runs that are complete in FOLDER are not repeated.
# usage: bench/papers/bert_residual_arrangement.sh FOLDER TEXT...    UTF-8 texts, empty lines between paragraphs; results in FOLDER
# Environment: TRIREME (the program), DEPTHS ("4 12 24"), SEEDS ("1 2 3"), ITERATIONS (800), RATE (1e-3), STD (0.125)
set -euo pipefail
[ $# -ge 2 ] || { sed -n '6,7s/^# //p' "$0" >&2; exit 2; }
source "$(dirname "$0")/../../jobs/environment.sh"
source "$(dirname "$0")/bert_books.sh"
trireme=$TRIREME
folder=$1 depths=${DEPTHS:-4 12 24} seeds=${SEEDS:-1 2 3} iterations=${ITERATIONS:-800} rate=${RATE:-1e-3} std=${STD:-0.125}
shift

[ -s "$folder/books.h5" ] || book_corpus "$folder" 2048 "$@"
arrangements=(rearranged original)
# each_run COMMAND...: COMMAND with the depth, the arrangement, the seed and the file of metrics of every run.
each_run() {
  local depth arrangement seed
  for depth in $depths; do
    for arrangement in "${arrangements[@]}"; do
      for seed in $seeds; do
        "$@" "$depth" "$arrangement" "$seed" "$folder/$depth.$arrangement.$seed.jsonl" || return
      done
    done
  done
}

train_one() {  # DEPTH ARRANGEMENT SEED METRICS
  local option=()
  grep -qs valid_loss "$4" && return
  rm -f "$4"
  [ "$2" = rearranged ] || option=(--apply-residual-connection-post-layernorm)
  # Both arrangements read the same samples: the seed is that of the weights and of the order.
  "$trireme" train --model-type bert --num-layers "$1" --hidden-size 64 --num-attention-heads 2 \
    --ffn-hidden-size 256 --position-embedding-type rope --seq-length 64 --hidden-dropout 0 --attention-dropout 0 \
    --init-method-std "$std" --data-path "$folder/books.h5" --split 19,1,0 --split-by documents --seed "$3" \
    --micro-batch-size 16 --global-batch-size 16 --train-iters "$iterations" --lr "$rate" --lr-decay-style constant \
    --lr-warmup-iters 50 --adam-beta2 0.98 --weight-decay 0.01 --log-interval 100 --eval-interval "$iterations" \
    --eval-iters 50 --metrics-file "$4" "${option[@]}"
}
each_run train_one

entropy=$(unigram_entropy "$folder/books.h5" --seq-length 64)
print_row() {  # DEPTH ARRANGEMENT SEED METRICS
  awk -v row="| $1 | $2 | $3 |" -v end="$(last_value "$4" valid_loss)" -v first=$((iterations - 100)) '
    match($0, /"lm_loss": *[-+.0-9e]+/) && ++n > first { sum += substr($0, RSTART + 11, RLENGTH - 11) }
    END { printf "%s %.3f | %.3f |\n", row, sum / (n - first), end }' "$4"
}
{
  echo "Initial deviation $std, learning rate $rate; unigram entropy of the held-out targets: $entropy nats."
  echo
  echo "| layers | arrangement | seed | loss, mean of the last 100 of $iterations iterations | held-out loss |"
  echo "| ---: | --- | ---: | ---: | ---: |"
  each_run print_row
} | tee "$folder/table.md"

for depth in $depths; do
  "$trireme" report "$folder/$depth".*.jsonl --output "$folder/$depth.html"
done
echo "Curves: $folder/DEPTH.html"
