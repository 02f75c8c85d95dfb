#!/bin/bash
# Asks a run again and again to save and stop, at random instants of start-up, index building, load, iterations,
# evaluations and saves, half the time with a second signal soon after, and continues it. Every attempt must end with 75 and
# a whole checkpoint; all attempts together must have computed what an undisturbed run computes, bit by bit. A run that is
# interrupted a thousand times a second by a handler without a stack of its own must do so, too.
# usage: tests/signal_train.sh SIGNALS [TRIREME [MPIEXEC]]
signals=${1:?usage: tests/signal_train.sh SIGNALS [TRIREME [MPIEXEC]]}
here=$(dirname "$(realpath "$0")")
set -- "${2:-$here/../build/release/trireme}" "${3:-mpirun}"
if [ "$(id -u)" -eq 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none TRIREME_THREADS=1
source "$here/e2e/functions.sh"
shim=$(dirname "$trireme")/libtimer_signal_shim.so

make_corpus corpus 1
model=(--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32)
# So many epochs of a small corpus that making their index takes a moment.
run=("${model[@]}" --data-path corpus.h5 --global-batch-size 4 --train-iters 300000 --lr 0.001 --hidden-dropout 0.1
  --eval-interval 5 --eval-iters 4)
attempts=(--save-interval 3 --keep-last 2 --load-or-init)

# ranks_of JOB RANKS: the processes of the job's ranks, once each has blocked SIGTERM: the first millisecond after exec
# belongs to the kernel and the dynamic loader.
ranks_of() {
  local found rank blocked
  for _ in $(seq 2000); do
    found=$1
    [ "$2" -eq 1 ] || found=$(pgrep -P "$1" -f "^$trireme ")
    blocked=0
    for rank in $found; do grep -q '^SigBlk:.*[4-7c-f]...$' "/proc/$rank/status" 2>/dev/null && blocked=$((blocked + 1)); done
    if [ $blocked -eq "$2" ]; then echo "$found" && return; fi
    sleep 0.002
  done
}

# signalled RANKS OPTION...: one attempt of the run in the folder saved.RANKS.
signalled() {
  local ranks=$1 job processes target launcher=()
  shift
  [ "$ranks" -eq 1 ] || launcher=("$mpiexec" -n "$ranks")
  "${launcher[@]}" "$trireme" train "${run[@]}" "${attempts[@]}" --save "saved.$ranks" --load "saved.$ranks" \
    --metrics-file "signalled.$ranks.jsonl" "$@" >out 2>err &
  job=$!
  mapfile -t processes < <(ranks_of $job "$ranks")
  target=${processes[RANDOM % ranks]}
  pause 1
  kill "-$([ $((RANDOM % 2)) = 0 ] && echo USR1 || echo TERM)" "$target" || failed "the run ended before signal $signal"
  if ((RANDOM % 2)); then
    pause 0.05
    kill -USR1 "$target" 2>/dev/null
  fi
  wait $job
  code=$?
  if [ $code -ne 75 ]; then failed "signal $signal: exit code $code"; fi
  on 1 checkpoint verify "saved.$ranks"
  if [ $code -ne 0 ]; then failed "signal $signal: the checkpoint is damaged"; fi
}

# undisturbed RANKS OPTION...: as many iterations as all attempts on so many ranks, in one attempt, have the same losses.
undisturbed() {
  local ranks=$1 reached
  shift
  reached=$(field iteration "signalled.$ranks.jsonl" | tail -1)
  timeout -k 5 1200 "$mpiexec" -n "$ranks" "$trireme" train "${run[@]}" --save "undisturbed.$ranks" --exit-interval "$reached" \
    --metrics-file "undisturbed.$ranks.jsonl" "$@" >out 2>err
  check "$ranks ranks, $reached iterations: the digits are those of an undisturbed run" \
    cmp <(field lm_loss "undisturbed.$ranks.jsonl") <(field lm_loss "signalled.$ranks.jsonl")
}

for ((signal = 1; signal <= signals; ++signal)); do
  if ((signal % 4 == 0)); then signalled 2 --tp 2 --async-save; else signalled 1 --dtype bf16; fi
done
[ "$failures" -gt 0 ] || passed "signalled $signals times, and each attempt ended with 75 and a whole checkpoint"
undisturbed 1 --dtype bf16
undisturbed 2 --tp 2

# Effects of the signals on other commands.
yes "the ship rows" | head -c 40000000 >large.txt
"$trireme" corpus build --input large.txt --output large.h5 --tokenizer bytes >out 2>err &
ranks_of $! 1 >/dev/null
kill -TERM $!
wait $! 2>/dev/null
check "SIGTERM ends a command that has nothing to save" [ "$? $(ls large.h5 2>/dev/null)" = "143 " ]
"$trireme" train "${run[@]}" >out 2>err &
ranks_of $! 1 >/dev/null
kill -INT $!
for _ in $(seq 500); do grep -q "SIGINT received" err && break; sleep 0.01; done
kill -INT $!
wait $! 2>/dev/null
check "a second SIGINT ends training at once" [ $? -eq 130 ]

# Interrupted all the time. The shapes are those of which oneDNN makes code that uses the stack pointer.
large=(--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 64 --data-path corpus.h5 --global-batch-size 4
  --train-iters $((10 + 2 * signals)) --lr 0.001 --eval-iters 0)
for dtype in fp32 bf16; do
  timeout -k 5 600 "$mpiexec" -n 1 "$trireme" train "${large[@]}" --dtype $dtype --metrics-file quiet.jsonl >out 2>err
  timeout -k 5 600 "$mpiexec" -n 1 env LD_PRELOAD="$shim" TRIREME_TIMER_COUNT="$scratch/count" \
    "$trireme" train "${large[@]}" --dtype $dtype --metrics-file interrupted.jsonl >out 2>err
  check "$dtype: interrupted $(cat count) times, the digits are those of a quiet run" \
    cmp <(field lm_loss quiet.jsonl) <(field lm_loss interrupted.jsonl)
  check "$dtype: it was interrupted" [ "$(cat count)" -gt 100 ]
  rm -f quiet.jsonl interrupted.jsonl
done
