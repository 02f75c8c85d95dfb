#!/bin/bash
# GPT-2's tokenizer on real texts, by processor time of one thread: this program, tiktoken and Hugging Face tokenizers in turn, in one run.
# usage: bench/tokenizer/run.sh ENCODER_JSON VOCAB_BPE TEXT...    prints a table for bench/results
#        bench/tokenizer/run.sh TOKENIZER_JSON - TEXT...    the same for another BPE, without tiktoken
# Environment: BUILD (default build/release, with data_bench), PYTHON (default python3, with the two libraries),
# REPETITIONS (default 9)
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,6s/^# //p' "$0"; exit 2; }
source "$(dirname "$0")/../common.sh"
use_build "${BUILD:-}" data_bench
repetitions=${REPETITIONS:-9}

"$build/data_bench" --benchmark_filter='encode/' --benchmark_repetitions="$repetitions" --benchmark_format=json \
  "$@" 2>/dev/null >"$work/own.json"
python=${PYTHON:-python3}
"$python" "$root/bench/peers/gpt2_tokenizers.py" "$1" "$2" "$repetitions" "${@:3}" >"$work/peers"
# A line a measurement: library, text, MB/s, tokens.
{
  "$python" -c '
import json, sys
for run in json.load(sys.stdin)["benchmarks"]:
    if run["run_type"] == "iteration":
        print("trireme", run["name"].split("/")[2], run["bytes_per_second"] / 1e6, int(run["tokens"]))' <"$work/own.json"
  awk '{ print $1, $2, $3 / $5 / 1e6, $4 }' "$work/peers"
} | sort -k2,2 -k1,1 -k3,3g | awk '
  function flush() {
    if (n == 0) return
    median[text, library] = value[int((n + 1) / 2)]
    shown[text, library] = sprintf("%.1f (%.1f to %.1f)", median[text, library], value[1], value[n])
    tokens[text, library] = count
    if (!(text in seen)) { seen[text] = 1; order[++texts] = text }
    n = 0
  }
  $1 != library || $2 != text { flush(); library = $1; text = $2 }
  { value[++n] = $3; count = $4 }
  END {
    flush()
    print "| text | tokens | this program, MB/s | tiktoken | ratio | tokenizers | ratio |"
    print "| --- | --- | --- | --- | --- | --- | --- |"
    for (i = 1; i <= texts; i++) {
      t = order[i]
      if (!((t, "tokenizers") in median)) continue
      if (!((t, "tiktoken") in median)) { tokens[t, "tiktoken"] = tokens[t, "trireme"]; shown[t, "tiktoken"] = "-" }
      if (tokens[t, "trireme"] != tokens[t, "tiktoken"] || tokens[t, "trireme"] != tokens[t, "tokenizers"]) {
        print "the numbers of tokens of " t " differ: " tokens[t, "trireme"], tokens[t, "tiktoken"], tokens[t, "tokenizers"]
        exit 1
      }
      ratio = (t, "tiktoken") in median ? sprintf("%.1f", median[t, "trireme"] / median[t, "tiktoken"]) : "-"
      printf "| %s | %d | %s | %s | %s | %s | %.1f |\n", t, tokens[t, "trireme"], shown[t, "trireme"],
             shown[t, "tiktoken"], ratio, shown[t, "tokenizers"],
             median[t, "trireme"] / median[t, "tokenizers"]
    }
  }'
