#!/bin/bash
# From a fresh clone to a trained model in about ten minutes on two cores: installs what is missing, builds, takes English
# text, trains a small GPT-2 on two tensor-parallel ranks, saves, goes on as two pipeline stages, and shows what it learned.
# usage: jobs/quickstart.sh [--text FILE]    FILE: UTF-8 text of your own, at least 200 kB; by default the King James Bible
set -euo pipefail
calling_folder=$PWD
cd "$(dirname "$0")/.."
source jobs/packages.sh

text=
case "$#:${1:-}" in
  0:) ;;
  2:--text) text=$(cd "$calling_folder" && realpath -- "$2") ;;
  *) sed -n '2,4s/^# //p' "$0"; exit 2 ;;
esac
if [ -n "$text" ]; then
  [ -f "$text" ] && [ -r "$text" ] || { echo "$text is not a file that can be read." >&2; exit 2; }
  [ "$(wc -l <"$text")" -ge 20 ] || { echo "$text has fewer than 20 lines, the last twentieth of which are held out." >&2; exit 2; }
  [ "$(wc -c <"$text")" -ge 200000 ] || { echo "$text has less than 200 kB: too little to learn from." >&2; exit 2; }
fi

heading() { printf '\n== %s (%d s)\n' "$*" $SECONDS; }
show_and_run() { printf '$'; printf ' %q' "$@"; echo; "$@"; }

heading "Packages"
packages=("${build_packages[@]}")
[ -n "$text" ] || packages+=(bible-kjv bible-kjv-text)
install_packages "${packages[@]}" || { echo "bible-kjv is the text; --text FILE does without." >&2; exit 4; }

heading "Build"
build=build/quickstart
# CUDA kernels take minutes to compile: builds only those for this machine.
if nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
  cuda=(-D TRIREME_CUDA=AUTO -D TRIREME_CUDA_ARCHITECTURES=native)
else
  cuda=(-D TRIREME_CUDA=OFF)
fi
cmake -S . -B $build -G Ninja -D CMAKE_BUILD_TYPE=Release -D TRIREME_TESTS=OFF -D TRIREME_BENCHMARKS=OFF \
  -D CMAKE_UNITY_BUILD=ON "${cuda[@]}" >/dev/null
cmake --build $build --parallel "$(nproc)" | tail -n 1
trireme=$build/trireme

heading "Text"
work=$build/work
rm -rf $work
mkdir -p $work
if [ -z "$text" ]; then
  # The King James Version, one verse per line, without the numbers. According to the package its copyright has expired.
  text=$work/text.txt
  bible -f 'gen1:1-rev22:21' </dev/null | sed 's/^[^ ]* //' >$text
fi
# The last twentieth is held out, for a fair comparison.
lines=$(wc -l <"$text")
head -n $((lines - lines / 20)) "$text" >$work/train.txt
tail -n $((lines / 20)) "$text" >$work/held_out.txt
for part in train held_out; do wc -c $work/$part.txt; done
# Subwords trained on this text: a token is then several bytes, and a step covers more text.
show_and_run $trireme tokenizer train --input $work/train.txt --output $work/tokenizer --vocab-size 2048
tokenizer=(--tokenizer gpt2 --vocab-file $work/tokenizer/vocab.json --merge-file $work/tokenizer/merges.txt)
for part in train held_out; do
  show_and_run $trireme corpus build --input $work/$part.txt --output $work/$part.h5 "${tokenizer[@]}"
done
# tokens_per_byte PART: of that part of the text.
tokens_per_byte() {
  $trireme corpus inspect $work/"$1".h5 --documents 0 |
    awk -v bytes="$(wc -c <$work/"$1".txt)" '$1 == "tokens" { printf "%.9f", $2 / bytes }'
}

# Two ranks share a machine's cores, whatever their number. Open MPI runs as root only where two variables are set.
ranks=(mpirun -np 2 --oversubscribe)
# On one GPU they need the staged communicator: NCCL allows one rank per GPU.
device=()
if $trireme info | awk '/^backend   cuda/ { usable = 1 } /^ +GPU [0-9]+:/ { gpus++ } END { exit !(usable && gpus == 1) }'; then
  device=(--communicator staged)
fi
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

cat >$work/model.ini <<'I'
num-layers = 4
hidden-size = 192
num-attention-heads = 6
seq-length = 128
hidden-dropout = 0
attention-dropout = 0

micro-batch-size = 16
global-batch-size = 16
train-iters = 800
lr = 3e-3
min-lr = 3e-4
lr-decay-style = cosine
lr-warmup-iters = 50
weight-decay = 0.1

eval-interval = 200
eval-iters = 10
log-interval = 25
I
files=(--data-path $work/train.h5 --save $work/checkpoints --metrics-file $work/metrics.jsonl "${device[@]}")

heading "Train on two tensor-parallel ranks, to the middle"
status=0
show_and_run "${ranks[@]}" $trireme train --config $work/model.ini "${files[@]}" --tp 2 --exit-interval 400 || status=$?
[ $status -eq 75 ] || { echo "The first half should have left with 75 (stopped early, saved), but returned $status." >&2; exit 1; }

heading "Go on from the checkpoint, as two pipeline stages"
show_and_run "${ranks[@]}" $trireme train --config $work/model.ini "${files[@]}" --pp 2 --micro-batch-size 4 \
  --load $work/checkpoints

heading "Loss while it trained, in bits per byte"
awk -v tokens_per_byte="$(tokens_per_byte train)" 'function number(name) {
       match($0, "\"" name "\": *[-+.0-9e]+")
       value = substr($0, RSTART, RLENGTH)
       sub(/.*: */, "", value)
       return value
     }
     /"lm_loss"/ {
       sum += number("lm_loss") / log(2) * tokens_per_byte
       n++
       if (number("iteration") % 50 == 0) {
         printf "%5d %5.2f ", number("iteration"), sum / n
         for (k = 0; k < 8 * sum / n; k++) printf "#"
         print ""
         sum = n = 0
       }
     }' $work/metrics.jsonl

heading "The text it has not seen"
show_and_run "${ranks[@]}" $trireme eval --task perplexity --load $work/checkpoints --data-path $work/held_out.h5 \
  --tp 2 "${device[@]}" | tee $work/eval.json
bytes=$(wc -c <$work/held_out.txt)
gzip_bytes=$(gzip -9 <$work/held_out.txt | wc -c)
awk -v bytes="$bytes" -v tokens_per_byte="$(tokens_per_byte held_out)" -v gzip_bytes="$gzip_bytes" '
  { match($0, /"loss": *[.0-9]+/); loss = substr($0, RSTART, RLENGTH); sub(/.*: */, "", loss) }
  END {
    bits = loss / log(2) * tokens_per_byte
    printf "Bits a byte: %.3f by this model, %.3f by gzip -9, of %d bytes.\n", bits, 8 * gzip_bytes / bytes, bytes
    exit bits >= 8 * gzip_bytes / bytes
  }' $work/eval.json || worse=yes

heading "What it writes"
prompt="And it came to pass, that"
[ "$text" = $work/text.txt ] || prompt=$(tail -n 1 $work/train.txt | cut -c 1-40)
show_and_run $trireme generate --load $work/checkpoints --prompt "$prompt" --max-new-tokens 120 --temperature 0.7 --top-k 20

heading "Done"
cat <<I
What to try next:
  $trireme train --help
  jobs/quickstart.sh --text YOUR_FILE
  $trireme generate --load $work/checkpoints --prompt "In the beginning" --max-new-tokens 200 --seed 2
  a larger model, on more ranks: edit $work/model.ini and
    mpirun -np 4 --oversubscribe $trireme train --config $work/model.ini --data-path $work/train.h5 --tp 2 --pp 2
  your own corpus with GPT-2's vocabulary, and a job on a cluster: README.md, "A first real job"
I
[ -z "${worse:-}" ] || { echo "The model is no better than gzip -9 on this text: is it much shorter than the Bible?" >&2; exit 8; }
