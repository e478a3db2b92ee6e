#!/usr/bin/env bash
# What --trace costs: the same trainings with and without it, in turns; medians of the processor's time (user and system, of all
# ranks), which other work on the machine disturbs less than the time that passes.
#
# Usage: tools/scripts/bench_trace.sh [OPTIONS]
#   --engine FILE   the program (default: build/release/tools/engine)
#   --rounds N      of each training, with and without (default: 9)
#   --most PERCENT  exit with 1 if a training takes more time than that
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

engine="$root/build/release/tools/engine" rounds=9 most=""
while [ $# -gt 0 ]; do
  case $1 in
    --engine | --rounds | --most) [ $# -ge 2 ] || fail "$1 needs a value (see --help)" ;;&
    --engine) engine=$(realpath "$2"); shift ;;
    --rounds) rounds=$2; shift ;;
    --most) most=$2; shift ;;
    -h | --help) usage; exit 0 ;;
    *) fail "unknown option $1 (see --help)" ;;
  esac
  shift
done
[ -x "$engine" ] || fail "no program $engine: build it first, or name one with --engine"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
TIMEFORMAT="%U %S"

cpu_seconds() { # ARGUMENT...: of a training
  local spent
  spent=$({ time "$engine" train --dataset glyphs --threads 1 --eval-every 0 --log-every 0 "$@" >"$work/log" 2>&1; } 2>&1) ||
    { cat "$work/log" >&2; fail "the training failed"; }
  awk '{ print $1 + $2 }' <<<"$spent"
}
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

status=0
measure() { # NAME ARGUMENT...
  local name=$1 i
  shift
  rm -f "$work/plain" "$work/traced"
  cpu_seconds "$@" >/dev/null # the first one warms up
  for ((i = 0; i < rounds; ++i)); do
    cpu_seconds "$@" >>"$work/plain"
    cpu_seconds "$@" --trace "$work/trace.json" >>"$work/traced"
  done
  awk -v name="$name" -v plain="$(median "$work/plain")" -v traced="$(median "$work/traced")" -v most="$most" 'BEGIN {
    percent = 100 * (traced / plain - 1)
    printf "%-28s %6.2f s, with --trace %6.2f s: %+.1f %%\n", name, plain, traced, percent
    exit most != "" && percent > most }' || status=1
}
measure "convnet, 1 rank" --model convnet --batch-size 128 --steps 100
measure "mlp, 2 ranks, steps of 2 ms" --model mlp --batch-size 128 --spawn 2 --steps 500
exit $status
