#!/usr/bin/env bash
# Installs the Debian packages that the build and the scripts need; does nothing, quickly, when all are there.
#
# Usage: tools/scripts/install_dependencies.sh [--tests] [--cluster] [--clang] [--sanitizers] [--coverage] [--packaging] [--for KIND]
#        [--check] [--list]
#   --tests  also what the tests need
#   --cluster  also the launchers under which tests/cluster runs the program (SLURM, Open MPI); those tests are skipped without
#   --clang  also clang, clang-format and clang-tidy, for the clang build and tests/scripts/lint.sh
#   --sanitizers  also clang and its runtime libraries, for test.sh --sanitize and tests/fuzz/fuzz.sh
#   --coverage  also gcovr, for the count of lines that tests reach
#   --packaging  also what makes and judges packages, completion and pages; test.sh --readers installs it and more
#   --for deb|wheel|container|bundle|release  also what the script of that name needs; release-aarch64: release.sh --arch aarch64
#   --check  install nothing; print what is missing and exit with 1 if anything is
#   --list   print the package names and exit
# Needs root or sudo on Debian 12. Anywhere else it prints the packages by their Debian names and stops.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The last line: what get_data.sh runs. Of the programs that the other scripts run, those not named here are essential in Debian.
packages=(git build-essential cmake ninja-build
  libeigen3-dev libcereal-dev libsodium-dev libcli11-dev libtomlplusplus-dev libxxhash-dev zlib1g-dev nlohmann-json3-dev
  libgloo-dev libzmq3-dev cppzmq-dev libpng-dev libdeflate-dev libjpeg62-turbo-dev libhwloc-dev libpcre2-dev libutf8proc-dev
  curl ca-certificates xz-utils)
check=no
while [ $# -gt 0 ]; do
  case $1 in
    --tests) packages+=(libgtest-dev libboost-context-dev procps python3 python3-numpy python3-yaml mandoc) ;;
    --cluster) packages+=(slurmctld slurmd slurm-client munge openmpi-bin libopenmpi-dev iproute2 iptables iperf3
      iputils-ping) ;;
    --clang) packages+=(clang clang-format clang-tidy lld) ;;
    --sanitizers) packages+=(clang libclang-rt-14-dev lld llvm) ;;
    --coverage) packages+=(gcovr) ;;
    --packaging) packages+=(dpkg-dev file lintian debootstrap zsh fish zip openssl binutils python3-venv buildah podman crun chromium) ;;
    --for)
      case ${2:-} in
        deb) packages+=(dpkg-dev file) ;;
        wheel) packages+=(zip binutils openssl) ;;
        container) packages+=(buildah binutils) ;;
        bundle) packages+=(binutils zstd) ;;
        release) packages+=(binutils bzip2 python3 python3-pip zip openssl dpkg-dev file buildah) ;;
        release-aarch64) packages+=(binutils bzip2 python3 python3-pip zip openssl binutils-aarch64-linux-gnu qemu-user) ;;
        *) fail "--for takes deb, wheel, container, bundle, release or release-aarch64, not '${2:-}'" ;;
      esac
      shift ;;
    --check) check=yes ;;
    --list) check=list ;;
    -h | --help) usage; exit 0 ;;
    *) fail "unknown option $1 (see --help)" ;;
  esac
  shift
done
if [ "$check" = list ]; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi

missing=("${packages[@]}")
if command -v dpkg-query >/dev/null; then
  installed=$(dpkg-query --show --showformat '${binary:Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null |
    awk '$2 == "installed" { sub(/:.*/, "", $1); print $1 }' || true)
  mapfile -t missing < <(comm -23 <(printf '%s\n' "${packages[@]}" | sort) <(sort <<<"$installed"))
fi
if [ ${#missing[@]} -eq 0 ]; then
  echo "All ${#packages[@]} packages are installed."
  exit 0
fi
if [ "$check" = yes ]; then
  printf '%s\n' "${missing[@]}"
  exit 1
fi

# Any other system: say what is needed and stop.
name=unknown
. /etc/os-release 2>/dev/null && name="${PRETTY_NAME:-$ID}"
if [ "${ID:-}" != debian ] || [ "${VERSION_ID:-}" != 12 ]; then
  printf 'This script installs on Debian 12 only; this is %s. Install the equivalents of these Debian packages yourself:\n  %s\n' \
    "$name" "${missing[*]}" >&2
  echo "Then run quickstart.sh or test.sh with --no-install." >&2
  exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
  as_root=()
elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
  as_root=(sudo)
else
  printf 'These packages are missing, and installing them needs root or sudo:\n  apt-get install %s\n' "${missing[*]}" >&2
  exit 1
fi

step "Installing ${#missing[@]} packages: ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
"${apt[@]}" update || fail "apt-get update failed; are the package sources reachable?"
"${apt[@]}" install --yes --no-install-recommends "${missing[@]}" ||
  fail "apt-get could not install the packages above; see its message"
