#!/bin/bash
# Checks that messages name options that exist: usage flags.sh [REPOSITORY]
# 1. No string literal outside src/app holds a flag ("--lr"). 2. Each "<field>" in such a literal is, with hyphens, an option
# that src/app declares or the option of a row of src/model/fields.cpp. Literals with an end tag ("</g>") are markup.
# 3. Each flag in a literal of src/app is such an option, or begins one where it ends with a hyphen ("--train-{}"). In the
# tables of src/app/megatron it may be a flag of that program that has a row. Options of srun, mpirun, nsys and sbatch may
# stand after the program's name; src/app/commands/megatron, which reads the words of launchers, is left out.
# Exit status 1 if anything is wrong.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"
rows=src/model/fields.cpp  # options of a model

folders=()
for folder in src cuda mpi io; do [ -d "$folder" ] && folders+=("$folder"); done
mapfile -t files < <(find "${folders[@]}" -path src/app/commands/megatron -prune -o -regex '.*\.\(cpp\|hpp\|cu\|cuh\)' -print | sort)
[ ${#files[@]} -gt 0 ] && [ -d src/app ] || { echo "no source files, or no src/app, under $PWD"; exit 1; }

# The names of options, as fields: the first argument of add, add_flag, add_choice and add_optional, and column `option` of the rows.
names=$({
  find src/app -name '*.cpp' -o -name '*.hpp' | xargs cat |
    grep -zoP '[.>]add(_flag|_choice|_optional)?(<[^;(]*>)?\(\s*"\K[a-z0-9,_-]+' | tr '\0,' '\n\n'
  [ ! -f "$rows" ] || sed -nE 's/.*\.option = "([a-z0-9-]+).*/\1/p' "$rows"
} | tr - _ | sort -u)
[ -n "$names" ] || { echo "src/app declares no options"; exit 1; }
flags=$(find src/app/megatron -name 'flag*.cpp' -exec grep -ohP '(?<![a-z0-9-])[a-z][a-z0-9-]+' {} + 2>/dev/null | sort -u || true)

awk '
  function fail(message) { print FILENAME ":" FNR ": " message; faults = 1 }
  # Returns whether `flag` is an option, or begins one and ends with a hyphen.
  function is_option(flag, name) {
    sub(/^--/, "", flag)
    gsub(/-/, "_", flag)
    if (flag in fields || flag ~ /^(config|help|version)$/) return 1
    if (flag ~ /_$/) for (name in fields) if (index(name, flag) == 1) return 1
    return 0
  }
  BEGIN { program = "(srun|mpirun|nsys [^\"]*|#SBATCH) --[a-z-]+" }
  NR == FNR { fields[$0]; next }
  FILENAME == "-" { flags["--" $0]; next }
  /^ *#/ { next }
  {
    in_app = FILENAME ~ /^src\/app\//
    # Comments, literals and characters in the order of the line.
    for (rest = $0; match(rest, /\/\/.*|"([^"\\]|\\.)*"|\047([^\047\\]|\\.)+\047/); rest = substr(rest, start + length(text))) {
      start = RSTART
      text = substr(rest, start, RLENGTH)
      if (text !~ /^"/) continue
      literal = text
      gsub(program, "", literal)
      while (match(literal, /--[a-z][a-z0-9-]*/)) {
        flag = substr(literal, RSTART, RLENGTH)
        literal = substr(literal, 1, RSTART - 1) " " substr(literal, RSTART + RLENGTH)
        if (!in_app)
          fail(flag " is a flag: name the <field>")
        else if (!is_option(flag) && !(FILENAME ~ /^src\/app\/megatron\// && flag in flags))
          fail(flag " is not an option that src/app declares")
      }
      if (in_app || literal ~ /<\//) continue
      while (match(literal, /<[a-z][a-z0-9_{}]*>/)) {
        field = substr(literal, RSTART + 1, RLENGTH - 2)
        if (!(field in fields)) fail("<" field "> is not an option that src/app declares")
        literal = substr(literal, RSTART + RLENGTH)
      }
    }
  }
  END { exit faults }' <(printf '%s\n' "$names") - "${files[@]}" <<<"$flags"
echo "${#files[@]} files, $(wc -l <<<"$names") options checked"
