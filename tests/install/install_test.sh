#!/bin/bash
# Checks that an installation is complete, and that it works after it was moved to another folder, as a copied build does.
# usage: install_test.sh CMAKE BUILD_FOLDER VERSION
set -euo pipefail
cmake=$1 build=$2 version=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$*"; exit 1; }
# lacks_its_library PROGRAM: it is refused; under AddressSanitizer by the dynamic linker.
lacks_its_library() {
  local code=0
  "$1" info 2>"$folder/info" || code=$?
  { [ $code -eq 4 ] && grep -q "library cannot be loaded" "$folder/info"; } ||
    grep -q "error while loading shared libraries: libtrireme_program.so" "$folder/info" ||
    fail "without its library: $(cat "$folder/info")"
}

"$cmake" --install "$build" --prefix "$folder/first" >/dev/null
mv "$folder/first" "$folder/second"
prefix=$folder/second

documents=$prefix/share/doc/trireme
for file in README.md CHANGELOG.md; do
  [ -s "$documents/$file" ] || fail "share/doc/trireme/$file is missing"
done
"$(dirname "$0")/../lint/links.sh" "$documents" || fail "links of the installed documents lead nowhere"
[ -s "$prefix/share/man/man1/trireme-corpus-build.1" ] || fail "the manual pages are missing"
grep -q "complete .*trireme" "$prefix/share/bash-completion/completions/trireme" || fail "the completion of bash is missing"
grep -q "#compdef trireme" "$prefix/share/zsh/site-functions/_trireme" || fail "the completion of zsh is missing"
[ -s "$prefix/share/trireme/jobs/environment.sh" ] || fail "the batch files are missing"

libraries=$(find "$prefix" -name 'libtrireme_program.so' -exec ldd {} \; && ldd "$prefix/bin/trireme")
grep -q libmpi <<<"$libraries" || fail "the program's library is missing: $libraries"
grep -q "not found" <<<"$libraries" && fail "the program lacks libraries: $libraries"
grep -qF "$build" <<<"$libraries" && fail "the installed program uses libraries of the build folder: $libraries"
ln -s "$prefix/bin/trireme" "$folder/link"
"$folder/link" info >"$folder/info" || fail "trireme info by a link returned $?"
cp "$prefix/bin/trireme" "$folder/alone"
lacks_its_library "$folder/alone"
"$prefix/bin/trireme" info >"$folder/info" || fail "trireme info returned $?"
grep -qF "$version" "$folder/info" || fail "trireme info does not name version $version: $(cat "$folder/info")"

# A build: by a link, copied with its libraries, which it then loads, and copied alone.
mkdir "$folder/copies"
ln -s "$build/trireme" "$folder/copies/link"
"$folder/copies/link" info >"$folder/info" || fail "the build's trireme info by a link returned $?"
cp "$build/trireme" "$folder/copies/trireme"
lacks_its_library "$folder/copies/trireme"
cp "$build"/libtrireme_*.so "$folder/copies"
libraries=$(ldd "$folder/copies/libtrireme_program.so")
grep -qF "$build" <<<"$libraries" && fail "a copied build uses libraries of the build folder: $libraries"
"$folder/copies/trireme" info >"$folder/info" || fail "a copied build's trireme info returned $?"

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

# An archive has beside the program the libraries that it links, and those that these link, but not MPI's and C's.
"$cmake" --install "$build" --prefix "$prefix" --component libraries >/dev/null 2>"$folder/warnings"
folder_of_libraries=$(dirname "$(find "$prefix" -name libtrireme_program.so)")
beside=$(ldd "$folder_of_libraries/libtrireme_program.so" | while read -r name _ path _; do
  if [ -e "$folder_of_libraries/$name" ]; then echo "$name $path"; fi
done)
grep -q '^libhdf5' <<<"$beside" || fail "HDF5 is not packed: $beside"
# A build with tests has RUNPATH, by which libraries of libraries are not found; tests/packages.sh tries one without tests.
if readelf -d "$folder_of_libraries/libtrireme_program.so" | grep -q '(RPATH)' &&
  elsewhere=$(grep -vF " $folder_of_libraries/" <<<"$beside"); then
  fail "packed, and found elsewhere: $elsewhere"
fi
if ls "$folder_of_libraries" | grep -E '^lib(c|m|stdc\+\+|mpi|open-pal|cuda|cublasLt|nccl)\.so'; then fail "these are the host's"; fi
if command -v dpkg-query >/dev/null && [ -s "$folder/warnings" ]; then fail "copyright notices: $(cat "$folder/warnings")"; fi
"$prefix/bin/trireme" info >"$folder/info" || fail "with its libraries beside it, trireme info returned $?"

# A build for the processor of this machine is not packed.
if grep -q '^TRIREME_MARCH:[A-Z]*=native$' "$build/CMakeCache.txt"; then
  if "$(dirname "$cmake")/cpack" -G TXZ --config "$build/CPackConfig.cmake" -B "$folder/packages" >"$folder/refusal" 2>&1; then
    fail "cpack packed a build for the processor of this machine"
  fi
  grep -q 'TRIREME_MARCH=x86-64-v3' "$folder/refusal" || fail "cpack names no remedy: $(cat "$folder/refusal")"
fi
