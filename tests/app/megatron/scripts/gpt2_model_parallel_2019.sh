#!/bin/bash
# Model parallel GPT-2 of 2019, started by torch.distributed.launch.
GPUS_PER_NODE=8
MASTER_ADDR=localhost
NNODES=1
NODE_RANK=0
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
MP=${MP:-8}

DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank $NODE_RANK --master_addr $MASTER_ADDR"

python -m torch.distributed.launch $DISTRIBUTED_ARGS \
       pretrain_gpt2.py \
       --model-parallel-size $MP \
       --num-layers 72 --hidden-size 3072 --num-attention-heads 24 \
       --batch-size 8 --num-microbatches-in-minibatch 4 \
       --seq-length 1024 --max-position-embeddings 1024 \
       --train-iters 500000 --lr-decay-iters 320000 \
       --save checkpoints/gpt2_8b --load checkpoints/gpt2_8b \
       --data-path webtext.h5 --tokenizer-type GPT2BPETokenizer \
       --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt \
       --data-impl mmap --split '949,50,1' --distributed-backend nccl \
       --lr 0.00015 --lr-decay-style cosine --min-lr 1.0e-5 --weight-decay 1e-2 --clip-grad 1.0 --warmup .01 \
       --checkpoint-activations --log-interval 100 --save-interval 10000 --eval-interval 1000 --eval-iters 10 \
       --fp16

set +x
