#!/usr/bin/env bash
# tests/gpu/run.sh in short: its three calls from a bundle whose suites of tests are played, with some that fail, hang and crash; its
# deadline; and what is left of it when it is ended or killed. The program is the real one, on the CPU: what the script asks of it
# is what it knows. No device is needed. The long form, with the emulator and the real suites: gpu_hour_test.sh.
#
# Usage: gpu_run_test.sh SOURCE_DIR ENGINE
set -euo pipefail
source=$(cd "$1" && pwd) program=$(readlink -f "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work"
part=start
fail() { echo "gpu_run_test.sh: $part: $*" >&2; exit 1; }
row() { grep -qE -- "^\| $1 \| $2 \| [0-9]+ \| .*$3" "$summary" || { cat "$summary" >&2; fail "no row: $1, $2, $3"; }; }
no_row() { ! grep -E -- "^\| $1 \| $2 \|" "$summary" || { cat "$summary" >&2; fail "there is a row of $1 that is $2"; }; }
. "$(dirname "${BASH_SOURCE[0]}")/gpu_played.sh"

# ---- A bundle.
bundle="$work/engine-played"
mkdir -p "$bundle"/{bin,tests/gpu}
cp "$source"/tests/gpu/*.sh "$bundle/tests/gpu/"
cp "$source/README.md" "$bundle/"
echo "a bundle" >"$bundle/BUILD"
play_suites "$bundle/tests/planted_test"
play_tools "$work/tools"
# Called as one on a device is. Another precision is another loss, a little. It notes how many steps the summary says are running.
cat >"$bundle/bin/engine" <<END
#!/usr/bin/env bash
[ -z "\${PLAYED_WATCH:-}" ] || grep -c '| unfinished |' "\$PLAYED_WATCH/summary.md" >>"\$PLAYED_WATCH.seen"
command=\$1 arguments=()
while [ \$# -gt 0 ]; do
  case \$1 in
    --device)
      [ "\$command\$2" != traincuda:0 ] || [ -z "\${PLAYED_FROZEN:-}" ] || arguments+=(--freeze "\$PLAYED_FROZEN")
      arguments+=(--device cpu)
      shift
      ;;
    --amp) [ "\$command" != train ] || arguments+=(--label-smoothing 0.001); shift ;;
    --cuts) ;;
    nccl) arguments+=(shm) ;;
    *) arguments+=("\$1") ;;
  esac
  shift
done
if [ "\$command" = bench ] && [ -n "\${PLAYED_ERROR:-}" ]; then
  "$program" "\${arguments[@]}" | sed -E "s/,[^,]*\$/,\$PLAYED_ERROR/"
  exit
fi
if [ "\$command" = version ]; then
  "$program" "\${arguments[@]}" | sed 's/^CUDA .*/CUDA         13.0, sm_90a, compute_80/'  # a build for devices
  exit
fi
exec "$program" "\${arguments[@]}"
END
chmod +x "$bundle/bin/engine"
limit_suites() { echo "$1 planted_test" >"$bundle/tests/gpu_tests.txt"; }

# run NAME OPTION...: the script, and what every run has to leave: at most 8 files and 64 MiB, of which one is a summary, and logs.
begin() {  # NAME OPTION...: starts it
  results="$work/results-$1" summary="$work/results-$1/summary.md"
  local script="$bundle/tests/gpu/run.sh"
  if [ "$2" = --bundle ]; then script="$source/tests/gpu/run.sh"; fi
  shift
  local kind=(--emulated) nccl=played
  [ "${on_device:-no}" = no ] || kind=(--quick) nccl=
  PLAYED_PIDS="$results.pids" ENGINE_GPU_TOOLS="$work/tools" ENGINE_NCCL_LIBRARY=$nccl \
    "$script" "${kind[@]}" --no-pytorch --output "$results" "$@" >"$results.said" 2>&1 &
  pid=$!
}
run() {
  local from=$SECONDS
  begin "$@"
  wait "$pid" && status=0 || status=$?
  took=$((SECONDS - from))
  [ -s "$summary" ] || { cat "$results.said" >&2; fail "no summary"; }
  no_row '[^|]*' unfinished
  [ "$(cd "$results" && echo *)" = "results.tar.gz summary.md" ] || fail "not two files: $(ls "$results")"
  [ "$(du -sm "$results" | cut -f1)" -le 64 ] || fail "more than 64 MiB"
  tar -tzf "$results/results.tar.gz" >"$results.files" || fail "the results cannot be unpacked"
  local name
  while read -r name; do
    grep -qxF "results/${name//[^a-zA-Z0-9_.-]/_}.log" "$results.files" || fail "'$name' has no log"
  done < <(sed -nE 's/^\| ([^|]*) \| (passed|FAILED|cut off) \|.*/\1/p' "$summary")
}
gone() {  # PID: ends soon; one that has ended may wait for whoever asks how
  for _ in $(seq 50); do
    [[ "$(ps -o stat= -p "$1")" =~ ^[^Z] ]] || return 0
    sleep 0.1
  done
  fail "still runs: $(ps -o args= -p "$1")"
}
no_suite_runs() {
  local suite
  while read -r suite _; do gone "$suite"; done <"$results.pids"
}

# ---- The parts: each by itself, side by side.
# Every suite has its row, whatever the others do; what failed ran again alone; trainings go on.
call_1() {
  run call-1 --call 1
  [ "$status" -eq 1 ] || fail "exit $status, though suites failed"
  [ "$took" -le 535 ] || fail "took $took s"
  grep -q 'Part 1 of 3' "$summary" || fail "the summary does not say that it is of part 1"
  grep -q 'Without PyTorch (--no-pytorch)' "$summary" || fail "does not say that it ran without PyTorch"
  row device passed 'Played GPU'
  row 'test planted_test DensePlayed' passed '1 ran, 0 skipped'
  row 'test planted_test Typed/0' passed '1 ran'
  row 'test planted_test Typed/1' passed '1 ran'
  row 'test planted_test PlantedFailure' FAILED '1 ran, 0 skipped, 1 complaints'
  row 'test planted_test PlantedHang' FAILED 'ended after 4 s'
  row 'test planted_test PlantedCrash' FAILED 'it left no report \(exit 139\)'
  local suite
  for suite in PlantedFailure PlantedHang PlantedCrash; do
    row "again planted_test $suite" FAILED ''
    row "memcheck planted_test $suite" FAILED ''
  done
  no_row '(again|memcheck) planted_test [^P].*' '.*'
  tar -xzOf "$results/results.tar.gz" results/again_planted_test_PlantedFailure.log | grep >/dev/null 'execution of a_kernel' ||
    fail "the second run has no ENGINE_CUDA_SYNC"
  [ "$(cut -d' ' -f1 "$results.pids" | sort -u | wc -l)" -eq 14 ] || fail "not a process for each suite: $(cat "$results.pids")"
  no_suite_runs
  no_row '(step|trace|repeat|resume|moves|times|translated) .*' FAILED
  row 'step gpt-nano bf16' passed 'half of 52 by'
  row 'step resnet20-cifar bf16' passed 'half of 59 by'
  row 'trace gpt-nano bf16' passed '2 steps'
  row 'resume convnet' passed 'bit-equal'
  row 'times gemm bf16 warpgroup' passed 'rows'
}
# The other calls, with nothing that fails but the race that the last one is to find.
call_2() {
  export PLAYED_WATCH="$work/results-call-2"
  run call-2 --bundle "$work/engine.tar.gz" --call 2
  [ "$status" -eq 0 ] || { cat "$summary" >&2; fail "exit $status, though nothing failed"; }
  row 'beside step gpt-nano b1 bf16' passed ' ms'
  row 'beside gemm bf16' passed '2 shapes'
  row 'beside attention bf16' passed '2 shapes'
  row 'beside compiled mlp b4 off' skipped 'no PyTorch'
  # One after the other: whenever the program ran, all earlier steps had their rows.
  [ "$(sed 1d "$PLAYED_WATCH.seen" | sort -u)" = 1 ] || fail "not written after every step: $(xargs <"$PLAYED_WATCH.seen")"
}
call_3() {
  run call-3 --call 3
  [ "$status" -eq 1 ] || fail "exit $status, though there was a race"
  row 'library CUPTI' skipped 'no CUPTI: ENGINE_CUPTI_LIBRARY names its file'
  row 'hot convnet' skipped 'no CUPTI'
  row 'counters convnet' passed ''
  tar -xzOf "$results/results.tar.gz" results/counters-convnet.csv | grep >/dev/null dense_kernel || fail "no counters"
  row 'ranks mlp nccl' passed 'bit-equal'
  row 'ranks gpt-nano shm' passed 'bit-equal'
  row 'scaling gpt-nano' passed '1: [0-9.]+ ms, 2: '
  row 'bench comm' passed ''
  row 'memcheck planted_test AttentionPlayed' passed '9.9'
  row 'racecheck planted_test AttentionPlayed' FAILED 'Race reported'
  row 'synccheck planted_test DensePlayed' passed '9.9'
  row 'leaks planted_test DensePlayed' passed '9.9'
  [ "$(grep -c '^| leaks ' "$summary")" -eq 1 ] || fail "leaks are looked for in several suites"
  row 'cuts gemm bf16 warpgroup' passed 'products'
  grep -qx 'results/cuts-gemm-bf16-1.csv' "$results.files" || fail "the times of cuts are missing"
  [ "$(grep -c '| FAILED |' "$summary")" -eq 1 ] || { cat "$summary" >&2; fail "more has failed"; }
}
# A gradient that is missing, and a result that is wrong, are failures.
judged() {
  export PLAYED_FROZEN='transformer.h.1.mlp.c_fc.bias' PLAYED_ERROR=2.0e-02
  run judged --only '^(step gpt-nano bf16|times gemm bf16)$' --pack
  [ "$status" -eq 1 ] || fail "exit $status, though results are wrong"
  row 'step gpt-nano bf16' FAILED 'by 1.0e[+]00 at most .*transformer.h.1.mlp.c_fc.bias'
  row 'times gemm bf16' FAILED 'gemm 32x32x32 2.0e-02'
}
# Libraries that only Python packages have are found, and later steps use them. As on a device: the programs are played.
libraries() {
  local site="$work/site"
  mkdir -p "$site/nvidia/nccl/lib" "$site/nvidia/cu13/lib" "$work/system"
  touch "$site/nvidia/nccl/lib/libnccl.so.2" "$site/nvidia/cu13/lib/libcupti.so.13"
  printf '#!/bin/sh\n' >"$work/system/ldconfig"  # it lists no library
  chmod +x "$work/system/ldconfig"
  PATH="$work/system:$PATH" PYTHONPATH="$site" on_device=yes run libraries --only '^(library|ranks mlp nccl)' --pack
  row 'library NCCL' passed "$site/nvidia/nccl/lib/libnccl.so.2"
  row 'library CUPTI' passed "$site/nvidia/cu13/lib/libcupti.so.13"
  row 'ranks mlp nccl' passed 'bit-equal'
}
# A C++ library that does not load is left out of the bundle, and that is said.
cpp_library() {
  local other="$work/other-bundle"
  cp -r "$bundle" "$other"
  mkdir "$other/lib"
  cp "$program" "$other/bin/engine"
  if ! ldd "$program" | grep >/dev/null 'libstdc++'; then return; fi
  echo "no library" >"$other/lib/libstdc++.so.6"
  ! "$other/bin/engine" version >/dev/null 2>&1 || fail "the planted library is not used"
  ENGINE_GPU_TOOLS="$work/tools" "$other/tests/gpu/run.sh" --emulated --no-pytorch --only '^device' --output "$work/results-cpp" >/dev/null 2>&1 ||
    fail "a C++ library that does not load ends the run"
  grep -q "^The bundle's libstdc++ does not load here (.*libstdc++.*); the host's is used\.\$" "$work/results-cpp/summary.md" ||
    { cat "$work/results-cpp/summary.md" >&2; fail "the summary does not name the library"; }
}
# What runs is cut off, what is left is skipped, both are said.
deadline() {
  run deadline --only '^(test|repeat)' --deadline 66 --pack  # a busy machine needs half of it to start
  [ "$took" -le 73 ] || fail "a deadline of 66 s was kept after $took s"
  row 'test planted_test DensePlayed' passed ''
  row 'test planted_test PlantedHang' 'cut off' 'by the deadline'
  row 'repeat convnet' skipped 'no time left'
  no_suite_runs
}
# In call 1, suites that take long leave time for the judged steps.
reserved() {
  run reserved --call 1 --deadline 283 --only '^(test|step gpt-nano off)'
  row 'test planted_test PlantedHang' 'cut off' 'by the deadline'
  row 'step gpt-nano off' passed 'half of 52 by'
}
# Ended or killed in the middle, the summary is that of the last step. Who ends it ends its suites.
stopped() {  # SIGNAL
  begin "$1" --only '^test' --deadline 900 --pack
  for _ in $(seq 300); do
    ! grep -q 'PlantedCrash | FAILED' "$summary" 2>/dev/null || break
    sleep 0.1
  done
  inner=$(pgrep -P "$pid")
  kill "-$1" "$pid"
  wait "$pid" 2>/dev/null && status=0 || status=$?
  row 'test planted_test PlantedCrash' FAILED ''
  row 'test planted_test PlantedHang' unfinished 'was running'
  tar -tzf "$results/results.tar.gz" | grep >/dev/null test_planted_test_PlantedCrash.log || fail "a log is missing"
}
ended() {
  stopped TERM
  [ "$status" -eq 1 ] || fail "exit $status"
  no_suite_runs
  gone "$inner"
}
killed() {
  stopped KILL
  awk '/PlantedHang/ { print $1 }' "$results.pids" | xargs -r kill  # nobody else ends it soon
  gone "$inner"  # and nothing follows
}

limit_suites 1
tar -C "$work" -czf "$work/engine.tar.gz" engine-played
at_once() {
  local pids=() status=0
  for part; do
    "$part" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=1; done
  return "$status"
}
at_once call_1 call_2 call_3 judged libraries cpp_library
limit_suites 900  # they may take as long as they are let
at_once deadline reserved ended killed
