#!/bin/bash
# usage: program_test.sh KERNEL_SASS
# The program with a cuobjdump that prints what is written here: its exit status and its messages.
set -uo pipefail
kernel_sass=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

# cuobjdump_for ARCHITECTURE: one kernel, with a store of 64 bits.
cuobjdump_for() {
  cat >"$scratch/cuobjdump" <<END
#!/bin/bash
echo 'arch = $1'
if [ "\$1" = -res-usage ]; then
  printf ' Function _Z8f_kernelv:\n  REG:40 STACK:0 SHARED:0 LOCAL:0\n'
else
  printf '\t\tFunction : _Z8f_kernelv\n'
  printf '        /*0000*/  STG.E.64 desc[UR4][R2.64], R4 ;  /* 0x0 */\n        /*0010*/  EXIT ;  /* 0x0 */\n'
fi
END
  chmod +x "$scratch/cuobjdump"
}
# expect STATUS PATTERN TABLE ARGUMENT...: of the program with a table of one line.
expect() {
  local status=$1 pattern=$2 found=0
  echo "$3" >"$scratch/table"
  "$kernel_sass" "${@:4}" --table "$scratch/table" --cuobjdump "$scratch/cuobjdump" >"$scratch/out" 2>&1 || found=$?
  if [ $found -eq "$status" ] && grep -qE "$pattern" "$scratch/out"; then
    echo "passed: $pattern"
  else
    echo "FAILED: $pattern, exit status $found, not $status"
    cat "$scratch/out"
    failures=$((failures + 1))
  fi
}

cuobjdump_for sm_90
expect 0 '1 kernels of sm_90, 0 faults' 'f_kernel threads=256 blocks=6' library
expect 1 'f_kernel has 0 stores of 128 bits, and .*/table:1 allows at least 1. Store through' \
  'f_kernel threads=256 blocks=6 stores=1' library
expect 4 "table:1: 'store=1' is not a field" 'f_kernel threads=256 blocks=6 store=1' library
expect 2 'usage: kernel_sass' '' --tables
cuobjdump_for sm_90a
expect 0 '1 kernels of sm_90a, 0 faults' 'f_kernel threads=256 blocks=6' library
cuobjdump_for sm_80
expect 77 'library has no code for compute capability 9.0' 'f_kernel threads=256 blocks=6' library
rm "$scratch/cuobjdump"
expect 4 "Name the library, and NVIDIA's cuobjdump" 'f_kernel threads=256 blocks=6' library
[ $failures -eq 0 ]
