#!/bin/bash
#SBATCH --nodes=48 --ntasks-per-node=1
# ALiBi, a norm behind the embedding, and DeepSpeed, as BLOOM's runs.
set -x -e
source $six_ALL_CCFRWORK/start-prod
GPUS_PER_NODE=8
NNODES=$SLURM_NNODES
MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
PP_SIZE=12
TP_SIZE=4
config_json="./ds_config.$SLURM_JOBID.json"
cat <<EOT > $config_json
{ "train_micro_batch_size_per_gpu": 2, "zero_optimization": { "stage": 0 } }
EOT
OPTIMIZER_ARGS=" \
    --optimizer adam \
    --adam-beta1 0.9 --adam-beta2 0.95 --adam-eps 1e-8 \
    --lr 6e-5 --min-lr 6e-6 --lr-decay-style cosine \
    --lr-decay-samples 200_000_000 --lr-warmup-samples 183_105 \
    --clip-grad 1.0 --weight-decay 1e-1 \
    "
EXIT_OPTS=" --exit-duration-in-mins 5990 "
GPT_ARGS=" \
    --pp-partition-method 'type:transformer|embedding' \
    --num-layers 70 --hidden-size 14336 --num-attention-heads 112 \
    --seq-length 2048 --max-position-embeddings 2048 \
    --micro-batch-size 2 --rampup-batch-size 192 16 9_765_625 --global-batch-size 2048 \
    --train-samples 220_000_000 \
    --vocab-file data/gpt2-vocab.json --merge-file data/gpt2-merges.txt \
    --init-method-std 0.0048 --embed-layernorm --bf16 --seed 42 --position-embedding-type alibi \
    --checkpoint-activations --abort-on-unmet-fused-kernel-constraints --kill-switch-path /tmp/kill \
    --pad-vocab-size-to 250880 --data-path corpus.h5 \
    $OPTIMIZER_ARGS \
    $EXIT_OPTS \
    "
DEEPSPEED_ARGS=" --deepspeed --deepspeed_config ${config_json} --zero-stage 0 --deepspeed-activation-checkpointing "
export LAUNCHER="python -u -m torch.distributed.run --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES"
export CMD=" \
    `pwd`/pretrain_gpt.py \
    --tensor-model-parallel-size $TP_SIZE --pipeline-model-parallel-size $PP_SIZE \
    $GPT_ARGS \
    --save checkpoints --load checkpoints --data-impl mmap --distributed-backend nccl \
     $DEEPSPEED_ARGS \
    "
echo $CMD
srun --jobid $SLURM_JOBID bash -c "$LAUNCHER --node_rank \$SLURM_PROCID $CMD" 2>&1 | tee -a logs/main_log.txt
