#!/bin/bash
# Trains a small BERT on books, and measures both of its tasks on the text it has not seen: the order of segments, and
# masked tokens relative to the entropy of their frequencies. Took nine minutes of processor time.
# usage: bench/papers/bert_learns.sh FOLDER TEXT...    UTF-8 texts of 10 MB together, empty lines between paragraphs
# Environment: TRIREME (the program). Exit status 1: the order is found less than 15 points more often than by chance, or the
# loss of masked tokens is less than 1.5 nats below the entropy.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
source "$(dirname "$0")/../../jobs/environment.sh"
source "$(dirname "$0")/bert_books.sh"
trireme=$TRIREME
folder=$1
shift

book_corpus "$folder" 2048 "$@"
cat >"$folder/model.ini" <<'I'
model-type = bert
num-layers = 3
hidden-size = 128
num-attention-heads = 4
position-embedding-type = rope
seq-length = 128
hidden-dropout = 0
attention-dropout = 0
init-method-std = 0.06

micro-batch-size = 16
global-batch-size = 16
train-iters = 8000
lr = 2e-3
lr-warmup-iters = 200
adam-beta2 = 0.98
weight-decay = 0.01

split = 19,1,0
split-by = documents
eval-interval = 2000
eval-iters = 60
log-interval = 500
I
"$trireme" train --config "$folder/model.ini" --data-path "$folder/books.h5" --metrics-file "$folder/metrics.jsonl"

entropy=$(unigram_entropy "$folder/books.h5" --seq-length 128)
loss=$(last_value "$folder/metrics.jsonl" valid_loss)
accuracy=$(last_value "$folder/metrics.jsonl" valid_sop_accuracy)
awk -v entropy="$entropy" -v loss="$loss" -v accuracy="$accuracy" 'BEGIN {
  printf "Order of segments: %.1f %% right; by chance 50 %%.\n", 100 * accuracy
  printf "Masked tokens: loss %.3f nats, %.3f below the entropy of their frequencies, %.3f.\n", loss, entropy - loss, entropy
  exit accuracy < 0.65 || entropy - loss < 1.5
}'
