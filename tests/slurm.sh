#!/bin/bash
# The batch files on a running SLURM with at least three nodes of two cores: a job on 2 nodes x 2 ranks is signalled before
# its time limit, saves, is requeued and ends with the losses of an undisturbed run; two lives without progress end a chain.
# usage: SLURM_CONF=FILE tests/slurm.sh [PROGRAM]    PROGRAM: build/release/trireme by default
# Takes about ten minutes: SLURM holds a requeued job for two. Exit status 77 where there is no SLURM.
set -euo pipefail
cd "$(dirname "$0")/.."
export TRIREME=${1:-$PWD/build/release/trireme}
if ! command -v sbatch >/dev/null || ! sinfo -h >/dev/null 2>&1; then
  echo "No running SLURM: set SLURM_CONF to the configuration of one."
  exit 77
fi
[ -x "$TRIREME" ] || { echo "No program at $TRIREME: build it, or name it."; exit 1; }

mkdir -p build
folder=$(mktemp -d "$PWD/build/slurm-XXXXXX")  # beside the sources, which all nodes of a cluster can see
fail() { echo "FAILED: $*; the runs are in $folder"; exit 1; }

cat src/*/*.hpp >"$folder/text.txt"
"$TRIREME" corpus build --input "$folder/text.txt" --output "$folder/corpus.h5" --tokenizer bytes 2>"$folder/corpus.log" ||
  fail "corpus build: $(cat "$folder/corpus.log")"

cat >"$folder/model.ini" <<'I'
num-layers = 2
hidden-size = 64
num-attention-heads = 4
seq-length = 128
tensor-model-parallel-size = 2
micro-batch-size = 1
global-batch-size = 16
lr = 1e-3
eval-interval = 100000
save-interval = 100000
I
# Seconds the undisturbed run should take: SLURM sends the signal one to two minutes after the start.
seconds=150

# submit NAME TIME_LIMIT OPTION...: prints the job's number
submit() {
  sbatch --parsable --job-name="$1" --time="$2" --signal=B:USR1@60 --nodes=2 --ntasks-per-node=2 --gpus-per-node=0 \
    --cpus-per-task=1 \
    --output="$folder/%x.log" jobs/several_nodes.sbatch "$folder/model.ini" "$folder/$1" \
    --data-path "$folder/corpus.h5" "${@:3}"
}
# await JOB...: until none of them is in the queue
await() {
  local jobs=$*
  while [ -n "$(squeue -h -j "${jobs// /,}" -o %i 2>/dev/null)" ]; do
    [ $SECONDS -lt 1800 ] || fail "after half an hour the queue still holds: $(squeue -h -j "${jobs// /,}" -o '%i %j %T %r')"
    sleep 2
  done
}

# A short run measures how many iterations fill the time.
job=$(submit measured 10 --train-iters 20)
await "$job"
[ -s "$folder/measured/metrics.jsonl" ] || fail "the first job: $(cat "$folder/measured.log")"
iterations=$(awk -F'"elapsed_ms":' -v s=$seconds 'NR > 5 { sum += $2; n++ } END { print int(1000 * s * n / sum) }' \
  "$folder/measured/metrics.jsonl")
echo "$iterations iterations take about $seconds s"

printf '#!/bin/sh\nexit 75\n' >"$folder/stuck_program"
chmod +x "$folder/stuck_program"
whole=$(submit whole 30 --train-iters "$iterations")
stuck=$(TRIREME=$folder/stuck_program submit stuck 30)
await "$whole"
signalled=$(submit signalled 3 --train-iters "$iterations")
await "$signalled" "$stuck"

losses() { sed -n 's/.*"iteration": *\([0-9]*\),.*"lm_loss": *\([^,}]*\).*/\1 \2/p' "$1/metrics.jsonl"; }
[ "$(losses "$folder/whole" | wc -l)" = "$iterations" ] || fail "the undisturbed run: $(tail -n 5 "$folder/whole.log")"
[ "$(grep -vc returned "$folder/signalled/lives")" -ge 2 ] || fail "the signalled run had one life alone"
grep -q "returned 75" "$folder/signalled.log" || fail "the signalled run never left with 75"
diff <(losses "$folder/whole") <(losses "$folder/signalled") >"$folder/difference" ||
  fail "the losses differ: $(head -n 4 "$folder/difference")"
[ "$(grep -vc returned "$folder/stuck/lives")" = 2 ] || fail "the chain without progress had $(grep -vc returned "$folder/stuck/lives") lives"
grep -q "no progress beyond step 0" "$folder/stuck.log" || fail "the chain without progress does not say why it ended"

echo "Signalled, requeued and resumed in $(grep -vc returned "$folder/signalled/lives") lives: $iterations losses, all those of the" \
  "undisturbed run. The chain without progress ended after two lives. ($SECONDS s)"
rm -rf "$folder"
