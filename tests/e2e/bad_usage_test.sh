#!/bin/bash
# Options that are mistyped or left out: the right exit code and one message, whatever the number of ranks.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1

# Commands and their help.
refused 2 "there is no command 'trian'; did you mean train?" 2 trian
refused 2 "usage: trireme COMMAND" 1
refused 2 "there is no command trireme corpus bild; did you mean trireme corpus build?" 1 corpus bild
refused 2 "there is no command trireme checkpoint verfy" 1 checkpoint verfy
for command in "corpus build" "corpus inspect" "corpus verify" train eval generate "checkpoint inspect" \
  "checkpoint verify" "checkpoint reshard" plan info; do
  for ranks in 1 2; do
    # shellcheck disable=SC2086  # two words
    on $ranks $command --help
    check "trireme $command --help prints once on $ranks ranks" \
      [ "$code $(grep -c "^Usage: trireme $command" out)" = "0 1" ]
  done
done

version=$("$trireme" info | sed -n 's/^trireme  */trireme /p')
on 2 --version
check "trireme --version prints once what info says" [ "$code $(cat out)" = "0 $version" ]

# The grid.
shape=(--seq-length 16 --data-path corpus.h5 --train-iters 1 --lr 1 --num-layers 4)
refused 2 "2 ranks do not make a grid of tensor size 3" 2 train "${run[@]}" --tp 3
refused 2 "3 ranks do not make a grid of tensor size 2" 3 train "${run[@]}" --tp 2
refused 2 "1 ranks do not make a grid of tensor size 1 (--tp) x pipeline size 2" 1 train "${run[@]}" --pp 2
refused 2 "4 attention heads and 64 feed-forward columns do not split over 3 tensor ranks" 3 train "${run[@]}" --tp 3
refused 2 "4 layers do not divide into 3 pipeline stages" 3 train "${run[@]}" --pp 3
refused 2 "--global-batch-size 3 is not a multiple of --micro-batch-size 1 times 2 data ranks" \
  2 train "${shape[@]}" --hidden-size 16 --num-attention-heads 4 --global-batch-size 3
refused 2 "a sequence of 15 (of one context rank) does not split over 2 tensor ranks; --seq-length over" \
  2 train --seq-length 15 "${shape[@]:2}" --hidden-size 16 --num-attention-heads 4 --tp 2 --sequence-parallel
refused 2 "hidden" 1 train "${shape[@]}" --hidden-size 18 --num-attention-heads 4

# Options.
refused 2 "there is no option --global-batchsize; did you mean --global-batch-size?" 2 train "${run[@]}" --global-batchsize 4
refused 2 "--lr must be given" 1 train "${model[@]}" --data-path corpus.h5 --train-iters 1
refused 2 "contradict each other" 1 train "${run[@]}" --lr 0.1
refused 2 "contradict each other" 1 train "${run[@]}" --tp 1 --tensor-model-parallel-size 2
refused 2 "unexpected argument 'corpus.h5'" 1 train corpus.h5 "${run[@]}"
refused 2 "--seed 9x is not" 1 train "${run[@]}" --seed 9x
refused 2 "--seed 99999999999999999999 does not fit" 1 train "${run[@]}" --seed 99999999999999999999
refused 2 "--micro-batch-size 9223372036854775808 does not fit" 1 train "${run[@]}" --micro-batch-size 9223372036854775808
refused 2 "--micro-batch-size 0 must be between 1 and 2147483647" 1 train "${run[@]}" --micro-batch-size 0
refused 2 "--micro-batch-size 4611686018427387904 must be between" 4 train "${run[@]}" --micro-batch-size 4611686018427387904
refused 2 "is 2147483644 micro-batches on each data rank, more than" \
  1 train "${shape[@]}" --hidden-size 16 --num-attention-heads 4 --global-batch-size 2147483644
refused 2 "--num-layers 99999999 must be between 1 and 2000" 2 train --num-layers 99999999 "${run[@]:2}"
refused 4 "--vocab-size 2147483647, padded to 2147483648, --max-position-embeddings 16) take at least 1.0 TiB" \
  2 train "${run[@]}" --vocab-size 2147483647
refused 2 "the schedule has about 6.4e+14 cells" 1 plan --show-schedule --pp 99999 --micro-batches 2147483647
refused 2 "parameters are more than any machine holds" 1 train "${shape[@]}" --hidden-size 2147483644 --num-attention-heads 4
# AddressSanitizer ends a program that asks for so much.
[ -n "${ASAN_OPTIONS:-}" ] || refused 4 "the order of" 2 train "${run[@]/#8/100000000000000}"
refused 2 "--clip-grad nan is not a number" 2 train "${run[@]}" --clip-grad nan
refused 2 "--clip-grad -1 must be at least 0" 1 train "${run[@]}" --clip-grad -1
refused 2 "--hidden-dropout 1 must be between 0 and 0.99" 1 train "${run[@]}" --hidden-dropout 1
refused 2 "--adam-beta2 1.5 must be between" 1 train "${run[@]}" --adam-beta2 1.5
refused 2 "--dtype fp8" 1 train "${run[@]}" --dtype fp8
refused 2 "--async-save needs --save" 1 train "${run[@]}" --async-save
refused 2 "--allow-tf32: for GPUs only, but this job runs on the backend cpu (it was asked for); leave out the option" \
  2 train "${run[@]}" --backend cpu --allow-tf32
refused 2 "--communicator, --gemm-cache, --check-launches: for GPUs only" \
  1 train "${run[@]}" --communicator staged --gemm-cache none --check-launches
refused 4 "--backend cuda: " 2 train "${run[@]}" --backend cuda
refused 2 "--bf16 and --fp16 exclude each other" 2 train "${run[@]}" --bf16 --fp16
refused 2 "--bf16 contradicts --dtype fp32" 1 train "${run[@]}" --bf16 --dtype fp32
refused 2 "--use-distributed-optimizer contradicts --data-parallel-sharding-strategy no_shard" \
  2 train "${run[@]}" --use-distributed-optimizer --data-parallel-sharding-strategy no_shard
refused 2 "--overlap-param-gather needs --use-distributed-optimizer" 2 train "${run[@]}" --overlap-param-gather
refused 2 "--main-grads-dtype bf16 is not supported with --dtype fp16, whose gradients are fp32 or fp16" \
  1 train "${run[@]}" --fp16 --main-grads-dtype bf16
refused 2 "--accumulate-allreduce-grads-in-fp32 contradicts --main-grads-dtype bf16" \
  1 train "${run[@]}" --bf16 --main-grads-dtype bf16 --accumulate-allreduce-grads-in-fp32
refused 2 "--main-grads-dtype fp32 is not supported with --dtype fp64" 1 train "${run[@]}" --dtype fp64 --main-grads-dtype fp32
refused 2 "ZeRO 2 keeps its shard of the gradients in fp32" \
  2 train "${run[@]}" --bf16 --main-grads-dtype bf16 --data-parallel-sharding-strategy optim_grads
refused 2 "--recompute-num-layers needs --recompute-granularity full" 1 train "${run[@]}" --recompute-num-layers 2
refused 2 "--recompute-activations means" 1 train "${run[@]}" --recompute-activations --recompute-granularity full
refused 2 "--hysteresis needs --fp16: fp32 is trained without a dynamic loss scale" 2 train "${run[@]}" --hysteresis 3
refused 2 "--min-loss-scale and --loss-scale exclude each other" 1 train "${run[@]}" --fp16 --loss-scale 8 --min-loss-scale 2
refused 2 "--init-method-std needs --init-method normal" \
  1 train "${run[@]}" --init-method hashed-uniform --init-method-std 0.1
refused 2 "--sampling sequential has no splits" 1 train "${run[@]}" --sampling sequential --split 9,1
refused 2 "--micro-batches and --micro-batch-size exclude each other" \
  1 plan --show-schedule --pp 2 --micro-batches 4 --micro-batch-size 2
refused 2 "--micro-batches needs --show-schedule: otherwise give batch sizes" \
  1 plan --model gpt2-124m --cluster cpu --global-batch-size 4 --micro-batches 4
refused 2 "--show-schedule does not use --cluster, --num-layers: leave out one or the other" \
  1 plan --show-schedule --pp 2 --micro-batches 4 --cluster cpu --num-layers 2
refused 2 "--top and --no-search exclude each other" 1 plan --model gpt2-124m --cluster cpu --no-search --top 3
refused 2 "--temperature 0 always takes the likeliest token and excludes --top-k, --top-p, --seed" \
  2 generate --load saved --prompt a --temperature 0 --top-k 5 --top-p 0.5 --seed 3

# A script for many ranks runs on one, which names the options that have no use there, once.
done_by 1 train "${run[@]}" --bf16 --use-distributed-optimizer --overlap-grad-reduce --schedule 1f1b --sequence-parallel \
  --hysteresis 3 --dry-run
check "options that one rank ignores are named" [ "$(grep -o 'ignored in this run: .*' err)" = "ignored in \
this run: --schedule (one pipeline stage), --sequence-parallel (one tensor rank), --use-distributed-optimizer (one data \
rank), --overlap-grad-reduce (one data rank), --hysteresis (bf16 has no dynamic loss scale)" ]
done_by 2 train "${run[@]}" --overlap-grad-reduce --dry-run
check "and none where all have theirs" [ "$(grep -c 'ignored in' err)" -eq 0 ]
done_by 1 train "${run[@]}" --tp 1 --recompute-granularity full --distribute-saved-activations --dry-run
check "one tensor rank distributes no activations" grep -q 'ignored in .*--distribute-saved-activations (one tensor rank)' err
refused 2 "--distribute-saved-activations and --sequence-parallel exclude each other" \
  2 train "${run[@]}" --tp 2 --recompute-granularity full --distribute-saved-activations --sequence-parallel
refused 2 "--split" 1 train "${run[@]}" --split 90,ten,1
refused 2 "--model" 1 train --model gpt5 --seq-length 16 --lr 1 --train-iters 1 --data-path corpus.h5
refused 2 "the model's shape is missing" 1 train --seq-length 16 --lr 1 --train-iters 1 --data-path corpus.h5
refused 2 "--seq-length 16 is longer than the model's 8 positions" 1 train "${run[@]}" --max-position-embeddings 8
refused 2 "--load-or-init needs --load" 1 train "${run[@]}" --load-or-init
refused 2 "--save-interval needs --save" 1 train "${run[@]}" --save-interval 2
refused 2 "unexpected '1' after 'corpus.h5'; give only corpora, or a weight before each" \
  2 train "${model[@]}" --lr 1 --train-iters 1 --data-path corpus.h5 1 corpus.h5
refused 2 "--loss-scale 0, a dynamic loss scale, needs --fp16, not fp32" 1 train "${run[@]}" --loss-scale 0
refused 2 "--skip-train only evaluates, and needs --eval-iters of at least 1" 2 train "${run[@]}" --skip-train
refused 2 "the weights of --data-path add up to more than 1.8e+308" \
  1 train "${model[@]}" --lr 1 --train-iters 1 --data-path 1e308 corpus.h5 1e308 corpus.h5
refused 2 "--load must be given" 2 eval --data-path corpus.h5
refused 2 "--prompt or --prompts must be given, one of the two" 1 generate --load saved
refused 2 "--temperature" 1 generate --load saved --prompt a --temperature -1
refused 2 "--top-p" 1 generate --load saved --prompt a --top-p 1.5
refused 2 "DIR is missing" 1 checkpoint verify
refused 2 "FILE.h5 is missing" 1 corpus verify
refused 2 "--output must be given" 1 corpus build --input corpus.jsonl
refused 2 "--tokenizer gpt2 needs --vocab-file" 1 corpus build --input corpus.jsonl --output other.h5

# Files of options.
refused 5 "--config: cannot open absent.ini" 2 train --config absent.ini
refused 2 "--config: /dev/zero is a device, not a regular file" 1 train --config /dev/zero
printf 'lr = 0.1\nlearning-rate = 0.1\n' >options.ini
refused 2 "there is no option --learning-rate in options.ini" 1 train --config options.ini
printf 'lr = 0.1\nlr = 0.2\n' >options.ini
refused 2 "options.ini" 1 train --config options.ini
printf 'lr\n' >options.ini
refused 2 "options.ini" 1 train --config options.ini

# Published runs: a bad row is an error that names line and column, and the others are predicted.
printf 'hidden,layers,seq,hardware,gpus,mbs,gbs\n1024,8,1024,A100,8,1,64\n1024,8,1024,TPU,8,1,64\n' >runs.csv
refused 3 "runs.csv, line 3, column hardware: 'TPU' does not name one of V100" 1 plan --cases runs.csv
on 1 plan --cases runs.csv --json
check "plan predicts the other rows" [ "$(grep -c '"iter_s":0' out) $(grep -c '"error":"' out)" = "1 1" ]
echo "gpus,mbs" >header.csv
refused 3 "header.csv, line 1: the header lacks the columns hidden, layers, seq, hardware, gbs" 1 plan --cases header.csv
refused 5 "cannot open absent.csv: No such file" 1 plan --cases absent.csv
refused 3 ". is a directory, not a regular file" 1 plan --cases .
mkfifo pipe.csv
refused 3 "pipe.csv is a pipe, not a regular file" 1 plan --cases pipe.csv
refused 3 "/dev/zero is a device, not a regular file" 1 plan --cases /dev/zero

# Limits of the process. A large checkpoint is refused before the training that it would lose.
large=(train --num-layers 2 --hidden-size 256 --num-attention-heads 4 "${run[@]:6}" --save large)
limited() { # limited OPTION LIMIT MESSAGE RANKS ARGUMENT...
  (ulimit "$1" "$2" && refused 4 "${@:3}"; exit $failures)
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
