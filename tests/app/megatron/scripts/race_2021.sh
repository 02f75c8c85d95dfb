#!/bin/bash
WORLD_SIZE=8
TRAIN_DATA="data/RACE/train/middle"
VALID_DATA="data/RACE/dev/middle \
            data/RACE/dev/high"
COMMON_TASK_ARGS="--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 512 \
                  --max-position-embeddings 512 --fp16 --vocab-file bert-vocab.txt"
python -m torch.distributed.launch --nproc_per_node $WORLD_SIZE --nnodes 1 ./tasks/main.py \
       --task RACE --seed 1234 --train-data $TRAIN_DATA --valid-data $VALID_DATA \
       --tokenizer-type BertWordPieceLowerCase --epochs 3 --pretrained-checkpoint checkpoints/bert_345m \
       --tensor-model-parallel-size 1 $COMMON_TASK_ARGS --micro-batch-size 4 --checkpoint-activations \
       --lr 1.0e-5 --lr-decay-style linear --lr-warmup-fraction 0.06 --save-interval 100000 \
       --save checkpoints/bert_345m_race --log-interval 10 --eval-interval 100 --eval-iters 50 \
       --weight-decay 1.0e-1 --clip-grad 1.0 --hidden-dropout 0.1 --attention-dropout 0.1
