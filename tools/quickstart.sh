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
  # Kernels of other instruction sets, and those for --amp bf16, would be more than a third of the compiler's work.
  options=(-DENGINE_BUILD_TESTS=OFF -DENGINE_CPU_KERNELS=native)
  # GPU kernels take longer to compile than all else; without a GPU nothing runs them.
  [ -e /dev/nvidiactl ] || options+=(-DENGINE_WITH_CUDA=OFF)
fi
configure_and_build release engine "${options[@]}"

# A finished run is kept as long as the program that made it is the same.
step "3/4 Training convnet on glyphs, the built-in set of drawn digits: 2 processes, gradients averaged in every step"
program=$(sha256sum "$engine")
if [ "$(cat "$run/done" 2>/dev/null)" = "$program" ]; then
  echo "Trained before with this build; remove $run to train again."
else
  rm -rf "$run"
  mkdir -p "$run"
  command=("$engine" train --model convnet --dataset glyphs --spawn 2 --threads 1 --epochs 1 --batch-size 128 --lr 0.05
    --momentum 0.9 --sync-bn --save-dir "$run" --save-rank-models)
  printf '%s\n' "\$ ${command[*]}"
  "${command[@]}" || fail "training ended with exit status $?"
  echo "$program" >"$run/done"
fi
accuracy=$(grep '"event":"eval"' "$run/metrics.jsonl" | tail -n 1 | grep -oE '"accuracy":[0-9.]+' | cut -d: -f2)

step "4/4 Comparing the models of the two ranks, tensor by tensor, bit by bit"
models=("$run"/*rank_0.ckpt "$run"/*rank_1.ckpt)
printf '%s\n' "\$ $engine verify ${models[*]}"
status=0
"$engine" verify "${models[@]}" || status=$?
printf '(exit status %d)\n' "$status"
[ "$status" -eq 0 ] || fail "the models of the two ranks are not in sync"

cat <<END

What this showed
  - Two processes trained one model, each on half of every batch, and averaged their gradients in every step:
    test accuracy $(awk -v a="$accuracy" 'BEGIN { printf "%.2f", a <= 1 ? 100 * a : a }') % after one epoch over 60,000 images.
  - The two models are in sync: equal to the last bit, BatchNorm's running statistics included, because --sync-bn
    computes them over the samples of all ranks.
  - Checkpoints and metrics are in $run.

Try next
  $engine report $run -o report.html        # curves and times of this run, for a browser
  $engine predict $run digit.png            # what the model says of an image of 28 x 28 pixels
  $engine train --help
  ./tools/test.sh                                                  # builds and runs the tests
  docs/tutorial.md                                                 # your own data, evaluation, export, two machines
END
