#!/bin/bash
# The batch files on a running SLURM with at least three nodes of two cores: a job on 2 nodes x 2 ranks is signalled before
# its time limit, saves, is requeued and ends with the losses of an undisturbed run; two attempts without progress end a chain;
# a job with a spare node loses a rank and then a node, and goes on without a requeue, with the same losses (it sets that node
# down, as SLURM's administrator); an array fine-tunes a BERT with two rates and two seeds, and its best model is evaluated.
# One part alone: ONLY=training, restarting or finetuning.
# usage: SLURM_CONF=FILE tests/slurm.sh [PROGRAM]    PROGRAM: build/release/trireme by default
# Takes about a quarter of an hour: SLURM holds a requeued job for two. Exit status 77 where there is no SLURM.
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

# await JOB...: until none of them is in the queue. A controller that does not answer says nothing about them.
await() {
  local jobs=$* left
  while left=$(squeue -h -j "${jobs// /,}" -o %i 2>&1); [ -n "$left" ] && [[ $left != *"Invalid job id"* ]]; do
    [ $SECONDS -lt 1800 ] || fail "after half an hour the queue still holds: $(squeue -h -j "${jobs// /,}" -o '%i %j %T %r')"
    sleep 2
  done
}

# Sets `iterations` to those of a small model that take SECONDS, and runs them in the job `whole`.
undisturbed() { # SECONDS
  rm -rf "$folder"/{measured,whole}{,.log}  # runs of another part
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
  # A short run measures how many iterations fill the time.
  job=$(submit measured 10 --train-iters 20)
  await "$job"
  [ -s "$folder/measured/metrics.jsonl" ] || fail "the first job: $(cat "$folder/measured.log")"
  iterations=$(awk -F'"elapsed_ms":' -v s="$1" 'NR > 5 { sum += $2; n++ } END { print int(1000 * s * n / sum) }' \
    "$folder/measured/metrics.jsonl")
  echo "$iterations iterations take about $1 s"
  whole=$(submit whole 30 --train-iters "$iterations")
}

# submit NAME TIME_LIMIT OPTION...: prints the job's number. NODES: 2, and more options of sbatch
submit() {
  # shellcheck disable=SC2086  # one word each
  sbatch --parsable --job-name="$1" --time="$2" --signal=B:USR1@60 --nodes=${NODES:-2} --ntasks-per-node=2 --gpus-per-node=0 \
    --cpus-per-task=1 \
    --output="$folder/%x.log" jobs/several_nodes.sbatch "$folder/model.ini" "$folder/$1" \
    --data-path "$folder/corpus.h5" "${@:3}"
}
losses() { sed -n 's/.*"iteration": *\([0-9]*\),.*"lm_loss": *\([^,}]*\).*/\1 \2/p' "$1/metrics.jsonl"; }
# same_losses NAME: as the job `whole`
same_losses() {
  [ "$(losses "$folder/whole" | wc -l)" = "$iterations" ] || fail "the undisturbed run: $(tail -n 5 "$folder/whole.log")"
  diff <(losses "$folder/whole") <(losses "$folder/$1") >"$folder/difference" ||
    fail "the losses of $1 differ: $(head -n 4 "$folder/difference")"
}

training() {
  undisturbed 150  # SLURM sends the signal one to two minutes after the start
  printf '#!/bin/sh\nexit 75\n' >"$folder/stuck_program"
  chmod +x "$folder/stuck_program"
  stuck=$(TRIREME=$folder/stuck_program submit stuck 30)
  await "$whole"
  signalled=$(submit signalled 3 --train-iters "$iterations")
  await "$signalled" "$stuck"

  [ "$(grep -vc returned "$folder/signalled/lives")" -ge 2 ] || fail "the signalled run had one attempt alone"
  grep -q "returned 75" "$folder/signalled.log" || fail "the signalled run never left with 75"
  same_losses signalled
  [ "$(grep -vc returned "$folder/stuck/lives")" = 2 ] || fail "the chain without progress had $(grep -vc returned "$folder/stuck/lives") attempts"
  grep -q "have not come beyond step 0" "$folder/stuck.log" || fail "the chain without progress does not say why it ended"

  echo "Signalled, requeued and resumed in $(grep -vc returned "$folder/signalled/lives") attempts: $iterations losses, all those of the" \
    "undisturbed run. The chain without progress ended after two attempts. ($SECONDS s)"
}

# Kills rank 1 of a job with a spare node, and then sets its first node without the batch script down.
restarting() {
  undisturbed 40
  await "$whole"
  job=$(TRIREME_SPARE_NODES=1 NODES="3 --no-kill" submit killed 10 --train-iters "$iterations" --save-interval 20)
  # trained PART: until that many tenths of the iterations are done
  trained() {
    until [ "$(losses "$folder/killed" 2>/dev/null | wc -l)" -ge $((iterations * $1 / 10)) ]; do
      [ -n "$(squeue -h -j "$job" -o %i 2>/dev/null)" ] || fail "the job with a spare has ended: $(tail -n 5 "$folder/killed.log")"
      sleep 0.2
    done
  }
  trained 3
  cat >"$folder/kill.sh" <<'K'
for process in /proc/[0-9]*; do
  [ "$(cat "$process/comm" 2>/dev/null)" = trireme ] && grep -qz '^SLURM_PROCID=1$' "$process/environ" &&
    grep -qz "^SLURM_JOB_ID=$1$" "$process/environ" && kill -9 "${process#/proc/}"
done
K
  nodes=$(scontrol show hostnames "$(squeue -h -j "$job" -o %N)")
  srun --jobid="$job" --overlap --mpi=none --nodes=1 --ntasks=1 --gpus-per-node=0 -w "$(head -n 1 <<<"$nodes")" bash "$folder/kill.sh" "$job" || true
  trained 5
  scontrol update nodename="$(sed -n 2p <<<"$nodes")" state=down reason="test of restarts" || fail "a node cannot be set down"
  await "$job"
  scontrol update nodename="$(sed -n 2p <<<"$nodes")" state=resume 2>/dev/null || true  # unless SLURM has done so by itself
  ends=$(sed -nE 's/.* (returned [0-9]+)$/\1/p' "$folder/killed/lives" | paste -sd ' ')
  [ "$ends" = "returned 137 returned 137 returned 0" ] || fail "the job with a spare should have three attempts: $ends"
  grep -q 'Restarts=0' <<<"$(scontrol show job "$job")" || fail "the job with a spare was requeued"
  grep -q "starting on 2 of the job's 3 nodes: $(sed -n 1p <<<"$nodes") $(sed -n 3p <<<"$nodes")" "$folder/killed.log" ||
    fail "the spare did not replace the node: $(grep 'starting on' "$folder/killed.log")"
  same_losses killed
  echo "A job lost a rank and a node, and went on without a requeue: $iterations losses, all those of the undisturbed run." \
    "$(sed -n 's/.*\(iteration [0-9]* was done .*\)/\1/p' "$folder/killed.log" | paste -sd ';' | sed 's/;/; /g') ($SECONDS s)"
}

# A small BERT with random weights, and pairs of sentences in MNLI's form.
finetuning() {
  printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' the ship crew rows stops . >"$folder/vocab.txt"
  for _ in {1..50}; do echo '{"text": "The ship rows. The crew rows. The ship stops. The crew stops."}'; done >"$folder/bert.jsonl"
  "$TRIREME" corpus build --input "$folder/bert.jsonl" --output "$folder/bert.h5" --tokenizer wordpiece --vocab-file "$folder/vocab.txt" \
    --split-sentences 2>"$folder/bert.log" &&
    "$TRIREME" train --model-type bert --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 16 --data-path "$folder/bert.h5" \
      --lr 1e-3 --train-iters 0 --save "$folder/bert" 2>>"$folder/bert.log" || fail "the BERT: $(cat "$folder/bert.log")"
  pairs() { # SEED COUNT: the second sentence repeats the first, has another subject, or another verb
    awk -v seed="$1" -v n="$2" 'BEGIN { srand(seed); split("ship crew", who); split("rows stops", what); split("entailment neutral contradiction", label)
      print "index\tp\tq\tg\tb1\tb2\tp1\tp2\ts1\ts2\tl\tgold"
      for (i = 0; i < n; ++i) { a = 1 + int(2 * rand()); b = 1 + int(2 * rand()); c = 1 + int(3 * rand())
        printf "%d\tp\tq\tg\tb1\tb2\tp1\tp2\tthe %s %s .\tthe %s %s .\tl\t%s\n", i, who[a], what[b], who[c == 2 ? 3 - a : a], what[c == 3 ? 3 - b : b], label[c] } }'
  }
  pairs 1 1280 >"$folder/train.tsv"
  pairs 2 60 >"$folder/dev_matched.tsv"
  pairs 3 40 >"$folder/dev_mismatched.tsv"
  small=(--parsable --ntasks-per-node=2 --gpus-per-node=0 --cpus-per-task=1 --time=10)
  job=$(RATES="1e-4 2e-3" SEEDS=2 sbatch "${small[@]}" --array=0-3 --output="$folder/sweep-%a.log" jobs/finetune.sbatch MNLI 336m "$folder/sweep" \
    --pretrained-checkpoint "$folder/bert" --train-data "$folder/train.tsv" --valid-data "$folder/dev_matched.tsv" "$folder/dev_mismatched.tsv")
  await "$job"
  cat "$folder/sweep/medians" || fail "the sweep: $(tail -n 5 "$folder"/sweep-*.log)"
  [ "$(grep -c '^[12]e-[34] *accuracy *2 .* valid\(: .*_matched.tsv\|: .*_mismatched.tsv\|\)$' "$folder/sweep/medians")" = 6 ] ||
    fail "the medians are not those of two rates with two seeds, of all pairs and of each file"
  job=$(sbatch "${small[@]}" --output="$folder/eval.log" jobs/evaluate.sbatch "$folder/results" --task MNLI --load "$folder/sweep/lr-2e-3/seed-1234/checkpoints" \
    --data-path "$folder/dev_matched.tsv" "$folder/dev_mismatched.tsv" --ensemble "$folder/sweep/lr-2e-3/seed-1235/checkpoints")
  await "$job"
  [ "$(grep -c '"correct": .*"total": \(60\|40\)' "$folder/results/eval-$job.jsonl")" = 2 ] || fail "the evaluation: $(cat "$folder/eval.log")"
  echo "An array of four fine-tuned, and two of its models were evaluated together: $(tr '\n' ' ' <"$folder/results/eval-$job.jsonl")"
}

for part in ${ONLY:-training restarting finetuning}; do $part; done
rm -rf "$folder"
