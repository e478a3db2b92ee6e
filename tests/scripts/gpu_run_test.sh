#!/usr/bin/env bash
# tests/gpu/run.sh in short: its four calls from a bundle whose suites of tests are played, with some that fail, hang and crash; its
# deadline; and what is left of it when it is ended or killed. The program is the real one, on the CPU: what the script asks of it
# is what it knows. No device is needed. The long form, with the stand-in and the real suites: gpu_hour_test.sh.
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
    --device) arguments+=(--device cpu); shift ;;
    --amp) [ "\$command" != train ] || arguments+=(--label-smoothing 0.001); shift ;;
    --cuts) ;;
    nccl) arguments+=(shm) ;;
    *) arguments+=("\$1") ;;
  esac
  shift
done
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
  PLAYED_PIDS="$results.pids" ENGINE_GPU_TOOLS="$work/tools" ENGINE_NCCL_LIBRARY=played \
    "$script" --emulated --no-pytorch --output "$results" "$@" >"$results.said" 2>&1 &
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
  grep -q 'Part 1 of 4' "$summary" || fail "the summary does not say that it is of part 1"
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
  tar -xzOf "$results/results.tar.gz" results/again_planted_test_PlantedFailure.log | grep -q 'execution of a_kernel' ||
    fail "the second run has no ENGINE_CUDA_SYNC"
  [ "$(cut -d' ' -f1 "$results.pids" | sort -u | wc -l)" -eq 13 ] || fail "not a process for each suite: $(cat "$results.pids")"
  no_suite_runs
  no_row '(trace|repeat|resume|moves|times) .*' FAILED
  row 'trace gpt-nano bf16' passed '2 steps'
  row 'resume convnet' passed 'bit-equal'
  row 'times gemm bf16 warpgroup' passed 'rows'
}
# The other calls, with nothing that fails but the race that the last one is to find.
call_2() {
  export PLAYED_WATCH="$work/results-call-2"
  run call-2 --call 2
  [ "$status" -eq 0 ] || { cat "$summary" >&2; fail "exit $status, though nothing failed"; }
  row 'whole mlp b4 graph off' passed 'ms a step'
  row 'cuts gemm bf16 warpgroup' passed 'products'
  grep -qx 'results/cuts-gemm-bf16-1.csv' "$results.files" || fail "the times of cuts are missing"
  # One after the other: whenever the program ran, all earlier steps had their rows.
  [ "$(sed 1d "$PLAYED_WATCH.seen" | sort -u)" = 1 ] || fail "not written after every step: $(xargs <"$PLAYED_WATCH.seen")"
}
call_3() {
  run call-3 --bundle "$work/engine.tar.gz" --call 3
  [ "$status" -eq 0 ] || { cat "$summary" >&2; fail "exit $status, though nothing failed"; }
  row 'counters convnet' passed ''
  row 'beside step gpt-nano b1 off' passed 'ms'
  tar -xzOf "$results/results.tar.gz" results/counters-convnet.csv | grep -q dense_kernel || fail "no counters"
}
call_4() {
  run call-4 --call 4
  [ "$status" -eq 1 ] || fail "exit $status, though there was a race"
  row 'ranks mlp nccl' passed 'bit-equal'
  row 'ranks gpt-nano shm' passed 'bit-equal'
  row 'bench comm' passed ''
  row 'memcheck planted_test AttentionPlayed' passed '9.9'
  row 'racecheck planted_test AttentionPlayed' FAILED 'Race reported'
  row 'synccheck planted_test DensePlayed' passed '9.9'
  [ "$(grep -c '| FAILED |' "$summary")" -eq 1 ] || { cat "$summary" >&2; fail "more has failed"; }
}
# What runs is cut off, what is left is skipped, both are said.
deadline() {
  run deadline --only '^(test|repeat)' --deadline 33 --pack
  [ "$took" -le 40 ] || fail "a deadline of 33 s was kept after $took s"
  row 'test planted_test DensePlayed' passed ''
  row 'test planted_test PlantedHang' 'cut off' 'by the deadline'
  row 'repeat convnet' skipped 'no time left'
  no_suite_runs
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
  tar -tzf "$results/results.tar.gz" | grep -q test_planted_test_PlantedCrash.log || fail "a log is missing"
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
at_once call_1 call_2 call_3 call_4
limit_suites 900  # they may take as long as they are let
at_once deadline ended killed
