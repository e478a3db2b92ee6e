#!/usr/bin/env bash
# An hour with a GPU, rehearsed with the stand-in: the four calls of tests/gpu/run.sh from a bundle, each on a new machine that has
# nothing but the bundle, no network and no trees, under the limits of a machine that is lent for an hour: a command of 2,000
# characters, 10 minutes each and 45 together, 64 MiB there, 8 files of 16 MiB back. The suites of tests are the real ones, with
# some that fail, hang and crash among them; nvidia-smi, ncu and compute-sanitizer are played.
#
# Usage: gpu_hour_test.sh BUILD_FOLDER [CALL ...]     ENGINE_TEST_KEEP=FOLDER: keep what came back
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$1" && pwd)
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$(dirname "${BASH_SOURCE[0]}")/gpu_played.sh"
fail() { echo "gpu_hour_test.sh: $*" >&2; exit 1; }
row() { grep -qE -- "^\| $1 \| $2 \| [0-9]+ \| .*$3" "$summary" || { cat "$summary" >&2; fail "no row: $1, $2, $3"; }; }
no_row() { ! grep -E -- "^\| $1 \| $2 \|" "$summary" || { cat "$summary" >&2; fail "call $call has failed"; }; }

# ---- What is sent.
mkdir -p "$work/sent"
"$root/tools/scripts/bundle.sh" --from "$build" --output "$work/sent/engine.tar.gz" >"$work/said" 2>&1 || { cat "$work/said" >&2; fail "no bundle"; }
cp "$build"/gpu_stand_in/lib*nccl_on_cpu.so "$work/sent/"  # what an installed NCCL is there
play_suites "$work/sent/planted_test"
play_tools "$work/sent/tools"  # the sanitizer finds a race
sent=$(du -sk "$work/sent" | cut -f1)
echo "sent: $sent KiB, of which the bundle is $(du -sk "$work/sent/engine.tar.gz" | cut -f1)"
[ "$sent" -le $((60 * 1024)) ] || fail "$sent KiB are to be sent, more than 60 MiB"

# ---- A machine.
lent=0
on_a_machine() {  # COMMAND: with what was sent in its folder, $OUT for what comes back
  [ "${#1}" -le 2000 ] || fail "the command has ${#1} characters"
  local machine="$work/machine"
  rm -rf "$machine" "$work/back"
  cp -r "$work/sent" "$machine"
  mkdir "$work/back" "$machine/tmp"
  cat >"$work/start" <<'END_OF_SCRIPT'
# Without trees and network, where this user may take them away.
work=$1 build=$2 root=$3 command=$4
if unshare --mount --net true 2>/dev/null; then
  if [ "${inside:-}" != yes ]; then inside=yes exec unshare --mount --net bash "$0" "$@"; fi
  ip link set lo up 2>/dev/null || true
  for tree in "$build" "$root"; do [ ! -d "$tree" ] || mount -t tmpfs none "$tree"; done
  mkdir -p "$build/gpu_stand_in"
  cp "$work"/machine/lib*nccl_on_cpu.so "$build/gpu_stand_in"
fi
cd "$work/machine"
exec timeout -k 5 600 env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$work/machine" TMPDIR="$work/machine/tmp" OUT="$work/back" bash -c "$command"
END_OF_SCRIPT
  local begin=$SECONDS
  bash "$work/start" "$work" "$build" "$root" "$1" >"$work/said" 2>&1 && status=0 || status=$?
  took=$((SECONDS - begin)) lent=$((lent + took))
  case $status in 124 | 137) cat "$work/said" >&2; fail "call $call was not through after 10 minutes" ;; esac
  summary="$work/back/summary.md"
  [ -s "$summary" ] || { cat "$work/said" >&2; fail "call $call left no summary"; }
  local files
  files=$(find "$work/back" -type f | wc -l)
  [ "$files" -le 8 ] || fail "$files files: $(ls -R "$work/back")"
  [ -z "$(find "$work/back" -size +16M -o -name '*[!A-Za-z0-9._-]*')" ] || fail "does not come back: $(ls -lR "$work/back")"
  tar -tzf "$work/back/results.tar.gz" >"$work/files" || fail "the results of call $call cannot be unpacked"
  if [ -n "${ENGINE_TEST_KEEP:-}" ]; then mkdir -p "$ENGINE_TEST_KEEP" && cp -rT "$work/back" "$ENGINE_TEST_KEEP/call-$call"; fi
  echo "call $call: $took s, $files files of $(du -sk "$work/back" | cut -f1) KiB, $(grep -c '| passed |' "$summary") steps passed"
}

[ $# -gt 0 ] || set -- 1 2 3 4
for call; do
  plant=""
  [ "$call" != 1 ] || plant='mv ../planted_test tests/ && echo "5 planted_test" >>tests/gpu_tests.txt && '
  # shellcheck disable=SC2016  # the machine has these
  on_a_machine 'tar -xzf engine.tar.gz && cd engine-* && '"$plant"'ENGINE_GPU_TOOLS=$PWD/../tools ENGINE_EMULATED_COMPUTE=9.0 \
    tests/gpu/run.sh --emulated --call '"$call"' --output "$OUT"'
  grep -q "Part $call of 4" "$summary" || fail "the summary does not say that it is of part $call"
  row device passed 'Played GPU'
  no_row '(trace|repeat|resume|moves|times|whole|cuts|bench|hot|counters|beside|ranks|large) .*' FAILED
  no_row '[^|]*' unfinished
  case $call in
    1)
      row 'test planted_test PlantedFailure' FAILED '1 ran, 0 skipped, 1 complaints'
      row 'test planted_test PlantedHang' FAILED 'ended after 20 s'
      row 'test planted_test PlantedCrash' FAILED 'it left no report \(exit 139\)'
      for suite in PlantedFailure PlantedHang PlantedCrash; do
        row "again planted_test $suite" FAILED ''
        row "memcheck planted_test $suite" FAILED ''
      done
      no_row 'test all_gpu_tests .*' FAILED
      [ "$(grep -c '^| test all_gpu_tests .* | passed |' "$summary")" -ge 60 ] || { cat "$summary" >&2; fail "suites are missing"; }
      row 'trace gpt-nano bf16' passed ''
      row 'times gemm bf16 warpgroup' passed 'rows'
      ;;
    2)
      row 'cuts gemm bf16 warpgroup' passed 'products'
      grep -q 'results/cuts-gemm-bf16-1.csv' "$work/files" || fail "the times of cuts are missing"
      ;;
    3)
      row 'counters convnet' passed ''
      tar -xzOf "$work/back/results.tar.gz" results/counters-convnet.csv | grep -q dense_kernel || fail "no counters"
      ;;
    4)
      row 'ranks mlp nccl' passed 'bit-equal'
      row 'ranks gpt-nano shm' passed 'bit-equal'
      row 'memcheck all_gpu_tests AttentionCuda' passed '9.9'
      row 'racecheck all_gpu_tests AttentionCuda' FAILED 'Race reported'
      row 'synccheck all_gpu_tests Conv2dCuda[^|]*' passed '9.9'
      ;;
  esac
done
[ "$lent" -le 2700 ] || fail "$lent s together, more than 45 minutes"
echo "$lent s together"
