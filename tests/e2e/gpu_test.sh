#!/bin/bash
# The program on a machine with a GPU, which all ranks share: compared with the CPU, alone and on grids. tests/gpu.sh runs it
# there, ctest with a library that has fakes of CUDA's libraries instead of a GPU.
# environment: TRIREME_TEST_RANKS (4): ranks of the largest grid; run_limit (180): seconds of each run
keep_gpus=yes
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
make_text 2 | head -4 >held_out.jsonl # kernels on the host take their time
done_by 1 corpus build --input held_out.jsonl --output held_out.h5 --tokenizer bytes --append-eod
run=("${run[@]/#8/4}" --hidden-dropout 0.1 --attention-dropout 0.1 --no-selftest --gemm-cache "$scratch/algorithms")
# same_losses A B TOLERANCE: the losses of file A are the last ones of file B.
same_losses() {
  field lm_loss "$1" >a
  field lm_loss "$2" | tail -n "$(wc -l <a)" >b
  close_to a b "$3"
}
cpu_run=("${run[@]:0:${#run[@]}-2}" --backend cpu)

on 1 info
check "trireme info finds the GPU" grep -q '^backend   cuda, GPU 0 (' out
check "and names versions and what kernels are for" \
  grep -Eq '^CUDA      driver for CUDA [0-9.]+, runtime [0-9.]+.*, cuBLASLt [0-9.]+.*, NCCL [0-9.]+.*, kernels for ' out

# One rank, through NCCL, and its checkpoint.
done_by 1 train "${cpu_run[@]}" --metrics-file cpu.jsonl
done_by 1 train "${run[@]}" --metrics-file one.jsonl --save one --save-interval 2 --async-save
check "the log names the backend" grep -q 'backend cuda, GPU 0 (' err
check "fp32: the losses are the CPU's" same_losses one.jsonl cpu.jsonl 2e-4
check "the algorithms of products are kept" [ -s algorithms ]

# Ranks that share the GPU.
refused 4 "more ranks than GPUs" 2 train "${run[@]}"
grids=("2 --tp 2 --sequence-parallel" "2 --pp 2" "2 --use-distributed-optimizer" "2 --cp 2" "4 --tp 2 --pp 2")
for grid in "${grids[@]}"; do
  read -ra words <<<"$grid"
  [ "${words[0]}" -le "${TRIREME_TEST_RANKS:-4}" ] || continue
  done_by "${words[0]}" train "${run[@]}" --communicator staged "${words[@]:1}" --metrics-file grid.jsonl
  check "$grid: the losses of one rank" same_losses grid.jsonl one.jsonl 2e-4
  rm -f grid.jsonl
done
check "the log says that it is slow" grep -q 'staged through host memory, which is slow' err

for backend in cpu cuda; do
  done_by 1 train "${run[@]:0:${#run[@]}-2}" --backend $backend --fp8-format hybrid --metrics-file fp8.$backend.jsonl
done
check "FP8: the losses are the CPU's" same_losses fp8.cuda.jsonl fp8.cpu.jsonl 1e-3

# Launches, and checkpoints between GPU and CPU.
core=$(taskset --cpu-list --pid $$ | sed 's/.*: //; s/[-,].*//')
timeout -k 5 60 taskset --cpu-list "$core" "$trireme" train "${run[@]}" --dtype bf16 --metrics-file bf16.jsonl >out 2>err
check "a rank that has one core is warned of" grep -qF "each rank has a single core on $(hostname)" err
check "bf16: the losses are the CPU's" same_losses bf16.jsonl cpu.jsonl 1e-2
check "and a warning says that small heads are slow" grep -q 'attention runs without tensor cores.* in bf16 ' err
done_by 1 train "${run[@]}" --metrics-file checked.jsonl --check-launches
check "with --check-launches too" same_losses checked.jsonl one.jsonl 1e-6
for ranks in 1 2; do
  done_by $ranks train "${cpu_run[@]}" --load one/step-00000002 --metrics-file continued.jsonl --global-batch-size 4
  check "a checkpoint of the GPU goes on on $ranks ranks of the CPU" \
    same_losses continued.jsonl cpu.jsonl 2e-4
done
done_by 1 train "${cpu_run[@]}" --save from_cpu --save-interval 2
done_by 1 train "${run[@]}" --load from_cpu/step-00000002 --metrics-file back.jsonl
check "and one of the CPU on the GPU" same_losses back.jsonl cpu.jsonl 2e-4

# Reports for operators. Events of the fakes are all equally far apart: cuda_training_test holds their times.
done_by 1 train "${run[@]}" --timing-log-level 2 --profile --profile-step-start 1 --profile-step-end 3 --trace-file trace.json
check "and the iterations that a profiler records" grep -q 'a profiler records iterations 2 to 3 on rank 0' err
check "the trace has every micro-batch" \
  [ "$(grep -c '"name": "forward"' trace.json)" = "$(grep -c '"name": "backward"' trace.json)" ]
refused 2 "--profile: for GPUs only, but this job runs on the backend cpu" 1 train "${cpu_run[@]}" --profile

# The same bits, whatever the products' times.
for attempt in 1 2; do
  done_by 1 train "${run[@]:0:${#run[@]}-2}" --bf16 --deterministic-mode --metrics-file deterministic.$attempt.jsonl
done
check "--deterministic-mode gives the same bits" \
  cmp <(field lm_loss deterministic.1.jsonl) <(field lm_loss deterministic.2.jsonl)

# The kernels, tested before anything is written.
done_by 1 train "${run[@]:0:${#run[@]}-3}" --deterministic-mode --dry-run
check "a run tests the kernels at its start" grep -q "the kernels agree with the CPU's in fp32" err

# Steps that are recorded and replayed.
for graphs in "" --cuda-graphs; do
  # shellcheck disable=SC2086 # one option or none
  done_by 1 train "${run[@]:0:${#run[@]}-2}" --bf16 --deterministic-mode $graphs --metrics-file graphs$graphs.jsonl
done
check "--cuda-graphs gives the same bits" cmp <(field lm_loss graphs.jsonl) <(field lm_loss graphs--cuda-graphs.jsonl)
refused 2 "--cuda-graphs and --communicator staged exclude each other" 2 train "${run[@]}" --cuda-graphs --communicator staged

# Fine-tuning, also recorded.
printf 'i\tp\tq\tg\tb1\tb2\tp1\tp2\ts1\ts2\tl\tgold\n' >mnli.tsv
for i in 0 1 2 3 4 5; do
  label=$([ $((i % 2)) -eq 0 ] && echo neutral || echo entailment)
  printf '%d\tp\tq\tg\tb1\tb2\tp1\tp2\tship\t%d oars\tl\t%s\n' $i $i "$label"
done >>mnli.tsv
for options in "--backend cpu" --deterministic-mode "--deterministic-mode --cuda-graphs"; do
  # shellcheck disable=SC2086 # words
  done_by 1 finetune --task MNLI --train-data mnli.tsv --valid-data mnli.tsv --pretrained-checkpoint one --epochs 2 \
    --global-batch-size 3 --lr 0.01 --log-interval 1 $options --metrics-file "tuned${options// /}.jsonl"
done
check "fine-tuning: the losses are the CPU's" same_losses tuned--deterministic-mode.jsonl tuned--backendcpu.jsonl 2e-4
check "fine-tuning: --cuda-graphs gives the same bits" \
  cmp <(field lm_loss tuned--deterministic-mode.jsonl) <(field lm_loss tuned--deterministic-mode--cuda-graphs.jsonl)

# Results of the run.
for backend in cuda cpu; do
  done_by 1 eval --load one --data-path held_out.h5 --backend $backend --no-selftest
  check "--no-selftest: nothing is tested" [ "$(grep -c "the kernels agree" err)" = 0 ]
  cp out perplexity.$backend
  done_by 1 generate --load one --prompt "the ship" --max-new-tokens 20 --temperature 0 --backend $backend
  cp out text.$backend
  cp err log.$backend
done
check "generate tests the kernels first" grep -q "the kernels agree with the CPU's in fp32" log.cuda
for backend in cuda cpu; do field loss perplexity.$backend >loss.$backend; done
check "perplexity is the CPU's" close_to loss.cuda loss.cpu 1e-4
check "so is the text" cmp text.cuda text.cpu

# Memory, before anything of it is taken.
done_by 1 train "${run[@]}" --load one --save two --dry-run
check "--dry-run says what the GPU has" grep -q 'memory of this GPU: .* free; the driver' err
check "--dry-run says what loading and saving take" grep -q 'pinned host memory to --load and --save: .* a rank' err
refused 4 "are free: use more tensor or pipeline ranks, a --micro-batch-size below 4194304" 1 train \
  "${model[@]}" --data-path corpus.h5 --lr 1 --train-iters 1 --micro-batch-size 4194304 --global-batch-size 4194304 --dry-run

refused 2 "--dtype fp64: the CUDA backend computes in fp32, bf16 and fp16; use --backend cpu" 1 train "${run[@]}" \
  --dtype fp64
refused 2 "attention heads have 512 channels, and those of up to" 1 train "${run[@]/#16/2048}"
refused 2 "--deterministic-mode exclude each other" 1 train "${run[@]}" --deterministic-mode
