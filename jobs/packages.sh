# Sourced by scripts that build: the Debian or Ubuntu packages the program needs, and their installation.

build_packages=(
  g++ cmake ninja-build
  libopenmpi-dev openmpi-bin    # MPI
  libhdf5-dev                   # corpora and checkpoints
  libopenblas-dev libdnnl-dev   # matrix products on the CPU: fp64 and fp32, bf16
  libboost-program-options-dev  # the command line
  nlohmann-json3-dev            # manifests, JSON lines, metrics
  libsimdjson-dev               # texts in JSON lines
  libxxhash-dev                 # digests
  libutf8proc-dev libonig-dev   # character classes and regular expressions of the tokenizers
  zlib1g-dev libzstd-dev libbz2-dev liblzma-dev  # compressed text
  libspdlog-dev libfmt-dev      # the log
)
# Languages of texts, and tokenizer.model; the program can be built without.
optional_packages=(libcld2-dev libfasttext-dev libsentencepiece-dev)
test_packages=(libgtest-dev libgmock-dev libbenchmark-dev clang-format bzip2 xz-utils zstd procps)

# install_packages NAME...: installs those that are missing, where this user may; else names them and returns 1.
# Continues without unavailable optional ones.
install_packages() {
  install_needed "$@" || return
  install_needed "${optional_packages[@]}" || echo "Going on without ${optional_packages[*]}" >&2
}

install_needed() {
  if ! command -v dpkg-query >/dev/null; then
    echo "This is not Debian or Ubuntu: nothing is installed. Needed, by Debian's names: $*" >&2
    return 0
  fi
  local package missing=() as_root=()
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0

  if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo)
    [ -t 0 ] || as_root=(sudo -n)
    if ! command -v sudo >/dev/null || ! "${as_root[@]}" true; then
      echo "Missing packages, and no right to install them. Ask for: apt-get install ${missing[*]}" >&2
      return 1
    fi
  fi
  echo "Installing ${missing[*]}"
  "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=300 -qq update </dev/null || true  # the lists at hand may do
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq -y \
    --no-install-recommends install "${missing[@]}" </dev/null >/dev/null
}
