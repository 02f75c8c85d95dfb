#!/bin/bash
# Is what cmake --install writes a whole, and does it still work after it has been moved to another folder?
# usage: install_test.sh CMAKE BUILD_FOLDER VERSION
set -euo pipefail
cmake=$1 build=$2 version=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$*"; exit 1; }

"$cmake" --install "$build" --prefix "$folder/first" >/dev/null
mv "$folder/first" "$folder/second"
prefix=$folder/second

for file in README.md CHANGELOG.md; do
  [ -s "$prefix/share/doc/trireme/$file" ] || fail "share/doc/trireme/$file is missing"
done
[ -s "$prefix/share/trireme/jobs/environment.sh" ] || fail "the batch files are missing"

libraries=$(ldd "$prefix/bin/trireme")
grep -q "not found" <<<"$libraries" && fail "the program lacks libraries: $libraries"
grep -qF "$build" <<<"$libraries" && fail "the installed program uses libraries of the build folder: $libraries"
"$prefix/bin/trireme" info >"$folder/info" || fail "trireme info returned $?"
grep -qF "$version" "$folder/info" || fail "trireme info does not name version $version: $(cat "$folder/info")"

# The modulefile, as Environment Modules or Lmod read it.
for modulecmd in "${MODULESHOME:-}/libexec/modulecmd.tcl" /usr/lib/*/modulecmd.tcl "${LMOD_CMD:-}" \
  /usr/share/lmod/lmod/libexec/lmod; do
  [ -f "$modulecmd" ] || continue
  found=$(
    export MODULEPATH=$prefix/share/modulefiles
    case $modulecmd in
      *.tcl) commands=$(tclsh "$modulecmd" bash load trireme) ;;
      *) commands=$("$modulecmd" bash load trireme) ;;
    esac
    eval "$commands"
    command -v trireme
    echo "$TRIREME_JOBS"
  )
  [ "$found" = "$prefix/bin/trireme
$prefix/share/trireme/jobs" ] || fail "module load trireme, by $modulecmd, finds: $found"
done
