#!/bin/bash
# Runs all tests, the slow ones too, one after another, and writes a table of their results to bench/results/everything-DATE.md.
# usage: tests/everything.sh [NAME...]    without names: all, which takes a night. A row is replaced if its test runs again.
# Logs stay in build/everything. A missing prerequisite is a row "skipped". Exit status 1 if a test failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
trireme=build/test/trireme
layouts=build/test/layout_table
tests=(
  "suite          | tests/run.sh"
  "slow           | tests/run.sh -L slow"
  "separate       | tests/separate.sh"
  "asan           | tests/asan.sh"
  "tsan           | tests/tsan.sh"
  "fuzz           | tests/fuzz.sh 600"
  "layouts        | tests/layouts.sh $layouts"
  "random_layouts | tests/layouts.sh --random 100 $(date +%j) $layouts"
  "kill_train     | tests/kill_train.sh 100 $trireme mpiexec"
  "kill_experts   | env RANKS=4 tests/kill_train.sh 50 $trireme mpiexec --disable-bias-linear --num-experts 8 --ep 4 --moe-token-dispatcher-type alltoall --use-distributed-optimizer"
  "signal_train   | tests/signal_train.sh 1000 $trireme mpiexec"
  "kill_export    | tests/kill_export.sh 50 $trireme mpiexec"
  "crash_states   | tests/crash_states.sh $trireme mpiexec"
  "slurm          | tests/slurm.sh $trireme"
  "soak           | tests/soak.sh 2 $trireme"
  "interchange    | tests/interchange.sh $trireme build/test/exchange_test"
  "tensorboard    | tests/tensorboard.sh $trireme"
  "browser        | tests/browser.sh $trireme"
)
table=bench/results/everything-$(date +%F).md
logs=build/everything
mkdir -p $logs
if [ ! -e "$table" ]; then
  printf '# All tests\n\nBy `tests/everything.sh`.\n\n| test | command | commit | host | result | minutes | last line |\n| --- | --- | --- | --- | --- | --- | --- |\n' >"$table"
fi
host="$(nproc) x $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -1)"
failures=0
for row in "${tests[@]}"; do
  name=${row%% *} command=${row#*| }
  [ $# -eq 0 ] || [[ " $* " = *" $name "* ]] || continue
  echo "$name: $command"
  SECONDS=0
  read -ra words <<<"$command"
  "${words[@]}" >"$logs/$name.log" 2>&1 </dev/null
  status=$?
  case $status in
    0) result=passed ;;
    77) result=skipped ;;
    *) result="**failed** ($status)" failures=$((failures + 1)) ;;
  esac
  last=$(grep -v '^\s*$' "$logs/$name.log" | tail -1 | tr '|' '/' | cut -c1-120)
  line="| $name | \`$command\` | $(git rev-parse --short HEAD) | $host | $result | $(((SECONDS + 30) / 60)) | $last |"
  kept=$(grep -v "^| $name |" "$table")
  end=$(grep -n '^|' <<<"$kept" | tail -1 | cut -d: -f1) # the last row; remarks may follow
  { head -n "$end" <<<"$kept" && printf '%s\n' "$line" && tail -n +$((end + 1)) <<<"$kept"; } >"$table"
  echo "$name: $result after $SECONDS s: $last"
done
exit $((failures > 0))
