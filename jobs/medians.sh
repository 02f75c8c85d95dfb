#!/bin/bash
# Prints a table of a sweep: for each learning rate the number of finished seeds, and the median of each figure on the
# validation data.
# usage: jobs/medians.sh FOLDER    with the files FOLDER/lr-RATE/seed-SEED/results of jobs/finetune.sbatch
set -u
cd "${1:?usage: medians.sh FOLDER}" || exit 5
for results in lr-*/seed-*/results; do
  [ -e "$results" ] || { echo "no results in $1 yet"; exit 0; }
  rate=${results#lr-}
  # The figures before those of the test data.
  grep '^{' "$results" | tail -n 1 | sed 's/, "test".*//' | grep -o '"\(accuracy\|exact\|f1\)": [0-9.e-]*' | sed "s|^|${rate%%/*} |; s/[\":]//g"
done | sort -k1,1g -k2,2 -k3,3g | awk '
  function end() {
    if (n == 0) return
    median = n % 2 ? value[(n + 1) / 2] : (value[n / 2] + value[n / 2 + 1]) / 2
    printf "%-10s %-10s %5d %10.4f %10.4f %10.4f\n", rate, figure, n, median, value[1], value[n]
  }
  BEGIN { printf "%-10s %-10s %5s %10s %10s %10s\n", "lr", "figure", "seeds", "median", "least", "greatest" }
  $1 != rate || $2 != figure { end(); n = 0; rate = $1; figure = $2 }
  { value[++n] = $3 }
  END { end() }'
