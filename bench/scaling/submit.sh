#!/bin/bash
# Runs a set of cases, each a job of SLURM; without sbatch, or with --local, one after another under mpirun here. A case that
# has a result is not run again, so an interrupted set continues where it stopped.
# usage: bench/scaling/submit.sh SET [--folder FOLDER] [--dry-run] [--local] [--again | --again-failed] [-- OPTION_OF_TRAIN...]
#   SET: weak, strong, heads, tiny, or an INI file of cases (README.md)
# FOLDER, ./scaling-SET by default, must be visible on all nodes. --dry-run prints the jobs and runs nothing. Options of train
# after -- apply to all cases, before their own. Account and partition: SBATCH_ACCOUNT, SBATCH_PARTITION ... (man sbatch).
# Environment: TRIREME (the program), SCALING_CORPUS (a corpus to train on; by default one of random words is made).
# Exit status: 0, where all jobs were submitted or all cases ran; 1: a case failed; 2: the set or the usage is wrong; 130:
# interrupted.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=cases.sh
source "$here/cases.sh"
refuse() {  # TEXT
  echo "$1" >&2
  exit 2
}

set='' folder='' dry_run='' again=none local=''
while [ $# -gt 0 ]; do
  case $1 in
    --folder) folder=${2:-} && [ -n "$folder" ] || refuse "--folder needs a folder."; shift ;;
    --dry-run) dry_run=1 ;;
    --local) local=1 ;;
    --again) again=all ;;
    --again-failed) again=failed ;;
    --) shift; break ;;
    -*) refuse "There is no option $1. $(sed -n 's/^# usage: /usage: /p' "$0")" ;;
    *) [ -z "$set" ] || refuse "Two sets, $set and $1: name one."; set=$1 ;;
  esac
  shift
done
[ -n "$set" ] || refuse "$(sed -n 's/^# usage: /usage: /p' "$0")"
file=$(set_file "$set")
name=$(basename "$file" .ini)
folder=$(realpath -m "${folder:-scaling-$name}")
values=$(read_set "$file")
source "$here/../../jobs/environment.sh"
TRIREME=$(realpath "$TRIREME")

if [ -z "$local" ] && ! command -v sbatch >/dev/null; then
  echo "There is no sbatch here: the cases run under mpirun on this machine, one after another." >&2
  local=1
fi

# Finds a misspelt option before it wastes an allocation.
known=" $("$TRIREME" train --help | grep -oE -- '--[a-z0-9-]+' | xargs) "
while IFS=$'\t' read -r case key _ line; do
  [[ $case = - || $case_keys == *" $key "* || $known == *" --$key "* ]] ||
    refuse "$file:$line: $key is neither a key of a case ($(echo $case_keys)) nor an option of trireme train."
  [[ $key != rate && $key != delay ]] || [ -n "$local" ] ||
    refuse "$file:$line: $key is set in network namespaces, which --local uses; the network of a cluster cannot be slowed."
done <<<"$values"

work=$folder
[ -z "$dry_run" ] || { work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT; }
mkdir -p "$work"
exec 9>"$work/lock"
flock -n 9 || refuse "Another submit.sh works in $folder: wait for its end, or give another --folder."
[ "$(cat "$work/name" 2>/dev/null || echo "$name")" = "$name" ] ||
  refuse "$folder holds the set $(cat "$work/name"): give $name another --folder."
cp "$file" "$work/set.ini.new" && mv "$work/set.ini.new" "$work/set.ini"
echo "$name" >"$work/name"

corpus=${SCALING_CORPUS:-$folder/corpus.h5}
if [ -z "$dry_run" ] && [ ! -e "$corpus" ]; then
  awk 'BEGIN { srand(1); for (d = 0; d < 2000; ++d) { t = ""; for (w = 0; w < 120; ++w) t = t sprintf("%d ", 10000 * rand() ^ 3)
    print "{\"text\": \"" t "\"}" } }' >"$work/corpus.jsonl"
  "$TRIREME" corpus build --input "$work/corpus.jsonl" --output "$corpus" --tokenizer bytes --append-eod 2>"$work/corpus.log" ||
    refuse "Making the corpus $corpus failed: $(tail -n 1 "$work/corpus.log")"
  rm "$work/corpus.jsonl"
fi

# values_of CASE: lines KEY<tab>VALUE that determine its result, with the options of train for all cases.
options=
[ $# -eq 0 ] || options=$(printf ' %q' "$@")
values_of() {
  awk -F'\t' -v id="$1" -v OFS='\t' '$1 == id && $2 !~ /^(series|published|against)$/ { print $2, $3 }' <<<"$values" | sort
  [ -z "$options" ] || printf -- '--\t%s\n' "$options"
}

# Writes the files of the case in the folder $1: `case`, train.ini and job.sbatch.
write_case() {
  local at=$1 id steps warm_up gpus
  id=$(basename "$at")
  mkdir -p "$at"
  values_of "$id" >"$at/case"
  steps=$(value_of "$at" steps 20) warm_up=$(value_of "$at" warm-up 5)
  {
    awk -F'\t' -v keys="$case_keys" '!index(keys, " " $1 " ") && $1 != "--" { print $1 " = " $2 }' "$at/case"
    grep -q '^lr	' "$at/case" || echo "lr = 1e-4"
    grep -q '^eval-iters	' "$at/case" || echo "eval-iters = 0"
    echo "train-iters = $((steps + warm_up))"
    echo "data-path = $corpus"
    echo "time-communication = true"
  } >"$at/train.ini"
  nodes_of "$at"
  gpus="#SBATCH --gpus-per-node=$per_node"
  grep -q '^backend	cpu' "$at/case" && gpus=
  cat >"$at/job.sbatch" <<J
#!/bin/bash
#SBATCH --job-name=scaling-$name
#SBATCH --dependency=singleton
#SBATCH --nodes=$nodes
#SBATCH --ntasks-per-node=$per_node
$gpus
#SBATCH --cpus-per-task=$(value_of "$at" cpus-per-rank 12)
#SBATCH --exclusive
#SBATCH --time=$(value_of "$at" time-limit 00:30:00)
#SBATCH --signal=B:TERM@30
#SBATCH --output="$folder/$id/job.log"
TRIREME=$(printf %q "$TRIREME") exec $(printf '%q %q' "$here/run_case.sh" "$folder/$id")$options
J
  sed -i '/^$/d' "$at/job.sbatch"
}

# is_due FOLDER: returns whether the case must run; prints why not.
is_due() {
  local id job
  id=$(basename "$1")
  if [ -s "$1/result.json" ] && ! cmp -s "$1/case" <(values_of "$id"); then
    echo "$id: has changed since its result"
  elif [ -s "$1/result.json" ]; then
    case $again:$(grep -o '"state": "[a-z]*"' "$1/result.json") in
      all:* | failed:*failed*) ;;
      *) echo "$id: has a result"; return 1 ;;
    esac
  fi
  job=$(cat "$1/job" 2>/dev/null) || return 0
  [ -n "$local" ] || [ -z "$(squeue -h -j "$job" -o %T 2>/dev/null)" ] || { echo "$id: job $job is in the queue"; return 1; }
}

failed=0
while read -r id; do
  at=$work/$id
  if [ -n "$dry_run" ]; then
    write_case "$at"
    echo "== $id"
    cat "$at/job.sbatch"
    echo "-- train.ini"
    cat "$at/train.ini"
    continue
  fi
  is_due "$at" || continue
  rm -rf "$at"
  write_case "$at"
  if [ -n "$local" ]; then
    echo "$id: $ranks ranks"
    TRIREME=$TRIREME "$here/run_case.sh" --local "$at" "$@" </dev/null 9>&- &
    run=$!
    trap 'kill -TERM $run; wait $run || true; echo "interrupted; submit.sh continues with $id" >&2; exit 130' INT TERM
    wait $run || failed=1
    trap - INT TERM
  else
    job=$(sbatch --parsable "$at/job.sbatch")
    echo "${job%%;*}" >"$at/job"
    echo "$id: job $job, $nodes nodes of $per_node ranks"
  fi
done < <(awk -F'\t' '$1 != "-" && !seen[$1]++ { print $1 }' <<<"$values")

[ -n "$dry_run" ] || echo "Table and plots: bench/scaling/report.sh $folder"
exit $failed
