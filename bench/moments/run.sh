#!/bin/bash
# Trains a small GPT-2 on bytes of a text with AdamW's moments in fp32 and in bf16, all else equal, with several seeds. Prints a
# table: the mean loss of the last fifth of the iterations, the loss of the validation split, and the optimizer's memory.
# usage: bench/moments/run.sh FOLDER TEXT    UTF-8 text of 200 kB or more, empty lines between paragraphs; results in FOLDER
# Environment: TRIREME (the program), SEEDS ("1 2 3"), ITERATIONS (600), DTYPE (bf16)
set -euo pipefail
[ $# -eq 2 ] || { sed -n '4,5s/^# //p' "$0" >&2; exit 2; }
source "$(dirname "$0")/../../jobs/environment.sh"
folder=$1 text=$2 seeds=${SEEDS:-1 2 3} iterations=${ITERATIONS:-600} dtype=${DTYPE:-bf16}
mkdir -p "$folder"
[ -s "$folder/text.h5" ] || "$TRIREME" corpus build --input "$text" --output "$folder/text.h5" --tokenizer bytes

moments=(fp32 bf16)
for seed in $seeds; do
  for type in "${moments[@]}"; do
    name=$folder/$type.$seed
    rm -f "$name.jsonl"
    "$TRIREME" train --num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 128 --hidden-dropout 0 \
      --attention-dropout 0 --data-path "$folder/text.h5" --split 19,1,0 --split-by tokens --seed "$seed" --dtype "$dtype" \
      --micro-batch-size 8 --global-batch-size 8 --train-iters "$iterations" --lr 2e-3 --min-lr 2e-4 --lr-decay-style cosine \
      --lr-warmup-iters 30 --adam-beta2 0.95 --weight-decay 0.1 --eval-interval "$iterations" --eval-iters 20 --log-interval 100 \
      --use-precision-aware-optimizer --exp-avg-dtype "$type" --exp-avg-sq-dtype "$type" --metrics-file "$name.jsonl" 2> "$name.log"
  done
done

echo "| moments | seed | loss, mean of the last $((iterations / 5)) of $iterations iterations | validation loss | optimizer's memory |"
echo "| --- | ---: | ---: | ---: | ---: |"
for seed in $seeds; do
  for type in "${moments[@]}"; do
    awk -v row="| $type | $seed |" -v first=$((iterations - iterations / 5)) \
      -v memory="$(sed -n 's/.*memory of a rank: .* optimizer \([^+]*[A-Za-z]\) *+.*/\1/p' "$folder/$type.$seed.log")" '
      match($0, /"lm_loss": *[-+.0-9e]+/) && ++n > first { sum += substr($0, RSTART + 10, RLENGTH - 10) }
      match($0, /"valid_loss": *[-+.0-9e]+/) { valid = substr($0, RSTART + 13, RLENGTH - 13) }
      END { printf "%s %.4f | %.4f | %s |\n", row, sum / (n - first), valid, memory }' "$folder/$type.$seed.jsonl"
  done
done
