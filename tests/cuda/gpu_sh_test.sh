#!/bin/bash
# The phases of tests/gpu.sh, with the program on the fakes of CUDA's libraries and stand-ins for everything else that would
# use the GPU: order, limits, processes at once, what $OUT has after each part, the products' algorithms, exit status.
# usage: gpu_sh_test.sh TRIREME    LD_LIBRARY_PATH names the fakes
set -uo pipefail
trireme=$1
gpu=$(cd "$(dirname "$0")/.." && pwd)/gpu.sh
scratch=$(mktemp -d)
export scratch
trap 'rm -rf "$scratch"' EXIT
failures=0
# check WHAT COMMAND...
check() {
  if "${@:2}"; then
    echo "passed: $1"
  else
    echo "FAILED: $1"
    failures=$((failures + 1))
  fi
}

# A program that uses the GPU: notes when it begins and ends in uses.log, and which parts the tar has at its beginning.
mkdir -p "$scratch"/{tools,one/e2e,one/bench/step,one/bench/peers}
cat >"$scratch/stand_in" <<'P'
#!/bin/bash
name=${0##*/}
use() { echo "$1 $name$([ $# -lt 2 ] || echo " $2")" >>"$scratch/uses.log"; }
kept=$(tar -xOzf "$OUT/gpu-phase-$phase.tar.gz" "gpu-results/phase-$phase.txt" 2>/dev/null | awk '$3 == "s" { print $4 }' | sort | paste -sd,)
case "$name $*" in
  cuda_gpu_kernels_test*gtest_list_tests*) printf '%s.\n  A\n  B\n' Norm Kernels/FlashAttention Suite && exit ;;
  *gtest_list_tests*) echo Suite. && exit ;;
esac
use begin "$kept"
echo "$phase $name ${TRIREME_WARP_GROUPS:-on}" >>"$scratch/warp_groups.log"
arguments=$*
trap 'use end' EXIT
cache=
while [ $# -gt 0 ]; do
  [ "$1" != --gemm-cache ] || cache=$2
  [ "$1" != --json ] || echo '{}' >"$2"
  shift
done
[ -z "$cache" ] || echo "$name $(wc -l <"$cache" 2>/dev/null)" >>"$scratch/caches.log"
case $phase.$name in
  1.cuda_gpu_*) # ends after the other has begun
    for _ in $(seq 50); do [ "$(grep -c begin "$scratch/uses.log")" -lt 2 ] || break; sleep 0.1; done
    [ "$name" != cuda_gpu_shapes_test ] || { echo "[  FAILED  ] Suite.Test (1 ms)" && exit 1; }
    case $arguments in
      *filter=Kernels/FlashAttention.\*) # B hangs
        printf '%s\n' "[ RUN      ] Kernels/FlashAttention.A" "[       OK ] Kernels/FlashAttention.A (1 ms)" \
          "[ RUN      ] Kernels/FlashAttention.B"
        exit 124
        ;;
      *filter=Kernels/FlashAttention.\*-Kernels/FlashAttention.A:Kernels/FlashAttention.B)
        echo "[       OK ] Kernels/FlashAttention.C (1 ms)" && exit
        ;;
      *filter=Norm.\*) # A takes the GPU from B
        printf '%s\n' "[ RUN      ] Norm.A" "cudaEventQuery failed: (cudaErrorIllegalAddress)" "[  FAILED  ] Norm.A (1 ms)" \
          "[ RUN      ] Norm.B" "cudaMalloc failed: (cudaErrorIllegalAddress)" "[  FAILED  ] Norm.B (1 ms)"
        exit 1
        ;;
      *filter=Norm.\*-Norm.A) echo "[       OK ] Norm.B (1 ms)" && exit ;;
    esac
    echo "[       OK ] Suite.Test (1 ms)"
    ;;
  2.cuda_gpu_training_test | 3.step_gpu_bench) # hangs, in a process group of its own
    echo "[ RUN      ] Suite.Hangs"
    timeout 60 bash -c 'trap "" TERM; echo $$ >"$scratch/hung"; while :; do sleep 0.1; done'
    ;;
  2.cuda_gpu_ranks_test)
    [ -z "${NCCL_HOSTID:-}" ] || { echo "NCCL: ncclCommInitRank failed: invalid usage" && exit 1; }
    ;;
  *.step_gpu_bench) echo '{"gpu": "fake"}' ;;
esac
P
chmod +x "$scratch/stand_in"
for program in cuda_gpu_{,kernels_,shapes_,training_,ranks_,grid_}test {kernels,step}_gpu_bench collectives_bench; do
  cp "$scratch/stand_in" "$scratch/one/$program"
done
cp "$scratch/stand_in" "$scratch/one/e2e/gpu_test.sh"
touch "$scratch/one/bench/peers/attention_pytorch.py"
ln -s "$(realpath "$trireme")" "$scratch/one/trireme"
printf '#!/bin/bash\necho "$*"\n' >"$scratch/one/step_predict"
# The program trains on the fakes, and keeps the algorithms of its products.
cat >"$scratch/one/bench/step/gpu.sh" <<'P'
cd "$(mktemp -d -p "$scratch")" || exit
echo "$phase peer ${TRIREME_WARP_GROUPS:-on}" >>"$scratch/warp_groups.log"
echo '{"text": "the ship rows"}' >text.jsonl
"$1/trireme" corpus build --input text.jsonl --output corpus.h5 --tokenizer bytes --append-eod &&
  "$1/trireme" train --num-layers 1 --hidden-size 16 --num-attention-heads 1 --seq-length 8 --data-path corpus.h5 --lr 0.01 \
    --train-iters 1 --global-batch-size 1 --eval-iters 0 --no-selftest --gemm-cache "$GEMM_CACHE"
P
# Tools of the machine.
printf '#!/bin/bash\n[ "$1" != -L ] || echo "GPU 0: fake"\n' >"$scratch/tools/nvidia-smi"
cat >"$scratch/tools/mpirun" <<'P'
#!/bin/bash
for rank in $(seq "$2"); do OMPI_COMM_WORLD_RANK=$rank "${@:3}" & done
wait -n && wait -n
P
printf '#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\n' >"$scratch/tools/python3"
cat >"$scratch/tools/ncu" <<'P'
#!/bin/bash
echo "$*" >>"$scratch/ncu.log"
while [ $# -gt 0 ]; do
  [ "$1" != --export ] || touch "$2.ncu-rep"
  case $1 in */kernels_gpu_bench) exec "$@" ;; esac
  shift
done
P
cat >"$scratch/tools/compute-sanitizer" <<'P'
#!/bin/bash
while [[ $1 != /* ]]; do shift; done
exec "$@"
P
chmod +x "$scratch"/tools/* "$scratch/one/step_predict"
export PATH=$scratch/tools:$PATH CUDA_HOME=$scratch OUT=$scratch/out
mkdir "$OUT"

# run PHASE FOLDER: its table goes to the file `table`, the exit status to $code.
run() {
  export phase=$1
  : >"$scratch/uses.log"
  bash "$gpu" --phase "$1" "$scratch/$2" >"$scratch/printed" 2>&1
  code=$?
  sed -n '/^$/,$p' "$scratch/printed" >"$scratch/table"
}
parts() { awk '$3 == "s" { print $4 }' "$scratch/table" | paste -sd' '; }
# line PATTERN: the table has it.
line() { grep -qE "^$1" "$scratch/table" || { cat "$scratch/printed" && return 1; }; }
kept_before() { [ "$(awk -v name="$1" '$1 == "begin" && $2 == name { print $3; exit }' "$scratch/uses.log")" = "$2" ]; }
# most_at_once NUMBER [PROGRAM]: greatest number of uses of the GPU at once; a benchmark is the only one. PROGRAM, which was
# killed, is left out.
most_at_once() {
  awk -v most="$1" -v killed="${2:-}" '$2 == killed { next }
    $1 == "begin" { if (++now > top) top = now; if ($2 ~ /(kernels|step)_gpu_bench/ && now > 1) shared = 1 }
    $1 == "end" { --now } END { exit shared || top > most }' "$scratch/uses.log"
}
# Returns whether the process that hung has ended.
ended() { [ -s "$scratch/hung" ] && ! grep -qs '^State:.[^Z]' "/proc/$(cat "$scratch/hung")/status"; }
fails() { ! "$@"; }

check "the limits of a phase are 520 s at most" awk '{ sum[$1] += $2 } END { for (p in sum) if (sum[p] > 520) exit 1; exit length(sum) != 3 }' \
  <(bash "$gpu" --list)
bash "$gpu" --phase 4 >"$scratch/printed" 2>&1
check "another phase is refused, with the usage" [ $?.$(grep -c usage "$scratch/printed") = 2.1 ]

OUT=$scratch/missing bash "$gpu" --phase 1 "$scratch/one" >"$scratch/printed" 2>&1
check "so is a folder OUT that is missing" [ $?.$(grep -c "OUT=.*missing is no folder" "$scratch/printed") = 2.1 ]

run 1 one
check "phase 1: a failed test is exit status 1" [ $code -eq 1 ]
check "the table has the parts" [ "$(parts | tr ' ' '\n' | sort | paste -sd' ')" = "fp8 info kernel_times kernels peer predicted shapes steps" ]
check "the commit and the machine are named" line 'trireme +[0-9]'
check "the test that failed is counted" line 'FAILED .* shapes +exit status 1; 0 tests passed, 1 failed'
check "and so are those that passed" line 'passed .* fp8 +1 tests passed, 0 failed'
check "the tests after one that took the GPU or hung run" line 'FAILED .* kernels +exit status 1; 4 tests passed, 4 failed'
check "both are named" [ "$(grep '^FAILED: ' "$scratch/one/gpu-results/kernels.txt" | paste -sd';')" = \
  "FAILED: Norm.A: cudaErrorIllegalAddress;FAILED: Kernels/FlashAttention.B: ended at its limit of 30 s" ]
check "after it attention by warp groups is off, also in benchmarks" [ "$(grep -v shapes "$scratch/warp_groups.log" | uniq | paste -sd' ')" = \
  "1 cuda_gpu_kernels_test on 1 cuda_gpu_kernels_test off 1 cuda_gpu_test on 1 step_gpu_bench off 1 kernels_gpu_bench off 1 peer off" ]
check "the program finds the GPU and trains on it" [ "$(grep -cE '^passed .* (info|peer) ' "$scratch/table")" -eq 2 ]
check "at most two processes share the GPU, and benchmarks have it for themselves" most_at_once 2
check "two of them at once" fails most_at_once 1
check "the tar has what ended before, at the first benchmark" kept_before step_gpu_bench fp8,info,kernels,shapes
check "and at the next one" kept_before kernels_gpu_bench fp8,info,kernels,predicted,shapes,steps

# Another machine gets the programs, and what the tar has.
mkdir "$scratch/two"
cp -a "$scratch"/one/[^g]* "$scratch/two"
tar -xzf "$OUT/gpu-phase-1.tar.gz" -C "$scratch/two"
algorithms=$(wc -l <"$scratch/two/gpu-results/gemm_algorithms")
check "the products' algorithms are in the tar" [ "$algorithms" -gt 0 ]
: >"$scratch/caches.log"
TRIREME_GPU_LIMIT=5 run 2 two
check "phase 2: a part that hangs is exit status 1" [ $code -eq 1 ]
check "it is ended at its limit" line 'TIMEOUT +[3-5] s +training +ended at its limit of 5 s in Suite.Hangs'
check "with its processes" ended
check "the others run, in order" [ "$(parts)" = "runtime training program ranks grids nccl ncu attention" ]
check "all of them pass" [ "$(grep -c ^passed "$scratch/table")" -eq 6 ]
check "NCCL's refusal is the reason of a part that is skipped" line 'skipped .* nccl +NCCL refuses two ranks on one GPU: .*invalid usage'
check "at most two processes share the GPU" most_at_once 2 cuda_gpu_training_test
check "the tar has what ended before" kept_before gpu_test.sh runtime,training
check "the algorithms come back in" [ "$(sort -u "$scratch/caches.log")" = "kernels_gpu_bench $algorithms" ]
check "ncu has fifteen kernels" awk -F'[()]' '/--kernel-name/ { seen = split($2, kernels, "|") } END { exit seen != 15 }' "$scratch/ncu.log"
check "the tar of phase 2 has phase 1, too" tar -tzf "$OUT/gpu-phase-2.tar.gz" gpu-results/phase-1.txt gpu-results/kernels.jsonl \
  gpu-results/ncu.txt gpu-results/kernels.ncu-rep gpu-results/attention.jsonl

# A call that is ended within the sweep.
rm "$scratch/hung"
run 3 two &
for _ in $(seq 100); do [ ! -s "$scratch/hung" ] || break; sleep 0.1; done
pkill -TERM -P $! # gpu.sh
wait
check "phase 3: a call that is ended leaves no processes" ended
tar -xzf "$OUT/gpu-phase-3.tar.gz" -C "$scratch/one" gpu-results/phase-3.txt
check "and the parts that ended before" [ "$(grep -c ^passed "$scratch/one/gpu-results/phase-3.txt")" -eq 4 ]
rm "$scratch/tools/compute-sanitizer" "$scratch/two/step_gpu_bench"
cp /bin/true "$scratch/two/step_gpu_bench"
OUT='' run 3 two
check "a part that is skipped is no failure" [ $code -eq 0 ]
check "its reason is in the table" [ "$(grep -c '^skipped .*check_.* there is no compute-sanitizer here$' "$scratch/table")" -eq 6 ]

# A benchmark on which the GPU fails (exit status 7), and one with a case that fails (1), by kernels that can be kept off.
cat >"$scratch/two/step_gpu_bench" <<'P'
#!/bin/bash
echo "{\"warp groups\": \"${TRIREME_WARP_GROUPS:-on}\"}"
[ -n "${TRIREME_WARP_GROUPS:-}" ] || exit "$fault"
P
# sweep FAULT: exit status of the part, and the lines that it kept.
sweep() {
  fault=$1 bash "$gpu" --part sweep "$scratch/two" >"$scratch/printed" 2>&1
  echo "$? $(cut -d'"' -f4 "$scratch/two/gpu-results/sweep.jsonl" | paste -sd' ')"
}
check "steps on which the GPU failed are measured again without these kernels, and fail" [ "$(sweep 7)" = "7 on off" ]
check "they are not where a case failed alone" [ "$(sweep 1)" = "1 on" ]

# Steps beside PyTorch's, of a program that fails without --no-selftest, or always.
mkdir "$scratch/three"
cat >"$scratch/three/trireme" <<'P'
#!/bin/bash
metrics='' untested=no
while [ $# -gt 0 ]; do
  [ "$1" != --no-selftest ] || untested=yes
  [ "$1" != --metrics-file ] || metrics=$2
  shift
done
[ -n "$metrics" ] || exit 0
[ $untested = yes ] && [ "$fails" != always ] || { echo "the GPU hung" && exit 7; }
for _ in 1 2 3; do echo '{"tokens_per_second": 200}'; done >"$metrics"
P
printf '#!/bin/bash\n[[ ${1:-} != *.py ]] || echo 100\n' >"$scratch/tools/python3"
chmod +x "$scratch/three/trireme"
# steps FAILS: exit status of the script.
steps() {
  fails=$1 MODELS=tiny bash "$(dirname "$gpu")/../bench/step/gpu.sh" --dry-run "$scratch/three" >"$scratch/printed" 2>&1
  echo $?
}
check "a run that failed is exit status 1" [ "$(steps tested)" = 1 ]
check "it is repeated with --no-selftest" grep -qE '^tiny +1 +trireme +200 ' "$scratch/printed"
check "and compared with PyTorch's" grep -qE '^ +PyTorch, eager +100 .* 2.00$' "$scratch/printed"
check "two runs that failed are, too" [ "$(steps always)" = 1 ]
check "after them PyTorch's is measured alone" grep -qE '^tiny +1 +PyTorch, eager +100 ' "$scratch/printed"
exit $((failures > 0))
