#!/bin/bash
# Checks that all sources are as clang-format leaves them: usage format.sh [STAMP]
# With STAMP, a file that a successful check creates, only the sources that have changed since then. Exit status 77 (skipped)
# where the clang-format of the project is not installed: other versions format differently.
set -euo pipefail
wanted=14
stamp=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/../.."
for program in clang-format-$wanted clang-format; do
  command -v $program >/dev/null || continue
  case $($program --version) in
    *"version $wanted."*)
      # By the change time: a renamed file counts as changed.
      changed=()
      if [ -e "$stamp" ] && [ -z "$(find .clang-format -cnewer "$stamp")" ]; then changed=(-cnewer "$stamp"); fi
      started=$(mktemp)
      trap 'rm -f "$started"' EXIT
      find . -path ./build -prune -o -regex '.*\.\(cpp\|hpp\|cu\|cuh\)' "${changed[@]}" -print0 |
        xargs -0 -r -n 50 -P "$(nproc)" $program --dry-run -Werror
      [ -z "$stamp" ] || mv "$started" "$stamp"
      exit ;;
  esac
done
echo "clang-format $wanted is not installed"
exit 77
