#!/bin/bash
# Kills exports again and again with SIGKILL, at random moments, on one rank and on two, and continues them. Half of
# them go over a finished export in another type. After each kill the files with their final names must be whole, and
# config.json be there only beside all of one export. An export that was continued must be an undisturbed one byte by
# byte, and keep the files that it found. Imports are killed likewise: what they leave is no checkpoint or a whole one.
# usage: tests/kill_export.sh KILLS [TRIREME [MPIEXEC]]: so many of exports, and as many of imports
kills=${1:?usage: tests/kill_export.sh KILLS [TRIREME [MPIEXEC]]}
here=$(dirname "$(realpath "$0")")
set -- "${2:-$here/../build/release/trireme}" "${3:-mpirun}"
if [ "$(id -u)" -eq 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none TRIREME_THREADS=1
source "$here/e2e/functions.sh"

# 340 MB of weights in fp32, and in bf16 half of it, in as many files.
model=(--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 64)
export_fp32=(checkpoint export --load saved --dtype fp32 --max-shard-size 0.03)
export_bf16=(checkpoint export --load saved --dtype bf16 --max-shard-size 0.015)
declare -A seconds # time of an undisturbed export or import on so many ranks

# start RANKS ARGUMENT...: trireme, as the job $job; out and err are its output.
start() {
  local ranks=$1
  shift
  if [ "$ranks" -eq 1 ]; then "$trireme" "$@" >out 2>err & else "$mpiexec" -n "$ranks" "$trireme" "$@" >out 2>err & fi
  job=$!
}

# undisturbed KIND RANKS ARGUMENT...: must succeed; its time becomes that of the kind.
undisturbed() {
  local kind=$1 begun=$EPOCHREALTIME
  shift
  done_by "$@"
  seconds[$kind-$1]=$(awk -v begun="$begun" -v ended="$EPOCHREALTIME" 'BEGIN { print ended - begun }')
}

# check_kept: the files that were found whole are still the same ones.
check_kept() {
  local lost
  lost=$(comm -23 <(sort found) <(stat -c '%i %n' exported/* 2>/dev/null | sort))
  [ -z "$lost" ] || failed "whole files were not kept: $lost"
}

# differs_from FOLDER: the export has other files, but for what a killed job leaves.
differs_from() { ! diff -rq -x '*.partial-*' -x '*.new' -x .lock exported "$1" >out; }

# check_whole: every file of the export under its final name is one of fp32 or of bf16, and config.json beside others of
# its own export alone.
check_whole() {
  local file name
  for file in exported/*; do
    name=${file#*/}
    [ -e "$file" ] || continue # the folder is empty
    case $name in
    *.partial-* | *.new) cut_short=$((cut_short + 1)) ;;
    *) cmp -s "$file" "fp32/$name" || cmp -s "$file" "bf16/$name" || failed "after kill $kill $name is not whole" ;;
    esac
  done
  if [ ! -e exported/config.json ]; then return; fi
  beside_config=$((beside_config + 1))
  if differs_from fp32 && differs_from bf16; then
    failed "after kill $kill config.json is there beside files of no or of another export"
  fi
}

make_corpus corpus 1
done_by 1 train "${model[@]}" --data-path corpus.h5 --global-batch-size 1 --train-iters 0 --lr 0.01 --eval-iters 0 \
  --no-save-optim --save saved
for ranks in 1 2; do
  undisturbed fp32 $ranks "${export_fp32[@]}" --output fp32.$ranks
  undisturbed bf16 $ranks "${export_bf16[@]}" --output bf16.$ranks
done
for type in fp32 bf16; do
  check "exports in $type on one rank and on two are the same" diff -rq $type.1 $type.2
  rm -r $type.2
  mv $type.1 $type
done
files=$(find fp32 -name '*.safetensors' | wc -l)
check "there are $files files of weights, in both types as many" [ "$files" = "$(find bf16 -name '*.safetensors' | wc -l)" ]

mkdir exported
type=fp32 cut_short=0 beside_config=0 finished=0 kept=0 kill=0
while ((kill < kills)); do
  ranks=$((1 + RANDOM % 2))
  touch started
  for file in exported/*.safetensors; do
    if cmp -s "$file" "$type/${file#*/}"; then stat -c '%i %n' "$file"; fi
  done >found
  whole=$(wc -l <found)
  arguments="export_${type}[@]"
  start $ranks "${!arguments}" --output exported
  if ((RANDOM % 4 == 0)); then # while it writes the small files, which are the last
    while kill -0 $job 2>/dev/null && [ ! exported/model.safetensors.index.json -nt started ]; do sleep 0.002; done
    pause 0.03
  else
    pause "${seconds[$type-$ranks]}"
  fi
  if kill -0 $job 2>/dev/null; then
    kill=$((kill + 1))
    kill_job $job $ranks
    check_whole
    check_kept
  else
    wait $job || failed "an export ended with $? by itself"
    check_kept
    grep -q " $((files - whole)) files\? of weights written, $whole kept," err || failed "not $whole of $files files are kept"
    diff -rq "$type" exported >out || failed "an export that was continued is not the undisturbed one"
    kept=$((kept + whole)) finished=$((finished + 1))
    type=$([ $type = fp32 ] && echo bf16 || echo fp32)
    if ((RANDOM % 2 == 0)); then rm exported/*; fi
  fi
done
passed "exports killed $kills times, $cut_short files cut short; config.json there after $beside_config kills"
passed "$finished exports finished between kills, and kept the $kept files that they found whole"
rm -f exported/model-00002-of-*
for type in fp32 bf16; do
  arguments="export_${type}[@]"
  for ranks in 2 1; do done_by $ranks "${!arguments}" --output exported; done
  check "a finished export in $type is kept whole" grep -q " 0 files of weights written, $files kept," err
  check "after $kills kills the export in $type is the undisturbed one, and nothing is left beside it" diff -rq $type exported
done
rm -r exported bf16

for ranks in 1 2; do undisturbed import $ranks checkpoint import --input fp32 --output imported.$ranks; done
rm -r imported.1 imported.2
complete=0 absent=0 finished=0
for ((kill = 0; kill < kills;)); do
  ranks=$((1 + RANDOM % 2))
  start $ranks checkpoint import --input fp32 --output imported
  pause "${seconds[import-$ranks]}"
  if kill -0 $job 2>/dev/null; then
    kill=$((kill + 1))
    kill_job $job $ranks
    if [ -n "$(find imported -maxdepth 1 -name 'step-*' 2>/dev/null)" ]; then complete=1; fi
    if [ $complete -eq 1 ]; then
      done_by 1 checkpoint verify imported
    else
      absent=$((absent + 1))
    fi
  else
    wait $job || failed "an import ended with $? by itself"
    done_by 1 checkpoint verify imported
    finished=$((finished + 1)) complete=1
    if ((finished % 2 == 0)); then # every second one replaces a checkpoint
      rm -r imported
      complete=0
    fi
  fi
done
passed "imports killed $kills times: no checkpoint after $absent kills, a whole one after the others"
done_by 2 checkpoint import --input fp32 --output imported
done_by 1 checkpoint verify imported
check "nothing is left of imports that were cut short" [ -z "$(find imported -name '.tmp*' -o -name '.trash*')" ]
done_by 2 checkpoint export --load imported --output again --max-shard-size 0.03
for file in fp32/*.safetensors; do echo "$(data_of "$file") ${file#*/}"; done >digests
for file in again/*.safetensors; do echo "$(data_of "$file") ${file#*/}"; done >digests.again
check "after $kills kills the import has the weights of its input" cmp digests digests.again
