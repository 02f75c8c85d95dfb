#!/bin/bash
# Tries the packages that cpack wrote on systems that have nothing else: folders with a minimal Debian, made by debootstrap.
# usage: tests/packages.sh [FOLDER [SUITE[=MIRROR]...]]
#   FOLDER  the packages, default build/package, where cpack --preset package writes them
#   SUITE   further releases in which the archive is tried: trixie, or noble=URL of a mirror of Ubuntu
# The .deb are tried in this system's own release, for which their dependencies were computed. Each system is entered by
# chroot, in namespaces of its own, and the program runs there as an ordinary user. Needs root, debootstrap and the packages'
# mirror. Exit status 1 where something failed, 77 where nothing could be tried.
set -uo pipefail
skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" -eq 0 ] || skip "making a system needs root"
command -v debootstrap >/dev/null || skip "debootstrap is missing: apt-get install debootstrap"
if [ -z "${TRIREME_IN_NAMESPACES:-}" ]; then # all that is mounted or still runs goes with the last process
  unshare --mount --pid true 2>/dev/null || skip "namespaces of mounts and processes are not permitted here"
  TRIREME_IN_NAMESPACES=1 exec unshare --mount --pid --fork --kill-child "$0" "$@"
fi

packages=$(cd "${1:-$(dirname "$0")/../build/package}" && pwd) || exit 1
shift
archive=$(ls "$packages"/trireme-*-Linux-*.tar.xz) && deb=$(ls "$packages"/trireme_*.deb) ||
  { echo "$packages has no archive or no .deb of the program: run cpack there."; exit 1; }
cuda_deb=$(ls "$packages"/trireme-cuda_*.deb 2>/dev/null)
version=$(dpkg-deb --field "$deb" Version)
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" "Codename: $suite" "Component: main" | head -1)
[ -n "$mirror" ] || skip "apt has no mirror of $suite"

scratch=$(mktemp -d)
trap 'umount "$scratch"/*/proc "$scratch"/*/sys "$scratch"/*/dev/shm 2>/dev/null; rm -rf --one-file-system "$scratch"' EXIT
failures=0
passed() { echo "passed: $1"; }
failed() {
  echo "FAILED: $1"
  tail -n 20 "$scratch/log" | sed 's/^/  /'
  failures=$((failures + 1))
}
# check WHAT COMMAND...: the command must succeed; its output goes to $scratch/log.
check() {
  if "${@:2}" >"$scratch/log" 2>&1 </dev/null; then passed "$1"; else failed "$1"; fi
}
# expect WHAT CODE TEXT COMMAND...: the command must end with this exit code, and print this.
expect() {
  local code=0
  "${@:4}" >"$scratch/log" 2>&1 </dev/null || code=$?
  if [ $code -eq "$2" ] && grep -qF -- "$3" "$scratch/log"; then passed "$1"; else failed "$1: exit code $code"; fi
}

# make_system NAME SUITE MIRROR: a minimal Debian or Ubuntu in $scratch/NAME.
make_system() {
  local root=$scratch/$1
  debootstrap --variant=minbase "$2" "$root" "$3" >"$scratch/log" 2>&1 || { failed "make a minimal $2"; return 1; }
  # Open MPI is in Ubuntu's component universe. Debian has none of that name, and apt goes on.
  echo "deb $3 $2 main universe" >"$root/etc/apt/sources.list"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  echo "127.0.0.1 localhost $(uname -n)" >"$root/etc/hosts"
  open_system "$1"
  within "$1" apt-get -qq update >"$scratch/log" 2>&1 || { failed "apt-get update in $2"; return 1; }
}
open_system() {
  mount -t proc proc "$scratch/$1/proc" && mount -t sysfs -o ro sysfs "$scratch/$1/sys" &&
    mount -t tmpfs -o mode=1777 tmpfs "$scratch/$1/dev/shm"
}
# within NAME COMMAND...: as root; as_user NAME COMMAND...: as an ordinary user, in a folder of its own.
clean=(env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C DEBIAN_FRONTEND=noninteractive)
within() { "${clean[@]}" timeout -k 5 600 chroot "$scratch/$1" "${@:2}"; }
as_user() {
  "${clean[@]}" HOME=/tmp OMP_NUM_THREADS=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none \
    timeout -k 5 120 chroot --userspec=nobody:nogroup "$scratch/$1" bash -c 'cd /tmp && exec "$@"' - "${@:2}"
}
install_within() { within "$1" apt-get -y --no-install-recommends install "${@:2}"; }

# try_program NAME PROGRAM: text to corpus, two ranks train and save, and one generates.
model=(--num-layers 2 --hidden-size 16 --num-attention-heads 4 --seq-length 16)
try_program() {
  local root=$scratch/$1 program=$2 launcher=(mpirun --oversubscribe -np 2)
  for _ in $(seq 50); do echo "The ship rows nine oars, and the crew rows ten."; done >"$root/tmp/text.txt"
  expect "$1: trireme --version" 0 "$version" as_user "$1" "$program" --version
  check "$1: trireme info" as_user "$1" "$program" info
  check "$1: corpus build" as_user "$1" "$program" corpus build --input text.txt --output text.h5 --tokenizer bytes --append-eod
  expect "$1: train on two ranks" 0 "saved step 8" as_user "$1" "${launcher[@]}" "$program" train "${model[@]}" \
    --data-path text.h5 --tp 2 --global-batch-size 4 --train-iters 8 --lr 0.01 --eval-iters 0 --log-interval 1 --save run
  check "$1: checkpoint verify" as_user "$1" "$program" checkpoint verify run
  expect "$1: generate on two ranks" 0 "The ship" as_user "$1" "${launcher[@]}" "$program" generate --load run \
    --prompt "The ship" --max-new-tokens 8 --temperature 0
}

echo "== $(basename "$deb") in a minimal $suite"
if make_system deb "$suite" "$mirror"; then
  cp -a --one-file-system "$scratch/deb" "$scratch/$suite" # as it is, for the archive
  cp "$deb" $cuda_deb "$scratch/deb/root"
  check "deb: apt installs it" install_within deb "/root/$(basename "$deb")"
  try_program deb trireme
  if [ -n "$cuda_deb" ]; then
    check "deb: apt installs the CUDA backend" install_within deb "/root/$(basename "$cuda_deb")"
    expect "deb: with the CUDA backend, without a GPU" 0 "no NVIDIA driver" as_user deb trireme info
  fi
  check "deb: apt removes it" within deb apt-get -y purge trireme
  check "deb: no file of it is left" within deb bash -c '! ls -d /usr/lib/trireme /usr/bin/trireme /usr/share/*/trireme 2>/dev/null'
fi

# try_archive SUITE: in the system of that name.
try_archive() {
  local folder program
  folder=/opt/$(basename "$archive" .tar.xz)
  program=$folder/bin/trireme
  tar -C "$scratch/$1/opt" -xJf "$archive" || { failed "$1: unpack the archive"; return; }
  expect "$1: without MPI an error names it" 4 "libmpi.so" as_user "$1" "$program" info
  check "$1: apt installs Open MPI" install_within "$1" openmpi-bin
  try_program "$1" "$program"
  mv "$scratch/$1$folder" "$scratch/$1/srv/moved"
  check "$1: it works in another folder" as_user "$1" /srv/moved/bin/trireme info
  [ -z "$cuda_deb" ] || expect "$1: with the CUDA backend, without a GPU" 0 "no NVIDIA driver" as_user "$1" /srv/moved/bin/trireme info
}
echo "== $(basename "$archive") in a minimal $suite"
[ ! -d "$scratch/$suite" ] || { open_system "$suite" && try_archive "$suite"; }
for further in "$@"; do
  name=${further%%=*}
  from=$mirror
  [ "$further" = "$name" ] || from=${further#*=}
  echo "== $(basename "$archive") in a minimal $name"
  make_system "$name" "$name" "$from" && try_archive "$name"
done

echo "== An older processor"
if command -v qemu-x86_64 >/dev/null; then
  tar -C "$scratch" -xJf "$archive"
  expect "a processor before x86-64-v3 is refused" 4 "needs a processor of level" \
    qemu-x86_64 -cpu Nehalem "$scratch/$(basename "$archive" .tar.xz)/bin/trireme" --version
else
  echo "skipped: qemu-x86_64 is missing: apt-get install qemu-user"
fi
echo "$failures failed"
exit $((failures > 0))
