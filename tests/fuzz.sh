#!/bin/bash
# Fuzzes what reads files of others: with libFuzzer, the address and the undefined-behaviour sanitizer, built by clang++
# (16 or later) in build/fuzz. Findings stay in build/fuzz/TARGET; a new one becomes a seed in tests/fuzz/seeds when it is understood.
# usage: tests/fuzz.sh [SECONDS [TARGET...]]   (default: 600 seconds of each target)
# ARROW_ROOT, the prefix of Apache Arrow, adds the target tables.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || {
  targets=(block_lists chat_template corpus corpus_file prompt_lines safetensors text_reader token_files tokenizer_files torch_files utf8)
  [ -z "${ARROW_ROOT:-}" ] || targets+=(tables)
  [ ! -e /usr/include/fasttext ] || targets+=(classifier)
}
compiler=
for candidate in clang++ clang++-{20,19,18,17,16}; do
  major=$("$candidate" -dumpversion 2>/dev/null | cut -d. -f1) || continue
  [ "${major:-0}" -ge 16 ] && compiler=$candidate && break
done
[ -n "$compiler" ] || {
  echo "clang++ 16 or later is missing; on Debian 12: apt-get install clang-16 libclang-rt-16-dev" >&2
  exit 4
}
build=build/fuzz
mkdir -p $build
flags="-std=c++20 -O1 -g -I. $(pkg-config --cflags hdf5-serial 2>/dev/null || pkg-config --cflags hdf5)
       -fsanitize=address,undefined -fno-sanitize-recover=undefined -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL -DTRIREME_VERSION=__VERSION__"  # any text
libraries="$(pkg-config --libs hdf5-serial 2>/dev/null || pkg-config --libs hdf5) -lspdlog -lfmt -lutf8proc -lonig -lxxhash -lz -lzstd -lbz2 -llzma -lsimdjson"
if [ -e /usr/include/fasttext ]; then
  flags+=" -DTRIREME_HAS_FASTTEXT"
  libraries+=" -lfasttext"
fi
if [ -n "${ARROW_ROOT:-}" ]; then
  flags+=" -DTRIREME_HAS_ARROW -isystem $ARROW_ROOT/include"
  for folder in "$ARROW_ROOT" "$ARROW_ROOT/lib"; do libraries+=" -L$folder -Wl,-rpath,$folder"; done
  libraries+=" -larrow -lparquet"
fi

# Objects of the layers that the targets need, each built again when it or a header is newer.
newest_header=$(find src io tests/fuzz -name '*.hpp' -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2)
objects=()
for source in src/base/*.cpp src/tensor/*.cpp src/comm/*.cpp src/data/*/*.cpp io/*/*.cpp src/prepare/*.cpp \
  src/backend/*.cpp src/parallel/*/*.cpp src/model/*.cpp src/model/*/*.cpp \
  src/exchange/*.cpp src/exchange/families/*.cpp; do
  object=$build/${source//\//_}.o
  objects+=("$object")
  [ "$object" -nt "$source" ] && [ "$object" -nt "$newest_header" ] && continue
  echo "$source $object"
done >$build/todo
xargs -r -P "$(nproc)" -L 1 sh -c "$compiler $(echo $flags) -fsanitize=fuzzer-no-link -c \$0 -o \$1" <$build/todo
# The linker takes from an archive only the objects that a target needs.
rm -f $build/layers.a
ar rcs $build/layers.a "${objects[@]}"
for target in "${targets[@]}"; do
  "$compiler" $flags -fsanitize=fuzzer "tests/fuzz/$target.cpp" $build/layers.a $libraries -o "$build/$target.fuzzer"
done
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$PWD/tests/support/lsan.supp:print_suppressions=0}
for target in "${targets[@]}"; do
  mkdir -p "$build/$target/corpus"
  echo "== $target: $seconds s"
  longest=4096
  [ "$target" = corpus_file ] && longest=16384
  # The longest input, memory and time of one: beyond, it is a finding. Zstandard allocates a window of at most 2 GiB, and
  # uses what the data fill of it.
  "$build/$target.fuzzer" -max_total_time="$seconds" -max_len="$longest" -rss_limit_mb=1024 -malloc_limit_mb=2100 -timeout=5 -print_final_stats=1 \
    -artifact_prefix="$build/$target/" "$build/$target/corpus" "tests/fuzz/seeds/$target" 2>"$build/$target/log" ||
    { tail -40 "$build/$target/log"; exit 1; }
  grep -E 'stat::(number_of_executed_units|peak_rss_mb)|cov:' "$build/$target/log" | tail -3
done
