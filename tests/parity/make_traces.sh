#!/usr/bin/env bash
# Makes the stored loss traces in tests/parity/data with PyTorch: 50 steps of mlp and convnet on MNIST, in file order.
#
# Usage: PEER_PYTHON=python3 ENGINE_PEERS=DIR ENGINE_TEST_DATA=DIR tests/parity/make_traces.sh
#   PEER_PYTHON       a Python with torch and numpy (default: python3)
#   ENGINE_PEERS      the folder of torch_peer.py (default: ../shared/peers beside the source tree)
#   ENGINE_TEST_DATA  the folder of mnist/ (default: ../shared/data beside the source tree)
# The test needs none of these: it reads the stored traces. One file a trace, one loss a line.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../tools/lib.sh"

python=${PEER_PYTHON:-python3}
peer=${ENGINE_PEERS:-$root/../shared/peers}/torch_peer.py
mnist=${ENGINE_TEST_DATA:-$root/../shared/data}/mnist
[ -f "$peer" ] || fail "no $peer; set ENGINE_PEERS"
[ -d "$mnist" ] || fail "no $mnist; set ENGINE_TEST_DATA"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

make_trace() {  # MODEL LEARNING_RATE DTYPE RANKS
  local name="$1-$3-$4" double=()
  [ "$3" = f32 ] || double=(--double)
  "$python" "$peer" trace --model "$1" --data "mnist:$mnist" --batch 100 --steps 50 --lr "$2" --momentum 0.9 \
    --weights "$scratch/$1.safetensors" --ranks "$4" "${double[@]}" --out "$scratch/trace.json" >/dev/null
  "$python" - "$scratch/trace.json" "$name" >"$root/tests/parity/data/$name.txt" <<'PYTHON'
import json, sys
t = json.load(open(sys.argv[1]))
print(f"# {sys.argv[2]}: PyTorch {t['version']}, batch {t['batch']}, SGD lr {t['lr']} momentum {t['momentum']}")
for loss in t["losses"]:
    print(repr(loss))
PYTHON
  echo "tests/parity/data/$name.txt"
}

mkdir -p "$root/tests/parity/data"
for model in mlp convnet; do
  "$python" "$root/tests/parity/parity_weights.py" "$model" "$scratch/$model.safetensors"
done
for ranks in 1 2; do
  for dtype in f64 f32; do
    make_trace mlp 0.05 "$dtype" "$ranks"
    make_trace convnet 0.01 "$dtype" "$ranks"
  done
done
