#!/bin/bash
# The texts that bench/papers/bert_reads.awk makes of questions: exchanged choices, and statements for pretraining.
set -uo pipefail
texts=$(cd "$(dirname "$0")/../../bench/papers" && pwd)/bert_reads.awk
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
expect() {  # EXPECTED ACTUAL
  [ "$1" = "$2" ] || { printf 'expected: %s\n but was: %s\n' "$1" "$2"; failed=1; }
}

cat >"$folder/a.jsonl" <<'J'
{"answers": ["B", "A"], "options": [["Tom", "Ann", "Tom Fox", "Jo"], ["a \"T&T\" box", "x", "y", "z"]], "questions": ["Who left?", "_ was found."], "article": "Ann left.\nTom Fox and Tomas met Tom; options: a \"T&T\" box.", "id": "1"}
J
expect '{"text": "who left? ann\n\nann left.\ntom fox and tomas met tom; options: a \"t&t\" box."}
{"text": "a \"t&t\" box was found.\n\nann left.\ntom fox and tomas met tom; options: a \"t&t\" box."}' \
  "$(awk -v statements=1 -f "$texts" "$folder/a.jsonl")"

# The names of the first question are exchanged for each other, whole words and the longest ones first.
awk -v copies=50 -f "$texts" "$folder/a.jsonl" "$folder/a.jsonl" >"$folder/copies"
expect 51 "$(wc -l <"$folder/copies")"
expect "$(cat "$folder/a.jsonl")" "$(head -n 1 "$folder/copies")"
expect 51 "$(grep -c '"answers": \["B", "A"\].* and Tomas met ' "$folder/copies")"
[ "$(grep -o '"options": \[\[[^]]*\]' "$folder/copies" | sort -u | wc -l)" -gt 12 ] || { echo "few orders in 50"; failed=1; }
# The right answer stays right: the second name of the options begins the article.
expect 51 "$(sed -n 's/.*"options": \[\["[^"]*", "\([^"]*\)".*"article": "\1 left\..*/\1/p' "$folder/copies" | wc -l)"

# Two files are read like one.
head -n 1 "$folder/a.jsonl" >"$folder/b.jsonl"
expect 4 "$(awk -v copies=1 -f "$texts" "$folder"/[ab].jsonl "$folder"/[ab].jsonl | wc -l)"
exit $failed
