#!/bin/bash
# Checks that relative links between Markdown documents lead to a file, and those with a #fragment to a heading there.
# usage: links.sh [FOLDER]    the repository by default
# Exit status 1 where one does not.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

# The fragment of each heading, as GitHub makes it.
fragments() {
  sed -n 's/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' | sed "s/[^a-z0-9 _-]//g; s/ /-/g"
}

faults=0
count=0
while IFS= read -r document; do
  while IFS= read -r link; do
    count=$((count + 1))
    path=${link%%#*}
    target=$(dirname "$document")/$path
    [ -n "$path" ] || target=$document
    if [ ! -e "$target" ]; then
      echo "$document: $link: no such file"
      faults=1
    elif [ "$link" != "$path" ] && ! fragments "$target" | grep -qxF -- "${link#*#}"; then
      echo "$document: $link: no such heading"
      faults=1
    fi
  done < <(grep -oE '\]\([^):]+\)' "$document" | sed 's/^](//; s/)$//')
done < <(find . -name '*.md' -not -path './build/*' -not -path './.git/*' | sort)
echo "$count links checked"
[ "$count" -gt 0 ] || exit 1
exit $faults
