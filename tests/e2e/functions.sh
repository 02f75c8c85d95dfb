# Sourced by the tests of this folder, and by those beside it that kill and signal: they run the program as its users do.
# usage of each: NAME_test.sh TRIREME MPIEXEC

trireme=$(realpath "$1") && [ -x "$trireme" ] || {
  echo "there is no program ${trireme:-$1}: build it, or name another one" >&2
  exit 2
}
mpiexec=$2
lives=$(dirname "${BASH_SOURCE[0]}")/../../jobs/lives.sh # end_idle, for tests that kill; an archive of tests/gpu.sh has none
[ ! -f "$lives" ] || source "$lives"
export LC_ALL=C
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0 # with libraries that are loaded first
export TRIREME_LOCK_WAIT=0 # a job that is to be refused is refused at once
[ -n "${keep_gpus:-}" ] || export CUDA_VISIBLE_DEVICES=  # also where there are GPUs these are tests of the CPU backend
scratch=$(mktemp -d "${TMPDIR:-/tmp}/trireme-e2e-XXXXXX")
trap 'finish $?' EXIT
cd "$scratch" || exit 1
# The folder that Open MPI shares between jobs of a user vanishes for a moment whenever the last of them ends.
export OMPI_MCA_orte_tmpdir_base=$scratch.mpi
mkdir "$scratch.mpi"
checks=0
failures=0

# A model that trains in milliseconds, and a run of it.
model=(--num-layers 4 --hidden-size 16 --num-attention-heads 4 --seq-length 16 --log-interval 1)
run=("${model[@]}" --data-path corpus.h5 --global-batch-size 4 --train-iters 8 --lr 0.01 --eval-iters 0)

finish() {
  jobs -p | xargs -r kill -9 2>/dev/null
  awk -v under="$scratch/" 'index($2, under) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount
  cd /
  rm -rf "$scratch" "$scratch.mpi"
  [ "$1" -eq 0 ] || exit "$1"
  echo "$checks checks, $failures failed"
  exit $((failures > 0))
}

# passed WHAT, failed WHAT: failed also shows what the last command printed.
passed() {
  checks=$((checks + 1))
  echo "passed: $1"
}
failed() {
  checks=$((checks + 1))
  failures=$((failures + 1))
  echo "FAILED: $1"
  sed 's/^/  stdout: /' out | tail -20
  sed 's/^/  stderr: /' err | tail -30
}

# check WHAT COMMAND...: the command, a test of something, must succeed.
check() {
  local what=$1
  shift
  if "$@"; then passed "$what"; else failed "$what"; fi
}

# on RANKS ARGUMENT...: runs trireme; its output in the files out and err, its exit code in $code (124: it hung).
on() {
  local ranks=$1
  shift
  if [ "$ranks" -eq 1 ]; then
    timeout -k 5 "${run_limit:-180}" "$trireme" "$@" >out 2>err
  else
    timeout -k 5 "${run_limit:-180}" "$mpiexec" -n "$ranks" "$trireme" "$@" >out 2>err
  fi
  code=$?
}

# shimmed FAULT AT ARGUMENT...: trireme with a fault, "kill" or an error number, at a call that changes a file killed.h5*; $shim is the
# io_fault_shim.
shimmed() {
  LD_PRELOAD=$shim TRIREME_FAULT_FOLDER=killed.h5 TRIREME_FAULT=$1 TRIREME_FAULT_AT=$2 timeout 180 "$trireme" "${@:3}" >out 2>err
  code=$?
}

# done_by RANKS ARGUMENT...: trireme must succeed.
done_by() {
  on "$@"
  [ $code -eq 0 ] || failed "exit code $code: $*"
}

# pause SECONDS: up to so many, at random.
pause() { sleep "$(awk -v most="$1" -v r=$RANDOM 'BEGIN { print most * r / 32768 }')"; }

# kill_job JOB RANKS: kills all processes of a job at once. Of one job in four it kills the last rank alone: then the
# others must end, too.
kill_job() {
  local job=$1 rank ranks=
  if [ "$2" -gt 1 ]; then
    kill -STOP "$job" 2>/dev/null # it starts no further rank
    ranks=$(pgrep -P "$job")
  fi
  if [ -n "$ranks" ] && ((RANDOM % 4 == 0)); then
    kill -9 "$(tail -1 <<<"$ranks")"
    kill -CONT "$job"
  else
    # shellcheck disable=SC2086  # one word each
    kill -9 $ranks "$job"
  fi 2>/dev/null
  end_idle "$job" &
  wait "$job" 2>/dev/null
  for rank in $ranks; do
    for _ in $(seq 100); do
      grep -qs '^State:.[^Z]' "/proc/$rank/status" || continue 2
      sleep 0.1
    done
    failed "rank with process $rank outlived its job"
  done
}

# refused CODE MESSAGES RANKS ARGUMENT...: trireme ends with this exit code. Each line of MESSAGES is in one line that it prints
# to stderr (the ranks do not repeat it) and not in stdout. There is no trace of a crash.
refused() {
  local expected=$1 messages=$2 message wrong=
  shift 2
  on "$@"
  while IFS= read -r message; do
    if [ "$(grep -cF -- "$message" err)" -ne 1 ] || grep -qF -- "$message" out; then wrong+=" \"$message\""; fi
  done <<<"$messages"
  if [ $code -eq "$expected" ] && [ -z "$wrong" ] &&
    ! grep -qE 'terminate called|Signal:|Backtrace|MPI_ABORT|Segmentation' out err; then
    passed "exit code $expected, \"$messages\": $*"
  else
    failed "exit code $code instead of $expected, not once in stderr alone:${wrong:- nothing}: $*"
  fi
}

# A text of some thousand words in JSON lines; another seed gives another text.
make_text() {
  awk -v seed="$1" 'BEGIN {
    srand(seed)
    for (document = 0; document < 150; ++document) {
      text = ""
      for (sentence = 0; sentence < 6 + rand() * 12; ++sentence)
        text = text sprintf("the %s rows %d oars. ", rand() < 0.5 ? "ship" : "crew", rand() * 10)
      print "{\"text\": \"" text "\"}"
    }
  }'
}

# make_corpus NAME SEED: NAME.jsonl and NAME.h5.
make_corpus() {
  make_text "$2" >"$1.jsonl"
  done_by 1 corpus build --input "$1.jsonl" --output "$1.h5" --tokenizer bytes --append-eod
}

# Makes encoder.json and vocab.bpe: byte-level BPE of one merge.
make_bpe_files() {
  awk 'BEGIN {
    printf "{"
    for (byte = 0; byte < 256; ++byte) {
      visible = byte > 32 && byte < 127 || byte > 160 && byte != 173
      printf "\"\\u%04x\": %d, ", visible ? byte : 256 + invisible++, byte
    }
    print "\"th\": 256, \"<|endoftext|>\": 257}"
  }' >encoder.json
  printf '#version: 0.2\nt h\n' >vocab.bpe
}

# used_on_two_ranks FOLDER EVAL_OPTION GENERATE_OPTION: a checkpoint must give the same on one rank as on two, which these
# options share.
used_on_two_ranks() {
  local ranks
  for ranks in 1 2; do
    done_by $ranks eval --load "$1" --data-path corpus.h5 "$2" $ranks
    field loss out >loss.$ranks
    done_by $ranks generate --load "$1" --prompt "the ship" --max-new-tokens 30 --temperature 0 "$3" $ranks
    cp out text.$ranks
  done
  check "eval measures the same on two ranks" close_to loss.1 loss.2 1e-10
  check "generate writes the same on two ranks" cmp text.1 text.2
}

# head_is_short RUN: the last run logged at most 25 lines before its first iteration, and trained.
head_is_short() {
  check "$1: the log has at most 25 lines before the first iteration" \
    awk '/ \| (lm )?loss / { trained = 1; exit } { lines++ } END { exit !(trained && lines > 5 && lines <= 25) }' err
}

# flip FILE OFFSET: changes one bit.
flip() {
  local byte
  byte=$(od -An -tu1 -j "$2" -N 1 "$1")
  printf "$(printf '\\%03o' $((byte ^ 4)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# field NAME FILE: that number of every line of a file of metrics, or of what eval prints.
field() { sed -n 's/.*"'"$1"'": *\([^,}]*\).*/\1/p' "$2"; }

# tensors STEP_FOLDER: name, place and digest of everything that is saved, whatever the files are called.
tensors() { grep -o '{"count".*}' "$1/manifest.json" | sed 's/"offset_bytes":[0-9]*,//; s/}[]}]*$/}/' | sort; }

# data_of FILE: digest of the tensors of a file of safetensors.
data_of() { tail -c +$((9 + $(od -An -t u8 -N 8 "$1"))) "$1" | sha256sum; }

# close_to A B TOLERANCE: two files of as many numbers, equal to the relative tolerance.
close_to() {
  paste "$1" "$2" | awk -v tolerance="$3" '
    { difference = $1 - $2; size = $1 < 0 ? -$1 : $1
      if (NF != 2 || difference > tolerance * size || -difference > tolerance * size) { print "differ:", $0; bad = 1 } }
    END { exit bad || NR == 0 }'
}
