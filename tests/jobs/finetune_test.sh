#!/bin/bash
# jobs/finetune.sbatch, medians.sh and evaluate.sbatch with stand-ins for SLURM and for the program.
set -uo pipefail
jobs=$(cd "$(dirname "$0")/../../jobs" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
mkdir "$folder/bin"
expect() { # WHAT EXPECTED FOUND
  [ "$2" = "$3" ] || { printf '%s: expected\n%s\nfound\n%s\n' "$1" "$2" "$3"; failed=1; cat "$folder/log"; }
}
echo "echo '   Command=$jobs/finetune.sbatch $folder/run'" >"$folder/bin/scontrol"
printf 'while [[ $1 == --* ]]; do shift; done\nexec "$@"\n' >"$folder/bin/srun"
# The program's figure is its rate times 1e5 plus the last digit of its seed; a run without a result leaves with 75.
cat >"$folder/bin/trireme" <<'P'
echo "$@" >>"$FOLDER/arguments"
while [ $# -gt 0 ]; do case $1 in --lr) lr=$2 ;; --seed) seed=$2 ;; esac; shift; done
[ "${stops:-none}" = "${seed:-}" ] && exit 75
awk -v lr="${lr:-0}" -v seed="${seed:-0}" 'BEGIN { printf "{\"task\": \"RACE\", \"seed\": %d, \"accuracy\": %g, \"test\": {\"accuracy\": 9}}\n", seed, lr * 1e5 + seed % 10 }'
P
sed -i '1i #!/bin/bash' "$folder"/bin/*
chmod +x "$folder"/bin/*
export FOLDER=$folder PATH=$folder/bin:$PATH SLURM_JOB_ID=7 TRIREME=$folder/bin/trireme

element() { # ELEMENT: of an array with two rates and three seeds
  SLURM_ARRAY_TASK_ID=$1 RATES="1e-5 3e-5" SEEDS=3 bash "$jobs/finetune.sbatch" race.ini "$folder/run" --train-data a b >>"$folder/log" 2>&1
  status=$?
}
for i in 0 2 1 4; do element $i; done
expect "a finished element" 0 $status
expect "its options" "finetune --load-or-init --load $folder/run/lr-1e-5/seed-1235/checkpoints --save $folder/run/lr-1e-5/seed-1235/checkpoints \
--metrics-file $folder/run/lr-1e-5/seed-1235/metrics.jsonl --config race.ini --lr 1e-5 --seed 1235 --train-data a b" \
  "$(sed -n 3p "$folder/arguments")"
stops=1236 element 5
expect "an element that stopped is requeued" 0 $status
expect "medians of the finished seeds" "lr figure seeds median least greatest
1e-5 accuracy 3 6.0000 5.0000 7.0000
3e-5 accuracy 1 8.0000 8.0000 8.0000" "$(sed 's/  */ /g' "$folder/run/medians")"
element 6
expect "an element too many" 1 $status
grep -q "there is no element 6: --array=0-5 has the 2 rates with 3 seeds each" "$folder/log" || { echo "the log does not say why"; failed=1; }

sed -i 's/finetune.sbatch/evaluate.sbatch/' "$folder/bin/scontrol"
bash "$jobs/evaluate.sbatch" "$folder/run" --task mmlu --load x >>"$folder/log" 2>&1
expect "an evaluation" "eval --task mmlu --load x" "$(tail -n 1 "$folder/arguments")"
expect "its lines" 1 "$(grep -c '"accuracy"' "$folder/run/eval-7.jsonl")"
exit $failed
