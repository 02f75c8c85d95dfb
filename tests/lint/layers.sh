#!/bin/bash
# Checks what a compiler does not: usage layers.sh [REPOSITORY]
# 1. Includes keep to the diagram in layers.txt. 2. Every header has #pragma once. 3. No file is longer than 600 lines;
# one longer than 400 is named. 4. The CPU and the CUDA backend override every kernel of src/backend/kernels, whose
# own bodies compute nothing. 5. Names are used with the headers that declare them, as far as declared.awk knows.
# Exit status 1 if anything is wrong.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}"

folders=()
for folder in src cuda mpi io bench tests; do [ -d "$folder" ] && folders+=("$folder"); done
mapfile -t files < <(find "${folders[@]}" -regex '.*\.\(cpp\|hpp\|cu\|cuh\)' | sort)
[ ${#files[@]} -gt 0 ] || { echo "no source files under $PWD"; exit 1; }

faults=0
awk -f "$here/includes.awk" "$here/layers.txt" "${files[@]}" || faults=1
awk -f "$here/declared.awk" "${files[@]}" pass=2 "${files[@]}" || faults=1
for file in "${files[@]}"; do
  case $file in
    *.hpp | *.cuh) grep -q '^#pragma once$' "$file" || { echo "$file: no #pragma once"; faults=1; } ;;
  esac
  lines=$(wc -l <"$file")
  if [ "$lines" -gt 600 ]; then
    echo "$file: $lines lines, 600 is the limit: give its parts rooms of their own"
    faults=1
  elif [ "$lines" -gt 400 ]; then
    echo "$file: warning: $lines lines, about 400 is plenty"
  fi
done
# names OPENING FILE...: prints the names of functions on a stream, declared with OPENING
names() { sed -n "/= 0;\$/d; s/^  $1 \([a-z_]*\)(Stream&.*/\1/p" "${@:2}" | sort -u; }
for backend in src/backend/cpu cuda/kernels; do
  for kernel in $(comm -23 <(names 'virtual void' src/backend/kernels/*) <(names void "$backend"/*)); do
    echo "$backend does not override the kernel $kernel"
    faults=1
  done
done
echo "${#files[@]} files checked"
exit $faults
