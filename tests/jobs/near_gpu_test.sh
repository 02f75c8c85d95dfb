#!/bin/bash
# jobs/near_gpu.sh with stand-ins for nvidia-smi, numactl and the kernel's table of devices.
set -uo pipefail
near_gpu=$(cd "$(dirname "$0")/../../jobs" && pwd)/near_gpu.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

# device ADDRESS NODE CORES
device() {
  mkdir -p "$folder/devices/$1"
  echo "$2" >"$folder/devices/$1/numa_node"
  echo "$3" >"$folder/devices/$1/local_cpulist"
}
device 0000:1b:00.0 0 0-1
device 0000:9d:00.0 1 0
device 0000:c3:00.0 -1 0-1
mkdir "$folder/smi" "$folder/numa"
cat >"$folder/smi/nvidia-smi" <<'P'
#!/bin/bash
gpus=(00000000:1B:00.0 00000000:9D:00.0 00000000:C3:00.0)
if [ "$1" = --query-gpu=index ]; then printf '%s\n' 0 1 2; else echo "${gpus[$4]}"; fi
P
printf '#!/bin/bash\n[ -z "${FORBIDDEN:-}" ] || exit 1\necho "numactl $*"\n' >"$folder/numa/numactl"
chmod +x "$folder/smi/nvidia-smi" "$folder/numa/numactl"

# expect OUTPUT VARIABLE=VALUE... : what the rank prints
expect() {
  local wanted=$1 got
  shift
  got=$(env DEVICES="$folder/devices" "$@" bash "$near_gpu" echo trained 2>&1)
  [ "$got" = "$wanted" ] || { echo "with $*: printed '$got', expected '$wanted'"; failed=1; }
}
with_gpus=PATH=$folder/smi:$folder/numa:$PATH
expect "trained" SLURM_LOCALID=0 "PATH=$folder/numa:$PATH"
expect "numactl --cpunodebind=0 --preferred=0 echo trained" SLURM_LOCALID=0 "$with_gpus"
expect "numactl --cpunodebind=1 --preferred=1 echo trained" SLURM_LOCALID=1 "$with_gpus"
expect "numactl --cpunodebind=1 --preferred=1 echo trained" OMPI_COMM_WORLD_LOCAL_RANK=1 "$with_gpus"
expect "trained" SLURM_LOCALID=2 "$with_gpus"
expect "numactl --cpunodebind=0 --preferred=0 echo trained" SLURM_LOCALID=3 "$with_gpus"
expect "numactl --cpunodebind=1 --preferred=1 echo trained" SLURM_LOCALID=1 CUDA_VISIBLE_DEVICES=2,1 "$with_gpus"
expect "numactl --cpunodebind=0 --preferred=0 echo trained" SLURM_LOCALID=2 CUDA_VISIBLE_DEVICES=0,1 "$with_gpus"
expect "trained" SLURM_LOCALID=0 CUDA_VISIBLE_DEVICES= "$with_gpus"
expect "numactl --cpunodebind=1 --preferred=1 echo trained" SLURM_LOCALID=0 OMPI_COMM_WORLD_LOCAL_RANK=1 "$with_gpus"
# Cores outside those of the step: unbound.
device 0000:9d:00.0 1 1023
expect "trained" FORBIDDEN=yes SLURM_LOCALID=1 "$with_gpus"
device 0000:9d:00.0 1 0

# Without numactl: taskset.
mkdir "$folder/tools"
for tool in bash cat taskset true; do ln -s "$(type -P $tool)" "$folder/tools/$tool"; done
got=$(env DEVICES="$folder/devices" SLURM_LOCALID=1 PATH="$folder/smi:$folder/tools" "$(command -v bash)" "$near_gpu" \
  "$(command -v bash)" -c 'while read -r name value; do [ "$name" != Cpus_allowed_list: ] || echo "$value"; done </proc/self/status')
[ "$got" = 0 ] || { echo "by taskset: runs on cores '$got', expected '0'"; failed=1; }
exit $failed
