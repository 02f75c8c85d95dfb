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
# An array's number stands for all of its elements.
cat >"$folder/bin/scontrol" <<P
echo "\$@" >>"$folder/scontrol"
for _ in 1 2; do echo '   Command=$jobs/finetune.sbatch $folder/run'; done
P
printf 'while [[ $1 == --* ]]; do shift; done\nexec "$@"\n' >"$folder/bin/srun"
# The program's figure is its rate times 1e5 plus the last digit of its seed, of the sets 1 more and 2 more, of the test 3
# more; a run without a result leaves with 75.
cat >"$folder/bin/trireme" <<'P'
echo "$@" >>"$FOLDER/arguments"
while [ $# -gt 0 ]; do case $1 in --config) last=$2 ;; esac; shift; done
[ ! -e "${last:-}" ] || { lr=$(sed -n 's/^lr = //p' "$last") seed=$(sed -n 's/^seed = //p' "$last"); }
[ "${stops:-none}" = "${seed:-}" ] && exit 75
awk -v lr="${lr:-0}" -v seed="${seed:-0}" 'BEGIN { x = lr * 1e5 + seed % 10
  set = "{\"data\": \"%s\", \"total\": 2, \"accuracy\": %g}"
  printf "{\"task\": \"RACE\", \"seed\": %d, \"accuracy\": %g, \"sets\": [" set ", " set "], \"test\": {\"accuracy\": %g}}\n", seed, x, "dev/middle", x + 1, "dev/high", x + 2, x + 3 }'
P
sed -i '1i #!/bin/bash' "$folder"/bin/*
chmod +x "$folder"/bin/*
export FOLDER=$folder PATH=$folder/bin:$PATH SLURM_JOB_ID=7 TRIREME=$folder/bin/trireme

element() { # ELEMENT: of an array with two rates and three seeds
  SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=$1 RATES="1e-5 3e-5" SEEDS=3 bash "$jobs/finetune.sbatch" RACE 1.3b "$folder/run" --train-data a b >>"$folder/log" 2>&1
  status=$?
}
for i in 0 2 1 4; do element $i; done
expect "a finished element" 0 $status
expect "its options" "finetune --load-or-init --load $folder/run/lr-1e-5/seed-1235/checkpoints --save $folder/run/lr-1e-5/seed-1235/checkpoints \
--metrics-file $folder/run/lr-1e-5/seed-1235/metrics.jsonl --config $jobs/finetune.ini --config $folder/run/lr-1e-5/seed-1235/settings.ini --train-data a b" \
  "$(sed -n 3p "$folder/arguments")"
stops=1236 element 5
expect "an element that stopped is requeued, alone" "0 requeue 7_5" "$status $(tail -n 1 "$folder/scontrol")"
expect "medians of the finished seeds" "lr figure seeds median least greatest data
1e-5 accuracy 3 9.0000 8.0000 10.0000 test
1e-5 accuracy 3 6.0000 5.0000 7.0000 valid
1e-5 accuracy 3 8.0000 7.0000 9.0000 valid: dev/high
1e-5 accuracy 3 7.0000 6.0000 8.0000 valid: dev/middle
3e-5 accuracy 1 11.0000 11.0000 11.0000 test
3e-5 accuracy 1 8.0000 8.0000 8.0000 valid
3e-5 accuracy 1 10.0000 10.0000 10.0000 valid: dev/high
3e-5 accuracy 1 9.0000 9.0000 9.0000 valid: dev/middle" "$(sed 's/  */ /g' "$folder/run/medians")"
expect "the settings of the table" "task = RACE
global-batch-size = 16
epochs = 3
lr = 1e-5
seed = 1235" "$(cat "$folder/run/lr-1e-5/seed-1235/settings.ini")"
mkdir "$folder/empty"
expect "medians of no seed" "no results in $folder/empty yet" "$(bash "$jobs/medians.sh" "$folder/empty")"
SLURM_ARRAY_TASK_ID=0 bash "$jobs/finetune.sbatch" SQUAD-2.0 3.9b "$folder/squad" >>"$folder/log" 2>&1
expect "without RATES the rate is the table's" "lr-1e-5" "$(ls "$folder/squad" | head -n 1)"
SLURM_ARRAY_TASK_ID=0 bash "$jobs/finetune.sbatch" RACE 2b "$folder/none" >>"$folder/log" 2>&1
expect "a model that is not in the table" 2 $?
element 6
expect "an element too many" 1 $status
grep -q "there is no element 6: --array=0-5 has the 2 rates with 3 seeds each" "$folder/log" || { echo "the log does not say why"; failed=1; }

sed -i 's/finetune.sbatch/evaluate.sbatch/' "$folder/bin/scontrol"
bash "$jobs/evaluate.sbatch" "$folder/run" --task mmlu --load x >>"$folder/log" 2>&1
expect "an evaluation" "eval --task mmlu --load x" "$(tail -n 1 "$folder/arguments")"
expect "its lines" 1 "$(grep -c '"accuracy"' "$folder/run/eval-7.jsonl")"
exit $failed
