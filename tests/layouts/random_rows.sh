#!/bin/bash
# Prints rows for the table of layouts: models with experts, on random grids of 2 to 8 ranks that the program supports, each
# with a random schedule, route of tokens, recomputation and sharding. The same seed prints the same rows.
# usage: random_rows.sh COUNT [SEED]
count=${1:?usage: random_rows.sh COUNT [SEED]}
RANDOM=${2:-0}

one_of() { eval "$1=\${$((2 + RANDOM % ($# - 1)))}"; }
divisor_of() { # sets $1 to a random divisor of $2, and of $3 if it is given
  local all=()
  for ((i = 1; i <= $2; ++i)); do (($2 % i == 0 && ${3:-$2} % i == 0)) && all+=($i); done
  one_of "$1" "${all[@]}"
}
sometimes() { # adds words to the row with probability 1 / $1
  if ((RANDOM % $1 == 0)); then row+=" ${*:2}"; fi
}

# Models, few since each trains on one rank, too. The batch is a multiple of 3 for grids with three data ranks.
models=(
  "--moe-aux-loss-coeff 0.1 --moe-z-loss-coeff 0.01"
  "--swiglu --moe-router-topk 3 --moe-ffn-hidden-size 32 --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.1"
  "--moe-expert-capacity-factor 0.75 --moe-layer-freq 2 --moe-shared-expert-intermediate-size 32"
  "--swiglu --moe-expert-capacity-factor 0.5 --moe-token-drop-policy position --moe-aux-loss-coeff 0.1"
  "--moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-bias-update-rate 0.05 --moe-router-num-groups 4 --moe-router-group-topk 2 --moe-router-topk 4 --optimizer muon"
  "--swiglu --moe-router-topk 2 --moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 0.1 --moe-input-jitter-eps 0.1"
)
for ((printed = 0; printed < count;)); do
  one_of ranks 2 3 4 4 6 8 8
  one_of model "${models[@]}"
  experts=8 batch=32
  if ((ranks % 3 == 0)); then experts=12 batch=24; fi
  divisor_of tp "$ranks" 8
  divisor_of pp $((ranks / tp)) 8
  divisor_of cp $((ranks / tp / pp)) 4
  dp=$((ranks / tp / pp / cp)) stage=$((ranks / pp))
  divisor_of etp $stage 32
  divisor_of ep $((stage / etp)) $experts
  # Balance losses and capacities depend on the micro-batch, which has 4 samples on one rank.
  micro=4
  if [[ $model != *capacity* && $model != *"loss-coeff 0.1 --moe-z"* ]]; then one_of micro 1 2 4; fi
  if ((batch % (dp * micro))); then continue; fi
  row="$ranks --disable-bias-linear --num-experts $experts $model --global-batch-size $batch --micro-batch-size $micro"
  row+=" --tp $tp --pp $pp --cp $cp --ep $ep"
  if ((etp != tp || RANDOM % 2)); then row+=" --expert-tensor-parallel-size $etp"; fi
  if ((tp > 1)); then
    sometimes 2 --sequence-parallel
    if ((etp == tp)) || [[ $row != *--sequence-parallel* ]]; then sometimes 2 --tp-comm-overlap-chunks 2; fi
  fi
  sometimes 2 --moe-token-dispatcher-type alltoall
  if [[ $model == *shared* ]]; then sometimes 2 --moe-shared-expert-overlap; fi
  if ((pp > 1)); then
    one_of schedule 1f1b gpipe zero-bubble interleaved
    if [ $schedule = interleaved ]; then
      if ((batch / dp / micro % pp || 8 % (2 * pp))); then continue; fi
      row+=" --vpp 2"
      sometimes 2 --overlap-p2p-communication
    else
      row+=" --schedule $schedule"
    fi
  fi
  one_of recomputation "" "" " --recompute-activations" " --recompute-granularity full" \
    " --recompute-granularity selective --recompute-modules moe"
  row+=$recomputation
  if ((dp * cp > 1)); then
    one_of sharding "" " --use-distributed-optimizer" " --data-parallel-sharding-strategy optim_grads"
    row+=$sharding
    sometimes 2 --overlap-grad-reduce --ddp-bucket-size 3000
    if [ -n "$sharding" ]; then sometimes 2 --overlap-param-gather; fi
  fi
  echo "$row"
  printed=$((printed + 1))
done
