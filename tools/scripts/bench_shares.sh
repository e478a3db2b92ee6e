#!/usr/bin/env bash
# Measures what --shares auto, --local-steps auto or --stale gains if one of two ranks runs at a third of its speed, and
# prints a Markdown table.
#
# Usage: tools/scripts/bench_shares.sh [--local-steps | --stale] [--seconds S] [--rounds N]
#   --local-steps with --sync params --sync-every 16 and a batch of 512: equal local steps and --local-steps auto
#   --stale       with --sync diloco --sync-every 16 and a batch of 512: without --stale and with --stale 2, at both speeds;
#                 global steps per second, of which a late rank skips some
#   --seconds S   length of each run (default 12); rates are means over its second half
#   --rounds N    repetitions of all four runs (default 3); the table has their medians
#   ENGINE_BINARY the program to measure (default: the Release build, made first)
# Each rank is one process with one thread. The slow one is stopped (SIGSTOP) for 20 ms of every 30 ms, alone as well
# as beside the other; a step takes several of these periods. The machine needs two idle cores: the load at the start is printed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

stale=0 seconds=12 rounds=3 batch=4096 log_every=1 equal=(--shares equal) auto=(--shares auto)
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=${2:?}; shift 2 ;;
    --rounds) rounds=${2:?}; shift 2 ;;
    --local-steps)
      batch=512 log_every=16 equal=(--sync params --sync-every 16) auto=(--sync params --sync-every 16 --local-steps auto)
      shift ;;
    --stale) stale=1 batch=512 log_every=24; shift ;;
    -h|--help) usage; exit 0 ;;
    *) fail "unknown argument '$1' (see --help)" ;;
  esac
done
if [ -z "${ENGINE_BINARY:-}" ]; then
  configure_and_build release engine >&2
  ENGINE_BINARY="$root/build/release/tools/engine"
fi
scratch=$(mktemp -d)
started=()
trap 'kill -CONT "${started[@]}" 2>/dev/null || true; kill -KILL "${started[@]}" 2>/dev/null || true; rm -rf "$scratch"' EXIT

# slow PID: as long as the process lives.
slow() {
  while kill -STOP "$1" 2>/dev/null; do
    sleep 0.02
    kill -CONT "$1" 2>/dev/null || break
    sleep 0.01
  done
}

# samples/s: the median of the reports in the second half of a run.
rate() {
  sed -n 's/.*"event":"step".*"samples_per_s":\([0-9.e+]*\).*/\1/p' "$scratch/metrics" |
    awk '{ r[NR] = $1 } END { for (i = int(NR / 2) + 1; i <= NR; ++i) print r[i] }' | sort -g |
    awk '{ r[NR] = $1 } END { if (NR == 0) exit 1; print r[int((NR + 1) / 2)] }'
}

# measure RANKS SLOWED OPTIONS...: runs RANKS processes, of which the last is slow if SLOWED is 1.
measure() {
  local ranks=$1 slowed=$2 rank pid
  shift 2
  rm -f "$scratch/metrics" "$scratch/meet"
  started=()
  for ((rank = 0; rank < ranks; ++rank)); do
    "$ENGINE_BINARY" train --model convnet --dataset synthetic --synthetic-shape 28x28x1 --threads 1 --workers 0 \
      --batch-size "$batch" --steps 100000000 --eval-every 0 --log-every "$log_every" --progress never --rank "$rank" \
      --world-size "$ranks" --init-method "file://$scratch/meet" --metrics "$scratch/metrics" "$@" \
      >"$scratch/out.$rank" 2>"$scratch/err.$rank" </dev/null &
    started+=($!)
  done
  pid=${started[-1]}
  if [ "$slowed" = 1 ]; then slow "$pid" & fi
  sleep "$seconds"
  kill -TERM "${started[0]}"
  for pid in "${started[@]}"; do wait "$pid" || true; done
  wait
  started=()
  rate || { cat "$scratch"/err.* >&2; fail "a run wrote no step"; }
}

median() { sort -g "$scratch/$1" | awk '{ r[NR] = $1 } END { print r[int((NR + 1) / 2)] }'; }
printf 'load at the start: %s, %s cores\n\n' "$(cut -d' ' -f1 /proc/loadavg)" "$(nproc)"
if [ "$stale" = 1 ]; then
  waits=(--sync diloco --sync-every 16)
  for ((round = 0; round < rounds; ++round)); do
    for slowed in 0 1; do
      measure 2 "$slowed" "${waits[@]}" >>"$scratch/waits.$slowed"
      measure 2 "$slowed" "${waits[@]}" --stale 2 >>"$scratch/stale.$slowed"
      grep -o 'late ranks missed.*' "$scratch/out.0" >&2 || true
    done
  done
  printf '%s %s %s %s\n' "$(median waits.0)" "$(median stale.0)" "$(median waits.1)" "$(median stale.1)" |
    awk -v batch="$batch" '{
    print "| ranks | steps/s, all wait | steps/s, --stale 2 |\n|---|--:|--:|"
    printf "| both at full speed | %.2f | %.2f |\n", $1 / batch, $2 / batch
    printf "| one at a third | %.2f | %.2f |\n", $3 / batch, $4 / batch
  }'
  exit 0
fi
for ((round = 0; round < rounds; ++round)); do
  measure 1 0 >>"$scratch/fast"
  measure 1 1 >>"$scratch/slow"
  measure 2 1 "${equal[@]}" >>"$scratch/equal"
  measure 2 1 "${auto[@]}" >>"$scratch/auto"
  grep -E 'Shares of a step|Local steps:' "$scratch/out.0" | tail -n 1 >&2 || true
done
printf '%s %s %s %s\n' "$(median fast)" "$(median slow)" "$(median equal)" "$(median auto)" |
  awk -v equal="${equal[*]}" -v auto="${auto[*]}" '{
  sum = $1 + $2
  print "| run | samples/s | of the sum of both alone |\n|---|--:|--:|"
  printf "| fast rank alone | %.0f | |\n| slow rank alone | %.0f | |\n", $1, $2
  printf "| both, %s | %.0f | %.2f |\n| both, %s | %.0f | %.2f |\n", equal, $3, $3 / sum, auto, $4, $4 / sum
}'
