#!/usr/bin/env bash
# From a bare Debian 12 to a trained and verified model: installs, builds, trains on two ranks, compares the ranks.
#
# Usage: tools/quickstart.sh [--no-install]
#   --no-install  take the packages as they are
# Needs root or sudo for the packages; writes below build/ only. A second run skips steps already done.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/scripts/lib.sh"

install=yes
while [ $# -gt 0 ]; do
  case $1 in
    --no-install) install=no ;;
    -h | --help) usage; exit 0 ;;
    *) fail "unknown option $1 (see --help)" ;;
  esac
  shift
done
cd "$root"
engine=build/release/tools/engine
run=build/quickstart

if [ "$install" = yes ]; then
  step "1/4 Packages"
  tools/scripts/install_dependencies.sh
fi

step "2/4 Release build"
options=()
if [ ! -f build/release/CMakeCache.txt ]; then  # what test.sh has chosen stays
  options=(-DENGINE_BUILD_TESTS=OFF)
  # GPU kernels take longer to compile than all else; without a GPU nothing runs them.
  [ -e /dev/nvidiactl ] || options+=(-DENGINE_WITH_CUDA=OFF)
fi
configure_and_build release engine "${options[@]}"

# A finished run is kept as long as the program that made it is the same.
step "3/4 Training convnet on glyphs, the built-in set of drawn digits: 2 processes, gradients averaged over Gloo"
program=$(sha256sum "$engine")
if [ "$(cat "$run/done" 2>/dev/null)" = "$program" ]; then
  echo "Trained before with this build; remove $run to train again."
else
  rm -rf "$run"
  mkdir -p "$run"
  command=("$engine" train --model convnet --dataset glyphs --spawn 2 --backend gloo --threads 1 --epochs 1 --batch-size 128
    --lr 0.05 --momentum 0.9 --save-dir "$run" --save-rank-models --metrics "$run/metrics.jsonl")
  printf '%s\n' "\$ ${command[*]}"
  "${command[@]}" || fail "training ended with exit status $?"
  echo "$program" >"$run/done"
fi
accuracy=$(grep '"event":"eval"' "$run/metrics.jsonl" | tail -n 1 | grep -oE '"accuracy":[0-9.]+' | cut -d: -f2)

step "4/4 Comparing the models of the two ranks, tensor by tensor, bit by bit"
models=("$run"/*rank_0.ckpt "$run"/*rank_1.ckpt)
printf '%s\n' "\$ $engine verify ${models[*]}"
status=0
differing=$("$engine" verify "${models[@]}") || status=$?
printf '%s\n(exit status %d)\n' "$differing" "$status"
[ "$status" -le 1 ] || fail "verify could not compare the models"
if grep -qvE 'running_(mean|var)$' <<<"$differing"; then
  fail "tensors other than BatchNorm running statistics differ (or none do): the ranks are not as they should be"
fi

cat <<END

What this showed
  - Two processes trained one model, each on half of every batch, and averaged their gradients in every step:
    test accuracy $(awk -v a="$accuracy" 'BEGIN { printf "%.2f", a <= 1 ? 100 * a : a }') % after one epoch over 60,000 images.
  - All trained parameters of the two ranks are equal to the last bit. Only BatchNorm's running statistics differ, as they
    must: each rank gathers them from its own half of the data. That is why verify listed them and ended with 1.
  - Checkpoints and metrics are in $run.

Try next
  $engine train --help
  $engine inspect ${models[0]}
  $engine train --model mlp --dataset glyphs --spawn 2 --sync params --sync-every 16    # averages parameters, not gradients
  ./tools/test.sh                                                          # builds and runs the tests
END
