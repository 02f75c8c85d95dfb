#!/bin/bash
# A rank that is stopped: the others name it, the job ends with 7, and it goes on from its checkpoint.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
run=("${run[@]/#8/100000}" --hidden-dropout 0)
attempts=(--save saved --load saved --load-or-init --save-interval 1 --keep-last 2)

export TRIREME_FAULTY_NODES=$scratch/faulty_nodes SLURMD_NODENAME=node9

# stopped WHAT OPTION...: a run of which rank 1 of 4 is stopped after some iterations ends with 7 and names it.
stopped() {
  local what=$1 job rank=
  shift
  : >err # the loop below must not read what the run before has printed
  timeout -k 5 60 "$mpiexec" -n 4 "$trireme" train "${run[@]}" "${attempts[@]}" --distributed-timeout-minutes 0.05 "$@" \
    >out 2>err &
  job=$!
  for _ in $(seq 3000); do
    if grep -q 'saved step' err || ! kill -0 $job 2>/dev/null; then break; fi
    sleep 0.01
  done
  for process in $(pgrep -f "^$trireme train "); do
    if grep -qz '^OMPI_COMM_WORLD_RANK=1$' "/proc/$process/environ" &&
      [ "$(readlink "/proc/$process/cwd")" = "$scratch" ]; then rank=$process; fi
  done
  kill -STOP "$rank"
  wait $job
  code=$?
  if [ "$code $(grep -c "the job hangs: rank 1 on host node9 does not answer" err)" = "7 1" ] &&
    grep -q 'waiting for 3 s in an\? .* of the group .* for .*rank.* 1' err; then
    passed "$what"
  else
    failed "$what: exit code $code"
  fi
}
stopped "a stopped tensor rank is named" --tp 2 --pp 2 --flight-record flights
done_by 1 report --flight flights
check "the node of the stopped rank is reported to the job's script, once" [ "$(cat faulty_nodes)" = node9 ]
check "each rank's last call is in its record" [ "$(grep -c '^  .*Z rank [0-3] on host .* in group' out)" = 4 ]
check "with its stream and its place, as earlier ones" \
  [ "$(grep -l ' tensor .* all-reduce .* compute [a-z]*::[A-Za-z_:]* src/[a-z_/]*[.]cpp:[0-9]* iteration/forward *$' flights/*/rank-*.txt | wc -l)" = 4 ]
stopped "a stopped data rank is named, by a run that goes on from the last checkpoint" --use-distributed-optimizer
check "it did go on" grep -q 'continuing after iteration' err
done_by 1 checkpoint verify saved

# A rank that never starts: the launcher of rank 1 hangs.
echo "startup-timeout-minutes = 0.02" >startup.ini
cat >launch.sh <<'END'
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exec sleep 60
exec "$@"
END
timeout -k 5 30 "$mpiexec" -n 2 bash launch.sh "$trireme" train "${run[@]}" --config startup.ini >out 2>err
code=$?
check "a rank that never starts ends the job, by an option in a file" \
  [ "$code $(grep -c 'waited 0.02 minutes for all ranks to reach MPI_Init' err)" = "7 1" ]

# A rank that starts late: the job runs with the larger limit that the message names, also one without a model.
sed -i 's/exec sleep 60/sleep 3/' launch.sh
late() { # late MINUTES
  timeout -k 5 30 "$mpiexec" -n 2 bash launch.sh "$trireme" corpus build --input corpus.jsonl --output late.h5 --tokenizer bytes \
    --startup-timeout-minutes "$1" >out 2>err
  code=$?
}
late 0.02
check "a rank that starts late ends the job" eval '[ $code = 7 ] && grep -q "try a larger --startup-timeout-minutes" err'
late 1e9
check "the larger limit, of centuries, waits for it" [ $code = 0 -a -s late.h5 ]
