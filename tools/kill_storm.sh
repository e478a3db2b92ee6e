#!/usr/bin/env bash
# Kills and stops ranks of elastic jobs, rank 0 included, and compares their ends with those of jobs that are left alone:
# two to six ranks over each transport. The last line has the totals.
#
# Usage: tools/kill_storm.sh [SECONDS] [OPTIONS OF tests/faults/kill_storm.py]      300 s over each transport, if left out
# Uses the program of build/release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-300}
[ $# -gt 0 ] && shift
engine=build/release/tools/engine
[ -x "$engine" ] || { echo "kill_storm.sh: build $engine first: tools/test.sh --build-only" >&2; exit 2; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
for backend in shm socket gloo zmq; do
  for ranks in 2 3 4 5 6; do
    tests/faults/kill_storm.py "$engine" --seconds $((seconds / 5)) --backend "$backend" --ranks "$ranks" "$@" |
      tee -a "$log" || code=1
  done
done
awk '/^[a-z]+, [0-9]+ ranks, seed/ {
       storms += 1
       for (i = 1; i < NF; ++i) {
         if ($(i + 1) ~ /^kills/) kills += $i
         if ($(i + 2) ~ /^stops/) stops += $i
         if ($(i + 1) ~ /^resets/) resets += $i
       }
     }
     /it hangs$/ { hangs += 1 }
     /^the ends differ/ || /differ.* from/ && /replica/ { differences += 1 }
     END { printf "in all: %d storms, %d kills, %d stops, %d resets; %d hangs, %d differences\n",
                  storms, kills, stops, resets, hangs, differences }' "$log"
exit $code
