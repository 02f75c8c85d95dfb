#!/bin/bash
# Corpora and checkpoints of earlier versions: they are complete and can be resharded, and on another grid a run goes on as it
# did then.
fixtures=$(cd "$(dirname "$0")/../fixtures/checkpoints" && pwd)
source "$(dirname "$0")/functions.sh"
source "$fixtures/runs.sh"

for archive in "$fixtures"/*.tar.gz; do
  version=$(basename "$archive" .tar.gz)
  mkdir "$version"
  cd "$version" && tar xzf "$archive" || exit 1
  done_by 1 corpus verify corpus.h5
  for name in "${names[@]}"; do
    [ -d "$name" ] || continue
    done_by 1 checkpoint verify "$name"
    done_by 1 checkpoint reshard --load "$name" --save "$name.tp2" --tp 2
    done_by 1 checkpoint verify "$name.tp2"
    # shellcheck disable=SC2086  # options are words
    done_by ${other_grid[$name]%% *} train "${run[@]}" ${options[$name]} ${other_grid[$name]#* } --load "$name/step-00000003" \
      --save "$name.next" --metrics-file now.jsonl
    field lm_loss "$name.jsonl" | tail -3 >then
    field lm_loss now.jsonl >now
    check "$version, $name: the run goes on as it did then" \
      close_to then now "$([[ $name = *bf16 ]] && echo 1e-2 || echo 1e-5)"
    rm now.jsonl
    done_by 1 checkpoint inspect "$name.next"
    check "$version, $name: the next checkpoint names the architecture" grep -q "model.kind  *${name%%_*}$" out
  done
  cd ..
done
