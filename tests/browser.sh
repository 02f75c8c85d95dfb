#!/bin/bash
# Tries the pages of `trireme report` in Chromium, without a screen: usage browser.sh TRIREME [FOLDER_FOR_PICTURES]
# Hovers, drags, clicks and types at 400, 800 and 1400 pixels, light and dark, with and without scripts, on hostile names, on
# 100,000 iterations and on a page that is followed. Exit status 77 (skipped) without Chromium or Python 3.
set -euo pipefail
trireme=$(realpath "$1")
pictures=$(mkdir -p "${2:-.}" && realpath "${2:-.}")
browser=
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null && browser=$(command -v "$name") && break
done
[ -n "$browser" ] || { echo "skipped: there is no Chromium (Debian: apt-get install chromium)"; exit 77; }
command -v python3 >/dev/null || { echo "skipped: there is no Python 3"; exit 77; }
exec python3 "$(dirname "$0")/browser.py" "$trireme" "$browser" "$pictures" "${2:+keep}"
