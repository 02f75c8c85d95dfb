#!/bin/bash
# A run in several attempts: stopped and continued, on the same grid to the last bit, on others to rounding; signalled; measured
# and put to use on any grid.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
make_corpus held_out 2
run=("${model[@]}" --data-path corpus.h5 --global-batch-size 8 --train-iters 12 --lr 0.01 --lr-warmup-iters 3
  --hidden-dropout 0.1 --attention-dropout 0.1 --eval-interval 5 --eval-iters 2 --split 90,6,4)
grid=(--tp 2 --pp 2)
last=step-00000012

# what_happened FILE: the metrics without what depends on the clock.
what_happened() { sed 's/, "elapsed_ms.*/}/' "$1"; }

# Two attempts are one, bit by bit.
done_by 4 train "${run[@]}" "${grid[@]}" --save whole --save-interval 3 --metrics-file whole.jsonl
on 4 train "${run[@]}" "${grid[@]}" --save two --metrics-file two.jsonl --exit-interval 7 --tensorboard-dir curves
check "--exit-interval saves and leaves with 75" [ "$code $(cat two/LATEST)" = "75 step-00000007" ]
# As after an attempt that was killed later than its last checkpoint: the next one cuts the file.
printf '{"iteration": 8, "lm_loss": 0}\n{"iteration": 9, "lm_' >>two.jsonl
done_by 4 train "${run[@]}" "${grid[@]}" --save two --load two --metrics-file two.jsonl --tensorboard-dir curves
check "the metrics of two attempts are those of one" cmp <(what_happened whole.jsonl) <(what_happened two.jsonl)
check "TensorBoard's files of two attempts have a point an iteration" \
  [ "$(cat curves/events.out.tfevents.* | grep -ao 'lm loss vs samples' | wc -l)" = 12 ]
check "so are weights and optimizer" cmp <(tensors whole/$last) <(tensors two/$last)
check "there are tensors to compare" [ "$(tensors whole/$last | wc -l)" -gt 100 ]
head_is_short "a run that goes on"
check "the log has the options that were given" grep -q -- " --lr-warmup-iters 3 " err
check "and no others" [ "$(grep -c adam-beta2 err)" = 0 ]
check "the log has the schedule" grep -qF "schedule: iterations 8 to 12; adam, learning rate 0.01 after 3 iterations of \
warm-up, linear to 0 at iteration 12; evaluation of 2 batches every 5 iterations; a checkpoint at the end in two" err
done_by 1 checkpoint inspect two
check "a checkpoint has the options that were given" grep -qx "  lr = 0.01" out
check "and the others" grep -qx "  # adam-beta2 = 0.999" out
check "the test split is evaluated once, at the end" \
  [ "$(tail -1 two.jsonl | field iteration /dev/stdin) $(field test_loss two.jsonl | wc -l)" = "12 1" ]
# Written behind the training, too.
done_by 4 train "${run[@]}" "${grid[@]}" --save behind --save-interval 3 --async-save
for step in 03 06 09 12; do
  check "--async-save: step $step is what it was then" cmp <(tensors behind/step-000000$step) <(tensors whole/step-000000$step)
done
# falls FILE: the last loss is below 0.9 of the first.
falls() {
  check "the loss falls in $1" awk "BEGIN { exit !($(field lm_loss "$1" | tail -1) < 0.9 * $(field lm_loss "$1" | head -1)) }"
}
falls whole.jsonl
done_by 2 train "${run[@]}" --fp16 --initial-loss-scale 4096 --metrics-file fp16.jsonl
falls fp16.jsonl

# The other optimizer, in shards and in two attempts.
sgd=("${run[@]/#0.01/0.3}" --optimizer sgd --sgd-momentum 0.8 --use-distributed-optimizer)
done_by 2 train "${sgd[@]}" --save sgd_one --metrics-file sgd_one.jsonl
falls sgd_one.jsonl
on 2 train "${sgd[@]}" --save sgd_two --exit-interval 7
refused 3 "the state of --optimizer sgd, which cannot continue with --optimizer adam" 1 train "${run[@]}" --load sgd_two
refused 3 "the state of --optimizer adam, which cannot continue with --optimizer sgd" 1 train "${sgd[@]}" --load whole
done_by 2 train "${sgd[@]}" --save sgd_two --load sgd_two
check "sgd: two attempts are one" cmp <(tensors sgd_one/$last) <(tensors sgd_two/$last)
check "sgd: there is one moment" [ "$(tensors sgd_one/$last | grep -c sgd_m/)" = "$(tensors sgd_one/$last | grep -c model/)" ]

# Whatever becomes of the log, a run goes on; what was to be printed and was not is an error.
{ "$trireme" train "${run[@]}" --log-interval 1 --save unread; echo $? >code; } 2>&1 >/dev/null | true
check "a log that nobody reads does not end a run" [ "$(cat code) $(cat unread/LATEST)" = "0 $last" ]
"$trireme" corpus inspect corpus.h5 >/dev/full 2>err
check "output that does not arrive is an error" [ "$? $(grep -c 'cannot write to standard output: No space' err)" = "5 1" ]

# A model that has diverged.
diverging=("${run[@]/#0.01/1e20}" --save diverged)
refused 8 "in a second run of the step, too: " 1 train "${diverging[@]}" --save-interval 1
check "the error names tensor, layer, rank and host" grep -qE "h\.[0-9]+ \(layer [0-9]+\) has [0-9]+ of [0-9]+ elements that are not finite, on rank 0 on host $(hostname)" err
rm -rf diverged
done_by 1 train "${diverging[@]}" --no-check-for-nan-in-loss-and-grad --max-skipped 100
refused 8 "the loss of diverged is not finite" 2 eval --load diverged --data-path held_out.h5
check "a loss that is not finite is null" grep -q '"loss": null, "perplexity": null}' out
echo '{"goal": "the ship", "sol1": "rows", "sol2": "oars", "label": 0}' >piqa.jsonl
refused 8 "the loss of diverged is not finite" 2 eval --load diverged --task piqa --data-path piqa.jsonl --output piqa.json
check "results that are not finite are not written" [ ! -s out -a ! -e piqa.json ]
refused 8 "the model's output is not finite after 8 tokens" 2 generate --load diverged --prompt "the ship"

# A spike of the loss, in iterations 151 to 155, whose bytes occur nowhere else: the run goes back behind it, and equals one that
# leaves the iterations since out. A document is an iteration.
awk 'BEGIN { srand(1); for (t = 1; t <= 171; ++t) { text = ""; high = t > 150 && t <= 155
  for (i = 0; i < 63; ++i) text = text sprintf("%c", high ? 97 + int(rand() * 26) : 48 + int(rand() * 4))
  print "{\"text\": \"" text "\"}" } }' >spiky.jsonl
done_by 1 corpus build --input spiky.jsonl --output spiky.h5 --tokenizer bytes --append-eod
spiky=("${model[@]}" --data-path spiky.h5 --sampling sequential --global-batch-size 4 --train-iters 170 --lr 0.01)
spiky_run=("${spiky[@]}" --save spiky --save-interval 20 --rewind-on-spike --rewind-distance 15 --spike-iterations 5
  --async-save --metrics-file spiky.jsonl.metrics)
on 2 train "${spiky_run[@]}" --exit-interval 153
check "a run stops within a spike" [ $code = 75 ]
done_by 2 train "${spiky_run[@]}" --load spiky/step-00000153
check "a run goes back to the checkpoint before a spike" \
  [ "$(grep -c 'after iteration 155 the run goes back to the state of iteration 120, and leaves out the samples 480 to 619' err)" = 1 ]
check "and records it" [ "$(grep -o '"iteration": 155, "rewind_to": 120' spiky.jsonl.metrics | wc -l) $(grep -c \
  '"event":"rewind".*"iteration":155,"to":120' spiky.jsonl.metrics.lives)" = "1 1" ]
check "the time lost is that of all iterations since, also of the attempt before" awk '
  FNR == NR { if (/"lm_loss"/ && match($0, /"iteration": [0-9]+/)) { i = substr($0, RSTART + 13, RLENGTH - 13) + 0
      match($0, /"elapsed_ms": [0-9.]+/); if (i > 120 && i <= 155) sum += substr($0, RSTART + 14, RLENGTH - 14) } next }
  match($0, /"lost_ms":[0-9.]+/) && /"rewind"/ { lost = substr($0, RSTART + 10, RLENGTH - 10) }
  END { exit !(sum > 0 && lost - sum < 1 && sum - lost < 1) }' spiky.jsonl.metrics spiky.jsonl.metrics.lives
check "the checkpoints between are gone" \
  [ "$(cd spiky && echo step-* | sed 's/step-0*//g')" = "20 40 60 80 100 120 155 160 170" ]
# shellcheck disable=SC2046  # one word each
done_by 2 train "${spiky[@]}" --load spiky/step-00000120 --save unspiky --iterations-to-skip $(seq 121 155)
check "it is a run without the iterations since" cmp <(tensors spiky/step-00000170) <(tensors unspiky/step-00000170)

# A dynamic loss scale does not hide it, in one attempt or in two: iterations 5 to 7 are skipped at the least scale.
overflow=("${run[@]/#0.01/1e20}" --fp16 --initial-loss-scale 4 --max-skipped 3)
last_words="3 iterations in a row at the least loss scale, 1, the last one 7"
refused 8 "$last_words" 1 train "${overflow[@]}"
on 1 train "${overflow[@]}" --save overflow --exit-interval 6
check "the log says that updates are skipped" grep -q '| loss - | loss or gradient not finite, update skipped |.*| 1 skipped' err
check "and shows no norm of them" [ "$(grep -cE '(nan|inf) \|' err)" -eq 0 ]
refused 8 "$last_words" 1 train "${overflow[@]}" --load overflow

# The initial weights alone.
done_by 2 train "${run[@]/#12/0}" --save initial
check "--train-iters 0 saves the initial weights" [ "$(cat initial/LATEST)" = step-00000000 ]
done_by 1 train "${run[@]}" --load initial
check "a run begins at them" grep -q "continuing after iteration 0, 0 samples" err

# Reports for operators: times of two ranks, the MFU, the progress of two jobs, and the timeline on one clock.
on 2 train "${run[@]}" --pp 2 --save watched --save-interval 3 --exit-interval 6 --log-progress --log-throughput --mfu-peak 0.001 \
  --timing-log-level 2 --log-straggler --trace-file trace.json
check "the log has the MFU, and says of which peak" \
  [ "$(grep -c '| MFU [0-9.]* %' err) $(grep -c 'MFU: the fraction of 0.001 TFLOP/s' err)" = "6 1" ]
check "each line of the log is followed by the times of the ranks and their hosts" \
  [ "$(grep -c "forward-compute \.*: ([0-9.]*, [0-9.]*) rank [01] on $(hostname), rank [01] on $(hostname)" err)" = 6 ]
check "waits are those of the stages that wait" grep -q 'forward-recv .*, rank 1 on' err
check "the rank for which the other waits is named" \
  [ "$(grep -cE "straggler: rank [01] on $(hostname) .*: the others wait for it [0-9.]+ % of their time" err)" = 6 ]
check "the trace says how well the clocks agree" grep -qE '"clock_error_us": [0-9.]+' trace.json
done_by 2 train "${run[@]}" --pp 2 --save watched --load watched --async-save --save-interval 3 --log-progress --timing-log-option all
check "progress.txt has both jobs and their checkpoints" diff <(cut -f 3-5 watched/progress.txt | sed 's/\t$//') - <<'END'
# GPUs: 2	Starting job
# GPUs: 2	Saved checkpoint	Iteration: 3
# GPUs: 2	Saved checkpoint	Iteration: 6
# GPUs: 2	Starting job
# GPUs: 2	Saving async checkpoint	Iteration: 9
# GPUs: 2	Saved async checkpoint	Iteration: 9
# GPUs: 2	Saving async checkpoint	Iteration: 12
# GPUs: 2	Saved async checkpoint	Iteration: 12
END
check "an option that does nothing is named" grep -q -- '--timing-log-option (no --timing-log-level)' err

# Past its end a run has nothing to do.
cp two.jsonl before.jsonl
done_by 2 train "${run[@]}" --load two --save two --metrics-file two.jsonl
check "a finished run does nothing, and says so" grep -q "nothing to do: 12 of 12 iterations" err
check "its metrics stay" cmp before.jsonl two.jsonl
on 2 train "${run[@]/#12/8}" --load two --override-opt-param-scheduler
check "neither does one that is beyond its end" [ "$code $(grep -c 'nothing to do' err)" = "0 1" ]

# Other settings of the learning rate: refused, unless it is said whose count.
faster=("${run[@]/#0.01/0.02}" --metrics-file decided.jsonl --load two --ckpt-step 7)
refused 3 "or --use-checkpoint-opt-param-scheduler to use the checkpoint's" 2 train "${faster[@]}"
done_by 2 train "${faster[@]}" --override-opt_param-scheduler
check "the command line's learning rate counts" [ "$(field learning_rate decided.jsonl | head -1)" = \
  "$(awk 'BEGIN { printf "%.17g", 0.02 * (1 - 5 / 9) }')" ]
check "and is logged" grep -q -- "--lr was 0.01 in the checkpoint, now 0.02" err
done_by 2 train "${faster[@]}" --use-checkpoint-opt_param-scheduler
check "the checkpoint's learning rate counts" \
  cmp <(field learning_rate decided.jsonl) <(field learning_rate whole.jsonl | tail -5)
check "and is logged, too" grep -q -- "--lr 0.01 is the checkpoint's, instead of 0.02" err

# Evaluation alone: of a checkpoint as its training measured it, and of initial weights.
done_by 2 train "${run[@]}" --load two --save elsewhere --skip-train --metrics-file skipped.jsonl --tp 2
for name in valid_loss test_loss; do
  field $name two.jsonl | tail -1 >trained
  field $name skipped.jsonl >skipped
  check "--skip-train: $name of a checkpoint is that of its training" close_to skipped trained 1e-5
done
check "--skip-train trains and saves nothing" [ "$(grep -c lm_loss skipped.jsonl) $(ls -d elsewhere 2>/dev/null)" = "0 " ]
done_by 1 train "${run[@]}" --skip-train --metrics-file initial.jsonl
check "--skip-train measures initial weights" [ "$(field iteration initial.jsonl | sort -u)" = 0 ]

# Corpora without weights count by their tokens.
tokens() { "$trireme" corpus inspect "$1" | sed -n 's/^tokens  *\([0-9]*\).*/\1/p'; }
blend=("${model[@]}" "${run[@]:$((${#model[@]} + 2))}") # without --data-path corpus.h5
done_by 1 train "${blend[@]}" --data-path corpus.h5 held_out.h5 --metrics-file sizes.jsonl
done_by 1 train "${blend[@]}" --metrics-file weights.jsonl \
  --data-path "$(tokens corpus.h5)" corpus.h5 "$(tokens held_out.h5)" held_out.h5
check "corpora without weights count by their tokens" cmp <(what_happened sizes.jsonl) <(what_happened weights.jsonl)

# Three lives on three grids are one to rounding, in fp64.
done_by 1 train "${run[@]}" --dtype fp64 --save one.fp64 --metrics-file one.fp64.jsonl
attempt() { # attempt RANKS STOP GRID_OPTION...
  on "$1" train "${run[@]}" --dtype fp64 --load moved --load-or-init --save moved --metrics-file moved.jsonl \
    --exit-interval "$2" "${@:3}"
}
attempt 4 4 --tp 2 --pp 2
attempt 4 8 # four data ranks
attempt 4 100 --tp 4 --micro-batch-size 2
check "the run ends on its third grid" [ "$code $(cat moved/LATEST)" = "0 $last" ]
for name in lm_loss grad_norm valid_loss test_loss; do
  field $name one.fp64.jsonl >one
  field $name moved.jsonl >moved.numbers
  check "$name of three lives on three grids agrees with one rank's" close_to one moved.numbers 1e-10
done

# Measured and used on any grid.
done_by 1 eval --load one.fp64 --data-path held_out.h5
field loss out >one
done_by 4 eval --load one.fp64 --data-path held_out.h5 "${grid[@]}"
field loss out >many
check "eval prints one result" [ "$(wc -l <many)" -eq 1 ]
check "eval measures the same on two grids" close_to one many 1e-10
sampled=(generate --load one.fp64 --prompt "the ship" --max-new-tokens 40 --temperature 1 --top-k 20 --top-p 0.9 --seed 7)
done_by 1 "${sampled[@]}"
cp out text
done_by 4 "${sampled[@]}" "${grid[@]}"
check "generate gives the same text on four ranks" cmp text out
check "the text begins with its prompt and goes on" grep -qa "^the ship." text

# A split that leaves too little for the test is refused, except the default.
refused 3 "the test split of corpus.h5 has 0 tokens" 1 train "${run[@]/#90,6,4/969,30,1}"
done_by 1 train "${run[@]:0:${#run[@]}-2}" --dry-run
check "the default split's may be too small" grep -q "no test at the end: the default --split leaves too little text" err

# Weights alone, steps by their number, and runs that begin anew with the weights, on any grid.
exact=("${run[@]}" --dtype fp64)
on 4 train "${exact[@]}" "${grid[@]}" --save full --save-interval 3 --exit-interval 9
on 4 train "${exact[@]}" "${grid[@]}" --save weights --save-interval 3 --exit-interval 6 --no-save-optim
check "--no-save-optim: the log says how to continue" [ "$code $(grep -c 'continue with --no-load-optim' err)" = "75 1" ]
check "--no-save-optim saves the same weights, and nothing else" \
  cmp <(tensors full/step-00000006 | grep '"tensor":"model/') <(tensors weights/step-00000006 | grep -v '"tensor":"tokenizer"')
refused 3 "Try --no-load-optim to resume with new moments" 2 train "${exact[@]}" --load weights
done_by 1 checkpoint verify weights
done_by 1 checkpoint inspect weights
check "inspect says that weights are alone" grep -q 'optimizer_state *left-out' out
done_by 1 checkpoint reshard --load weights --ckpt-step 3 --save one_file
check "reshard writes weights again" [ "$(cat one_file/LATEST) $(tensors one_file/step-00000003 | grep -c 'adamw_')" = "step-00000003 0" ]
done_by 2 eval --load weights --data-path held_out.h5 --tp 2
field loss out >one
done_by 1 eval --load full --ckpt-step 6 --data-path held_out.h5
field loss out >many
check "eval measures weights alone, and a step by its number" close_to one many 1e-10
refused 3 "there is no checkpoint of --ckpt-step 5 in full; its steps are: 9, 6, 3" 2 generate --load full --ckpt-step 5 --prompt a
refused 3 "full/step-00000006 is the folder of step-00000006" 1 train "${exact[@]}" --load full/step-00000006 --ckpt-step 3
done_by 4 train "${exact[@]}" "${grid[@]}" --load weights --no-load-optim --metrics-file many.jsonl
done_by 1 train "${exact[@]}" --load full --ckpt-step 6 --no-load-optim --optimizer adam --metrics-file one.jsonl
check "--no-load-optim goes on where the run was" [ "$(field iteration one.jsonl | head -1)" -eq 7 ]
check "at its loss and its learning rate" \
  cmp <(grep '"iteration": 7,' one.fp64.jsonl | grep -o '"lm_loss.\{12\}\|"learning_rate[^,]*') <(head -1 one.jsonl | grep -o '"lm_loss.\{12\}\|"learning_rate[^,]*')
check "--no-load-optim: weights alone do as well, on another grid" close_to <(field lm_loss one.jsonl) <(field lm_loss many.jsonl) 1e-10
anew=("${exact[@]/#corpus.h5/held_out.h5}" --load full --ckpt-step 6 --finetune)
done_by 4 train "${anew[@]}" "${grid[@]}" --metrics-file many.jsonl --save tuned
done_by 1 train "${anew[@]}" --metrics-file one.jsonl
check "--finetune begins at iteration 1, with the schedule's first learning rate" \
  [ "$(field iteration one.jsonl | head -1) $(field learning_rate one.jsonl | head -1)" = "1 $(field learning_rate one.fp64.jsonl | head -1)" ]
check "--finetune: the weights are trained ones" \
  awk "BEGIN { exit !($(field lm_loss one.jsonl | head -1) < 0.97 * $(field lm_loss one.fp64.jsonl | head -1)) }"
check "--finetune does the same on another grid" close_to <(field lm_loss one.jsonl) <(field lm_loss many.jsonl) 1e-10
done_by 1 train "${anew[@]}" --optimizer sgd --dry-run
refused 3 "the checkpoint holds a different model" 1 train "${anew[@]}" --max-position-embeddings 32
on 1 train "${run[@]}" --exit-duration-in-mins 1e-9 --save timed
check "--exit-duration-in-mins saves and leaves with 75" [ "$code $(cat timed/LATEST)" = "75 step-00000001" ]

check "the log says how to continue without --load" grep -q "continue with --load of the folder of --save" err

# A smaller batch from here on needs more samples than all its iterations have.
on 1 train "${run[@]:0:12}" --global-batch-size 16 --train-iters 20 --lr 0.01 --save batches --exit-interval 10
done_by 1 train "${run[@]:0:12}" --global-batch-size 4 --train-iters 40 --lr 0.01 --save batches --load batches \
  --override-opt-param-scheduler
check "a smaller batch goes on to the end" [ "$(cat batches/LATEST)" = step-00000040 ]
# The constant scale of bf16 says nothing of fp16's.
on 1 train "${run[@]}" --bf16 --save scales --exit-interval 3
done_by 1 train "${run[@]}" --fp16 --load scales
check "a dynamic loss scale begins at its beginning" grep -q "loss scale 4.29" err

# --dry-run checks everything and writes nothing.
mkdir dry
on 4 train "${run[@]}" "${grid[@]}" --save dry/saved --metrics-file dry/metrics.jsonl --dry-run
check "--dry-run succeeds, trains nothing" [ "$code $(grep -c '| loss' err)" = "0 0" ]
check "--dry-run prints the memory of every stage" [ "$(grep -c 'memory of a rank of stage [01]: .* = parameters ' err)" = 2 ]
refused 4 "a --micro-batch-size below 33554432" 4 train "${model[@]}" --data-path corpus.h5 --lr 1 --train-iters 1 "${grid[@]}" \
  --micro-batch-size 33554432 --global-batch-size 67108864
check "--dry-run writes nothing" [ -z "$(ls -A dry)" ]

# Asked to stop: by SIGUSR1 to mpirun, which hands it to every rank; alone by SIGTERM.
long=("${model[@]}" --data-path corpus.h5 --train-iters 1000000 --lr 0.01 --eval-iters 0)
stopped() { # stopped SIGNAL FOLDER COMMAND...: signals the running command once it trains; its exit code in $code
  local signal=$1 folder=$2 job
  shift 2
  timeout -k 5 60 "$@" --save "$folder" --metrics-file "$folder.jsonl" >out 2>err &
  job=$!
  for _ in $(seq 200); do [ -s "$folder.jsonl" ] && break; sleep 0.1; done
  pkill "-$signal" -P $job # timeout's child
  wait $job
  code=$?
}
stopped USR1 usr1 "$mpiexec" -n 4 "$trireme" train "${long[@]}" "${grid[@]}"
check "SIGUSR1: exit code 75" [ $code -eq 75 ]
check "SIGUSR1: the last iteration is saved" \
  [ "$(printf 'step-%08d' "$(field iteration usr1.jsonl | tail -1)")" = "$(cat usr1/LATEST)" ]
on 1 checkpoint verify usr1
check "SIGUSR1: the checkpoint is whole" [ $code -eq 0 ]
touch switch
on 4 train "${long[@]}" "${grid[@]}" --save switched --kill-switch-path switch
check "--kill-switch-path: exit code 75 after one iteration" [ "$code $(cat switched/LATEST)" = "75 step-00000001" ]
stopped TERM term "$trireme" train "${long[@]}"
check "SIGTERM: exit code 75, saved" \
  [ "$code $(printf 'step-%08d' "$(field iteration term.jsonl | tail -1)")" = "75 $(cat term/LATEST)" ]
