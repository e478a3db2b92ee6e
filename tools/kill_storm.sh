#!/usr/bin/env bash
# Kills and stops ranks of an elastic job, rank 0 included, and compares its end with that of one that is left alone.
#
# Usage: tools/kill_storm.sh [SECONDS] [OPTIONS OF tests/faults/kill_storm.py]      300 s over each transport, if left out
# Uses the program of build/release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-300}
[ $# -gt 0 ] && shift
engine=build/release/tools/engine
[ -x "$engine" ] || { echo "kill_storm.sh: build $engine first: tools/test.sh --build-only" >&2; exit 2; }
code=0
for backend in shm socket gloo zmq; do
  for ranks in 2 4 6; do
    tests/faults/kill_storm.py "$engine" --seconds $((seconds / 3)) --backend "$backend" --ranks "$ranks" "$@" || code=1
  done
done
exit $code
