# Sourced by the batch files: training that outlives dead ranks, lost nodes and the time limit of a job.

# [command=finetune] run_life FOLDER OPTION...
# Trains, or runs another command that resumes, from the newest checkpoint in FOLDER/checkpoints, or from the start where there is none.
#
# If ranks die or hang, or their nodes fail, starts them again inside the job on healthy nodes (choose_nodes). When SLURM's early
# signal arrives (#SBATCH --signal=B:USR1@SECONDS), the ranks are told to save and leave. A run that is not finished, and that
# cannot go on inside the job, goes back to the queue under the same job number, and its next attempt continues from the
# checkpoint. Two attempts that end where they began end the chain: a third would do no better.
#
# Without SLURM (LAUNCH is mpirun) there is no queue: a run that stopped early ends the script with 75. SIGINT and SIGTERM stop it so.
# FOLDER/lives has two lines an attempt: the time, the job and the step where it began; the same where it ended, and what the
# ranks returned. Ends the script.
# Environment: TRIREME_SPARE_NODES (0), nodes of the job that stay idle until another one fails; TRIREME_MIN_NODES (half of the others),
# the fewest to train on; TRIREME_LAUNCHER_WAIT (60), seconds after which an mpirun without a process is ended
run_life() {
  check_folder "$1"
  local folder=$1 job=${SLURM_JOB_ID:-$$} status=4 restarts=0 ending=0 signalled=0
  local command_line=() ranks='' named='' faulty=''
  shift
  mkdir -p "$folder"
  end_without_progress "$folder"
  set -- "${command:-train}" --load-or-init --load "$folder/checkpoints" --save "$folder/checkpoints" \
    --metrics-file "$folder/metrics.jsonl" "$@"
  [ -z "${SLURM_JOB_NODELIST:-}" ] || export TRIREME_FAULTY_NODES=$folder/faulty_nodes-$job
  trap 'ending=1 signalled=1; kill -USR1 "$ranks" 2>/dev/null' USR1
  # SLURM ends all processes of a job. Elsewhere the ranks would outlive this script.
  [ -n "${SLURM_JOB_ID:-}" ] || trap interrupt INT TERM HUP

  while [ "$ending" = 0 ]; do
    if ! choose_nodes "$@"; then
      # An allocation that cannot be used counts as an attempt: SLURM may give it again.
      [ "$restarts" -gt 0 ] || { note_begin && note_end; }
      break
    fi
    [ "$ending" = 0 ] || break
    note_begin
    [ -z "${TRIREME_FAULTY_NODES:-}" ] || : >"$TRIREME_FAULTY_NODES"  # so that NFS does not remember its absence
    [ -n "${SLURM_JOB_ID:-}" ] || set -m  # Ctrl-C then reaches this script alone: mpirun would return 1
    "${command_line[@]}" </dev/null &
    ranks=$! status=0
    set +m
    [[ ${LAUNCH[0]:-} != *mpi* ]] || end_idle "$ranks" &
    [ "$ending" = 0 ] || kill -USR1 "$ranks"  # the signal came before there were ranks
    wait "$ranks" || status=$?
    while [ "$signalled" = 1 ]; do  # the signal, not the end of the ranks, ended that wait
      signalled=0 status=0
      wait "$ranks" || status=$?
    done
    ranks=''
    note_end
    leave_out_named
    case $status in
      75) ;;               # stopped early, everything saved
      6 | 7 | 13[4-9]) ;;  # a rank died; a rank hung; a signal ended a rank (srun: 128 + its number)
      *) [ -n "$named" ] || exit "$status" ;;
    esac
    end_without_progress "$folder"
    [ "$status" != 75 ] || break
    restarts=$((restarts + 1))
    export TRIREME_RESTART=$restarts  # a lock of the ranks before is obsolete
  done
  trap '' USR1
  requeue
}

# Ends the script with its usage if the argument FOLDER is missing, or an option is in its place.
check_folder() {
  [[ $1 == "" || $1 == -* ]] || return 0
  echo "FOLDER is missing:" >&2
  sed -n '/^# usage:/,/^#SBATCH/{ /^#SBATCH/d; s/^# //p }' "$0" >&2
  exit 2
}

# The functions below use the variables of run_life.

# Lets the ranks save and end. The second time they end at once.
interrupt() {
  local signal=USR1
  [ "$ending" = 0 ] || signal=TERM
  ending=1 signalled=1
  kill -$signal "$ranks" 2>/dev/null
}
# Ends an mpirun none of whose processes has lived for a minute: after a kill PMIx 4.2 can leave it waiting for a lock of its own.
end_idle() {
  local idle=-1 # seconds; -1: it has started nothing yet
  while sleep 1 && kill -0 "$1" 2>/dev/null; do
    if has_process "$1"; then idle=0; else idle=$((idle < 0 ? -1 : idle + 1)); fi
    [ $idle -lt "${TRIREME_LAUNCHER_WAIT:-60}" ] && continue
    echo "mpirun has had no process for $idle s, and is ended." >&2
    kill -9 "$1"
  done
}
has_process() {
  local child
  for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
    grep -qs '^State:.[^Z]' "/proc/$child/status" && return
  done
  return 1
}
note_begin() { echo "$(date -Is) job $job step $(step_reached "$folder")" >>"$folder/lives"; }
note_end() {
  echo "$(date -Is) the ranks of job $job returned $status at step $(step_reached "$folder")"
  echo "$(date -Is) job $job step $(step_reached "$folder") returned $status" >>"$folder/lives"
}

# Chooses the nodes of the next attempt, and sets `command_line` to that of the program with these arguments on them: on all of the
# job's nodes but the spares. With too few healthy nodes: on the most with which a dry run succeeds, TRIREME_MIN_NODES or more. Fails
# without.
choose_nodes() {
  local all healthy wanted least count answer
  PLACE=()
  set_command_line "$@"
  [ -n "${SLURM_JOB_NODELIST:-}" ] || return 0
  mapfile -t all < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  wanted=$((${#all[@]} - ${TRIREME_SPARE_NODES:-0}))
  [ "$wanted" -gt 0 ] || { echo "TRIREME_SPARE_NODES=$TRIREME_SPARE_NODES leaves none of the ${#all[@]} nodes to work: ask for more." >&2; exit 2; }
  least=${TRIREME_MIN_NODES:-$(((wanted + 1) / 2))}
  mapfile -t healthy < <(healthy_nodes)
  if [ ${#healthy[@]} = ${#all[@]} ] && [ "$wanted" = ${#all[@]} ]; then return 0; fi  # the launcher's own choice
  for ((count = wanted < ${#healthy[@]} ? wanted : ${#healthy[@]}; count > 0 && count >= least && ending == 0; --count)); do
    place "${healthy[@]:0:count}"
    set_command_line "$@"
    if [ "$count" = "$wanted" ] || answer=$("${command_line[@]}" --dry-run 2>&1); then
      echo "$(date -Is) starting on $count of the job's ${#all[@]} nodes: ${healthy[*]:0:count}" >&2
      return 0
    fi
    echo "$(date -Is) $count nodes will not do: $(grep -m 1 error <<<"$answer")" >&2
  done
  echo "$(date -Is) too few healthy nodes (${healthy[*]:-none}): the run is for $wanted, at least $least" >&2
  return 1
}
set_command_line() { command_line=("${LAUNCH[@]:0:1}" "${PLACE[@]}" "${LAUNCH[@]:1}" "$TRIREME" "$@"); }

# Prints the job's nodes that can take ranks, a line each: not those in FOLDER/bad_nodes; after a fault only those that no rank
# has named, that SLURM has not taken from the job, does not drain and hears from, and that start a process in time.
healthy_nodes() {
  local nodes left='' bad states
  [ "$restarts" = 0 ] || left=$(squeue -h -j "$SLURM_JOB_ID" -o %N)
  left=${left:-$SLURM_JOB_NODELIST}  # also where SLURM does not answer
  bad=$(cat "$folder/bad_nodes" 2>/dev/null)
  mapfile -t nodes < <(scontrol show hostnames "$left" | grep -vxF -f <(printf '%s\n' $faulty ${bad//,/ }))
  if [ "$restarts" -gt 0 ] && [ ${#nodes[@]} -gt 0 ]; then
    states=$(sinfo -h -N -n "$(joined "${nodes[@]}")" -o '%N %T')
    [ -n "$states" ] || states=$(printf '%s unknown\n' "${nodes[@]}")
    answering $(awk '$2 !~ /down|drain|fail|\*/ && !seen[$1]++ { print $1 }' <<<"$states")
  else
    printf '%s\n' "${nodes[@]}"
  fi | grep . | sort -V
}

# Prints which of the nodes start a process within 20 seconds: all together, or else each alone.
answering() {
  local node
  starts_on "$@" && { printf '%s\n' "$@"; return; }
  for node in "$@"; do { starts_on "$node" && echo "$node"; } & done
  wait
}
starts_on() {
  timeout 20 srun --overlap --nodes=$# --ntasks=$# --ntasks-per-node=1 --nodelist="$(joined "$@")" true </dev/null >/dev/null 2>&1
}
joined() { local IFS=,; echo "$*"; }

# Sets `named` to the nodes that the ranks named as faulty, and leaves them out of this job's later attempts. Those that computed
# wrong results also join FOLDER/bad_nodes.
leave_out_named() {
  named=
  [ -n "${TRIREME_FAULTY_NODES:-}" ] || return 0
  named=$(sort -u "$TRIREME_FAULTY_NODES" | paste -sd ' ')
  rm -f "$TRIREME_FAULTY_NODES"
  [ -n "$named" ] || return 0
  faulty+=${faulty:+ }$named
  [ "$status" = 9 ] || return 0
  { echo "${named// /,}" && cat "$folder/bad_nodes" 2>/dev/null; } | tr , '\n' | sort -u | paste -sd , >"$folder/bad_nodes.new"
  mv "$folder/bad_nodes.new" "$folder/bad_nodes"
}

# Ends the script, and the job goes back to the queue: without the nodes in FOLDER/bad_nodes.
requeue() {
  [ -n "${SLURM_JOB_ID:-}" ] || exit "$status"
  # The last element of an array has the array's own number, which stands for all.
  local target=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID} before more tries=0
  trap '' TERM  # requeuing ends the script
  before=$(scontrol show job "$SLURM_JOB_ID" | sed -n 's/.* ExcNodeList=\([^ (]\+\).*/\1/p' | head -n 1)
  more=$(cat "$folder/bad_nodes" 2>/dev/null | tr , '\n' | grep -vxF -e "${before:+$(scontrol show hostnames "$before")}" | paste -sd ,)
  until scontrol requeue "$target"; do  # the controller may restart, too
    [ $((++tries)) -lt 24 ] || exit "$status"
    sleep 5
  done
  [ -z "$more" ] || scontrol update jobid="$target" excnodelist="${before:+$before,}$more"
  exit 0
}

# Prints the newest committed step, 0 if none; of several seeds the sum of theirs. A folder gets this name only once complete. With
# local checkpoints, which this script cannot see, the last attempt may have begun later: .branch ends with ":" and that step.
step_reached() {
  local root name newest sum=0
  for root in "$1"/checkpoints "$1"/checkpoints/seed-*; do
    newest=0
    for name in "$root"/step-* "$(tail -c 20 "$root/.branch" 2>/dev/null)"; do
      name=${name##*/step-}
      name=${name##*:}
      [[ $name =~ ^[0-9]+$ ]] && [ "$((10#$name))" -gt "$newest" ] && newest=$((10#$name))
    done
    sum=$((sum + newest))
  done
  echo "$sum"
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
