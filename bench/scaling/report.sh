#!/bin/bash
# Collects the results of a set: a table beside the published figures, and two plots. Cases that failed or have not run are
# rows that say why. With a cluster, what trireme plan predicts for it stands beside them.
# usage: bench/scaling/report.sh FOLDER|SET [--cluster NAME_OR_FILE [OPTION_OF_TRAIN...]]    FOLDER: where submit.sh worked
# Writes FOLDER/results.jsonl, table.md, scaling.svg and exposed.svg, and prints the table. A SET has not run: its predictions
# are printed alone, with these options of train for all of its cases. Exit status 1: a case has no result, or no prediction where one was asked for.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=cases.sh
source "$here/cases.sh"
folder=${1:-} cluster=
[ "${2:-}" != --cluster ] || cluster=${3:-}
if [ $# -ne 1 ] && [ -z "$cluster" ]; then
  sed -n 's/^# usage: /usage: /p' "$0" >&2
  exit 2
fi
options_of_all=("${@:4}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ ! -s "$folder/set.ini" ]; then
  set=$(set_file "$folder")
  [ -f "$set" ] || { echo "There is no set in \"$folder\". $(sed -n 's/^# usage: /usage: /p' "$0")" >&2; exit 2; }
  folder=$scratch
  cp "$set" "$folder/set.ini"
  basename "$set" .ini >"$folder/name"
fi
values=$(read_set "$folder/set.ini")
if [ ${#options_of_all[@]} -gt 0 ] && [ "$folder" != "$scratch" ]; then
  echo "$folder has run with options of its own: give ${options_of_all[*]} with a SET." >&2
  exit 2
fi

# Prints the line of results of a case; of one without, why.
result_of() {
  local at=$folder/$1 state=not_run reason="not run yet" job
  if [ -s "$at/result.json" ]; then
    cat "$at/result.json"
    return
  fi
  job=$(cat "$at/job" 2>/dev/null) || job=
  if [ -n "$job" ] && command -v squeue >/dev/null && job_state=$(squeue -h -j "$job" -o %T 2>/dev/null) && [ -n "$job_state" ]; then
    reason="job $job: $job_state"
  elif [ -e "$at/log" ] || [ -e "$at/job.log" ]; then
    state=failed reason="ended without a result: $( (cat "$at/log" "$at/job.log" 2>/dev/null || true) | reason_of -)"
  fi
  reason=${reason//[\\\"]/\'}
  echo "{\"set\": \"$(cat "$folder/name")\", \"case\": \"$1\", \"state\": \"$state\", \"reason\": \"$reason\"}"
}
cases=$(awk -F'\t' '$1 != "-" && !seen[$1]++ { print $1 }' <<<"$values")
for id in $cases; do result_of "$id"; done >"$folder/results.jsonl"

# Prints CASE<tab>MILLISECONDS<tab>TOKENS/S<tab>TFLOP/S A RANK as trireme plan predicts them; nothing where it refuses.
prediction_of() {
  local at=$scratch/$1 options
  mkdir -p "$at"
  awk -F'\t' -v id="$1" -v OFS='\t' '$1 == id { print $2, $3 }' <<<"$values" >"$at/case"
  nodes_of "$at"
  awk -F'\t' 'NR == FNR { known[$1]; next } ("--" $1) in known { print $1 " = " $2 }' <(echo "$known") "$at/case" |
    grep -v '^backend' >"$at/plan.ini"
  # Options of train for all cases, as submit.sh quoted them.
  options=$(sed -n 's/^--\t//p' "$folder/$1/case" 2>/dev/null) || options=
  eval "set -- $options"
  [ "$folder" != "$scratch" ] || set -- "${options_of_all[@]}"
  if ! "$TRIREME" plan --config "$at/plan.ini" --cluster "$cluster" --nodes "$nodes" --ranks-per-node "$per_node" \
    --no-search --json "$@" >"$at/plan.json" 2>"$at/log"; then
    echo "$id: no prediction: $(reason_of "$at/log")" >&2
    return
  fi
  awk -v id="$id" '
    { line = $0; gsub(/[",]/, "", line); split(line, word, ": *") ; gsub(/ /, "", word[1])
      if (!(word[1] in value)) value[word[1]] = word[2] }
    END { print id "\t" value["step_ms"] "\t" value["tokens_per_second"] "\t" value["tflops_per_rank"] }' "$at/plan.json"
}
: >"$scratch/predictions"
if [ -n "$cluster" ]; then
  source "$here/../../jobs/environment.sh"
  known=$("$TRIREME" plan --help | grep -oE -- '--[a-z0-9-]+')
  for id in $cases; do prediction_of "$id"; done >"$scratch/predictions"
fi

has_run=1
[ "$folder" != "$scratch" ] || has_run=0
awk -F'\t' -v cluster="$cluster" -v has_run=$has_run -v table="$folder/table.md" -v scaling="$folder/scaling.svg" -v exposed_plot="$folder/exposed.svg" '
  function member(line, key) {  # a number
    return match(line, "\"" key "\": *[-+.0-9e]+") ? substr(line, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : ""
  }
  function text_member(line, key) {
    if (!match(line, "\"" key "\": \"([^\"\\\\]|\\\\.)*\"")) return ""
    line = substr(line, RSTART + length(key) + 5, RLENGTH - length(key) - 6)
    gsub(/\\/, "", line); gsub(/\|/, "/", line)
    return line
  }
  function row(text) { print text; print text >table }
  function ratio(a, b) { return a != "" && b > 0 ? a / b : "" }
  function shown(number, format) { return number == "" ? "-" : sprintf(format, number) }

  # Drawing. A plot has a slot for each case, and a gap between two series.
  function text(file, x, y, words, more) {
    gsub(/&/, "\\&amp;", words); gsub(/</, "\\&lt;", words)
    printf "<text x=\"%.1f\" y=\"%.1f\" font-family=\"sans-serif\" font-size=\"12\" %s>%s</text>\n", x, y, more, words >file
  }
  function box(file, x, y, width, height, style) {
    printf "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" %s/>\n", x, y, width, height, style >file
  }
  function slot(c) { return 60 + slot_width * (c - 1) + 30 * series_number[c] }
  function y_of(value) { return 320 - 270 * value / top }
  function begin_plot(file, heading, step,   c, v) {
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"400\">\n", slot(cases) + slot_width + 16 >file
    box(file, 0, 0, slot(cases) + slot_width + 16, 400, "fill=\"white\"")
    text(file, 60, 24, heading, "font-weight=\"bold\"")
    for (v = 0; v <= top + 1e-9; v += step) {
      text(file, 54, y_of(v) + 4, v, "text-anchor=\"end\"")
      printf "<path d=\"M60 %.1fH%d\" stroke=\"#ddd\"/>\n", y_of(v), slot(cases) + slot_width >file
    }
    for (c = 1; c <= cases; ++c) {
      text(file, slot(c) + slot_width / 2, 338, name_of[c], "text-anchor=\"middle\"")
      if (state[c] != "done") text(file, slot(c) + slot_width / 2, 312, state[c] == "failed" ? "failed" : "not run", "text-anchor=\"middle\" fill=\"#c0392b\"")
      if (c == 1 || series_of[c] != series_of[c - 1]) text(file, slot(c), 362, series_of[c])
    }
  }
  function bar(c, place, height, colour) {
    if (height != "") box(scaling, slot(c) + slot_width / 2 + 24 * place, y_of(height), 22, 320 - y_of(height), "fill=\"" colour "\"")
  }
  function legend(file, at, colour, words) {
    box(file, at, 378, 12, 12, "fill=\"" colour "\""); text(file, at + 17, 389, words)
    return at + 40 + 7 * length(words)
  }

  kind == "values" {
    if ($1 == "-") { of_set[$2] = $3; next }
    if (!($1 in number)) { number[$1] = ++cases; name_of[cases] = $1 }
    value[$1, $2] = $3
    next
  }
  kind == "predictions" {
    c = number[$1]; predicted_ms[c] = $2; predicted_tokens[c] = $3; predicted_tflops[c] = $4
    next
  }
  {
    c = number[text_member($0, "case")]
    state[c] = text_member($0, "state"); reason[c] = text_member($0, "reason")
    ranks[c] = value[name_of[c], "ranks"]
    if (state[c] != "done") { bad = bad || has_run || cluster == ""; next }
    nodes[c] = member($0, "nodes")
    grid[c] = member($0, "tensor") " x " member($0, "pipeline") " x " member($0, "context") " x " member($0, "data")
    batch[c] = member($0, "micro_batch_size") " of " member($0, "global_batch_size")
    median[c] = member($0, "median_ms"); least[c] = member($0, "least_ms"); greatest[c] = member($0, "greatest_ms")
    tokens[c] = member($0, "tokens_per_second"); tflops[c] = member($0, "model_tflops_per_gpu")
    exposed[c] = member($0, "exposed_communication_share"); peak[c] = member($0, "peak_memory_bytes")
    commits[text_member($0, "commit")]; devices[text_member($0, "device") " on " text_member($0, "host")]
    convention = text_member($0, "tflops_convention")
    if (match($0, /"exposed_ms_by_group": *\{[^}]*\}/)) {
      groups = substr($0, RSTART, RLENGTH); sub(/^[^{]*\{/, "", groups); sub(/\}$/, "", groups)
      m = split(groups, part, /, */)
      for (i = 1; i <= m; ++i) {
        split(part[i], pair, /: */); gsub(/"/, "", pair[1])
        if (!(pair[1] in group_number)) { group_number[pair[1]] = ++group_count; group_of[group_count] = pair[1] }
        by_group[c, group_number[pair[1]]] = pair[2]; of_groups[c] += pair[2]
      }
    }
  }
  END {
    slot_width = 84
    speed_up = of_set["measure"] == "speed-up"
    measure = speed_up ? "speed-up" : "efficiency"
    format = speed_up ? "%.2f" : "%.3g %%"
    for (c = 1; c <= cases; ++c) {
      name = name_of[c]; series_of[c] = value[name, "series"]
      if (7.2 * length(name) + 8 > slot_width) slot_width = 7.2 * length(name) + 8
      series_number[c] = c > 1 ? series_number[c - 1] + (series_of[c] != series_of[c - 1]) : 0
      if (!(series_of[c] in first)) first[series_of[c]] = c
      base[c] = (name, "against") in value ? number[value[name, "against"]] : first[series_of[c]]
    }
    row("### " (of_set["title"] != "" ? of_set["title"] : "Scaling")); row("")
    row("| case | ranks | nodes | T x P x C x D | micro of global batch | step, ms (least to greatest) | tokens/s | TFLOP/s a rank | exposed | peak memory | efficiency | " \
      (speed_up ? "speed-up | " : "") (cluster != "" ? "predicted step, ms | measured / predicted | predicted " measure " | " : "") \
      "published " measure " |")
    row("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | " (speed_up ? "---: | " : "") (cluster != "" ? "---: | ---: | ---: | " : "") "---: |")
    for (c = 1; c <= cases; ++c) {
      b = base[c]
      efficiency[c] = ratio(tflops[c], tflops[b]); gain[c] = ratio(tokens[c], tokens[b])
      published[c] = (name_of[c], "published") in value ? value[name_of[c], "published"] + 0 : ""
      any_published = any_published || published[c] != ""
      predicted[c] = speed_up ? ratio(predicted_tokens[c], predicted_tokens[b]) : 100 * ratio(predicted_tflops[c], predicted_tflops[b])
      if (cluster != "" && predicted_ms[c] == "") { predicted[c] = ""; bad = 1 }
      last = cluster == "" ? "" : shown(predicted_ms[c], "%.1f") " | " shown(ratio(median[c], predicted_ms[c]), "%.2f") " | " \
        shown(predicted[c], format) " | "
      last = last shown(published[c], format) " |"
      if (state[c] != "done") {
        row("| " name_of[c] " | " ranks[c] " | " (state[c] == "failed" ? "failed: " : "") reason[c] " | | | | | | | | | " (speed_up ? "| " : "") last)
        continue
      }
      row(sprintf("| %s | %d | %d | %s | %s | %.1f (%.1f to %.1f) | %.0f | %.4g | %.1f %% | %s | %s | %s%s", name_of[c], ranks[c], nodes[c],
        grid[c], batch[c], median[c], least[c], greatest[c], tokens[c], tflops[c], 100 * exposed[c],
        peak[c] < 1e9 ? sprintf("%.1f MB", peak[c] / 1e6) : sprintf("%.1f GB", peak[c] / 1e9),
        shown(efficiency[c] == "" ? "" : 100 * efficiency[c], "%.0f %%"), speed_up ? shown(gain[c], "%.2f") " | " : "", last))
    }
    row("")
    row("T, P, C and D: ranks of a tensor, pipeline, context and data group. Exposed: share of the step in which communication delayed a rank, mean over the ranks.")
    row("Efficiency" (speed_up ? " and speed-up" : "") ": against the first case of the series, or the one that the set names." (convention != "" ? " TFLOP/s: " convention "." : ""))
    if (cluster != "") row("Predicted: by trireme plan, for the cluster " cluster ".")
    for (commit in commits) row("Commit " commit ".")
    for (device in devices) row("Device: " device ".")

    top = 100
    for (c = 1; c <= cases; ++c) {
      measured[c] = speed_up ? gain[c] : efficiency[c] == "" ? "" : 100 * efficiency[c]
      most = predicted[c] + 0 > measured[c] + 0 ? predicted[c] : measured[c]
      if (most + 0 > top && !speed_up) top = 20 * int(most / 20 + 1)
    }
    if (speed_up) {
      top = 1
      for (c = 1; c <= cases; ++c) { if (measured[c] + 0 > top) top = measured[c]; if (published[c] + 0 > top) top = published[c]
        if (predicted[c] + 0 > top) top = predicted[c] }
      top = int(top + 0.999)
    }
    begin_plot(scaling, of_set["title"] (speed_up ? ": speed-up" : ": efficiency, %"), speed_up ? (top > 8 ? int(top / 8 + 1) : top > 2 ? 1 : 0.25) : 20)
    for (c = 1; c <= cases; ++c) {
      bar(c, -1.5, measured[c], "#2255aa"); bar(c, -0.5, predicted[c], "#2e8b57"); bar(c, 0.5, published[c], "#bbbbbb")
    }
    at = legend(scaling, 60, "#2255aa", "measured")
    if (cluster != "") at = legend(scaling, at, "#2e8b57", "predicted")
    if (any_published) legend(scaling, at, "#bbbbbb", "published")
    print "</svg>" >scaling

    split("#2255aa #c0392b #2e8b57 #d4a017 #7d3c98 #138d90 #7f8c8d #e67e22", colour, " ")
    top = 100
    begin_plot(exposed_plot, of_set["title"] ": exposed communication, % of the step", 20)
    for (c = 1; c <= cases; ++c) {
      at = 0
      for (g = 1; g <= group_count; ++g) if (by_group[c, g] > 0) {
        by_group[c, g] *= 100 * exposed[c] / of_groups[c]
        box(exposed_plot, slot(c) + slot_width / 2 - 20, y_of(at + by_group[c, g]), 40, 270 * by_group[c, g] / top, "fill=\"" colour[g] "\"")
        at += by_group[c, g]
      }
    }
    at = 60
    for (g = 1; g <= group_count; ++g) at = legend(exposed_plot, at, colour[g], group_of[g])
    print "</svg>" >exposed_plot
    exit bad
  }' kind=values <(echo "$values") kind=predictions "$scratch/predictions" kind=results "$folder/results.jsonl"
