#!/usr/bin/env bash
# Makes the stored loss traces in tests/parity/data with PyTorch: mlp and convnet on MNIST (50 steps of 100 samples), residual
# networks on CIFAR-10 (3 to 12 steps of 2 or 4 samples), gpt-nano on Tiny Shakespeare (20 or 50 steps of 12 windows), in file
# order, in float64 and float32, on one rank and on two.
#
# Usage: PEER_PYTHON=python3 ENGINE_PEERS=DIR ENGINE_TEST_DATA=DIR tests/parity/make_traces.sh [MODEL...]
#   MODEL             only these models (default: all)
#   PEER_PYTHON       a Python with torch and numpy (default: python3)
#   ENGINE_PEERS      the folder of torch_peer.py (default: ../shared/peers beside the source tree)
#   ENGINE_TEST_DATA  the folder of mnist/, cifar10/ and tinyshakespeare/ (default: ../shared/data beside the source tree)
# The test needs none of these: it reads the stored traces. One file a trace, one loss a line. parity_test.cc lists the traces
# with the same options.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../tools/scripts/lib.sh"

python=${PEER_PYTHON:-python3}
peer=${ENGINE_PEERS:-$root/../shared/peers}/torch_peer.py
data=${ENGINE_TEST_DATA:-$root/../shared/data}
[ -f "$peer" ] || fail "no $peer; set ENGINE_PEERS"
[ -d "$data/mnist" ] || fail "no $data/mnist; set ENGINE_TEST_DATA"
[ -d "$data/cifar10" ] || fail "no $data/cifar10; set ENGINE_TEST_DATA"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
wanted=" $* "

# The first 48 records, as the test takes them.
mkdir -p "$scratch/cifar10" "$root/tests/parity/data"
if [ -f "$data/cifar10/data_batch_1.bin" ]; then
  head -c $((48 * 3073)) "$data/cifar10/data_batch_1.bin" >"$scratch/cifar10/data_batch_1.bin"
else
  xz -dc "$data/cifar10/data_batch_1.bin.xz" >"$scratch/all" # all of it: a reader that stops early would end xz with an error
  head -c $((48 * 3073)) "$scratch/all" >"$scratch/cifar10/data_batch_1.bin"
fi

make_traces() {  # MODEL VARIANT DATA BATCH STEPS OPTION...; VARIANT: what the files' names say of the options, "" or "-decay"
  local model=$1 variant=$2 source=$3 batch=$4 steps=$5 weights="$scratch/$1.safetensors" dtype ranks
  shift 5
  [ "$wanted" = "  " ] || [[ $wanted == *" $model "* ]] || return 0
  [ -f "$weights" ] || "$python" "$root/tests/parity/parity_weights.py" "$model" "$weights"
  for ranks in 1 2; do
    for dtype in f64 f32; do
      local name="$model$variant-$dtype-$ranks" double=()
      [ "$dtype" = f32 ] || double=(--double)
      "$python" "$peer" trace --model "$model" --data "$source" --batch "$batch" --steps "$steps" --weights "$weights" \
        --ranks "$ranks" "${double[@]}" "$@" --out "$scratch/trace.json" >/dev/null
      "$python" - "$scratch/trace.json" "$name" "$*" >"$root/tests/parity/data/$name.txt" <<'PYTHON'
import json, sys
t = json.load(open(sys.argv[1]))
print(f"# {sys.argv[2]}: PyTorch {t['version']}, batch {t['batch']}, {sys.argv[3]}")
for loss in t["losses"]:
    print(repr(loss))
PYTHON
      echo "tests/parity/data/$name.txt"
    done
  done
}

mnist=mnist:$data/mnist cifar=cifar10:$scratch/cifar10 text=text:$data/tinyshakespeare/input.txt
make_traces mlp "" "$mnist" 100 50 --lr 0.05 --momentum 0.9
make_traces mlp -decay "$mnist" 100 50 --lr 0.05 --momentum 0.9 --weight-decay 0.01
make_traces mlp -adamw "$mnist" 100 50 --lr 0.0005 --optimizer adamw --weight-decay 0.1
make_traces convnet "" "$mnist" 100 50 --lr 0.01 --momentum 0.9
make_traces convnet -decay "$mnist" 100 20 --lr 0.01 --momentum 0.9 --weight-decay 0.01
make_traces convnet -adamw "$mnist" 100 20 --lr 0.0005 --optimizer adamw --weight-decay 0.1
make_traces resnet18-cifar "" "$cifar" 4 12 --lr 0.0001 --momentum 0.9
make_traces resnet18-cifar -decay "$cifar" 4 6 --lr 0.0001 --momentum 0.9 --weight-decay 0.1
make_traces resnet18-cifar -adamw "$cifar" 4 6 --lr 0.00001 --optimizer adamw --weight-decay 0.1
make_traces resnet50-cifar -decay "$cifar" 4 3 --lr 0.0001 --momentum 0.9 --weight-decay 0.1
make_traces pyramidnet110 -decay "$cifar" 2 3 --lr 0.0001 --momentum 0.9 --weight-decay 0.1
make_traces gpt-nano "" "$text" 12 20 --lr 0.05 --momentum 0.9
make_traces gpt-nano -decay "$text" 12 20 --lr 0.05 --momentum 0.9 --weight-decay 0.01
make_traces gpt-nano -adamw "$text" 12 50 --lr 0.001 --optimizer adamw --weight-decay 0.01
