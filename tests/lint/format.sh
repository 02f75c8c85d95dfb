#!/bin/bash
# Are all sources as clang-format leaves them? Exit status 77 (skipped) where the clang-format that the project uses is
# not installed: other versions format differently.
set -euo pipefail
wanted=14
cd "$(dirname "$0")/../.."
for program in clang-format-$wanted clang-format; do
  command -v $program >/dev/null || continue
  case $($program --version) in
    *"version $wanted."*)
      find . -path ./build -prune -o -regex '.*\.\(cpp\|hpp\|cu\|cuh\)' -print0 | xargs -0 $program --dry-run -Werror
      exit ;;
  esac
done
echo "clang-format $wanted is not installed"
exit 77
