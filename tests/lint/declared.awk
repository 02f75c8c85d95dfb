# Finds names that a file uses without the header that declares them: tests/run.sh joins the sources of a target, where the
# includes of other sources hide it, and an installation then does not compile. Run from the repository's root:
#   awk -f declared.awk FILE... pass=2 FILE...
# Knows functions with an underscore, called without an object, macros, and the most frequent types of the standard library;
# headers of the latter count only if a file or a header of ours that it includes names them.
# Prints one line a fault; its exit status is 1 if there was one.

# Appends `item` to the list `list[key]`.
function append(list, key, item) { list[key] = list[key] item "\n" }

# Marks in `seen` the files that `path` includes, and itself.
function reach(path, seen,    parts, count, i) {
  if (path in seen) return
  seen[path]
  count = split(includes[path], parts, "\n")
  for (i = 1; i < count; i++) reach(parts[i], seen)
}

function fail(name, header) {
  printf "%s:%d: %s is used without #include %s\n", FILENAME, FNR, name, header
  failures++
}

BEGIN {
  pass = 1
  count = split("vector string string_view optional map set span variant array function functional unique_ptr memory", words)
  for (i = 1; i <= 9; i++) home[words[i]] = words[i]
  home[words[10]] = words[11]
  home[words[12]] = words[13]
}

FNR == 1 {
  raw = 0
  is_header = FILENAME ~ /h$|hpp$/
  is_test = FILENAME ~ /^(tests|bench)\//
  if (pass == 2) {
    split("", reached)
    reach(FILENAME, reached)
  }
}

pass == 1 && /^#include [<"]/ {
  name = $2
  gsub(/[<>"]/, "", name)
  if ($2 ~ /^"/) append(includes, FILENAME, name)
  else library[FILENAME, name]
}

# Leaves the code: neither text nor comments.
{
  if (raw) {
    if (!sub(/^.*\)[a-z]*"/, "")) next
    raw = 0
  }
  gsub(/\\[\\"']/, "")
  if (match($0, /R"[a-z]*\(/) && substr($0, RSTART + RLENGTH) !~ /\)[a-z]*"/) {
    raw = 1
    $0 = substr($0, 1, RSTART - 1)
  }
  gsub(/"[^"]*"/, "\"\"")
  sub(/\/\/.*/, "")
}

pass == 1 {
  if (/^#define [A-Z_]+/) declared[$2 ~ /\(/ ? substr($2, 1, index($2, "(") - 1) : $2] = FILENAME
  # A declaration of a namespace begins in the first column.
  if (/^[a-z]/ && match($0, /[a-z0-9]+_[a-z0-9_]*\(/)) {
    name = substr($0, RSTART, RLENGTH - 1)
    if (!is_test && (is_header || !(name in declared))) declared[name] = FILENAME
    mentioned[FILENAME, name]
  }
  # All names in a header, those after a type, as of members, and those that are not called, as of lambdas.
  line = $0
  previous = ""
  while (match(line, /[A-Za-z_0-9]+/)) {
    name = substr(line, RSTART, RLENGTH)
    follows_type = previous !~ /^(return|else|throw|case|)$/ && substr(line, 1, RSTART - 1) ~ /^[>&*]* [&*]*$/
    line = substr(line, RSTART + RLENGTH)
    if (name ~ /_/ && (is_header || follows_type || line !~ /^\(/)) mentioned[FILENAME, name]
    previous = name
  }
}

pass == 2 && !/^#/ {
  line = $0
  while (match(line, /([A-Za-z_0-9]+::)*[A-Za-z_][A-Za-z_0-9]*/)) {
    name = substr(line, RSTART, RLENGTH)
    before = RSTART > 1 ? substr(line, 1, RSTART - 1) : ""
    line = substr(line, RSTART + RLENGTH)
    if (name !~ /^(std|fmt)::/) sub(/^([a-z0-9]+::)+/, "", name)
    if (name ~ /^std::/) {
      name = substr(name, 6)
      if (!(name in home) || (FILENAME, name) in told) continue
      found = 0
      for (file in reached) if ((file, home[name]) in library) found = 1
      if (!found) fail("std::" name, "<" home[name] ">")
      told[FILENAME, name]
    } else if (name in declared && line ~ /^\(/ && before !~ /(\.|->|[a-z]::)$/) {
      if ((FILENAME, name) in told) continue
      told[FILENAME, name]
      found = declared[name] == FILENAME
      for (file in reached) if ((file, name) in mentioned) found = 1
      if (!found) fail(name, "\"" declared[name] "\"")
    }
  }
}

END { exit failures > 0 }
