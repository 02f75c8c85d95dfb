#!/bin/bash
# Binds a rank to the cores and memory of its GPU's NUMA node. Without a GPU, or where that is not allowed, starts it unbound.
# The batch files start every rank through it (environment.sh). Rank n of a node uses the n-th visible GPU, as the program does.
# usage: jobs/near_gpu.sh PROGRAM [ARGUMENT...]    under srun or mpirun
# Environment: DEVICES (/sys/bus/pci/devices), the kernel's table of devices
set -uo pipefail
[ $# -gt 0 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
# mpirun's variable first: all its ranks inherit SLURM_LOCALID=0 from a batch script.
rank=${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-0}}

# The PCI address of the rank's GPU: "00000000:1B:00.0" in nvidia-smi, "0000:1b:00.0" in the kernel's table.
gpus=${CUDA_VISIBLE_DEVICES-$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null)}
read -ra gpus -d '' <<<"${gpus//,/ }"
[ ${#gpus[@]} -gt 0 ] || exec "$@"
gpu=$(nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader -i "${gpus[rank % ${#gpus[@]}]}" 2>/dev/null) || exec "$@"
gpu=${gpu,,}
device=${DEVICES:-/sys/bus/pci/devices}/${gpu#0000}
node=$(cat "$device/numa_node" 2>/dev/null) || node=-1

# -1: the machine has one node, or does not report it.
[ "$node" -ge 0 ] 2>/dev/null || exec "$@"
# start_by COMMAND...: starts the program by this command, unless a container or the cores of the step forbid it.
program=("$@")
start_by() { "$@" true >/dev/null 2>&1 && exec "$@" "${program[@]}"; }
start_by numactl --cpunodebind="$node" --preferred="$node"
# Without numactl memory is placed by first touch, which is near these cores.
start_by taskset --cpu-list "$(cat "$device/local_cpulist")"
exec "$@"
