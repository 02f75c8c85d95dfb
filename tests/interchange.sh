#!/bin/bash
# Models in and out against Hugging Face's own libraries: usage interchange.sh TRIREME [EXCHANGE_TEST]
# Random models of every class are made by transformers, imported, compared and exported; models trained here are exported
# and read by transformers. With the test program exchange_test, losses, logits and gradients of larger models, too. Needs
# Python 3 with venv, and PyPI: torch, transformers, tokenizers, safetensors and peft go into a folder of their own
# (TRIREME_INTERCHANGE_VENV keeps it). Without them it is skipped, with the reason and exit code 77. TRIREME_LLMC names a
# clone of llm.c: then its models are compared, too. Checkpoints of Megatron-LM are written by megatron-core, and where
# TRIREME_MEGATRON_LM names a clone of Megatron-LM by its training code, too.
set -euo pipefail
cd "$(dirname "$0")"
tests=$PWD
cd - >/dev/null
trireme=$(realpath "$1")
test_program=${2:+$(realpath "$2")}
llmc=${TRIREME_LLMC:+$(realpath "$TRIREME_LLMC")}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
venv=${TRIREME_INTERCHANGE_VENV:-$scratch/venv}
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import torch, transformers, tokenizers, safetensors, peft' 2>pip.log; then
  { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet torch transformers tokenizers safetensors peft; } >pip.log 2>&1 || {
    echo "skipped: the Python libraries cannot be installed: $(tail -1 pip.log)"
    exit 77
  }
fi
export HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES= TOKENIZERS_PARALLELISM=false PYTHONDONTWRITEBYTECODE=1
if [ -n "$test_program" ]; then
  "$venv/bin/python" "$tests/fixtures/huggingface/make.py" --large models >make.log 2>&1 || { cat make.log; exit 1; }
  TRIREME_HUGGINGFACE_MODELS=models "$test_program" --gtest_filter='*HuggingFace*' >test.log || { cat test.log; exit 1; }
  tail -1 test.log
fi
if [ -n "$llmc" ]; then
  "$venv/bin/python" "$tests/llmc_interchange.py" "$trireme" "$llmc"
else
  echo "skipped: llm.c: TRIREME_LLMC names no clone of it"
fi
# Without its dependencies, of which the CPU needs these alone.
if "$venv/bin/python" -c 'import megatron.core, einops, psutil, h5py' >pip.log 2>&1 ||
  "$venv/bin/pip" install --quiet --no-deps megatron-core einops psutil h5py >pip.log 2>&1; then
  mkdir megatron
  (cd megatron && "$venv/bin/python" "$tests/megatron_interchange.py" "$trireme" 2>errors.log) || { tail -50 megatron/errors.log; exit 1; }
else
  echo "skipped: Megatron-LM: megatron-core cannot be installed: $(tail -1 pip.log)"
fi
"$venv/bin/python" "$tests/interchange.py" "$trireme"
