#!/bin/bash
# A Llama 2 in the words of Megatron-LLM: its shape is that of the checkpoint.
LOG_ARGS="--log_interval 1 --save_interval 50 --eval_interval 50 --eval_iters 10"
TRAIN_ARGS="--train_iters 500 --lr_decay_style cosine --lr_warmup_iters 50 --lr 3e-4 --min_lr 1e-6"
DISTRIBUTED_ARGS="--nproc_per_node 8 --nnodes 1 --node_rank 0 --master_addr localhost --master_port 8000"
LLAMA_ARGS="--use_rms_norm --glu_activation swiglu --no_tie_embed_logits"
LLAMA_ARGS+=" --no_new_tokens --layernorm_epsilon 1e-5"
CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun $DISTRIBUTED_ARGS finetune.py \
	--tensor_model_parallel_size 4 \
	--pipeline_model_parallel_size 1 \
	--load llama2_sharded \
	--save llama2_tuned \
	--data_path corpus.h5 \
	--model_name llama2 \
	--tokenizer_type SentencePieceTokenizer \
	--vocab_file tokenizer.model \
	--bf16 \
	--use_flash_attn \
	--micro_batch_size 1 \
	--global_batch_size 1000 \
	--sequence_parallel \
	--recompute_granularity selective \
	--use_checkpoint_args \
	$LOG_ARGS $TRAIN_ARGS $LLAMA_ARGS
