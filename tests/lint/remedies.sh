#!/bin/bash
# Checks that remedies are followed: usage remedies.sh [REPOSITORY]
# A message that names a remedy is a string literal outside of the help of options that tells to do something with an option
# or a command of the program: "give <lr>", "Try --load", "needs <num_experts>". A text of a remedies_test.cpp below tests/app
# must hold words of it, or a row of tests/lint/remedies.txt says why no test follows
# it. Messages about flags of Megatron-LM are left out: tests/app/megatron follows their table. Exit status 1 if not.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"
table=tests/lint/remedies.txt

folders=()
for folder in src cuda mpi io; do [ -d "$folder" ] && folders+=("$folder"); done
mapfile -t files < <(find "${folders[@]}" -path src/app/megatron -prune -o -regex '.*\.\(cpp\|hpp\|cu\|cuh\)' -print | sort)
mapfile -t tests < <(find tests/app -name '*remedies_test.cpp' | sort)
[ ${#files[@]} -gt 0 ] && [ ${#tests[@]} -gt 0 ] || { echo "no source files, or no remedies_test.cpp, under $PWD"; exit 1; }

awk '
  # Adjacent literals are one. Those of a statement that declares an option, before its next semicolon, are help.
  function flush() {
    if (literal != "" && !is_help) found(place, literal)
    literal = ""
  }
  function code(text) {
    if (text ~ /[^ ]/) flush()
    if (match(text, /.*;/)) statement = substr(text, RLENGTH + 1)
    else statement = statement text
  }
  function with_flags(text, field) {
    while (match(text, /<[a-z][a-z0-9_]*>/)) {
      field = substr(text, RSTART + 1, RLENGTH - 2)
      gsub(/_/, "-", field)
      text = substr(text, 1, RSTART - 1) "--" field substr(text, RSTART + RLENGTH)
    }
    return text
  }
  function found(place, text) {
    text = with_flags(text)
    if (is_test) {
      texts[++text_count] = text
    } else if (text ~ remedy && !(text in at)) {
      at[text] = place
      messages[++message_count] = text
    }
  }
  # Returns whether a test has words of the message, or those of the remedy up to a part in {}.
  function is_followed(text, i, piece, rest, begin) {
    for (i = 1; i <= text_count; ++i) if (length(texts[i]) >= 8 && texts[i] ~ words && index(text, texts[i])) return 1
    rest = text
    while (match(rest, verb)) {
      begin = RSTART
      piece = substr(rest, begin)
      sub(/[{].*/, "", piece)
      sub(/[ .,:]+$/, "", piece)
      for (i = 1; i <= text_count; ++i) if (length(piece) >= 8 && index(texts[i], piece)) return 1
      rest = substr(rest, begin + RLENGTH)
    }
    return 0
  }
  BEGIN {
    verb = "([Tt]ry|[Gg]ive|[Ll]eave|[Uu]se|[Cc]hoose|[Nn]ame|[Bb]uild|[Mm]ake|[Ss]tart|[Tt]ake|[Tt]rain|[Ss]et|Test|[Rr]un|[Cc]ontinue|[Ll]oad|[Aa]dd|[Ll]ower|needs?|allows|must divide) "
    words = "(" verb "|--[a-z])"
    remedy = "(^|[.:;,(] |, or | or | and |[a-z0-9}>] )" verb ".*(--[a-z]|trireme [a-z])|--[a-z].*[.:;] [Ll]eave (it|them|the option) out|--[a-z-]+ (allows|skip leaves)"
  }
  FNR == 1 { flush(); statement = ""; is_test = FILENAME ~ /^tests\/app/ }
  FILENAME ~ /remedies.txt$/ {
    if ($0 ~ /^(#.*)?$/) next
    if (split($0, part, " \\| ") != 2) { print FILENAME ": not \"message | reason\": " $0; faults = 1; next }
    rows[++row_count] = part[1]
    next
  }
  /^ *#/ { next }
  {
    for (rest = $0; match(rest, /\/\/.*|"([^"\\]|\\.)*"|\047([^\047\\]|\\.)+\047/); rest = substr(rest, start + length(token))) {
      start = RSTART
      token = substr(rest, start, RLENGTH)
      code(substr(rest, 1, start - 1))
      if (token !~ /^"/) continue
      if (literal == "") {
        place = FILENAME ":" FNR
        is_help = statement ~ /[.>]add(_flag|_choice|_arguments?)?(<[^(]*>)?\(|Options [a-z_]+\(|add_[a-z_]+\(options|help =/
      }
      literal = literal substr(token, 2, length(token) - 2)
    }
    code(rest)
  }
  END {
    flush()
    for (i = 1; i <= message_count; ++i) {
      text = messages[i]
      followed = is_followed(text)
      excused = 0
      for (k = 1; k <= row_count; ++k) if (index(text, rows[k])) { excused = 1; used[k] = 1; stale[k] = followed }
      if (followed) ++followed_count
      else if (!excused) {
        print at[text] ": no test follows the remedy: " text
        faults = 1
      }
    }
    for (k = 1; k <= row_count; ++k) {
      if (!used[k]) { print "tests/lint/remedies.txt: no message holds: " rows[k]; faults = 1 }
      else if (stale[k]) { print "tests/lint/remedies.txt: a test follows: " rows[k]; faults = 1 }
    }
    print message_count " remedies, " followed_count " followed by tests"
    exit faults
  }' "${tests[@]}" "$table" "${files[@]}"
