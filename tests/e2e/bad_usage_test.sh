#!/bin/bash
# Options that are mistyped, missing or do not fit: the exit code, and each message once for all ranks. The tests in
# tests/app/run_config have the rules that need no start of the program.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1

# Commands and their help.
refused 2 "there is no command 'trian'; did you mean train?" 2 trian
refused 2 "usage: trireme COMMAND" 1
for command in train "checkpoint verify"; do
  # shellcheck disable=SC2086  # two words
  on 2 $command --help
  check "trireme $command --help prints once on 2 ranks" [ "$code $(grep -c "^Usage: trireme $command" out)" = "0 1" ]
done

version=$("$trireme" info | sed -n 's/^trireme  */trireme /p')
on 2 --version
check "trireme --version prints once what info says" [ "$code $(cat out)" = "0 $version" ]

# Sizes that do not divide: the message names those that do.
refused 2 "3 ranks do not make a grid of tensor size 2 (--tp)
Start 2 or 4 ranks
--tp 3 --pp 1" 3 train "${run[@]}" --tp 2
refused 2 "4 attention heads and 64 feed-forward columns do not split over 3 tensor ranks
must divide both" 3 train "${run[@]}" --tp 3
refused 2 "4 layers do not divide into 3 pipeline stages
--pipeline-model-parallel-layout" 3 train "${run[@]}" --pp 3
refused 2 "--num-query-groups 1: heads of keys and values do not split over 2 tensor ranks" \
  2 train "${run[@]}" --group-query-attention --tp 2
refused 2 "--moe-ffn-hidden-size 33, --moe-shared-expert-intermediate-size 0: experts do not split over 2 tensor ranks" \
  2 train "${run[@]}" --disable-bias-linear --num-experts 4 --moe-ffn-hidden-size 33 --tp 2
refused 2 "--moe-router-topk 8 is more than --num-experts 4" \
  1 train "${run[@]}" --disable-bias-linear --num-experts 4 --moe-router-topk 8
refused 2 "expert size 2 (--ep) does not divide the 1 rank of context size 1 x data size 1" \
  2 train "${run[@]}" --disable-bias-linear --num-experts 4 --ep 2 --tp 2
refused 2 "--expert-model-parallel-size 2: the model has no experts" 2 train "${run[@]}" --ep 2
refused 2 "a sequence of 15 (of one context rank) does not split over 2 tensor ranks; --seq-length over" \
  2 train --num-layers 4 --hidden-size 16 --num-attention-heads 4 --seq-length 15 --data-path corpus.h5 --train-iters 1 --lr 1 \
  --tp 2 --sequence-parallel
refused 2 "--use-nccl-ub: for GPUs only, but this job runs on the backend cpu" 2 train "${run[@]}" --use-nccl-ub
refused 2 "--tp-comm-overlap-chunks 3 does not divide the 8 positions of a tensor rank; choose a divisor" \
  2 train "${run[@]}" --seq-length 16 --tp 2 --sequence-parallel --tp-comm-overlap-chunks 3
refused 2 "--hidden-size 18 must be a multiple of --num-attention-heads 4
--num-query-groups 3 must divide --num-attention-heads 4
--global-batch-size 3 is not a multiple of --micro-batch-size 1 times 2 data ranks (= 2): choose 2 or 4" \
  2 train --num-layers 4 --hidden-size 18 --num-attention-heads 4 --group-query-attention --num-query-groups 3 \
  --seq-length 16 --data-path corpus.h5 --train-iters 1 --lr 1 --global-batch-size 3
for size in "2 301" "1 100"; do
  refused 2 "--padded-vocab-size ${size#* } must be at least the vocabulary's 257 and a multiple of the ${size% *} tensor ranks" \
    "${size% *}" train "${run[@]}" --tp "${size% *}" --padded-vocab-size "${size#* }"
done

# Options: all that are wrong in themselves at once, then all that contradict another.
refused 2 "unexpected argument 'stray'
there is no option --global-batchsize; did you mean --global-batch-size?
--lr must be given
--tp 1 and --tensor-model-parallel-size 2 contradict each other
--seed 9x is not
--micro-batch-size 9223372036854775808 does not fit
--num-layers 99999999 must be between 1 and 2000
--hidden-dropout 1 must be between 0 and 0.99
--clip-grad nan is not a number
--dtype fp8 is not one of" 2 train stray --data-path corpus.h5 --train-iters 1 --tp 1 --tensor-model-parallel-size 2 --seed 9x \
  --micro-batch-size 9223372036854775808 --num-layers 99999999 --hidden-dropout 1 --clip-grad nan --dtype fp8 --global-batchsize 4
refused 2 "--bf16 contradicts --dtype fp32
--min-loss-scale and --loss-scale exclude each other
--use-distributed-optimizer contradicts --data-parallel-sharding-strategy no_shard
--accumulate-allreduce-grads-in-fp32 contradicts --main-grads-dtype bf16
--recompute-activations means --recompute-granularity selective
--async-save needs --save
--save-interval needs --save" 2 train "${run[@]}" --bf16 --dtype fp32 --loss-scale 8 --min-loss-scale 2 --use-distributed-optimizer \
  --data-parallel-sharding-strategy no_shard --main-grads-dtype bf16 --accumulate-allreduce-grads-in-fp32 \
  --recompute-activations --recompute-granularity full --async-save --save-interval 2
refused 2 "--communicator, --allow-tf32, --gemm-cache, --check-launches: for GPUs only, but this job runs on the backend cpu" \
  2 train "${run[@]}" --backend cpu --allow-tf32 --communicator staged --gemm-cache none --check-launches
refused 4 "--backend cuda: " 2 train "${run[@]}" --backend cuda
refused 2 "--train-samples 3 are fewer than the first batch has" 1 train "${model[@]}" --data-path corpus.h5 --lr 0.1 \
  --train-samples 3 --global-batch-size 4
refused 2 "--url-key has an empty key: give one, or leave the option out" 1 corpus clean --input x --output y --url-key ""
refused 2 "--json-key has an empty key" 1 corpus build --input x --output y --tokenizer bytes --json-key ""
refused 2 "--micro-batches and --micro-batch-size exclude each other" \
  1 plan --show-schedule --pp 2 --micro-batches 4 --micro-batch-size 2
refused 2 "--micro-batches is for --show-schedule: give --global-batch-size instead" \
  1 plan --model gpt2-124m --cluster cpu --global-batch-size 4 --micro-batches 4
refused 2 "--show-schedule does not use --cluster, --num-layers: leave out one or the other" \
  1 plan --show-schedule --pp 2 --micro-batches 4 --cluster cpu --num-layers 2
refused 2 "--top and --no-search exclude each other" 1 plan --model gpt2-124m --cluster cpu --no-search --top 3
refused 2 "--load must be given" 2 eval --data-path corpus.h5
refused 2 "--temperature -1
--top-p 1.5" 1 generate --load saved --prompt a --temperature -1 --top-p 1.5
refused 2 "--prompt, --prompts, --chat FILE or --num-samples must be given where standard input is no terminal" \
  1 generate --load saved </dev/null
refused 2 "--temperature 0 always takes the likeliest token and excludes --top-k, --top-p, --seed" \
  2 generate --load saved --prompt a --temperature 0 --top-k 5 --top-p 0.5 --seed 3
refused 5 "--config: cannot open absent.ini" 2 train --config absent.ini

# Sizes beyond any machine.
refused 4 "--vocab-size 2147483647, padded to 2147483648, --max-position-embeddings 16) take at least 1.0 TiB" \
  2 train "${run[@]}" --vocab-size 2147483647
refused 2 "the schedule has about 6.4e+14 cells" 1 plan --show-schedule --pp 99999 --micro-batches 2147483647
# AddressSanitizer ends a program that asks for so much.
[ -n "${ASAN_OPTIONS:-}" ] || refused 4 "the order of" 2 train "${run[@]/#8/100000000000000}"

# A script for many ranks runs on one, which names the options that have no use there, once.
done_by 1 train "${run[@]}" --bf16 --use-distributed-optimizer --overlap-grad-reduce --schedule 1f1b --sequence-parallel \
  --hysteresis 3 --dry-run
check "options that one rank ignores are named" [ "$(grep -o 'ignored in this run: .*' err)" = "ignored in \
this run: --schedule (one pipeline stage), --sequence-parallel (one tensor rank), --use-distributed-optimizer (one data \
rank), --overlap-grad-reduce (one data rank), --hysteresis (bf16 has no dynamic loss scale)" ]

# Published runs: a bad row is an error that names line and column, and the others are predicted.
printf 'hidden,layers,seq,hardware,gpus,mbs,gbs\n1024,8,1024,A100,8,1,64\n1024,8,1024,TPU,8,1,64\n' >runs.csv
refused 3 "runs.csv, line 3, column hardware: 'TPU' does not name one of V100" 1 plan --cases runs.csv
on 1 plan --cases runs.csv --json
check "plan predicts the other rows" [ "$(grep -c '"iter_s":0' out) $(grep -c '"error":"' out)" = "1 1" ]
echo "gpus,mbs" >header.csv
refused 3 "header.csv, line 1: the header lacks the columns hidden, layers, seq, hardware, gbs" 1 plan --cases header.csv
mkfifo pipe.csv
refused 3 "pipe.csv is a pipe, not a regular file" 1 plan --cases pipe.csv

# Limits of the process. A large checkpoint is refused before the training that it would lose.
large=(train --num-layers 2 --hidden-size 256 --num-attention-heads 4 "${run[@]:6}" --save large)
# Where the message ends with the limit that suffices, the command is done with it.
limited() { # limited OPTION LIMIT MESSAGE RANKS ARGUMENT...
  (
    ulimit -S "$1" "$2" && refused 4 "${@:3}"
    remedy=$(sed -n 's/.*: ulimit \(-[a-z] [0-9]*\) or more.*/\1/p' err)
    # shellcheck disable=SC2086  # an option and its value
    if [ -n "$remedy" ]; then ulimit -S $remedy && done_by "${@:4}"; fi
    exit $failures
  )
  failures=$?
  checks=$((checks + 1))
}
limited -n 20 "ulimit -n lets a process open 20 files" 1 train "${run[@]}"
# AddressSanitizer itself needs more.
[ -n "${ASAN_OPTIONS:-}" ] || limited -s 64 "ulimit -s gives each thread a stack of 64.0 KiB" 1 train "${run[@]}"
if [ -z "${ASAN_OPTIONS:-}" ]; then
  limited -v 200000 "ulimit -v leaves a process 195.3 MiB of addresses, at least 512.0 MiB are needed" 1 info
  TRIREME_THREADS=8 limited -v 1300000 "OpenBLAS needs 1280 MiB of addresses for the products of 8 threads" \
    1 train "${run[@]/16/128}" --dtype fp64
fi
limited -f 2000 "ulimit -f lets files grow to 2.0 MiB, MPI's shared memory needs" 1 train "${run[@]}"
limited -f 9000 "ulimit -f lets files grow to 8.8 MiB, this rank's checkpoint file needs" 1 "${large[@]}"
