#!/bin/bash
python tools/generate_samples_gpt2.py --model-parallel-size 1 --num-layers 24 --hidden-size 1024 \
       --load checkpoints/gpt2_345m --num-attention-heads 16 --max-position-embeddings 1024 \
       --tokenizer-type GPT2BPETokenizer --fp16 --batch-size 2 --seq-length 1024 --out-seq-length 1024 \
       --temperature 1.0 --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --genfile unconditional.json \
       --num-samples 2 --top_p 0.9 --recompute
