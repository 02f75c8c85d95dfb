#!/bin/bash
# Checks how comments begin, and the length of README.md: usage prose.sh [REPOSITORY]
# 1. No comment (//, ///, ///<; # in scripts and CMake) begins with What, Who, Of or Whether: CONTRIBUTING.md, "Prose". A line that continues a
# sentence of the line above may. Comments after code may begin with neither these words nor the same in lower case.
# 2. README.md has at most 150 lines. Exit status 1 if anything is wrong.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

folders=()
for folder in src cuda mpi io bench tests jobs; do [ -d "$folder" ] && folders+=("$folder"); done
mapfile -t files < <(find "${folders[@]}" -regex '.*\.\(cpp\|hpp\|cu\|cuh\|sh\|sbatch\|ini\)\|.*/CMakeLists.txt' | sort)
[ ${#files[@]} -gt 0 ] || { echo "no source files under $PWD"; exit 1; }

faults=0
awk '
  FNR == 1 { above = ""; mark = FILENAME ~ /\.(cpp|hpp|cu|cuh)$/ ? "(//)" : "#" }
  {
    begins = $0 ~ ("(^|[^:\"\047/#])" mark "/?<? *(What|Who|Of|Whether) ")
    # Alone on its line, after a comment line that does not end a sentence: the middle of one.
    if (begins && $0 ~ "^ *" mark && above ~ "^ *" mark "/? *[^ /]" && above !~ /[.:!?]$/) begins = 0
    if ($0 ~ ("[^ /#].*[ ;{]" mark "/?<? *(of|what|who|whether) ")) begins = 1  # after code, in lower case
    if (begins) {
      sub(/^ +/, "")
      print FILENAME ":" FNR ": begin the comment with a verb or the noun it defines: " $0
      faults = 1
    }
    above = $0
  }
  END { exit faults }' "${files[@]}" || faults=1
if [ -f README.md ] && [ "$(wc -l <README.md)" -gt 150 ]; then
  echo "README.md: $(wc -l <README.md) lines, 150 is the limit: move reference to the folder it documents"
  faults=1
fi
echo "${#files[@]} files checked"
exit $faults
