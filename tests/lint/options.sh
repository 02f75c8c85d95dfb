#!/bin/bash
# Checks the table of options: usage options.sh TRIREME [REPOSITORY]
# 1. Each option that the help of a command prints has a row in tests/lint/options.txt. 2. Each row has such an option.
# 3. Each test exists; a file also holds the option's name or the text that the row gives. Exit status 1 if not.
set -euo pipefail
trireme=$(realpath "$1")
cd "${2:-$(dirname "$0")/../..}"
table=tests/lint/options.txt
faults=0
fail() {
  echo "$table: $*"
  faults=1
}

# Prints the first name of each option of a command; of a parent command those of its subcommands.
options_of() {
  local help words word
  help=$("$trireme" "$@" --help)
  words=$(sed -nE '1s/^Usage: .* ([a-z]+(\|[a-z]+)+) \[OPTION\].*/\1/p' <<<"$help")
  if [ -z "$words" ]; then
    sed -nE 's/^  (--[a-z0-9-]+).*/\1/p' <<<"$help"
  else
    for word in ${words//|/ }; do options_of "$1" "$word"; done
  fi
}

# In the overview the name of a command, of one word or two, ends before two blanks.
mapfile -t commands < <("$trireme" --help | sed -nE 's/^  ([a-z]+)( [a-z]+)? +.*/\1/p' | sort -u)
printed=$(for command in "${commands[@]}"; do options_of "$command"; done | grep -vx -- --help | sort -u)
[ -n "$printed" ] || { echo "$trireme prints no options"; exit 1; }

cases=$(grep -rhoE --include='*.cpp' '^TEST[A-Z_]*\([A-Za-z0-9_]+, [A-Za-z0-9_]+' tests | sed -E 's/^[A-Z_]*\((.*), /\1./' || true)
row='^(--[a-z0-9-]+) \| ([^|]+) \| ([^|]+)$'
rows=()
while IFS= read -r line; do
  [[ $line =~ ^(#.*)?$ ]] && continue
  [[ $line =~ $row ]] || { fail "'$line' is no row '--option | change | test'"; continue; }
  option=${BASH_REMATCH[1]} proofs=${BASH_REMATCH[3]}
  rows+=("$option")
  while IFS= read -r proof; do
    file=tests/${proof%%:*} text=${proof#*:}
    if [[ $proof =~ ^[A-Za-z0-9_]+\.[A-Z][A-Za-z0-9_]+$ ]]; then
      grep -qxF -- "$proof" <<<"$cases" || fail "$option: there is no test case $proof"
    elif [ ! -f "$file" ]; then
      fail "$option: there is no $file"
    elif [[ $proof == *:* ]]; then
      grep -qF -- "$text" "$file" || fail "$option: $file does not hold '$text'"
    else
      grep -qE -- "(^|[^a-z0-9-])-*${option#--}([^a-z0-9-]|$)" "$file" || fail "$option: $file does not hold the option"
    fi
  done <<<"${proofs//, /$'\n'}"
done <"$table"
listed=$(printf '%s\n' "${rows[@]}" | sort)
while IFS= read -r option; do fail "$option has no row: add '$option | change | test'"; done < \
  <(comm -23 <(echo "$printed") <(sort -u <<<"$listed"))
while IFS= read -r option; do fail "$option: no command has it"; done < \
  <(comm -13 <(echo "$printed") <(sort -u <<<"$listed"))
while IFS= read -r option; do fail "$option has several rows"; done < <(uniq -d <<<"$listed")
echo "$(wc -l <<<"$printed") options of ${#commands[@]} commands checked"
exit $faults
