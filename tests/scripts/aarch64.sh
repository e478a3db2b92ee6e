#!/usr/bin/env bash
# Builds the program for 64-bit ARM with Debian's cross compiler, runs tests of kernels, layers and
# checkpoints under QEMU, trains a little there, and exchanges checkpoints with this machine.
#
# Usage: tests/scripts/aarch64.sh [--install] [--build-only]
#   --install     first install compiler, QEMU and libraries of architecture arm64 (root, Debian 12)
#   --build-only  build, but run nothing
# Takes this machine's own program from build/release, and builds it if it is not there. QEMU says
# nothing about speed, and on x86-64 it orders memory more strictly than ARM's own machines do.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../tools/scripts/lib.sh"

install=no run=yes
while [ $# -gt 0 ]; do
  case $1 in
    --install) install=yes ;;
    --build-only) run=no ;;
    -h | --help) usage; exit 0 ;;
    *) fail "unknown option $1 (see --help)" ;;
  esac
  shift
done

if [ "$install" = yes ]; then
  [ "$(id -u)" -eq 0 ] || fail "--install needs root"
  "$root/tools/scripts/install_dependencies.sh" --tests
  step "Installing the cross compiler, QEMU and libraries of architecture arm64"
  dpkg --add-architecture arm64
  apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  "${apt[@]}" update
  "${apt[@]}" install --yes --no-install-recommends g++-aarch64-linux-gnu qemu-user libstdc++6:arm64 libsodium-dev:arm64 \
    libxxhash-dev:arm64 zlib1g-dev:arm64 libgtest-dev:arm64
fi
for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v "$program" >/dev/null || fail "needs $program (run with --install, or see there)"
done

build="$root/build/aarch64"
configure_and_build aarch64 "ops_test checkpoint_test core_test layers_test engine" -DENGINE_BUILD_TESTS=ON
[ "$run" = yes ] || exit 0

passed=0 failed=0
# check NAME COMMAND...: runs it and counts.
check() {
  local name=$1
  shift
  step "$name: $*"
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}
on_arm() { qemu-aarch64 "$@"; }

check "kernels" on_arm "$build/tests/engine/ops/ops_test" --gtest_brief=1
check "checkpoints" on_arm "$build/tests/io/checkpoint/checkpoint_test" --gtest_brief=1
check "core" on_arm "$build/tests/engine/core/core_test" --gtest_brief=1
check "layers" on_arm "$build/tests/engine/layers/layers_test" --gtest_brief=1

here="$root/build/release/tools/engine" there="$build/tools/engine"
[ -x "$here" ] || configure_and_build release engine
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
train=(train --model mlp --dataset glyphs --limit 256 --batch-size 64 --threads 1 --seed 1)
check "train on ARM" on_arm "$there" "${train[@]}" --epochs 1 --save-dir "$runs/arm"
check "train here" "$here" "${train[@]}" --epochs 1 --save-dir "$runs/here"
check "what ARM wrote, here" "$here" eval "$runs/arm"
check "what this machine wrote, on ARM" on_arm "$there" eval "$runs/here"
check "goes on here from ARM's checkpoint" "$here" train --resume "$runs/arm" --epochs 2

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
