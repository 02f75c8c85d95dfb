#!/bin/bash
# Checks that messages below src/app name fields, and that each field has its flag: usage flags.sh [REPOSITORY]
# 1. No string literal outside src/app holds a flag ("--lr"). Options of srun, which are another program's, may stand right
# behind its name. 2. Each "<field>" in such a literal is in the table of src/app/options/field_names.cpp or the option of a
# row of src/model/fields.cpp; literals with an end tag ("</g>") are markup. 3. src/app declares each flag of the table.
# Exit status 1 if anything is wrong.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"
table=src/app/options/field_names.cpp
rows=src/model/fields.cpp  # options of a model, which need no row of the table

folders=()
for folder in src cuda mpi io; do [ -d "$folder" ] && folders+=("$folder"); done
mapfile -t files < <(find "${folders[@]}" -path src/app -prune -o -regex '.*\.\(cpp\|hpp\|cu\|cuh\)' -print | sort)
[ ${#files[@]} -gt 0 ] && [ -f "$table" ] || { echo "no source files, or no $table, under $PWD"; exit 1; }

# Prints the names of the table; those of models are options of rows.
listed() { sed '/field_names =/,/;$/!d' "$table" | grep -oE '"[a-z0-9_ ]+"' | tr -d '"' | tr ' ' '\n' | sed '/^$/d'; }
names=$(listed; [ ! -f "$rows" ] || sed -nE 's/.*\.option = "([a-z0-9-]+).*/\1/p' "$rows" | tr - _)

faults=0
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
        fail(substr(literal, RSTART, RLENGTH) " is a flag: name the <field>, and give it a flag in '"$table"'")
      if (literal ~ /<\//) continue
      while (match(literal, /<[a-z][a-z0-9_{}]*>/)) {
        field = substr(literal, RSTART + 1, RLENGTH - 2)
        if (!(field in fields)) fail("<" field "> has no flag: add it to '"$table"'")
        literal = substr(literal, RSTART + RLENGTH)
      }
    }
  }
  END { exit faults }' <(printf '%s\n' "$names") "${files[@]}" || faults=1

flags=$(listed | tr _ -)
[ -n "$flags" ] || { echo "$table: no names of fields"; exit 1; }
declared=$(grep -rhoE '"[a-z0-9,-]+"' src/app --include=*.cpp --include=*.hpp --exclude=field_names.cpp | tr -d '"' | tr , '\n')
while IFS= read -r flag; do
  echo "$table: no command has the option --$flag"
  faults=1
done < <(grep -vxFf <(printf '%s\n' "$declared") <<<"$flags")
echo "${#files[@]} files, $(wc -w <<<"$flags") flags checked"
exit $faults
