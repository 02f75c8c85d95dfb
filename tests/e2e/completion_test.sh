#!/bin/bash
# trireme completion and trireme man: what bash completes, in a real bash, and the pages of all commands.
source "$(dirname "$0")/functions.sh"

done_by 1 completion bash
mv out completion.bash
source completion.bash

# completes WORDS EXPECTED...: after these words, the last of them begun, bash offers exactly these.
completes() {
  local line=$1
  shift
  read -ra COMP_WORDS <<<"trireme $line"
  [[ $line == *" " || -z $line ]] && COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _trireme
  printf '%s\n' "${COMPREPLY[@]}" | sort >offered
  printf '%s\n' "$@" | sort >expected
  cp offered out
  check "'trireme $line' completes to '$*'" cmp -s offered expected
}

check "bash has the completion" grep -q _trireme <(complete -p trireme)
completes "tra" train
completes "c" checkpoint completion corpus
completes "checkpoint " inspect verify reshard export import --help
completes "corpus bu" build
completes "train --tensor-model" --tensor-model-parallel-size
completes "train --dtype " fp64 fp32 bf16 fp16
completes "train --dtype b" bf16
completes "generate --top-" --top-k --top-p
completes "corpus verify --tensor" ""
mkdir folder
touch file
completes "train --save f" folder
completes "train --lr f" ""
completes "checkpoint import --input f" ""
check "which leaves files to bash" grep -qF "'checkpoint import --input') kind=file" completion.bash
completes "train --normalization " LayerNorm RMSNorm
completes "finetune --task S" STS-B SST-2 SQUAD
for word in $(compgen -W "$("$trireme" --help | sed -nE 's/^  ([a-z]+) .*/\1/p' | sort -u)"); do
  check "$word is offered" grep -qw -- "$word" <(COMP_WORDS=(trireme "$word") COMP_CWORD=1; _trireme; echo "${COMPREPLY[@]}")
done
# Every option of the help of train is offered, and no other.
COMP_WORDS=(trireme train --) COMP_CWORD=2
_trireme
printf '%s\n' "${COMPREPLY[@]}" | sort >offered
"$trireme" train --help | sed -nE 's/^  (--[a-z].*)/\1/p' | grep -oE '^--[a-z0-9_-]+(, --[a-z0-9_-]+)*' | tr -d ' ' | tr , '\n' |
  sort >expected
cp offered out
check "the options of train are those of its help" cmp -s offered expected

done_by 1 completion zsh
check "the script of zsh has the options" grep -qF "'*--dtype[" out
if command -v zsh >/dev/null; then
  cp out _trireme
  check "zsh reads its script" zsh -n _trireme
fi

done_by 1 man --output pages
check "each command has a page" [ "$(ls pages | wc -l)" -gt 20 ]
for page in pages/*.1; do
  check "$page begins as a manual page" [ "$(head -c 4 "$page")" = ".TH " ]
  check "$page repeats no placeholder's dots" [ "$(grep -cE '\.\.\. ?\.\.\.' "$page")" = 0 ]
done
check "the page of train has its options" grep -qF '\fB\-\-tensor\-model\-parallel\-size\fR, \fB\-\-tp\fR \fIN\fR' pages/trireme-train.1
check "the page of the program lists the others" grep -qF '\fBtrireme\-corpus\-build\fR(1)' pages/trireme.1
if command -v groff >/dev/null; then
  groff -man -Tutf8 -ww -z pages/*.1 2>err
  check "groff has no complaint" [ ! -s err ]
fi
refused 2 "SHELL fish is not one of bash, zsh" 1 completion fish
touch file
refused 5 "--output file/pages: cannot be created" 1 man --output file/pages
