#!/bin/bash
# Measures fine-tuning and its evaluation with and without --variable-seq-lengths on this machine's CPU: a small BERT on
# pairs of texts whose lengths are distributed like those of questions, padded to 128 positions. Runs of both kinds
# alternate. Prints the median time of an epoch's updates and its spread, and their ratio.
#
# usage: bench/lengths/run.sh [BUILD_FOLDER]     default build/release
# environment: RUNS (5 of each kind), RANKS (1), GRID (options such as "--pp 2")
set -euo pipefail

source "$(dirname "$0")/../common.sh"
use_build "${1:-}" trireme
runs=${RUNS:-5} ranks=${RANKS:-1}
cd "$work"

# on RANKS ARGUMENT...: quietly, unless it fails
on() { mpirun --bind-to none --oversubscribe -np "$1" "$build/trireme" "${@:2}" > out 2> log || { cat log >&2; return 1; }; }

# pairs N SEED: lines of QQP. A text has 5 to 60 words, log-normal, 11 in the median.
pairs() {
  awk -v n="$1" -v seed="$2" 'BEGIN {
    srand(seed)
    print "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    for (i = 0; i < n; ++i) printf "%d\t1\t2\t%s\t%s\t%d\n", i, text(), text(), rand() < 0.4
  }
  function text(   words, line) {
    words = int(exp(log(11) + 0.5 * sqrt(-2 * log(1 - rand())) * cos(6.2831853 * rand())))
    words = words < 5 ? 5 : words > 60 ? 60 : words
    for (line = ""; words > 0; --words) line = line " " sprintf("%c", 97 + int(26 * rand()))
    return line
  }'
}

printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' '.' {a..z} > vocab.txt
awk 'BEGIN { for (d = 0; d < 20; ++d) { printf "{\"text\": \""; for (s = 0; s < 9; ++s) printf "A b c d e f g h. "; print "\"}" } }' > text.jsonl
pairs 512 1 > train.tsv
pairs 256 2 > dev.tsv
on 1 corpus build --input text.jsonl --output bert.h5 --tokenizer wordpiece --vocab-file vocab.txt --split-sentences
on 1 train --model-type bert --num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 128 --lr 1e-4 \
  --train-iters 0 --data-path bert.h5 --save bert

# tune NAME OPTION...: one epoch; its time in NAME.ms, without the first update
tune() {
  rm -f metrics.jsonl
  # shellcheck disable=SC2086  # words of the grid
  on "$ranks" finetune --task QQP --train-data train.tsv --valid-data dev.tsv --pretrained-checkpoint bert --lr 1e-4 \
    --global-batch-size 32 --micro-batch-size 8 --epochs 1 --backend cpu --metrics-file metrics.jsonl ${GRID:-} "${@:2}"
  sed 's/.*"elapsed_ms": \([0-9.]*\).*/\1/' metrics.jsonl | tail -n +2 | awk '{ sum += $1 } END { print sum }' >> "$1.ms"
  sed 's/.*"lm_loss": \([0-9.e-]*\).*/\1/' metrics.jsonl > "$1.loss"
}
for ((run = 0; run < runs; ++run)); do
  tune padded
  tune variable --variable-seq-lengths
done

sed 's/.*"elapsed_ms": \([0-9.]*\).*"tokens_per_second": \([0-9.]*\).*/\1 \2/' metrics.jsonl |
  awk '{ tokens += $1 * $2 / 1000 } END { printf "samples: %.1f tokens of 128 positions in the mean\n", tokens / NR / 32 }'
paste padded.loss variable.loss | awk '{ d = ($1 - $2) / $1; d = d < 0 ? -d : d; m = d > m ? d : m }
  END { printf "losses differ by at most %.1e\n", m }'
for kind in padded variable; do
  sort -g "$kind.ms" | awk -v kind=$kind '{ ms[NR] = $1 } END { printf "%s: %.0f ms (%.0f to %.0f)\n", kind, ms[int((NR + 1) / 2)], ms[1], ms[NR] }'
done
paste padded.ms variable.ms | awk '{ print $1 / $2 }' | sort -g |
  awk '{ r[NR] = $1 } END { printf "gain: %.2f (%.2f to %.2f)\n", r[int((NR + 1) / 2)], r[1], r[NR] }'
