#!/bin/bash
# Trains a small BERT to answer questions on short articles: pretraining and fine-tuning, both on the training split alone.
# It is made ten times as large first: each copy exchanges names for names and days for days, in article, questions and choices.
# The pretraining text is each question with its right answer before the article, where most answers can be read.
# Took six minutes of processor time on 200 articles of 4 questions.
# usage: bench/papers/bert_reads.sh FOLDER TRAIN DEV TEST    files of RACE's shape, JSON lines; results in FOLDER
# Environment: TRIREME (the program), LENGTH (112; tokens of a sample), DTYPE (fp32), ITERATIONS (4000; of pretraining),
# EPOCHS (16; of fine-tuning). MPIRUN ("mpirun --oversubscribe"): fine-tune on two tensor ranks, too.
# Exit status 1: at most 90 % of the questions of DEV or TEST are answered right.
set -euo pipefail
[ $# -eq 4 ] || { sed -n '6,9s/^# //p' "$0" >&2; exit 2; }
source "$(dirname "$0")/../../jobs/environment.sh"
texts=$(dirname "$0")/bert_reads.awk
folder=$1 train=$2 dev=$3 test=$4

mkdir -p "$folder"
awk -v copies=9 -f "$texts" "$train" "$train" >"$folder/train.jsonl"
awk -v statements=1 -f "$texts" "$folder/train.jsonl" >"$folder/statements.jsonl"
# Every word of the training split is one token, and every letter begins or continues one, so that no text is unknown.
{
  printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' {a..z} {0..9} '!' '"' "'" '(' ')' ',' - . : ';' '?'
  printf '##%s\n' {a..z} {0..9}
  grep -o '[a-z]*' "$folder/statements.jsonl"
} | awk 'NF && !seen[$0]++' >"$folder/vocab.txt"
"$TRIREME" corpus build --input "$folder/statements.jsonl" --output "$folder/statements.h5" --split-sentences \
  --tokenizer wordpiece --vocab-file "$folder/vocab.txt"

cat >"$folder/pretraining.ini" <<I
model-type = bert
num-layers = 2
hidden-size = 64
num-attention-heads = 4
seq-length = ${LENGTH:-112}
short-seq-prob = 0
hidden-dropout = 0
attention-dropout = 0
init-method-std = 0.06
mask-prob = 0.25
dtype = ${DTYPE:-fp32}

micro-batch-size = 16
global-batch-size = 16
train-iters = ${ITERATIONS:-4000}
lr = 2e-3
lr-warmup-iters = 200
adam-beta2 = 0.98
weight-decay = 0.01

split = 1,0,0
split-by = documents
eval-iters = 0
log-interval = 250
I
"$TRIREME" train --config "$folder/pretraining.ini" --data-path "$folder/statements.h5" --save "$folder/pretrained"

cat >"$folder/finetuning.ini" <<I
task = RACE
train-data = $folder/train.jsonl
valid-data = $dev
test-data = $test
seq-length = ${LENGTH:-112}
hidden-dropout = 0
attention-dropout = 0
dtype = ${DTYPE:-fp32}

micro-batch-size = 8
epochs = ${EPOCHS:-16}
lr = 1e-3
lr-warmup-fraction = 0.05
log-interval = 500
I
# fine_tune NAME COMMAND...: the program, as COMMAND starts it, writes FOLDER/NAME.json and the losses in FOLDER/NAME.losses.
fine_tune() {
  local name=$1
  shift
  rm -f "$folder/$name.metrics"
  "$@" finetune --config "$folder/finetuning.ini" --pretrained-checkpoint "$folder/pretrained" \
    --metrics-file "$folder/$name.metrics" "${options[@]}" >"$folder/$name.json"
  sed -n 's/.*"lm_loss": *\([-+.0-9e]*\).*/\1/p' "$folder/$name.metrics" >"$folder/$name.losses"
}
# judge NAME: prints what that fine-tuning has reached.
judge() {
  awk -v name="$1" 'match($0, /"accuracy": *[.0-9e-]+.*/) {
    split(substr($0, RSTART), field, /"accuracy": */)
    on_dev = field[2] + 0
    on_test = field[3] + 0
    printf "%s: answered right: %.1f %% of the questions of DEV, %.1f %% of TEST.\n", name, 100 * on_dev, 100 * on_test
    exit !(on_dev > 0.9 && on_test > 0.9)
  }' "$folder/$1.json"
}

options=()
fine_tune one_rank "$TRIREME"
if [ -n "${MPIRUN:-}" ]; then
  options=(--tensor-model-parallel-size 2 --global-batch-size 8)
  fine_tune two_ranks $MPIRUN -np 2 "$TRIREME"
  # Sums in another order differ by rounding, and training multiplies differences: only the first losses can agree closely.
  paste "$folder/one_rank.losses" "$folder/two_ranks.losses" | head -n 100 | awk '
    { d = ($1 > $2 ? $1 - $2 : $2 - $1) / $1; if (d > most) most = d }
    END { printf "The losses of the first %d iterations differ by at most %.1e of themselves.\n", NR, most }'
  judge two_ranks || status=$?
fi
judge one_rank && exit "${status:-0}"
