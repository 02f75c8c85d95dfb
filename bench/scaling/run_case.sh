#!/bin/bash
# Runs one case of a set, and writes its line of results: FOLDER/result.json. submit.sh and its jobs call this.
# usage: bench/scaling/run_case.sh [--local] FOLDER [OPTION_OF_TRAIN...]
# --local: under mpirun on this machine (MPIRUN names it); where the case has a rate or a delay, in network namespaces.
# Exit status: 0; 1 where the case failed; 130 where a signal stopped it here, which leaves no result.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=cases.sh
source "$here/cases.sh"
source "$here/../../jobs/environment.sh"
local=
[ "$1" != --local ] || { local=1 && shift; }
folder=$1
shift
log=$folder/log

nodes_of "$folder"
if [ -n "$local" ]; then
  rate=$(value_of "$folder" rate) delay=$(value_of "$folder" delay)
  if [ -n "$rate$delay" ]; then
    LAUNCH=("$here/namespaces.sh" --nodes "$nodes" --ranks-per-node "$per_node"
      ${rate:+--rate "$rate"} ${delay:+--delay "$delay"})
  else
    LAUNCH=("${MPIRUN:-mpirun}" -np "$ranks" "$here/../../jobs/near_gpu.sh")
  fi
fi

# SLURM announces the time limit; mpirun and srun pass signals on.
stopped=
trap 'stopped="stopped at the time limit"; kill -TERM "$run" 2>/dev/null' TERM INT
"${LAUNCH[@]}" "$TRIREME" train --config "$folder/train.ini" --metrics-file "$folder/metrics.jsonl" "$@" >"$log" 2>&1 &
run=$!
wait $run
status=$?
[ -z "$stopped" ] || wait $run
trap '' TERM INT
[ -z "$stopped" ] || [ -z "$local" ] || exit 130

steps=$(value_of "$folder" steps 20) warm_up=$(value_of "$folder" warm-up 5)
[ -e "$folder/metrics.jsonl" ] || : >"$folder/metrics.jsonl"
reason=
if [ -n "$stopped" ]; then
  reason=$stopped
elif [ $status -ne 0 ]; then
  reason="exit code $status: $(reason_of "$log")"
elif [ "$(grep -c '"elapsed_ms"' "$folder/metrics.jsonl")" -ne $((steps + warm_up)) ]; then
  reason="$folder/metrics.jsonl has not $((steps + warm_up)) iterations"
fi

awk -v set="$(cat "$folder/../name")" -v name="$(basename "$folder")" -v ranks="$ranks" -v nodes="$nodes" -v reason="$reason" \
  -v warm_up="$warm_up" -v steps="$steps" -v log_file="$log" -v host="$(uname -n)" -v time="$(date -u +%FT%TZ)" '
  function member(line, key) {
    return match(line, "\"" key "\": *[-+.0-9e]+") ? substr(line, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : 0
  }
  function quoted(text) { gsub(/[\\"]/, "\\\\&", text); gsub(/[\001-\037]/, " ", text); return "\"" text "\"" }
  # Text after a pattern.
  function after(text, pattern) { return match(text, pattern) ? substr(text, RSTART + RLENGTH) : "" }
  # An iteration without an update takes less time than others: it does not count.
  /"elapsed_ms"/ && ++iterations > warm_up && /"skipped": true/ { skipped++; next }
  /"elapsed_ms"/ && iterations > warm_up {
    n++; ms = member($0, "elapsed_ms"); sum_ms += ms
    for (i = n; i > 1 && sorted[i - 1] > ms; --i) sorted[i] = sorted[i - 1]
    sorted[i] = ms
    tokens = member($0, "tokens_per_second") * ms / 1000
    # Printed digits are few where a step is short: the mean over the steps is better.
    flops += member($0, "tflops_per_rank") * ms / 1000
    exposed += member($0, "exposed_communication_ms")
    if (match($0, /"exposed_ms_by_group": *\{[^}]*\}/)) {
      groups = substr($0, RSTART, RLENGTH); sub(/^[^{]*\{/, "", groups); sub(/\}$/, "", groups)
      m = split(groups, part, /, */)
      for (i = 1; i <= m; ++i) {
        split(part[i], pair, /: */)
        if (!(pair[1] in by_group)) group_names[++group_count] = pair[1]
        by_group[pair[1]] += pair[2]
      }
    }
  }
  END {
    if (reason == "" && !n) reason = "all " skipped " iterations after the warm-up were skipped: a lower initial-loss-scale may help"
    while ((getline line <log_file) > 0) {
      text = substr(line, 10)
      if (commit == "" && text ~ /^Trireme /) { commit = after(text, "commit "); sub(/\).*/, "", commit) }
      if (text ~ /^[0-9]+ ranks? \(tensor /) {
        split("tensor pipeline context data", kinds, " ")
        for (i = 1; i <= 4; ++i) grid = grid (i > 1 ? ", " : "") "\"" kinds[i] "\": " after(text, kinds[i] " ") + 0
        device = after(text, "; backend ")
        sub(/ \((this machine has no|it was asked).*/, "", device)  # why it is no GPU
      }
      if (text ~ /^batch: /) { global_batch = after(text, "^batch: ") + 0; micro_batch = text; sub(/.* x /, "", micro_batch) }
      if (text ~ /^peak memory of the fullest rank/) { peak = text; sub(/.*\(/, "", peak); peak += 0 }
    }
    printf "{\"set\": %s, \"case\": %s, \"state\": \"%s\", ", quoted(set), quoted(name), (reason == "" ? "done" : "failed")
    if (reason != "") printf "\"reason\": %s, ", quoted(reason)
    printf "\"ranks\": %d, \"nodes\": %d, ", ranks, nodes
    if (reason == "") {
      printf "\"grid\": {%s}, \"micro_batch_size\": %d, \"global_batch_size\": %d, ", grid, micro_batch, global_batch
      median = n % 2 ? sorted[(n + 1) / 2] : (sorted[n / 2] + sorted[n / 2 + 1]) / 2
      printf "\"warm_up\": %d, \"steps\": %d, \"skipped_steps\": %d, \"median_ms\": %.3f, \"least_ms\": %.3f, \"greatest_ms\": %.3f, ",
        warm_up, n, skipped, median, sorted[1], sorted[n]
      printf "\"tokens_per_second\": %.1f, \"model_tflops_per_gpu\": %.6g, ", 1000 * tokens / median, 1000 * flops / n / median
      printf "\"tflops_convention\": \"model FLOPs: attention in full, no recomputation\", "
      printf "\"exposed_communication_share\": %.4f, \"exposed_ms_by_group\": {", exposed / sum_ms
      for (i = 1; i <= group_count; ++i) printf "%s%s: %.3f", (i > 1 ? ", " : ""), group_names[i], by_group[group_names[i]] / n
      printf "}, \"peak_memory_bytes\": %.0f, ", peak
    }
    printf "\"commit\": %s, \"host\": %s, \"device\": %s, \"time\": %s}\n", quoted(commit), quoted(host), quoted(device), quoted(time)
  }' "$folder/metrics.jsonl" >"$folder/result.json.new" && mv "$folder/result.json.new" "$folder/result.json"
grep -q '"state": "done"' "$folder/result.json" && exit 0
echo "$(basename "$folder") failed: $(sed 's/.*"reason": "\(.*\)", "ranks".*/\1/' "$folder/result.json")" >&2
exit 1
