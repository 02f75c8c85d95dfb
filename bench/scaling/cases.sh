# shellcheck shell=bash disable=SC2034  # its readers use the variables
# Sourced by submit.sh, run_case.sh and report.sh: sets of cases, and the files of a case.

# Keys for running and showing a case. All other keys are options of trireme train.
case_keys=" series ranks ranks-per-node cpus-per-rank time-limit warm-up steps rate delay published against "
set_keys=" title measure "

# read_set FILE: prints a line CASE<tab>KEY<tab>VALUE<tab>LINE for every value of every case, in the order of the file; the
# case is - for keys of the set. Keys above the first section apply to all cases, which may override them. Exits with 2,
# naming file and line, if the set is invalid.
read_set() {
  [ -r "$1" ] || { echo "$1: no such set, or not readable. Try one of $(sets_here)." >&2; exit 2; }
  awk -v file="$1" -v case_keys="$case_keys" -v set_keys="$set_keys" '
    function refuse(line, text) { print file ":" line ": " text >"/dev/stderr"; refused = 1; exit 2 }
    function trimmed(text) { gsub(/^[ \t]+|[ \t\r]+$/, "", text); return text }
    function number(name, key, pattern, what) {
      if ((name, key) in value && value[name, key] !~ pattern)
        refuse(place[name, key], key " = " value[name, key] ": " what)
    }
    /^[ \t\r]*([#;].*)?$/ { next }
    /^[ \t]*\[/ {
      name = trimmed($0)
      if (name !~ /^\[[A-Za-z0-9][A-Za-z0-9._-]*\]$/)
        refuse(NR, name " is not a section: write [NAME], of letters, digits, dots, hyphens and underscores")
      name = substr(name, 2, length(name) - 2)
      if (name in number_of) refuse(NR, "case " name " is already in line " line_of[name])
      number_of[name] = ++cases; name_of[cases] = name; line_of[name] = NR
      for (k = 1; k <= keys[""]; ++k) {
        key = key_of["", k]
        if (index(set_keys, " " key " ")) continue
        key_of[name, ++keys[name]] = key; value[name, key] = value["", key]; place[name, key] = place["", key]
      }
      next
    }
    {
      equals = index($0, "=")
      key = trimmed(substr($0, 1, equals - 1)); text = trimmed(substr($0, equals + 1))
      if (!equals || key !~ /^[a-z0-9][a-z0-9-]*$/ || text == "") refuse(NR, "\"" trimmed($0) "\" is neither KEY = VALUE nor [CASE]")
      if (name != "" && index(set_keys, " " key " ")) refuse(NR, key " applies to the entire set: write it above the first section")
      if ((name, key) in value && place[name, key] > line_of[name] + 0)
        refuse(NR, key " is set twice, the first time in line " place[name, key])
      if (!((name, key) in value)) key_of[name, ++keys[name]] = key
      value[name, key] = text; place[name, key] = NR
    }
    END {
      if (refused) exit 2
      if (!cases) refuse(NR, "there is no case: write [NAME] and its values below")
      if (("", "measure") in value && value["", "measure"] !~ /^(efficiency|speed-up)$/)
        refuse(place["", "measure"], "measure = " value["", "measure"] ": it is efficiency or speed-up")
      for (c = 1; c <= cases; ++c) {
        name = name_of[c]
        whole = "^[1-9][0-9]*$"
        if (!((name, "ranks") in value)) refuse(line_of[name], "case " name " has no ranks")
        split("ranks ranks-per-node cpus-per-rank steps", list, " ")
        for (i in list) number(name, list[i], whole, "it is a whole number from 1 on")
        number(name, "warm-up", "^[0-9]+$", "it is a whole number")
        number(name, "published", "^[0-9]+(\\.[0-9]+)?$", "it is a number")
        per_node = (name, "ranks-per-node") in value ? value[name, "ranks-per-node"] + 0 : 8
        if (value[name, "ranks"] + 0 > per_node && value[name, "ranks"] % per_node)
          refuse(place[name, "ranks"], "ranks = " value[name, "ranks"] " does not fill nodes of " per_node " ranks")
        if ((name, "against") in value && !(value[name, "against"] in number_of))
          refuse(place[name, "against"], "against = " value[name, "against"] ": there is no such case")
        split("train-iters data-path metrics-file time-communication", list, " ")
        for (i in list) if ((name, list[i]) in value)
          refuse(place[name, list[i]], list[i] " is set by the benchmark; steps and warm-up make the iterations")
      }
      for (k = 1; k <= keys[""]; ++k) {
        key = key_of["", k]
        if (index(set_keys, " " key " ")) print "-\t" key "\t" value["", key] "\t" place["", key]
      }
      for (c = 1; c <= cases; ++c) for (k = 1; k <= keys[name_of[c]]; ++k) {
        name = name_of[c]; key = key_of[name, k]
        print name "\t" key "\t" value[name, key] "\t" place[name, key]
      }
    }' "$1" || exit 2
}

# The sets of this folder, for messages.
sets_here() { (cd "$(dirname "${BASH_SOURCE[0]}")/sets" && echo *.ini) | sed 's/\.ini//g; s/ /, /g'; }

# set_file NAME_OR_FILE: the file of a set.
set_file() {
  local here
  here=$(dirname "${BASH_SOURCE[0]}")/sets/$1.ini
  if [ -f "$1" ] || [ ! -f "$here" ]; then echo "$1"; else echo "$here"; fi
}

# value_of FOLDER KEY [DEFAULT]: a value of the case in this folder.
value_of() {
  local value
  value=$(awk -F'\t' -v key="$2" '$1 == key { print $2; exit }' "$1/case")
  echo "${value:-${3-}}"
}

# nodes_of FOLDER: sets `ranks`, `per_node` and `nodes`.
nodes_of() {
  ranks=$(value_of "$1" ranks)
  per_node=$(value_of "$1" ranks-per-node 8)
  [ "$ranks" -gt "$per_node" ] || per_node=$ranks
  nodes=$((ranks / per_node))
}

# reason_of LOG: the reason of a failed run, as one line: the last message of the program, else the first line of an error, else the first line.
reason_of() {
  awk '
    { gsub(/[\r\t]/, " ") }
    /^[- \t]*$/ { next }
    # The program begins its lines with the time.
    /^[0-9][0-9]:[0-9][0-9]:[0-9][0-9] / { last = substr($0, 10); next }
    /srun: error|slurmstepd: error|CANCELLED|DUE TO TIME LIMIT|[Ee]rror|not found|No such file/ && other == "" { other = $0 }
    words == "" { words = $0 }
    END { print last != "" && other !~ /CANCELLED|TIME LIMIT/ ? last : other != "" ? other : words != "" ? words : "it printed nothing" }' \
    "$1" 2>/dev/null
}
