#!/bin/bash
# The tests that need a GPU, and the benchmarks, in three phases of at most nine minutes each. Builds nothing: runs the
# programs of a build folder, or of the archive that --pack made of one, on a machine with a GPU, its driver and the CUDA
# libraries (cuBLASLt, NCCL). Neither development packages nor MPI need to be installed there.
# usage: tests/gpu.sh [--phase 1|2|3] [FOLDER]    one phase, or all in order, with the programs of FOLDER
#        tests/gpu.sh --part PART [FOLDER]        one part alone, without a limit
#        tests/gpu.sh --list                      the parts: phase, limit in seconds, part, part beside it
#        tests/gpu.sh --pack FOLDER [BUILD]       makes FOLDER and FOLDER.tar.xz of BUILD (tests/gpu_pack.sh)
# FOLDER is by default the archive that holds this script, or build/release.
# FOLDER/gpu-results has PART.txt for each part, the data that it measured, the products' algorithms, and phase-N.txt: commit,
# machine, command, and result and seconds of each part. Where OUT is set, $OUT/gpu-phase-N.tar.gz has that folder, complete
# after each part. To go on with the next phase on another machine, unpack it there in FOLDER first.
# environment: TRIREME_TEST_SEED (seed of random inputs), TRIREME_GPU_LIMIT (seconds of every part, to try this script),
#   TRIREME_WARP_GROUPS (off: attention without its kernels by warp groups)
# Exit status 1 where a part failed or was ended at its limit. Skipped parts say why.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Phase, limit in seconds, part (tests/gpu_parts.sh), and a part that shares the GPU with it. No more than two processes share
# it, and benchmarks have it for themselves. The limits of a phase add up to 520 s at most.
table='
1  20 info
1 120 kernels shapes
1  30 fp8
1 110 steps
1  10 predicted
1  90 kernel_times
1 140 peer
2 130 training runtime
2 130 program
2  30 ranks
2  60 grids
2  60 nccl
2  60 ncu
2  50 attention
3 120 memcheck_kernels racecheck_kernels
3  90 memcheck_shapes racecheck_shapes
3 110 sweep
3 150 peers
3  30 initcheck_shapes synccheck_shapes
3  20 collectives
'
phases='1 2 3' part=
case ${1:-} in
  --list) printf '%s' "${table#?}" && exit ;;
  --pack) shift && exec bash "$here/gpu_pack.sh" "$@" ;;
  --phase) phases=${2:-} && shift 2 ;;
  --part) part=${2:-} && shift 2 ;;
esac
if [ $# -gt 1 ] || [[ ${1:-} == -* ]] || ! [[ $phases =~ ^([123]|1 2 3)$ ]]; then
  sed -n 's/^# usage/usage/p; s/^#  \( *tests\)/  \1/p' "$here/gpu.sh" >&2
  exit 2
fi
folder=${1:-$here}
[ $# -gt 0 ] || [ -x "$here/trireme" ] || folder=$here/../build/release
folder=$(cd "$folder" && pwd) || exit 2
[ -x "$folder/trireme" ] || { echo "$folder/trireme is missing: cmake --build --preset release, or name a folder" >&2; exit 2; }

# running_test FILE: the test that this output began last, if it has not ended.
running_test() { sed -nE 's/^\[ RUN      \] //p; s/^\[ +(OK|FAILED|SKIPPED) +\].*//p' "$1" | tail -n 1; }

source "$here/gpu_environment.sh"
results=$folder/gpu-results
mkdir -p "$results" || exit 1
if [ -n "$part" ]; then
  source "$here/gpu_parts.sh"
  run_part "$part"
  exit
fi
[ -z "${OUT:-}" ] || [ -w "$OUT" ] || { echo "OUT=$OUT is no folder that can be written: make it, or leave OUT unset" >&2; exit 2; }
export TRIREME_TEST_SEED=${TRIREME_TEST_SEED:-$((RANDOM * 32768 + RANDOM))}
if [ -f "$folder/build.txt" ]; then build=$(cat "$folder/build.txt"); else build=$("$folder/trireme" info 2>&1 | head -n 1); fi
gpu=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; wait; exit 143' INT TERM HUP

# end_session ID: kills its processes, also those in groups of their own, which timeout does not reach.
end_session() {
  cat /proc/[0-9]*/stat 2>/dev/null | sed -n "s/^\([0-9]*\) (.*) [A-Z] [0-9]* [0-9]* $1 .*/\1/p" | xargs -r kill -9 2>/dev/null
}
failed_test='^(\[  FAILED  \].*ms\)$|FAILED: )'
# tests_of FILE: numbers of the tests that a part ran.
tests_of() {
  local passed failed
  passed=$(grep -cE '^(\[       OK|passed: )' "$1") failed=$(grep -cE "$failed_test" "$1")
  [ $((passed + failed)) -eq 0 ] || echo "$passed tests passed, $failed failed"
}
# timed PHASE LIMIT PART: runs the part in a session of its own, adds its line to the table, and writes the tar.
timed() {
  local file=$results/$3.txt begun=$SECONDS code result note test
  echo "# $build, $(uname -n), ${gpu:-no nvidia-smi}, $(date -u +%FT%RZ): tests/gpu.sh --part $3" >"$file"
  # The last two seconds are for programs that end at SIGTERM.
  setsid timeout -k 2 $(($2 - 2)) bash "$here/gpu.sh" --part "$3" "$folder" >>"$file" 2>&1 </dev/null &
  session=$!
  trap 'end_session $session' EXIT
  trap 'exit 143' TERM
  wait $session
  code=$?
  end_session $session
  note=$(tests_of "$file") test=$(running_test "$file")
  case $code in
    0) result=passed ;;
    77) result=skipped note=$(tail -n 1 "$file") ;;
    124 | 137) result=TIMEOUT note="ended at its limit of $2 s${test:+ in $test}${note:+; $note}" ;;
    *) result=FAILED note="exit status $code${note:+; $note}" ;;
  esac
  {
    flock 9
    case $result in TIMEOUT | FAILED) grep -E "$failed_test" "$file" | head -n 20; tail -n 15 "$file" ;; esac
    printf '%-8s %4s s  %-18s %s\n' $result $((SECONDS - begun)) "$3" "$note" | tee -a "$results/phase-$1.txt"
    [ -z "${OUT:-}" ] || write_tar "$OUT/gpu-phase-$1.tar.gz" ||
      echo "FAILED: writing $OUT/gpu-phase-$1.tar.gz: $(head -n 1 "$work/tar")" | tee -a "$results/phase-$1.txt"
  } 9>>"$work/lock"
}
# write_tar FILE: replaces it at once. A part that is still running may change its files meanwhile (exit status 1 of tar).
write_tar() {
  { tar -C "$folder" -czf "$1.new" gpu-results || [ $? -eq 1 ]; } 2>"$work/tar" && mv "$1.new" "$1" 2>>"$work/tar"
}

for phase in $phases; do
  {
    echo "$build"
    echo "$(uname -n), $(nproc) cores ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)), $(date -u +%FT%RZ)"
    echo "${gpu:-no nvidia-smi}"
    echo "TRIREME_TEST_SEED=$TRIREME_TEST_SEED tests/gpu.sh --phase $phase"
  } | tee "$results/phase-$phase.txt"
  while read -r of limit parts; do
    [ "$of" = "$phase" ] || continue
    for part in $parts; do timed "$phase" "${TRIREME_GPU_LIMIT:-$limit}" "$part" & done
    wait
  done <<<"$table"
done
status=0
for phase in $phases; do
  echo
  cat "$results/phase-$phase.txt"
  ! grep -qE '^(FAILED|TIMEOUT)' "$results/phase-$phase.txt" || status=1
done
exit $status
