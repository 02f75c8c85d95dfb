#!/bin/bash
# Prints a table of a sweep: for each learning rate the number of finished seeds, and the median of each figure on the
# validation and test data, and on each of several sets of them.
# usage: jobs/medians.sh FOLDER    with the files FOLDER/lr-RATE/seed-SEED/results of jobs/finetune.sbatch
set -u
cd "${1:?usage: medians.sh FOLDER}" || exit 5
compgen -G 'lr-*/seed-*/results' >/dev/null || { echo "no results in $1 yet"; exit 0; }
for results in lr-*/seed-*/results; do
  rate=${results#lr-}
  # Lines "rate <tab> data <tab> figure <tab> value".
  grep '^{' "$results" | tail -n 1 | grep -o '"test": {\|"data": "[^"]*"\|]\|"\(accuracy\|exact\|f1\|matthews\|pearson\|spearman\)": [0-9.e-]*' |
    awk -F'"' -v OFS='\t' -v rate="${rate%%/*}" 'BEGIN { data = part = "valid" }
      $2 == "test" { data = part = "test"; next }
      $2 == "data" { data = part ": " $4; next }
      $1 == "]" { data = part; next }
      { print rate, data, $2, substr($3, 3) }'
done | sort -t $'\t' -k1,1g -k2,3 -k4,4g | awk -F'\t' '
  function end() {
    if (n == 0) return
    median = n % 2 ? value[(n + 1) / 2] : (value[n / 2] + value[n / 2 + 1]) / 2
    printf "%-10s %-10s %5d %10.4f %10.4f %10.4f  %s\n", rate, figure, n, median, value[1], value[n], data
  }
  BEGIN { printf "%-10s %-10s %5s %10s %10s %10s  %s\n", "lr", "figure", "seeds", "median", "least", "greatest", "data" }
  $1 != rate || $2 != data || $3 != figure { end(); n = 0; rate = $1; data = $2; figure = $3 }
  { value[++n] = $4 }
  END { end() }'
