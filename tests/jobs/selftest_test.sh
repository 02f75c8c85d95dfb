#!/bin/bash
# jobs/selftest.sbatch with stand-ins for SLURM and for the program.
set -uo pipefail
jobs=$(cd "$(dirname "$0")/../../jobs" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
mkdir "$folder/bin"
printf '[ "$2" = hostnames ] && exec printf "%%s\\n" node3 node5 node7\necho "   Command=%s/selftest.sbatch %s/run"\n' "$jobs" "$folder" \
  >"$folder/bin/scontrol"
printf 'while [[ $1 == --* ]]; do shift; done\nexec "$@"\n' >"$folder/bin/srun"
printf 'echo "$@" >"%s/arguments"\ncat "%s/answer"\nexit "$(cat "%s/code")"\n' "$folder" "$folder" "$folder" >"$folder/bin/trireme"
sed -i '1i #!/bin/bash' "$folder"/bin/*
chmod +x "$folder"/bin/*

# job CODE ANSWER: runs the batch file while the program prints ANSWER and returns CODE.
job() {
  printf '%s' "$2" >"$folder/answer"
  echo "$1" >"$folder/code"
  PATH=$folder/bin:$PATH SLURM_JOB_ID=7 SLURM_JOB_NODELIST=node[3-7] TRIREME=$folder/bin/trireme \
    bash "$jobs/selftest.sbatch" "$folder/run" --tp 8 --seconds 300 >"$folder/log" 2>&1
  status=$?
  bad=$(cat "$folder/run/bad_nodes" 2>/dev/null)
}
expect() {  # STATUS BAD_NODES WHAT
  [ "$status $bad" = "$1 $2" ] || { echo "$3: returned $status, bad nodes '$bad'; expected $1, '$2'"; failed=1; cat "$folder/log"; }
}

job 4 $'a table\nnode3,node7\n'
expect 4 node3,node7 "a job with bad nodes"
[ "$(cat "$folder/arguments")" = "selftest --save $folder/run --json $folder/run/selftest-7.json --tp 8 --seconds 300" ] ||
  { echo "other arguments: $(cat "$folder/arguments")"; failed=1; }
[ "$(tail -n 1 "$folder/log")" = node3,node7 ] || { echo "the log does not end with the bad nodes"; failed=1; }
job 4 ''
expect 4 node3,node7 "a job that cannot start keeps the list"
echo node3,node9 >"$folder/run/bad_nodes"
job 4 $'a table\nnode5\n'
expect 4 node5,node9 "a job with another bad node, which has not tried node9"
job 0 $'a table\nok\n'
expect 0 node9 "a good allocation without node9"
echo node5 >"$folder/run/bad_nodes"
job 0 $'a table\nok\n'
expect 0 "" "a good allocation"
[ ! -e "$folder/run/bad_nodes" ] || { echo "an empty list is left"; failed=1; }
exit $failed
