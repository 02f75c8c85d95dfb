#!/bin/bash
# Kills a run again and again with SIGKILL, at random moments of iterations, saves and start-up, and continues it. Every
# attempt must begin at the last checkpoint that was committed, or a later one, and all attempts together must have computed
# what an undisturbed run computes, bit by bit.
# usage: [RANKS=2] [SAVE_INTERVAL=1] tests/kill_train.sh KILLS [TRIREME [MPIEXEC [OPTIONS of the model and layout, default --tp 2]]]
# With --local-checkpoint-dir steps an attempt must begin at the last step there, too.
kills=${1:?usage: tests/kill_train.sh KILLS [TRIREME [MPIEXEC [OPTIONS]]]}
ranks=${RANKS:-2}
here=$(dirname "$(realpath "$0")")
layout=("${@:4}")
if [ ${#layout[@]} -eq 0 ]; then layout=(--tp 2); fi
set -- "${2:-$here/../build/release/trireme}" "${3:-mpirun}"
if [ "$(id -u)" -eq 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none TRIREME_THREADS=1
source "$here/e2e/functions.sh"
run_limit=3600 # seconds, of runs with hundreds of iterations for each kill

make_corpus corpus 1
run=("${model[@]}" --data-path corpus.h5 --global-batch-size 4 --train-iters $((100 * kills)) --lr 0.01 --eval-iters 0
  --dtype bf16 --hidden-dropout 0.1 "${layout[@]}")
attempts=(--save saved --load saved --load-or-init --keep-last 2 --metrics-file killed.jsonl)
done_by "$ranks" train "${run[@]}" --save undisturbed --metrics-file undisturbed.jsonl

committed=0 # the last step that was said to be saved
check_start() { # where the attempt that printed err began
  local begun
  begun=$(sed -n 's/.*loading .*: iteration \([0-9]*\)$/\1/p' err)
  if [ "${begun:-0}" -lt $committed ]; then failed "step $committed was saved, the next attempt began at ${begun:-0}"; fi
}

for ((kill = 1; kill <= kills; ++kill)); do
  "$mpiexec" -n "$ranks" "$trireme" train "${run[@]}" "${attempts[@]}" --save-interval "${SAVE_INTERVAL:-1}" >out 2>err &
  job=$!
  if ((RANDOM % 8 > 0)); then # after some saves; else while it starts
    saves=$((RANDOM % 10))
    for _ in $(seq 3000); do
      if [ "$(grep -c 'saved step' err)" -ge $saves ] && grep -q '| loss' err || ! kill -0 $job 2>/dev/null; then break; fi
      sleep 0.01
    done
    pause 0.04
  else
    pause 0.5
  fi
  if ! kill -0 $job 2>/dev/null; then failed "the attempt ended by itself before kill $kill"; fi
  kill_job $job "$ranks"
  grep -q 'loading\|1/[0-9]* | loss' err && check_start
  said=$(sed -n 's/.*saved step \([0-9]*\) in.*/\1/p' err | tail -1)
  committed=${said:-$committed}
  kept=$(find steps -maxdepth 1 -name 'step-*' 2>/dev/null | sed 's/.*step-0*//' | sort -n | tail -1)
  if [ "${kept:-0}" -gt "$committed" ]; then committed=$kept; fi
  on 1 checkpoint verify saved
  if [ $code -ne 0 ] && [ -e saved/LATEST ]; then failed "after kill $kill a committed checkpoint is damaged"; fi
done
passed "killed $kills times, at step $committed in the end"

done_by "$ranks" train "${run[@]}" "${attempts[@]}"
check_start
check "after $kills kills the run ends with the digits of an undisturbed one" \
  cmp <(field lm_loss undisturbed.jsonl) <(field lm_loss killed.jsonl)
check "nothing is left of saves that were cut short" [ -z "$(find saved -name '.tmp*' -o -name '.trash*')" ]
