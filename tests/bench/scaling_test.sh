#!/bin/bash
# usage: scaling_test.sh TRIREME MPIEXEC DELAYED_LINK
# bench/scaling from end to end on small models: sets, jobs, results, failures, an interrupted set, and nodes in namespaces.
scaling=$(cd "$(dirname "$0")/../../bench/scaling" && pwd)
DELAYED_LINK=$(realpath -m "$3")
source "$(dirname "$0")/../e2e/functions.sh"
TRIREME=$trireme
export TRIREME DELAYED_LINK
submit() { "$scaling/submit.sh" "$@" >out 2>err; }
# number FILE KEY: a number of a line of JSON.
number() { sed -n 's/.*"'"$2"'": *\([-+.0-9e]*\).*/\1/p' "$1"; }
says() { [ "$(grep -cF -- "$2" "$1")" -eq 1 ]; }

# A dry run only reads the program's options: a stand-in prints them at once.
"$TRIREME" train --help >help
cat >options <<'S'
#!/bin/sh
cd "$(dirname "$0")" || exit 1
case $* in
  *--help) cat help ;;
  *refused*) echo "12:00:00 no such cluster" >&2; exit 2 ;;
  plan*) printf '{\n "grids": [\n  {\n   "step_ms": 2.5,\n   "tokens_per_second": 4096.0,\n   "tflops_per_rank": 3.5\n  }\n ]\n}\n' ;;
esac
S
chmod +x options
dry_run() { TRIREME=$scratch/options submit "$@" --dry-run; }

# The paper's sets: jobs and nodes as the paper has them, and options that the program accepts.
jobs_of() {  # SET NODES...: one number for each job
  dry_run "$1" && [ "$(sed -n 's/^#SBATCH --nodes=//p' out | xargs)" = "${*:2}" ]
}
check "weak scaling is eight jobs, with 64 data ranks on up to 64 nodes" jobs_of weak 1 1 1 1 8 16 32 64
awk '/^-- train.ini/ { on = 1; next } /^==/ && on { exit } on && !/^data-path/' out >paper.ini
check "a node has as many ranks as GPUs" [ "$(sed -n 's/^#SBATCH --ntasks-per-node=//p' out | xargs)" = \
  "$(sed -n 's/^#SBATCH --gpus-per-node=//p' out | xargs)" ]
check "strong scaling is four jobs of one node" jobs_of strong 1 1 1 1
check "the head study is four jobs of one node" jobs_of heads 1 1 1 1
check "a dry run leaves no files" [ "$(ls)" = "$(printf '%s\n' err help options out paper.ini)" ]
for preset in $(sed -n 's/^model = //p' "$scaling"/sets/*.ini | sort -u); do
  check "$preset is a preset" grep -q "\"$preset\"" "$scaling/../../src/model/presets.cpp"
done

# mpirun takes two seconds to end after a failure: one rank does without.
printf '#!/bin/sh\n[ "$2" = 1 ] && shift 2 && exec "$@"\nexec %q "$@"\n' "$mpiexec" >mpirun && chmod +x mpirun
export MPIRUN=$scratch/mpirun

# A set with a case that fails, and with line ends of Windows.
cat >mine.ini <<'I'
title = Mine
measure = speed-up
steps = 3
warm-up = 1
num-layers = 2
hidden-size = 16
num-attention-heads = 4
seq-length = 16
vocab-size = 300
global-batch-size = 4
backend = cpu
[tensor2]
ranks = 2
tensor-model-parallel-size = 2
published = 1.5
[heads3]
ranks = 1
num-attention-heads = 3
I
sed -i 's/$/\r/' mine.ini
submit mine.ini --local --folder runs
check "a failed case makes the exit status 1" [ $? -eq 1 ]
check "and the other case has run" says runs/tensor2/result.json '"state": "done"'
check "the failed one says why" says runs/heads3/result.json \
  '"reason": "exit code 2: --hidden-size 16 must be a multiple of --num-attention-heads 3, or --kv-channels be given"'
result=runs/tensor2/result.json
check "three steps were measured after the warm-up" [ "$(number $result steps)" -eq 3 ]
check "the median lies between the least and the greatest" awk -v least="$(number $result least_ms)" \
  -v median="$(number $result median_ms)" -v most="$(number $result greatest_ms)" 'BEGIN { exit !(0 < least && least <= median && median <= most) }'
check "communication was exposed for a part of the step" awk -v share="$(number $result exposed_communication_share)" \
  'BEGIN { exit !(0 < share && share < 1) }'
check "the tensor group's part is in the result" [ -n "$(number $result tensor)" ]
check "the log's peak of memory is in the result" [ "$(number $result peak_memory_bytes)" -eq \
  "$(sed -n 's/.*peak memory of the fullest rank: .*(\([0-9]*\) bytes).*/\1/p' runs/tensor2/log)" ]
"$TRIREME" train --config paper.ini --model gpt2-124m --backend cpu --data-path runs/corpus.h5 --metrics-file none \
  --dry-run >out 2>err
check "the program accepts the options of the paper's sets" says err "everything is in order; 25 iterations would run"
check "tokens are those of the global batch" awk -v tokens="$(number $result tokens_per_second)" \
  -v median="$(number $result median_ms)" 'BEGIN { t = tokens * median / 64000; exit !(0.99 < t && t < 1.01) }'

# Timing changes no numbers.
sed '/^time-communication/d; /^data-path/d' runs/tensor2/train.ini >plain.ini
done_by 2 train --config plain.ini --data-path runs/corpus.h5 --metrics-file plain.jsonl
losses() { sed 's/.*"lm_loss": \([^,]*\), .*"grad_norm": \([^,]*\),.*/\1 \2/' "$1"; }
check "losses are those of a run that is not timed" cmp <(losses plain.jsonl) <(losses runs/tensor2/metrics.jsonl)
check "which writes no times of communication" [ "$(grep -c exposed plain.jsonl)" -eq 0 ]

# Interrupted: a case that the set has changed runs again.
cp runs/heads3/result.json before
sed -i 's/^steps = 3/steps = 100000/' mine.ini
"$scaling/submit.sh" mine.ini --local --folder runs >out 2>err &
interrupted=$!
for ((i = 0; i < 300; ++i)); do [ -s runs/tensor2/metrics.jsonl ] && [ ! -e $result ] && break; sleep 0.05; done
kill -TERM $interrupted
wait $interrupted
check "an interruption ends the set" [ $? -eq 130 ]
check "and leaves no result" [ ! -e $result ]
check "and says where it stopped" says err "interrupted; submit.sh continues with tensor2"
# A case with the same values at another place of the set does not.
sed -i 's/^steps = 100000/steps = 3/; s/published = 1.5/published = 1.25/; s/^global-batch-size = 4/global-batch-size = 8/' mine.ini
sed -i '/^\[heads3/a global-batch-size = 4' mine.ini
submit mine.ini --local --folder runs
check "a case with a result is not run again, also one that failed" says out "heads3: has a result"
check "its result stays" cmp before runs/heads3/result.json
check "the case without a result is run" [ "$(number $result global_batch_size)" -eq 8 ]
rm runs/heads3/result.json
"$scaling/report.sh" runs >out 2>err
check "a report with a failed case has exit status 1" [ $? -eq 1 ]
check "a table row has the speed-up and the published one" grep -qE '^\| tensor2 \| 2 \| 1 \| 2 x 1 x 1 x 1 \| 1 of 8 \| [0-9.]+ \([0-9.]+ to [0-9.]+\) .* 1\.00 \| 1\.25 \|$' out
check "a failed row says why" grep -q "^| heads3 | 1 | failed: .*--num-attention-heads 3" out
check "results are lines of JSON" [ "$(grep -cE '^\{"set": "mine", .*\}$' runs/results.jsonl)" -eq 2 ]
for plot in scaling exposed; do
  check "$plot.svg is a drawing with both cases" awk '/>tensor2</ { a = 1 } />heads3</ { b = 1 } /^<\/svg>$/ { c = 1 } END { exit !(a && b && c) }' runs/$plot.svg
done

# Predictions next to measurements, by a stand-in for the planner.
TRIREME=$scratch/options "$scaling/report.sh" runs --cluster some >out 2>err
check "a prediction is next to the result" grep -qE '^\| tensor2 \|.*\| 2\.5 \| [0-9.]+ \| 1\.00 \| 1\.25 \|$' out
check "a failed case has a prediction, too" grep -qE '^\| heads3 \|.*\| 2\.5 \| - \| 1\.00 \| - \|$' out
check "all rows have the same number of columns" [ "$(grep '^|' out | awk -F'|' '{ print NF }' | sort -u | wc -l)" -eq 1 ]
TRIREME=$scratch/options "$scaling/report.sh" strong --cluster some >out 2>err
check "a set can be predicted before it runs" [ "$? $(grep -c '| not run yet |.*| 2.5 |' out)" = "0 4" ]
TRIREME=$scratch/options "$scaling/report.sh" strong --cluster refused >out 2>err
check "a refused prediction says why" [ "$? $(grep -c 'no prediction: no such cluster' err)" = "1 4" ]

# Invalid sets: file and line.
refused() {  # MESSAGE TEXT
  printf '%b' "$2" >bad.ini
  dry_run bad.ini
  check "refused: $1" [ "$? $(grep -cF -- "bad.ini:$1" err)" = "2 1" ]
}
refused '2: ranks = 0: it is a whole number from 1 on' '[a]\nranks = 0\n'
refused '1: case a has no ranks' '[a]\nnum-layers = 2\n'
refused '3: case a is already in line 1' '[a]\nranks = 1\n[a]\n'
refused '2: "ranks 1" is neither KEY = VALUE nor [CASE]' '[a]\nranks 1\n'
refused '3: ranks = 12 does not fill nodes of 8 ranks' '# 12\n[a]\nranks = 12\n'
refused '3: num-layer is neither a key of a case' '[a]\nranks = 1\nnum-layer = 2\n'
refused '3: ranks is set twice, the first time in line 2' '[a]\nranks = 1\nranks = 2\n'
refused '3: against = b: there is no such case' '[a]\nranks = 1\nagainst = b\n'
refused '1: there is no case' 'steps = 2\n'
dry_run absent.ini
check "a missing set is refused, with the names of sets" [ "$? $(grep -c 'absent.ini: no such set.*tiny' err)" = "2 1" ]

# Two nodes. A refused connection takes one round trip.
export MPIRUN=$mpiexec
cat >node.sh <<'N'
echo "$(hostname)-$OMPI_COMM_WORLD_RANK"
[ "$OMPI_COMM_WORLD_RANK" -eq 2 ] || exit 0
begin=${EPOCHREALTIME/./}
(exec 3<>/dev/tcp/10.77.0.1/9) 2>/dev/null
echo "round trip, us: $((${EPOCHREALTIME/./} - begin))"
N
[ -x "$DELAYED_LINK" ] && delay=(--delay 20ms) || delay=()
"$scaling/namespaces.sh" --nodes 2 --ranks-per-node 2 --rate 1gbit "${delay[@]}" bash node.sh >out 2>err
if [ $? -eq 4 ]; then
  echo "skipped: two nodes: $(cat err)"
else
  check "ranks fill the first node and then the second" diff <(grep -oE '[0-9]-[0-9]$' out | sort) \
    <(printf '%s\n' 1-0 1-1 2-2 2-3)
  [ ${#delay[@]} -eq 0 ] || check "a message and its answer take two delays" \
    [ "$(sed -n 's/^round trip, us: //p' out)" -ge 40000 ]
  check "no namespace stays" [ -z "$(ip netns list | grep "^$(grep -oE -m 1 'trireme-[0-9]+' out)-")" ]
fi
"$scaling/namespaces.sh" --nodes 2 --ranks-per-node 1 --delay 3h true >out 2>err
check "an invalid delay is refused" [ "$? $(grep -c -- '--delay 3h is not a time' err)" = "2 1" ]
