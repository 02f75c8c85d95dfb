#!/bin/bash
# Checks that messages below src/app name fields, and that each field is an option: usage flags.sh [REPOSITORY]
# 1. No string literal outside src/app holds a flag ("--lr"). Options of srun, which are another program's, may stand
# right after its name. 2. Each "<field>" in such a literal is, with hyphens, an option that src/app declares or the
# option of a row of src/model/fields.cpp. Literals with an end tag ("</g>") are markup. Exit status 1 if anything is wrong.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"
rows=src/model/fields.cpp  # options of a model

folders=()
for folder in src cuda mpi io; do [ -d "$folder" ] && folders+=("$folder"); done
mapfile -t files < <(find "${folders[@]}" -path src/app -prune -o -regex '.*\.\(cpp\|hpp\|cu\|cuh\)' -print | sort)
[ ${#files[@]} -gt 0 ] && [ -d src/app ] || { echo "no source files, or no src/app, under $PWD"; exit 1; }

# The names of options, as fields: the first argument of add, add_flag and add_choice, and column `option` of the rows.
names=$({
  find src/app -name '*.cpp' -o -name '*.hpp' | xargs cat |
    grep -zoP '[.>]add(_flag|_choice)?(<[^;(]*>)?\(\s*"\K[a-z0-9,_-]+' | tr '\0,' '\n\n'
  [ ! -f "$rows" ] || sed -nE 's/.*\.option = "([a-z0-9-]+).*/\1/p' "$rows"
} | tr - _ | sort -u)
[ -n "$names" ] || { echo "src/app declares no options"; exit 1; }

awk '
  function fail(message) { print FILENAME ":" FNR ": " message; faults = 1 }
  NR == FNR { fields[$0]; next }
  /^ *#/ { next }
  {
    # Comments, literals and characters in the order of the line.
    for (rest = $0; match(rest, /\/\/.*|"([^"\\]|\\.)*"|\047([^\047\\]|\\.)+\047/); rest = substr(rest, start + length(text))) {
      start = RSTART
      text = substr(rest, start, RLENGTH)
      if (text !~ /^"/) continue
      literal = text
      gsub(/srun --[a-z]+/, "", literal)
      if (match(literal, /--[a-z][a-z0-9-]*/))
        fail(substr(literal, RSTART, RLENGTH) " is a flag: name the <field>")
      if (literal ~ /<\//) continue
      while (match(literal, /<[a-z][a-z0-9_{}]*>/)) {
        field = substr(literal, RSTART + 1, RLENGTH - 2)
        if (!(field in fields)) fail("<" field "> is not an option that src/app declares")
        literal = substr(literal, RSTART + RLENGTH)
      }
    }
  }
  END { exit faults }' <(printf '%s\n' "$names") "${files[@]}"
echo "${#files[@]} files, $(wc -l <<<"$names") options checked"
