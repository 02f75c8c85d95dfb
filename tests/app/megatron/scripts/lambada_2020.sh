#!/bin/bash
VALID_DATA=<lambada path>
CHECKPOINT=checkpoints/gpt2_345m
COMMON="--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 \
        --fp16 --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --tokenizer-type GPT2BPETokenizer"
python -m torch.distributed.launch --nproc_per_node 8 --nnodes 1 ./tasks/main.py --task LAMBADA \
       --valid-data $VALID_DATA --strict-lambada --load $CHECKPOINT --model-parallel-size 1 $COMMON \
       --batch-size 8 --checkpoint-activations --log-interval 10 --no-load-optim --no-load-rng
