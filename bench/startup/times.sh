#!/bin/bash
# Measures the time from exec to the first step of `train --load`, and the bandwidth of the load beside that of the disk, read by
# as many processes at the same time, with cold caches. Prints a table for bench/results, with the machine's load.
#
# usage: bench/startup/times.sh [REPEATS]        default 3
# environment: BUILD (default build/release), RANKS (2), TMPDIR (a folder on the disk to measure)
set -euo pipefail

source "$(dirname "$0")/../common.sh"
use_build "${BUILD:-}" trireme
trireme=$build/trireme
ranks=${RANKS:-2}
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
cd "$work"
for i in $(seq 2000); do echo "{\"text\": \"the quick brown fox number $i jumps over the lazy dog\"}"; done >text.jsonl
"$trireme" corpus build --input text.jsonl --output corpus.h5 --tokenizer bytes --append-eod 2>log
# 85 million parameters: 1 GB of weights and moments, divided over the ranks.
run=(--data-path corpus.h5 --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 64 --lr 0.001
  --global-batch-size 1 --eval-iters 0 --log-interval 1 --tp "$ranks")

trained() { # trained OPTION...: the lines of the log, each after the time at which it was written
  mpirun -np "$ranks" "$trireme" train "${run[@]}" "$@" 2>&1 |
    while IFS= read -r line; do printf '%s %s\n' "$EPOCHREALTIME" "$line"; done >log || { cat log >&2; return 1; }
}
cool() { for file in saved/step-*/*; do dd of="$file" oflag=nocache conv=notrunc,fdatasync count=0 2>/dev/null; done; }
seconds_since() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { print to - from }'; }

trained --train-iters 0 --save saved
bytes=$(cat saved/step-*/rank-*.h5 | wc -c)
load=$(cut -d ' ' -f 1-3 /proc/loadavg)
for _ in $(seq "${1:-3}"); do
  cool
  began=$EPOCHREALTIME
  for file in saved/step-*/rank-*.h5; do dd if="$file" of=/dev/null bs=8M 2>/dev/null & done
  wait
  seconds_since "$began" >>disk
  cool
  began=$EPOCHREALTIME
  TIMEFORMAT='%U %S'
  { time trained --train-iters 1 --load saved --metrics-file metrics.jsonl; } 2>processor
  awk '{ print $1 + $2 }' processor >>processor_s
  awk -v began="$began" '/ 1\/1 / { print $1 - began }' log >>first
  sed -n 's/.*"load_ms": *\([0-9.]*\).*/\1/p' metrics.jsonl.lives | awk '{ print $1 / 1000 }' >>load
  sed -n 's/.*"elapsed_ms": *\([0-9.]*\).*/\1/p' metrics.jsonl | awk '{ print $1 / 1000 }' >>step
  rm metrics.jsonl*
done
awk -v bytes="$bytes" '{ print bytes / 1e6 / $1 }' disk >disk_rate
awk -v bytes="$bytes" '{ print bytes / 1e6 / $1 }' load >load_rate
paste load_rate disk_rate | awk '{ print 100 * $1 / $2 }' >share
paste first load step | awk '{ print $1 - $2 - $3 }' >rest
echo "$ranks ranks, $((bytes / 1000000)) MB of checkpoint, load average $load before"
echo "| | median | least | greatest |"
echo "| --- | ---: | ---: | ---: |"
row() { printf '| %s | %.4g | %.4g | %.4g |\n' "$1" $(summary <"$2"); }
row "exec to the end of the first step, s" first
row "of it the load, s" load
row "the first step, s" step
row "the rest, s" rest
row "processor time of all ranks, s" processor_s
row "load, MB/s" load_rate
row "the disk, MB/s" disk_rate
row "load as a share of the disk, %" share
