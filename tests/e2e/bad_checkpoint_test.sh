#!/bin/bash
# Checkpoints that are absent, damaged or another run's, and folders that cannot take one: a damaged step that was named
# is refused; under its root the newest complete one is loaded instead, with a warning.
shim=$(realpath "${3:?usage: bad_checkpoint_test.sh TRIREME MPIEXEC IO_FAULT_SHIM}")
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
make_corpus other 2
on2=(--tp 2)
done_by 2 train "${run[@]}" "${on2[@]}" --save good --save-interval 4 # steps 4 and 8, of two shards
last=step-00000008
resume=("${run[@]}" --exit-interval 1)

fresh() { rm -rf saved && cp -r good saved; }
# loads STEP WARNINGS WHAT: after WHAT the root is loaded, from this step; some warning is given, or none (0).
loads() {
  on 1 train "${resume[@]}" --load saved
  local warnings
  warnings=$(grep -ci 'warn\|cannot be used\|is loaded instead\|LATEST' err)
  check "$3: step $1 is loaded" \
    [ "$code $(grep -c "loading .*/saved/step-0*$1: iteration $1$" err) $((warnings > 0))" = "$4 1 $2" ]
}

# Nothing there.
refused 3 "there is no checkpoint folder absent" 2 train "${run[@]}" --load absent
refused 3 "there is no checkpoint folder absent" 2 train "${run[@]}" --load absent --save absent --exit-on-missing-checkpoint
check "a refused run makes no folder" [ ! -e absent ]
on 2 train "${run[@]}" --load anew --save anew
check "--load and --save of one folder begin anew, with a warning" \
  [ "$code $(grep -c 'there is no checkpoint in anew: the run starts from scratch' err)" = "0 1" ]
refused 3 "there is no checkpoint folder absent" 1 eval --load absent --data-path corpus.h5
refused 3 "good/step-00000077" 1 train "${run[@]}" --load good/step-00000077
mkdir empty
refused 3 "there is no checkpoint in" 2 train "${run[@]}" --load empty
check "nothing was written there" [ -z "$(ls -A empty)" ]
done_by 1 train "${run[@]}" --load empty --load-or-init

# LATEST is a hint: the newest complete step is loaded regardless of its content.
fresh
loads 8 0 "everything complete" 0
echo step-00000004 >saved/LATEST
loads 8 1 "LATEST of an older step" 0
echo garbage >saved/LATEST
loads 8 1 "LATEST garbage" 0

# damaged MESSAGE WHAT: the step is refused where it is named, and step 4 replaces it under the root.
damaged() {
  refused 3 "$1" 2 train "${resume[@]}" --load saved/$last
  loads 4 1 "$2" 0
}
shard=saved/$last/rank-00001.h5
fresh
rm $shard
damaged "rank-00001.h5" "a missing shard"
mkfifo $shard
damaged "rank-00001.h5" "a shard that is a pipe"
fresh
flip $shard 9000
damaged "rank-00001.h5" "a flipped bit in a tensor"
refused 3 "rank-00001.h5" 2 eval --load saved/$last --data-path corpus.h5
fresh
sed -i 's/"step": 8/"step": 9/' saved/$last/manifest.json
damaged "manifest" "an edited manifest"
fresh
for step in saved/step-*; do truncate -s 100 $step/rank-00000.h5; done
refused 3 "is intact" 2 train "${resume[@]}" --load saved
on 1 checkpoint verify saved
check "verify finds both damaged steps" [ "$code $(grep -c 'rank-00000.h5' err)" = "3 2" ]
on 1 checkpoint verify good
check "verify finds nothing in complete ones" [ "$code $(wc -c <err)" = "0 0" ]

# A file that cannot be read is not damaged: no older step replaces it.
fresh
faulty() { # faulty ERROR AT TIMES ARGUMENT...: calls that read saved/$last fail, from number AT on
  LD_PRELOAD=$shim TRIREME_FAULT_READS=1 \
    TRIREME_FAULT_FOLDER=$PWD/saved/$last TRIREME_FAULT=$1 TRIREME_FAULT_AT=$2 TRIREME_FAULT_TIMES=$3 \
    timeout 60 "$trireme" "${@:4}" >out 2>err
  code=$?
}
faulty 13 9 1 train "${resume[@]}" --load saved
check "no permission: exit code 5, with file and reason" \
  [ "$code $(grep -c "saved/$last.*: Permission denied" err) $(grep -c 'iteration 4' err)" = "5 1 0" ]
faulty 0 0 0 checkpoint verify saved/$last
faulty 5 $(($(sed -n 's/^calls //p' out) - 1)) 1 checkpoint verify saved/$last
check "verify: a file that cannot be read is exit code 5, also where the HDF5 library reads" \
  [ "$code $(grep -c 'HDF5\|rank-00001.h5: Input/output error' err)" = "5 1" ]

# Another run's.
refused 3 "model.layers" 2 train "${run[@]/#4/2}" --load good
other=("${model[@]}" --data-path other.h5 --global-batch-size 4 --train-iters 12 --lr 0.01 --eval-iters 0 --load good)
refused 3 "data.corpora" 2 train "${other[@]}"
on 2 train "${other[@]}" --allow-new-data --override-opt-param-scheduler
check "--allow-new-data goes on with other text" [ "$code $(grep -c '^[0-9:]* *9/12 ' err)" = "0 1" ]
check "a changed option of the optimizer is said, once" \
  [ "$(grep -o -- '--.* in the checkpoint, now .*' err)" = "--lr-decay-iters was 8 in the checkpoint, now 12" ]

# Folders that cannot take a checkpoint: known before the first iteration.
refused 5 "cannot create the folder corpus.h5" 2 train "${run[@]}" --save corpus.h5/saved
check "nothing was trained" [ "$(grep -c ' 1/8 ' err)" -eq 0 ]
refused 5 "--metrics-file absent/m.jsonl: cannot be opened" 2 train "${run[@]}" --metrics-file absent/m.jsonl

# A save that fails: step 4 cannot have its name because a file has it.
obstructed() { rm -rf trying && mkdir trying && touch "trying/$1"; }
try=("${run[@]}" --save trying --save-interval 2 --on-save-error continue --metrics-file trying/m.jsonl)
obstructed step-00000004
refused 5 "step 4 could not be saved" 2 train "${run[@]}" --save trying --save-interval 2
check "by default it ends the run; the step before stays" [ "$(cat trying/LATEST)" = step-00000002 ]
for mode in "" --async-save; do
  obstructed step-00000004
  on 2 train "${try[@]}" ${mode:+$mode}
  check "--on-save-error continue${mode:+ $mode} warns once, trains on and saves the rest" \
    [ "$code $(grep -c 'STEP 4 IS NOT SAVED' err) $(wc -l <trying/m.jsonl) $(ls -A trying | xargs)" = \
    "0 1 8 LATEST m.jsonl m.jsonl.lives step-00000002 step-00000004 step-00000006 step-00000008" ]
  obstructed step-00000008
  refused 5 "step 8 could not be saved" 1 train "${try[@]}" ${mode:+$mode}
  check "a last state that is not saved is an error all the same" \
    [ "$(wc -l <trying/m.jsonl) $(ls -A trying | xargs)" = \
    "8 LATEST m.jsonl m.jsonl.lives step-00000002 step-00000004 step-00000006 step-00000008" ]
done

# A disk that fills up: the run says so and ends, and what was saved before stays.
mkdir full
if mount -t tmpfs -o size=4m tmpfs full 2>/dev/null; then
  head -c 3000000 /dev/zero >full/ballast
  refused 5 "are free" 2 train "${run[@]}" --save full/saved
  rm full/ballast
  for mode in "" --async-save; do
    rm -rf full/saved
    on 2 train "${run[@]}" --save full/saved --save-interval 1 ${mode:+$mode}
    check "a full disk: exit code 5, once, and the steps that fitted are complete${mode:+, with $mode}" \
      [ "$code $(grep -c 'are free' err) $("$trireme" checkpoint verify full/saved >/dev/null 2>&1; echo $?)" = "5 1 0" ]
  done
else
  echo "skipped: a real full disk, because file systems cannot be mounted here"
fi
