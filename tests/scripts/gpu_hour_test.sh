#!/usr/bin/env bash
# Thirty minutes with a GPU, rehearsed with the emulator: the three commands of docs/gpu.md, word by word, each on a new machine
# that has nothing but the file that they name, no network and no trees, under the limits of a machine that is lent: a command of
# 2,000 characters, 10 minutes each and 28 together with 90 s for each start, 60 MiB there, 8 files of 16 MiB back. The suites of
# tests are the real ones, with some that fail, hang and crash among them; nvidia-smi, ncu and compute-sanitizer are played.
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

# ---- What is sent: the bundle, with the planted suites in it.
mkdir -p "$work/sent/build" "$work/beside"
"$root/tools/scripts/bundle.sh" --no-install --from "$build" --output "$work/bundle.tar.gz" >"$work/said" 2>&1 || { cat "$work/said" >&2; fail "no bundle"; }
tar -xzf "$work/bundle.tar.gz" --one-top-level="$work/engine" --strip-components=1
play_suites "$work/engine/tests/planted_test"
echo "5 planted_test" >>"$work/engine/tests/gpu_tests.txt"
tar -C "$work" -czf "$work/sent/build/gpu.tar.gz" engine
rm -r "$work/engine" "$work/bundle.tar.gz"
sent=$(du -sk "$work/sent" | cut -f1)
echo "sent: $sent KiB"
[ "$sent" -le $((60 * 1024)) ] || fail "$sent KiB are to be sent, more than 60 MiB"
# What the machine has: libraries, tools.
cp "$build"/gpu_emulator/lib*nccl_on_cpu.so "$work/beside/"
cp "$build"/tests/tools/report/trace/libfake_cupti.so "$work/beside/" || fail "not built: fake_cupti"
play_tools "$work/beside/tools"  # the sanitizer finds a race

# ---- A machine.
lent=0
on_a_machine() {  # COMMAND: with what was sent in its folder, $OUT for what comes back
  [ "${#1}" -le 2000 ] || fail "the command has ${#1} characters"
  local machine="$work/machine"
  rm -rf "$machine" "$work/back"
  cp -r "$work/sent" "$machine"
  mkdir "$work/back" "$machine/tmp"
  cp -r "$work/beside" "$machine/tmp/beside"
  cat >"$work/start" <<'END_OF_SCRIPT'
# Without trees and network, where this user may take them away.
work=$1 build=$2 root=$3 command=$4
if unshare --mount --net true 2>/dev/null; then
  if [ "${inside:-}" != yes ]; then inside=yes exec unshare --mount --net bash "$0" "$@"; fi
  ip link set lo up 2>/dev/null || true
  for tree in "$build" "$root"; do [ ! -d "$tree" ] || mount -t tmpfs none "$tree"; done
  mkdir -p "$build/gpu_emulator"
  cp "$work"/beside/lib*nccl_on_cpu.so "$build/gpu_emulator"
fi
cd "$work/machine"
beside="$work/machine/tmp/beside"
exec timeout -k 5 600 env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$work/machine" TMPDIR="$work/machine/tmp" OUT="$work/back" \
  ENGINE_GPU_TOOLS="$beside/tools" ENGINE_CUPTI_LIBRARY="$beside/libfake_cupti.so" ENGINE_EMULATED_COMPUTE=9.0 bash -c "$command"
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

# ---- The calls.
start=90 planned=0
[ $# -gt 0 ] || set -- 1 2 3
for call; do
  command=$(grep -xE "tar .* --call $call .*" "$root/docs/gpu.md") || fail "docs/gpu.md has no command of call $call"
  [ "$(wc -l <<<"$command")" -eq 1 ] || fail "docs/gpu.md has several commands of call $call"
  on_a_machine "$command"
  grep -q "Part $call of 3" "$summary" || fail "the summary does not say that it is of part $call"
  deadline=$(sed -nE 's/^[0-9]+ of ([0-9]+) seconds are used.*/\1/p' "$summary")
  [ "$took" -le $((deadline + 15)) ] || fail "a deadline of $deadline s was kept after $took s"
  planned=$((planned + start + deadline))
  grep -qE '^A process holds a context of the device: held after [0-9.]+ s\.$' "$summary" || fail "no context is held"
  ! pgrep -f "$work/machine/.*/hold_device" >/dev/null || fail "a context is held after the end"
  row device passed 'Played GPU'
  row 'library NCCL' passed ''
  row 'library CUPTI' passed '/libfake_cupti.so'
  no_row '(step|trace|repeat|resume|moves|times|translated|cuts|bench|hot|counters|beside|ranks|scaling|large) .*' FAILED
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
      row 'step gpt-nano bf16' passed 'half of 52 by .*; warpgroup products'
      row 'step resnet20-cifar off' passed 'half of 59 by'
      row 'translated all_gpu_tests CudaTrain' passed '[0-9]+ ran'
      row 'trace gpt-nano bf16' passed ''
      row 'times gemm bf16 warpgroup' passed 'rows'
      ;;
    2)
      row 'beside step convnet b2 off' passed ' ms'
      row 'beside step gpt-nano b1 bf16' passed ' ms'
      row 'beside attention bf16' passed '2 shapes'
      row 'beside compiled mlp b4 off' skipped 'no PyTorch'
      ;;
    3)
      row 'hot convnet' passed 'gemm_kernel'
      row 'counters convnet' passed ' of gemm_kernel'
      tar -xzOf "$work/back/results.tar.gz" results/counters-convnet.csv | grep >/dev/null dense_kernel || fail "no counters"
      row 'ranks mlp nccl' passed 'bit-equal'
      row 'ranks gpt-nano shm' passed 'bit-equal'
      row 'scaling gpt-nano' passed '1: [0-9.]+ ms, 2: [0-9.]+ ms'
      row 'memcheck all_gpu_tests AttentionCuda' passed '9.9'
      row 'racecheck all_gpu_tests AttentionCuda' FAILED 'Race reported'
      row 'synccheck all_gpu_tests Conv2dCuda[^|]*' passed '9.9'
      row 'leaks all_gpu_tests DeviceStep' passed '9.9'
      [ "$(grep -c '^| leaks all_gpu_tests ' "$summary")" -eq 1 ] || fail "leaks are looked for in several suites"
      row 'cuts gemm bf16 warpgroup' passed 'products'
      grep -q 'results/cuts-gemm-bf16-1.csv' "$work/files" || fail "the times of cuts are missing"
      ;;
  esac
done
echo "$lent s together; planned: $planned s with $start for each start"
[ "$planned" -le 1680 ] && [ "$((lent + start * $#))" -le 1680 ] || fail "more than 28 minutes"
