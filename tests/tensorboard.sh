#!/bin/bash
# Reads curves back with TensorBoard's own reader: usage tensorboard.sh TRIREME [TENSORBOARD_VERSION]
# A run is stopped, killed beyond its checkpoint, and resumed; its event files must hold the numbers of --metrics-file, each
# once. Needs Python 3 with venv, and PyPI.
set -euo pipefail
trireme=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
python3 -m venv reader
reader/bin/pip install --quiet "tensorboard${2:+==$2}"

for _ in $(seq 200); do echo '{"text": "the ship rows nine oars, the crew rows ten, and the rest of them sing"}'; done >text.jsonl
"$trireme" corpus build --input text.jsonl --output corpus.h5 --tokenizer bytes --append-eod >log 2>&1
run=(train --num-layers 2 --hidden-size 16 --num-attention-heads 4 --seq-length 16 --data-path corpus.h5 --global-batch-size 4
  --train-iters 20 --lr 0.01 --eval-interval 5 --eval-iters 1 --split 80,10,10 --backend cpu --metrics-file metrics.jsonl
  --tensorboard-dir curves --log-timers-to-tensorboard --log-memory-to-tensorboard --log-validation-ppl-to-tensorboard
  --log-world-size-to-tensorboard)
attempt() { # attempt EXIT_CODE OPTION...
  local code=0
  "$trireme" "${run[@]}" "${@:2}" >log 2>&1 || code=$?
  [ "$code" = "$1" ] || { echo "exit code $code instead of $1"; cat log; exit 1; }
}
attempt 75 --save run --exit-interval 7
# Iterations that are not in the last checkpoint when the run is killed.
attempt 0 --load run --save elsewhere
attempt 0 --load run --save run

reader/bin/python - <<'PYTHON'
import json, math, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
import tensorboard

accumulator = EventAccumulator("curves", size_guidance={"scalars": 0})
accumulator.Reload()
curves = {tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}
lines = [json.loads(line) for line in open("metrics.jsonl")]
train = [l for l in lines if "lm_loss" in l]
valid = [l for l in lines if "valid_loss" in l]
test = [l for l in lines if "test_loss" in l]
assert [l["iteration"] for l in train] == list(range(1, 21))
expected = {
    "lm loss": [(l["iteration"], l["lm_loss"]) for l in train],
    "lm loss vs samples": [(l["consumed_samples"], l["lm_loss"]) for l in train],
    "grad-norm": [(l["iteration"], l["grad_norm"]) for l in train],
    "learning-rate": [(l["iteration"], l["learning_rate"]) for l in train],
    "loss-scale vs samples": [(l["consumed_samples"], l["loss_scale"]) for l in train],
    "batch-size": [(l["iteration"], 4) for l in train],
    "world-size": [(l["iteration"], 1) for l in train],
    "lm loss validation": [(l["iteration"], l["valid_loss"]) for l in valid],
    "lm loss validation ppl vs samples": [(4 * l["iteration"], l["valid_ppl"]) for l in valid],
    "lm loss test": [(l["iteration"], l["test_loss"]) for l in test],
}
wrong = 0
for tag, points in expected.items():
    found = curves.get(tag, [])
    same = [s for s, _ in found] == [s for s, _ in points] and all(
        math.isclose(a, b, rel_tol=1e-6) for (_, a), (_, b) in zip(found, points))
    print(f"{'passed' if same else 'FAILED'}: {tag}: {len(points)} points")
    if not same:
        print("  expected", points[:3], "found", found[:3])
    wrong += not same
for tag in ("iteration-time", "mem-allocated-bytes", "mem-max-allocated-bytes"):
    same = [s for s, _ in curves.get(tag, [])] == list(range(1, 21)) and all(v > 0 for _, v in curves[tag])
    print(f"{'passed' if same else 'FAILED'}: {tag}")
    wrong += not same
print(f"TensorBoard {tensorboard.__version__}, {len(curves)} curves, {wrong} wrong")
sys.exit(wrong > 0)
PYTHON
