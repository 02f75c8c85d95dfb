# Sourced by the batch files: training that outlives the time limit of a job.

# [command=finetune] run_life FOLDER OPTION...
# Trains, or runs another command that resumes, from the newest checkpoint in FOLDER/checkpoints, or from the start where there is none. When SLURM's early
# signal arrives (#SBATCH --signal=B:USR1@SECONDS), the ranks are told to save and leave. A run that is not finished, or
# that a dead or hanging rank ended, goes back to the queue under the same job number, and its next attempt continues from
# the checkpoint. Two attempts that end where they began end the chain: a third would do no better.
# FOLDER/lives has two lines an attempt: the time, the job and the step where it began; the same where it ended, and what the
# ranks returned. Ends the script.
run_life() {
  local folder=$1 status=0 signalled=0 ranks=
  shift
  mkdir -p "$folder"
  end_without_progress "$folder"
  echo "$(date -Is) job $SLURM_JOB_ID step $(step_reached "$folder")" >>"$folder/lives"

  trap 'signalled=1; kill -USR1 "$ranks" 2>/dev/null' USR1
  "${LAUNCH[@]}" "$TRIREME" "${command:-train}" --load-or-init --load "$folder/checkpoints" --save "$folder/checkpoints" \
    --metrics-file "$folder/metrics.jsonl" "$@" &
  ranks=$!
  wait "$ranks" || status=$?
  while [ "$signalled" = 1 ]; do  # the signal, not the end of the ranks, ended that wait
    signalled=0 status=0
    wait "$ranks" || status=$?
  done
  trap '' USR1

  echo "$(date -Is) the ranks of job $SLURM_JOB_ID returned $status at step $(step_reached "$folder")"
  echo "$(date -Is) job $SLURM_JOB_ID step $(step_reached "$folder") returned $status" >>"$folder/lives"
  case $status in
    75) ;;               # stopped early, everything saved
    6 | 7 | 13[4-9]) ;;  # a rank died; a rank hung; a signal ended a rank (srun: 128 + its number)
    *) exit "$status" ;;
  esac
  end_without_progress "$folder"
  # The last element of an array has the array's own number, which stands for all.
  scontrol requeue "${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}" || exit "$status"
  exit 0
}

# Prints the newest committed step, 0 if none. A folder gets this name only once complete.
step_reached() {
  local name newest=0
  for name in "$1"/checkpoints/step-*; do
    name=${name##*/step-}
    [[ $name =~ ^[0-9]+$ ]] && [ "$((10#$name))" -gt "$newest" ] && newest=$((10#$name))
  done
  echo "$newest"
}

# Ends the script with 1 if the last two attempts began with the step that is still the newest.
end_without_progress() {
  local step
  [ -s "$1/lives" ] || return 0
  step=$(step_reached "$1")
  [ "$(grep -v returned "$1/lives" | tail -n 2 | grep -c " step $step\$")" = 2 ] || return 0
  echo "Two attempts have not come beyond step $step; see the log for why. After mending it, remove $1/lives." >&2
  exit 1
}
