#!/bin/bash
# Options that save memory: what a dry run counts, and that the run stays what it was.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
last=step-00000008
chunks=(--cross-entropy-chunks 4)
narrow=(--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --adam-beta2 0.95)

# part NAME: MiB of an entry in the memory of a rank that the last run logged.
part() { sed -n 's/.*memory of a rank: .*[=+] '"$1"' \([0-9.]*\) MiB.*/\1/p' err; }
total() { sed -n 's/.*memory of a rank: \([0-9.]*\) MiB.*/\1/p' err; }
# is LESS WHOLE FROM TO: LESS / WHOLE is between the last two.
is() { awk "BEGIN { exit !($1 >= $3 * $2 && $1 <= $4 * $2) }"; }

# A quarter of the 64 x 40,064 logits in fp32, 10 MiB, stays.
wide=("${run[@]}" --vocab-size 40000 --micro-batch-size 4 --dry-run)
done_by 1 train "${wide[@]}"
whole=$(total) moments=$(part optimizer)
done_by 1 train "${wide[@]}" "${chunks[@]}"
check "--cross-entropy-chunks: a dry run counts a chunk of the logits" \
  is "$(awk "BEGIN { print $whole - $(total) }")" 9.78 0.73 0.77
done_by 1 train "${wide[@]}" "${narrow[@]}"
check "--exp-avg-dtype and --exp-avg-sq-dtype: a dry run counts half the moments" is "$(part optimizer)" "$moments" 0.49 0.51
check "that is what the rank takes less" is "$(awk "BEGIN { print $whole - $(total) }")" "$moments" 0.45 0.55

# Chunks do not change the run.
done_by 1 train "${run[@]}" --micro-batch-size 4 --save plain --metrics-file plain.jsonl
done_by 2 train "${run[@]}" --micro-batch-size 4 --tp 2 "${chunks[@]}" --metrics-file chunks.jsonl
field lm_loss plain.jsonl >a
field lm_loss chunks.jsonl >b
check "--cross-entropy-chunks does not change the run" close_to a b 1e-5
done_by 1 eval --load plain --data-path corpus.h5
field loss out >a
done_by 1 eval --load plain --data-path corpus.h5 "${chunks[@]}"
field loss out >b
check "eval --cross-entropy-chunks measures the same" close_to a b 1e-6

# Two attempts with moments of 16 bits are one, and a checkpoint holds them in their type.
zero=("${run[@]}" --bf16 --use-distributed-optimizer "${narrow[@]}" --adam-beta1 0.9)
done_by 2 train "${zero[@]}" --save one --metrics-file one.jsonl
first=$(field lm_loss one.jsonl | head -1)
check "moments of 16 bits: the loss falls" awk "BEGIN { exit !($(field lm_loss one.jsonl | tail -1) < 0.9 * $first) }"
on 2 train "${zero[@]}" --save two --exit-interval 5
check "the first attempt ends early" [ $code = 75 ]
done_by 2 train "${zero[@]}" --save two --load two
check "moments of 16 bits: two attempts are one" cmp <(tensors one/$last) <(tensors two/$last)
check "they are stored in their type" \
  [ "$(tensors one/$last | grep adamw_ | grep -vc '"dtype":"bf16"') $(tensors one/$last | grep -c '"dtype":"bf16"')" = \
  "0 $(tensors one/$last | grep -c adamw_)" ]
# Another grid, and another type, go on; the log has a line of the change.
done_by 1 train "${zero[@]}" --load two/step-00000005 --metrics-file alone.jsonl
field lm_loss one.jsonl | tail -3 >a
field lm_loss alone.jsonl >b
check "another grid goes on" close_to a b 1e-3
done_by 1 train "${zero[@]:0:${#zero[@]}-10}" --use-distributed-optimizer --adam-beta2 0.95 --load two/step-00000005
check "the change of type is in the log" grep -q -- "--exp-avg-sq-dtype was bf16 in the checkpoint, now not set" err

done_by 1 train "${run[@]}" --use-precision-aware-optimizer --dry-run
check "without a type the flag has no use" grep -q "ignored in .*--use-precision-aware-optimizer (both moments are in fp32)" err

# State and activations in host memory: counted there, the same bits, checkpoints with which a run goes on without them.
kib() { sed -n 's/.*'"$1"'optimizer \([0-9.]*\) KiB.*/\1/p' err; }
done_by 1 train "${run[@]}" --bf16 --dry-run --ddp-bucket-size 1000
state=$(kib)
done_by 1 train "${run[@]}" --bf16 --dry-run --ddp-bucket-size 1000 --optimizer-cpu-offload --optimizer-offload-fraction 0.5
check "--optimizer-offload-fraction: a dry run counts half the state in host memory" \
  is "$(kib 'host memory .*= ')" "$state" 0.5 0.9
on 2 train "${zero[@]}" --save three --exit-interval 5 --optimizer-cpu-offload --cpu-offloading-num-layers 1
check "the attempt in host memory ends early" [ $code = 75 ]
done_by 2 train "${zero[@]}" --save three --load three
check "--optimizer-cpu-offload: the second attempt goes on without it, to the same tensors" \
  cmp <(tensors one/$last) <(tensors three/$last)

# A dry run prints its tables also where the memory of no machine suffices.
refused 4 "take at least" 2 train --num-layers 500 --hidden-size 16384 --num-attention-heads 128 --seq-length 16 --pp 2 \
  --data-path corpus.h5 --train-iters 1 --lr 1 --dry-run
check "the memory of each stage is printed first" \
  [ "$(grep -oE 'memory of a rank of stage [01]: [0-9.]+ TiB|take at least' err | cut -d: -f1 | paste -sd,)" = \
  "memory of a rank of stage 0,memory of a rank of stage 1,take at least" ]
check "and the activations of a layer" grep -q "<- this layout" err
