#!/bin/bash
# Trains under random faults on a running SLURM for some hours, without a hand: one job after another, of as many iterations as an
# undisturbed job did first. Each job must end by itself with 0, the losses and the last checkpoint of the undisturbed one, bit by bit.
# Every other job has two spare nodes and keeps the nodes that SLURM has not lost, the others have neither and are requeued.
# usage: SLURM_CONF=FILE [SEED=N] [MINUTES=4] tests/soak.sh HOURS [PROGRAM [OPTION of train..., default --tp 2]]
#   PROGRAM: build/release/trireme by default; libio_fault_shim.so lies beside it.   MINUTES: of the undisturbed job.
# Prints a line for each fault, and a table of all. The virtual nodes must be on this machine: it signals their ranks. A fault that
# cannot be planted here is left out, and says so: full disks need root, cut links nodes in network namespaces, dead nodes six
# of them. As an operator would, it releases requeued jobs from SLURM's two minutes of waiting and those that SLURM holds, and
# returns nodes to service.
# Exit status 77 where there is no SLURM, 1 after a failure.
hours=${1:?usage: tests/soak.sh HOURS [PROGRAM [OPTIONS]]}
here=$(dirname "$(realpath "$0")")
layout=("${@:3}")
if [ ${#layout[@]} -eq 0 ]; then layout=(--tp 2); fi
if ! command -v sbatch >/dev/null || ! sinfo -h >/dev/null 2>&1; then
  echo "No running SLURM: set SLURM_CONF to the configuration of one."
  exit 77
fi
mkdir -p "$here/../build"
export TMPDIR
TMPDIR=$(realpath "$here/../build") # beside the sources, which all nodes see
set -- "${2:-$here/../build/release/trireme}" mpirun
source "$here/e2e/functions.sh"
source "$here/../jobs/lives.sh" # step_reached
unset TRIREME_LOCK_WAIT
export TRIREME_THREADS=1 OMPI_MCA_mpi_yield_when_idle=1
RANDOM=${SEED:=$RANDOM}
shim=$(dirname "$trireme")/libio_fault_shim.so
job='' folder='' patient='' spares=''
trap 'status=$?; end_job; finish $status' EXIT
trap 'exit 130' INT TERM
end_job() {
  [ -n "$job" ] || return
  scancel "$job" 2>/dev/null
  for _ in {1..20}; do no_ranks && break; sleep 1; done
}

# The ranks' program: the library of faults answers EIO while the file `faulty` exists, and its name is this test's own.
cat >program <<P
#!/bin/bash
export LD_PRELOAD=$shim TRIREME_FAULT=5 TRIREME_FAULT_AT=1 TRIREME_FAULT_TIMES=1000000000
export TRIREME_FAULT_FOLDER=$scratch/soak/checkpoints TRIREME_FAULT_WHILE=$scratch/faulty
exec -a $scratch/rank $trireme "\$@"
P
chmod +x program
export TRIREME=$scratch/program

# stop MESSAGE: ends the test, and keeps all but the checkpoints.
stop() {
  echo "FAILED: $*"
  end_job
  rm -rf "$here/../build/soak-failed"
  mkdir -p "$here/../build/soak-failed"
  cp -- *.log out err soak.losses soak.tensors undisturbed.* "$folder"/lives "$folder"/metrics.* "$here/../build/soak-failed" 2>/dev/null
  ls -lR "$folder" >"$here/../build/soak-failed/files"
  echo "Logs: build/soak-failed"
  summary
  exit 1
}

# submit NAME OPTION...: a job in the new folder $folder; sets $job and $log.
submit() {
  log=$scratch/$1.log
  rm -f "$log"
  folder=$scratch/$1
  mkdir -p "$folder/checkpoints"
  if [ -n "$disks" ]; then # small disks of their own, for metrics and checkpoints
    mount -t tmpfs -o size=16m soak "$folder" && mkdir "$folder/checkpoints" && mount -t tmpfs -o size=96m soak "$folder/checkpoints"
  fi
  job=$(TRIREME_MIN_NODES=2 TRIREME_SPARE_NODES=$spares sbatch --parsable --job-name="$1" --time=240 --signal=B:USR1@60 \
    --nodes=$((2 + spares)) ${spares:+--no-kill} --ntasks-per-node=2 --gpus-per-node=0 \
    --cpus-per-task=1 --output="$log" "$here/../jobs/several_nodes.sbatch" "$scratch/model.ini" "$folder" \
    --data-path "$scratch/corpus.h5" "${layout[@]}" "${@:2}") || stop "sbatch"
}

# state: PENDING, RUNNING..., or nothing when the job has ended. Shortens the two minutes that a requeued job is held, but not
# below what the nodes need to forget its last attempt's credential. Where SLURM ended the attempt ($patient), a node may still be
# running it: then SLURM's own time is left to it.
state() {
  local found start reason
  for _ in 1 2 3; do # between two attempts SLURM lists no state for a moment
    read -r found start reason < <(squeue -h -j "$job" -o '%T %S %r' 2>/dev/null)
    [ -z "$found" ] || break
    sleep 1
  done
  if [ "$found" = PENDING ] && [ -z "$patient" ] && [ $(($(date -d "$start" +%s 2>/dev/null || date +%s) - $(date +%s))) -gt 30 ]; then
    scontrol update jobid="$job" StartTime=now+8
  fi
  # SLURM 22.05 holds a requeued job whose first node was cut off and came back while it still ran the script.
  if [ "$found" = PENDING ] && [[ ${reason,,} = *held* ]] && scontrol release "$job"; then
    echo "job $job, held by SLURM ($reason), is released" >>releases
    echo "$(date +%T) $(tail -n 1 releases)" >&2
  fi
  echo "$found"
}

# await WHAT COMMAND...: until the command succeeds, or the job has ended. WHAT must come within ten minutes.
await() {
  local what=$1 begun=$SECONDS
  shift
  until "$@"; do
    [ -n "$(state)" ] || return 0
    [ $((SECONDS - begun)) -lt 600 ] || stop "no $what within ten minutes; last lines of the log: $(tail -n 5 "$log")"
    sleep 0.3
  done
}
begun_attempts() { grep -vc returned "$folder/lives" 2>/dev/null; }
more_attempts() { [ "$(begun_attempts)" -gt "$1" ]; }
beyond() { [ "$(step_reached "$folder")" -gt "$1" ]; }
ranks() { pgrep -f "^$scratch/rank train .*$folder/"; }
several_checkpoints() { [ "$(find "$folder/checkpoints" -maxdepth 1 -name 'step-*' | wc -l)" -ge 2 ]; }
have_ranks() { [ "$(ranks | wc -l)" = 4 ]; }
no_ranks() { [ -z "$(ranks)" ]; }
verified() { "$trireme" checkpoint verify "$folder/checkpoints" >out 2>err; }
losses() { sed -n 's/.*"iteration": *\([0-9]*\),.*"lm_loss": *\([^,}]*\).*/\1 \2/p' "$1/metrics.jsonl"; }
of_rank() { tr '\0' '\n' <"/proc/$1/environ" 2>/dev/null | sed -n "s/^$2=//p"; }

newest_step() { find "$folder/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -n 1; }

# one_rank: sets $rank, a process, and $target, its description.
one_rank() {
  rank=$(ranks | shuf -n 1 --random-source=<(yes $RANDOM))
  target="rank $(of_rank "$rank" SLURM_PROCID) on $(of_rank "$rank" SLURMD_NODENAME)"
}
# one_far_rank: not of the batch script's own node.
one_far_rank() {
  one_rank
  [ "${target#*on }" != "$(squeue -h -j "$job" -o %B)" ] || one_far_rank
}
# damage FOLDER: flips a bit of one of its files.
damage() {
  local file
  file=$(find "$1" -type f -size +0 | sort | shuf -n 1 --random-source=<(yes $RANDOM))
  target=${file#"$folder/checkpoints/"}
  flip "$file" $(((RANDOM * 32768 + RANDOM) % $(stat -c %s "$file"))) && ! verified || stop "a flipped bit of $target was not found"
}
# near_end: the job will soon save for the last time; if it cannot, it ends for good.
near_end() {
  local reached
  reached=$(tail -n 1 "$folder/metrics.jsonl" | sed -n 's/.*"iteration": *\([0-9]*\),.*/\1/p')
  [ "${reached:-0}" -gt $((iterations * 8 / 10)) ]
}
# fill FOLDER SECONDS: its disk stays full for so long.
fill() {
  local end=$((SECONDS + $2))
  target="of ${1##*/} for $2 s"
  while [ $SECONDS -lt $end ] && ! near_end; do
    cat /dev/zero >>"$1/filler" 2>/dev/null
    sleep 0.1
  done
  rm "$1/filler"
}
# link up|down: that of the node of $rank.
link() { nsenter --net="$net" ip link set eth0 "$1"; }
namespace_of_rank() {
  exec {net_fd}<"/proc/$rank/ns/net"
  net=/proc/$$/fd/$net_fd
}

# The faults. Each sets $target. A fault that ends the attempt sets ends=1.
fault_kill_one() { one_rank; ends=1; kill -9 "$rank"; }
fault_kill_all() { target="all ranks"; ends=1; kill -9 $(ranks); }
fault_kill_twice() { # the second time while the ranks start
  local before
  before=$(begun_attempts)
  kill -9 $(ranks)
  await "second attempt" more_attempts "$before"
  await "ranks" have_ranks
  pause 1
  one_rank
  target="all ranks, then $target at its start"
  ends=1
  kill -9 "$rank"
}
fault_stop() { one_rank; ends=1; kill -STOP "$rank"; }
fault_stop_shortly() { one_rank; kill -STOP "$rank"; pause 5; kill -CONT "$rank"; }
fault_usr1() { one_rank; ends=1; kill -USR1 "$rank"; }
fault_term() { one_rank; ends=1; kill -TERM "$rank"; }
fault_kill_launcher() { target=srun; ends=1; kill -9 $(pgrep -f "^srun .*$folder/" | head -1); }
fault_time_limit() { # the job's signal comes a minute before
  local used
  used=$(squeue -h -j "$job" -O TimeUsed:20 | awk -F: '{ print NF < 3 ? $1 : NF == 3 ? 60 * $1 + $2 : 0 }')
  target="$((used + 2)) minutes"
  ends=1
  # Without accounting SLURM changes no job that has lost nodes.
  scontrol update jobid="$job" TimeLimit=$((used + 2)) 2>err || target+=", which SLURM does not set: $(cat err)" ends=0
}
fault_node_down() {
  if [ -z "$spares" ]; then one_rank; else one_far_rank; fi # a job that keeps its other nodes ends with its script
  target=$(of_rank "$rank" SLURMD_NODENAME)
  ends=1 down=$target patient=1
  scontrol update nodename="$target" state=down reason=soak
}
fault_flip_newest() {
  kill -9 $(ranks)
  await "end of the ranks" no_ranks
  ends=1
  damage "$(newest_step)"
}
fault_flip_older() {
  kill -9 $(ranks)
  await "end of the ranks" no_ranks
  ends=1
  damage "$(find "$folder/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -n 2 | head -n 1)"
}
fault_flip_while_training() { damage "$(newest_step)"; }
fault_full_disk() { fill "$folder/checkpoints" $((2 + RANDOM % 8)); }
fault_full_metrics() { fill "$folder" $((2 + RANDOM % 5)); lacking=1; }
fault_eio() {
  local end=$((SECONDS + 1 + RANDOM % 6))
  target="for $((end - SECONDS)) s"
  touch faulty
  while [ $SECONDS -lt $end ] && ! near_end; do sleep 0.1; done
  rm faulty
}
fault_cut_shortly() { one_rank; namespace_of_rank; target="link of ${target#*on }"; link down; pause 4; link up; }
fault_cut() { # longer than the ranks, and SLURM, wait; it would start a job again beside its script that was cut off
  one_far_rank
  namespace_of_rank
  target="link of ${target#*on } for 60 s" ends=1
  patient=1
  link down
  sleep 60
  link up
}
fault_slow_link() {
  one_rank
  namespace_of_rank
  target="link of ${target#*on }, 2 Mbit/s for 8 s"
  nsenter --net="$net" tc qdisc add dev eth0 root tbf rate 2mbit burst 16k latency 500ms
  sleep 8
  nsenter --net="$net" tc qdisc del dev eth0 root
}

declare -A count seconds attempts_of
total=0

summary() {
  printf '\n| fault | times | attempts that it ended | mean seconds to the next checkpoint |\n| --- | ---: | ---: | ---: |\n'
  for name in $(printf '%s\n' "${!count[@]}" | sort); do
    echo "| ${name//_/ } | ${count[$name]} | ${attempts_of[$name]} | $((seconds[$name] / count[$name])) |"
  done
  echo
  echo "$total faults in $jobs_done jobs of $iterations iterations, $(awk -v s=$SECONDS 'BEGIN { printf "%.2f", s / 3600 }') hours, seed $SEED; jobs released from a hold: $(wc -l <releases)."
}

# one_fault: at a random moment, and waits until training has come beyond it.
one_fault() {
  local name first before base begun newest returned
  await "second checkpoint" several_checkpoints # a damaged one, if alone, ends a job for good
  await "ranks" have_ranks
  pause 4
  # Not at the end: a last checkpoint that cannot be saved ends a job for good.
  if ! have_ranks || [ "$(step_reached "$folder")" -gt $((iterations * 9 / 10)) ]; then
    await "end of the job" false
    return
  fi
  # Each kind once, in random order, before any comes again.
  [ ${#bag[@]} -gt 0 ] || mapfile -t bag < <(printf '%s\n' "${faults[@]}" | shuf --random-source=<(yes $RANDOM))
  name=${bag[0]}
  bag=("${bag[@]:1}")
  newest=$(step_reached "$folder") returned=$(wc -l <"$folder/lives")
  first=$(begun_attempts) before=$first
  target='' ends=0 down='' patient='' net_fd=''
  begun=$SECONDS
  "fault_$name"
  [ "$name" != kill_twice ] || before=$((before + 1))
  [ $ends = 0 ] || await "attempt after $name" more_attempts "$before"
  [ -z "$net_fd" ] || exec {net_fd}<&-
  [ "$name" != time_limit ] || scontrol update jobid="$job" TimeLimit=240 2>/dev/null
  base=$(step_reached "$folder")
  await "checkpoint after $name of $target" beyond "$base"
  patient=''
  [ -z "$down" ] || scontrol update nodename="$down" state=resume 2>/dev/null # unless it has come back by itself
  total=$((total + 1))
  count[$name]=$((${count[$name]:-0} + 1))
  seconds[$name]=$((${seconds[$name]:-0} + SECONDS - begun))
  attempts_of[$name]=$((${attempts_of[$name]:-0} + $(begun_attempts) - first))
  returned=$(tail -n +$((returned + 1)) "$folder/lives" | sed -n 's/.*returned //p' | paste -sd' ')
  printf '%(%T)T %4d %s: %s at step %d: ' -1 $total "${name//_/ }" "$target" "$newest"
  echo "attempts $(begun_attempts), returned ${returned:-nothing}; step $(step_reached "$folder") after $((SECONDS - begun)) s"
  # A flipped bit stays until its step is replaced or deleted.
  [[ $name != flip* ]] || await "end of the damaged step" verified
  [ -z "$(state)" ] || verified || verified || stop "checkpoint verify: $(cat out err)"
}

# check_run: what a job must have left that has ended.
check_run() {
  tail -n 1 "$folder/lives" | grep -q 'returned 0$' || stop "the job has ended for good: $(tail -n 2 "$folder/lives"; tail -n 5 "$log")"
  losses "$folder" >soak.losses
  [ "$(cut -d' ' -f1 soak.losses | uniq -d)" = "" ] || stop "an iteration is twice in the metrics"
  # Iterations while the disk of the metrics was full are not in them.
  [ -n "$lacking" ] || [ "$(wc -l <soak.losses)" = "$iterations" ] || stop "$(wc -l <soak.losses) iterations are in the metrics instead of $iterations"
  [ -z "$(comm -23 <(sort soak.losses) <(sort undisturbed.losses))" ] || stop "losses differ: $(diff soak.losses undisturbed.losses | head -4)"
  tensors "$(newest_step)" >soak.tensors
  cmp -s soak.tensors undisturbed.tensors || stop "the last checkpoint differs"
  verified || stop "checkpoint verify: $(cat out err)"
  [ -z "$(find "$folder" -name '.tmp*' -o -name '.trash*')" ] || stop "leftovers: $(find "$folder" -name '.tmp*' -o -name '.trash*')"
  no_ranks || stop "ranks outlive the job: $(ranks)"
  printf '%(%T)T job %s: %d iterations in %d attempts, %d losses and the last checkpoint of the undisturbed job\n' -1 "$job" "$iterations" \
    "$(begun_attempts)" "$(wc -l <soak.losses)"
  jobs_done=$((jobs_done + 1))
  [ -z "$disks" ] || umount "$folder/checkpoints" "$folder"
  rm -rf "$folder"
}

make_corpus corpus 1
[ "$failures" = 0 ] || exit 1
cat >model.ini <<'I'
num-layers = 2
hidden-size = 128
num-attention-heads = 4
seq-length = 64
hidden-dropout = 0.1
micro-batch-size = 2
global-batch-size = 8
lr = 1e-3
lr-decay-style = constant
eval-iters = 0
save-interval = 20
keep-last = 3
log-interval = 20
on-save-error = continue
distributed-timeout-minutes = 0.25
I
touch releases
# A short job measures how many iterations fill the time.
disks=''
iterations=100 jobs_done=0
submit measured --train-iters 100
await "end of the first job" false
[ -s "$folder/metrics.jsonl" ] || stop "the first job: $(tail -n 5 measured.log)"
iterations=$(awk -F'"elapsed_ms":' -v m="${MINUTES:-4}" 'NR > 20 { sum += $2; n++ } END { print 20 * int(3000 * m * n / sum) }' "$folder/metrics.jsonl")
rm -rf "$folder"
submit undisturbed --train-iters "$iterations"
await "end of the undisturbed job" false
[ "$(losses "$folder" | wc -l)" = "$iterations" ] || stop "the undisturbed job: $(tail -n 5 undisturbed.log)"
losses "$folder" >undisturbed.losses
tensors "$(newest_step)" >undisturbed.tensors
rm -rf "$folder"

bag=()
mapfile -t faults < <(compgen -A function fault_ | sed 's/fault_//')
without() { # without REASON FAULT...
  echo "Without $(printf '%s, ' "${@:2}" | tr _ ' ')$1."
  mapfile -t faults < <(printf '%s\n' "${faults[@]}" | grep -vxF "$(printf '%s\n' "${@:2}")")
}
mkdir full
if mount -t tmpfs -o size=1m soak full 2>/dev/null; then umount full && disks=1; else without "no file system can be mounted" full_disk full_metrics; fi
[ "$(sinfo -h -r -N -o %N | sort -u | wc -l)" -ge 6 ] || without "fewer than six nodes" node_down cut
[ "$(srun -N 1 -n 1 readlink /proc/self/ns/net 2>/dev/null)" != "$(readlink /proc/self/ns/net)" ] ||
  without "the nodes have no network namespace of their own" cut cut_shortly slow_link
echo "Seed $SEED. Jobs of $iterations iterations on 2 nodes x 2 ranks, ${layout[*]}. Faults: ${faults[*]}"

end=$((SECONDS + $(awk -v h="$hours" 'BEGIN { print int(3600 * h) }')))
while [ $SECONDS -lt $end ]; do
  lacking='' spares=''
  ((jobs_done % 2 == 0)) || spares=2
  submit soak --train-iters "$iterations" $( ((jobs_done / 2 % 2)) && echo --async-save)
  while [ -n "$(state)" ] && [ $SECONDS -lt $end ]; do one_fault; done
  await "end of the job" false
  check_run
done
summary
passed "soak of $hours hours, seed $SEED: $total faults in $jobs_done jobs"
