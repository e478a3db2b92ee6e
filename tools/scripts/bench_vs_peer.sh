#!/usr/bin/env bash
# Measures training steps side by side with PyTorch on this machine and prints a Markdown table (docs/benchmarks.md).
#
# Usage: PEER_PYTHON=python3 ENGINE_PEERS=DIR tools/scripts/bench_vs_peer.sh [--rounds N] [--seconds S] [--only MODELS] [--amp bf16] [--peer-only] [--uncompiled]
#   PEER_PYTHON   a Python with torch and numpy (default: python3)
#   ENGINE_PEERS  the folder of torch_peer.py (default: ../shared/peers beside the source tree)
#   ENGINE_BINARY the program to measure (default: the Release build, made first)
#   --rounds N    alternating rounds (default 5); --seconds S: measuring time of one run (default 5)
#   --only MODELS some of mlp,convnet,resnet18-cifar,resnet50-cifar,gpt-nano
#   --amp bf16    beside PyTorch's autocast
#   --peer-only   without our own program; --uncompiled: without torch.compile, which takes minutes to start
# Both sides: the same model, batch a rank, ranks and threads; a batch in memory, no loading. PyTorch's variants (as it is,
# channels-last, compiled, both) are tried first, twice each, and the best of each case is what every round measures.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case " $* " in *" -h "* | *" --help "*) usage; exit 0 ;; esac
export ENGINE_PEERS="${ENGINE_PEERS:-$root/../shared/peers}"
export PEER_PYTHON="${PEER_PYTHON:-python3}"
[ -f "$ENGINE_PEERS/torch_peer.py" ] || fail "no $ENGINE_PEERS/torch_peer.py; set ENGINE_PEERS"
"$PEER_PYTHON" -c 'import torch' 2>/dev/null || fail "$PEER_PYTHON has no torch; set PEER_PYTHON"
case " $* " in
  *" --peer-only "*) ;;
  *)
    if [ -z "${ENGINE_BINARY:-}" ]; then
      configure_and_build release engine >&2
      export ENGINE_BINARY="$root/build/release/tools/engine"
    fi ;;
esac
exec "$PEER_PYTHON" "$root/tests/peers/bench_vs_peer.py" "$@"
