#!/bin/bash
# Measures twenty layouts of a small GPT-2 on this machine's CPU, and predicts each from earlier calibration
# measurements. Prints a table: the median step, the prediction, the error; and whether the memory of every rank matches.
#
# usage: bench/planner/cpu_layouts.sh [BUILD_FOLDER] [RESULT_FOLDER]     default build/release, a temporary folder
# RESULT_FOLDER keeps the calibrations, and all measurements and predictions in layouts.jsonl.
# Links of 1 Gbit/s need root and bench/scaling/namespaces.sh, or a similar script named by NAMESPACES.
# environment: STEPS (12, of which the first two do not count), LAYOUTS (a regular expression of names)
set -euo pipefail

source "$(dirname "$0")/../common.sh"
use_build "${1:-}" trireme kernels_calibration collectives_bench layout_bench
steps=${STEPS:-12} layouts=${LAYOUTS:-.}
results=${2:-$work}
mkdir -p "$results"
cores=$(nproc)
namespaces=${NAMESPACES:-$root/bench/scaling/namespaces.sh}

# on RANKS COMMAND...: quietly, unless it fails; with `link` set, each rank on a separate node with a link of that rate
link=
on() {
  local launch=(mpirun --bind-to none --oversubscribe -np "$1")
  [ -z "$link" ] || launch=(env TRIREME_THREADS=1 bash "$namespaces" --nodes "$1" --ranks-per-node 1 --rate "$link")
  "${launch[@]}" "${@:2}" 2> "$work/log" || { cat "$work/log" >&2; return 1; }
}

# calibrate ROUNDS NAME RANKS...: kernels of ranks that have a core each, and collectives; of the rounds the median counts
calibrate() {
  local ranks round
  for ((round = 0; round < $1; ++round)); do
    for ranks in "${@:3}"; do
      [ "$ranks" -gt "$cores" ] || on "$ranks" "$build/kernels_calibration" >> "$results/$2-kernels.jsonl"
      [ "$ranks" -eq 1 ] ||
        on "$ranks" "$build/collectives_bench" --backend cpu --largest-mb 16 --runs 30 >> "$results/$2-collectives.jsonl"
    done
  done
}

# layout NAME RANKS OPTION...: in micro-batches of $micro_batch samples. Where steps differ by more than a tenth something
# else ran on the machine: it is measured again, at most twice, and the run with the least median counts.
micro_batch=2 calibration=local
layout() {
  [[ $1 =~ $layouts ]] || return 0
  local attempt
  for attempt in 1 2 3; do
    on "$2" "$build/layout_bench" --layout "$1" --calibrate "$results/$calibration"-{kernels,collectives}.jsonl \
      --num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 192 --vocab-size 3000 \
      --global-batch-size 8 --micro-batch-size "$micro_batch" --lr 1e-4 --train-iters "$steps" --eval-iters 0 \
      --backend cpu --data-path "$work/corpus.h5" --split 1 "${@:3}" > "$work/attempt$attempt"
    awk -F'[][,]' '/"step_ms"/ { match($0, /"step_ms": \[[^]]*/); split(substr($0, RSTART + 12, RLENGTH), ms, ", "); exit (ms[1] > 1.1 * ms[2]) }' \
      "$work/attempt$attempt" && break
  done
  cat "$work"/attempt* | sort -t '[' -k 2 -g | head -1 >> "$results/layouts.jsonl"
  rm "$work"/attempt*
}

run_layouts() {
  layout "one rank" 1
  micro_batch=8 layout "one rank, micro-batch 8" 1
  layout "one rank, full recomputation" 1 --recompute-granularity full
  layout "TP 2" 2 --tp 2
  layout "TP 2, SP" 2 --tp 2 --sequence-parallel
  layout "TP 2, SP, selective recomputation" 2 --tp 2 --sequence-parallel --recompute-granularity selective
  layout "PP 2, GPipe" 2 --pp 2 --schedule gpipe
  layout "PP 2, 1F1B" 2 --pp 2
  layout "PP 2, VPP 2, interleaved" 2 --pp 2 --vpp 2
  layout "PP 2, zero bubble" 2 --pp 2 --schedule zero-bubble
  micro_batch=1 layout "PP 2, micro-batch 1" 2 --pp 2
  layout "CP 2" 2 --cp 2
  layout "DP 2" 2
  layout "DP 2, overlapped reduction" 2 --overlap-grad-reduce --ddp-bucket-size 1000000
  layout "DP 2, ZeRO 1" 2 --use-distributed-optimizer
  layout "DP 2, ZeRO 2" 2 --data-parallel-sharding-strategy optim_grads
  layout "TP 2, PP 2" 4 --tp 2 --pp 2
  layout "TP 2, DP 2, SP" 4 --tp 2 --sequence-parallel
  layout "PP 2, DP 2, ZeRO 1" 4 --pp 2 --use-distributed-optimizer
  layout "DP 4" 4
}

run_slow_layouts() {
  layout "DP 2, 1 Gbit/s" 2
  layout "DP 2, overlapped reduction, 1 Gbit/s" 2 --overlap-grad-reduce --ddp-bucket-size 1000000
  layout "PP 2, 1F1B, 1 Gbit/s" 2 --pp 2
  layout "TP 2, SP, 1 Gbit/s" 2 --tp 2 --sequence-parallel
}

bash "$root/bench/step/gpu.sh" --tokens 200000 3000 > "$work/tokens.bin"
"$build/trireme" corpus import "$work/tokens.bin" --tokenizer null --vocab-size 3000 --output "$work/corpus.h5" 2> "$work/log"
rm -f "$results"/{local,slow}-{kernels,collectives}.jsonl "$results/layouts.jsonl"
calibrate 3 local 1 "$cores" $((2 * cores))
run_layouts
if [ -f "$namespaces" ] && bash "$namespaces" --nodes 2 --ranks-per-node 1 true 2> /dev/null; then
  link=1gbit calibration=slow
  calibrate 1 slow 2
  run_slow_layouts
else
  echo "links are not slowed: that needs root, network namespaces and $namespaces" >&2
fi

# Fields of a line: name, median, least, greatest, prediction, memory as predicted.
sed -E 's/.*"layout": "([^"]*)".*"step_ms": \[([0-9.]+), ([0-9.]+), ([0-9.]+)\], "predicted_ms": ([0-9.]+),.*"memory": (\[[^]]*\]), "predicted_memory": (\[[^]]*\]).*/\1|\2|\3|\4|\5|\6|\7/' "$results/layouts.jsonl" |
  awk -F'|' '
    BEGIN { printf "| layout | measured ms | least | greatest | predicted ms | error | memory |\n| --- | --- | --- | --- | --- | --- | --- |\n" }
    { error = 100 * ($5 / $2 - 1); size = error < 0 ? -error : error; sum += size; worst = size > worst ? size : worst; exact += $6 == $7
      printf "| %s | %.0f | %.0f | %.0f | %.0f | %+.1f %% | %s |\n", $1, $2, $3, $4, $5, error, $6 == $7 ? "exact" : $6 " predicted " $7 }
    END { printf "\nerror of the step: mean %.1f %%, worst %.1f %%; memory exact in %d of %d\n", sum / NR, worst, exact, NR }'
