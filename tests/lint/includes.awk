# Checks the #include lines of the files named after the table, all relative to the repository's root, where it runs:
#   awk -f includes.awk layers.txt FILE...
# Prints one line a fault; its exit status is 1 if there was one.

function fail(message) {
  printf "%s:%d: %s\n", FILENAME, FNR, message
  failures++
}

# The longest folder of the table that `path` lies in, "" for none.
function folder_of(path,    folder, best) {
  for (folder in level)
    if (index(path, folder "/") == 1 && length(folder) > length(best)) best = folder
  return best
}

function exists(path,    line) {
  if (!(path in known)) {
    known[path] = (getline line < path) >= 0
    close(path)
  }
  return known[path]
}

function check_own(name,    target, part, room) {
  if (!exists(name)) {
    fail("\"" name "\" is not a file here: write ours from the repository's root, a library's header in <>")
    return
  }
  if (here == "") return  # tests and benchmarks may see everything
  target = folder_of(name)
  if (target == "")
    fail("the program may not include \"" name "\"")
  else if (target != here && level[target] == level[here])
    fail(here " and " target " are siblings and do not see one another: \"" name "\"")
  else if (level[target] < level[here])
    fail(here " does not look up to " target ": \"" name "\"")
  for (room in apart)
    if (index(FILENAME, room "/") == 1)
      for (part in apart)
        if (part != room && apart[part] == apart[room] && index(name, part "/") == 1)
          fail(room " and " part " stand apart and do not see one another: \"" name "\"")
  for (part in owner)
    if (index(name, part "/") == 1 && index(FILENAME, owner[part] "/") != 1)
      fail(part " is private to " owner[part] ": \"" name "\"")
}

function check_library(name,    prefix) {
  if (exists(name)) fail("<" name "> is ours: write it in quotes")
  if (here == "") return
  for (prefix in home)
    if (index(name, prefix) == 1 && index(FILENAME, home[prefix] "/") != 1)
      fail("only " home[prefix] " may include <" name ">")
}

NR == FNR {
  if ($1 == "level") {
    rows++
    for (i = 2; i <= NF; i++) level[$i] = rows
  } else if ($1 == "apart") {
    for (i = 2; i <= NF; i++) apart[$i] = FNR
  } else if ($1 == "private") {
    owner[$2] = $3
  } else if ($1 == "library") {
    for (i = 2; i < NF; i++) home[$i] = $NF
  }
  next
}

FNR == 1 {
  here = folder_of(FILENAME)
  if (here == "" && FILENAME !~ /^(tests|bench)\//) fail("this folder has no place in the table of layers")
}

/^[ \t]*#[ \t]*include[ \t]*["<]/ {
  name = $0
  sub(/^[^"<]*/, "", name)
  quoted = substr(name, 1, 1) == "\""
  name = substr(name, 2)
  sub(/[">].*/, "", name)
  if (quoted) check_own(name); else check_library(name)
}

END { exit failures > 0 }
