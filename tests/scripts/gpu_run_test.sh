#!/usr/bin/env bash
# What tests/gpu/run.sh does with suites that fail, hang and crash among good ones, with a deadline, and when it is killed; the
# suites are played, and no device is needed. All four parts, with the stand-in: gpu_hour_test.sh.
#
# Usage: gpu_run_test.sh SOURCE_DIR ENGINE
set -euo pipefail
source=$1 program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work"
fail() { echo "gpu_run_test.sh: $*" >&2; exit 1; }
row() { grep -qE -- "^\| $1 \| $2 \| [0-9]+ \| .*$3" "$summary" || { cat "$summary" >&2; fail "no row: $1, $2, $3"; }; }

# ---- A build whose suites are played.
mkdir -p "$work/build/tools"
ln -s "$program" "$work/build/tools/engine"
cat >"$work/build/planted_test" <<'END_OF_PROGRAM'
#!/usr/bin/env bash
for argument; do
  case $argument in
    --gtest_list_tests)
      printf '%s\n  Case\n' First. Fails. Hangs. Crashes. Other/0. 'Other/1.  # TypeParam = int'
      exit
      ;;
    --gtest_filter=*) suite=${argument#*=} ;;
    --gtest_output=xml:*) xml=${argument#*:} ;;
  esac
done
case $suite in
  Hangs.*) exec sleep 100 ;;
  Crashes.*) kill -SEGV $$ ;;
  Fails.*)
    [ -z "${ENGINE_CUDA_SYNC:-}" ] || echo "execution of a_kernel: an illegal memory access was encountered"
    printf '<testcase name="Case">\n<failure message="wrong"/>\n</testcase>\n' >"$xml"
    exit 1
    ;;
  *) echo '<testcase name="Case"/>' >"$xml" ;;
esac
END_OF_PROGRAM
chmod +x "$work/build/planted_test"
echo "2 $work/build/planted_test" >"$work/build/gpu_tests.txt"

# run OPTION...: whatever it exits with, within SECONDS of time and within what may come back: 8 files, 64 MiB.
run() {
  rm -rf "$work/results"
  local begin=$SECONDS
  "$source/tests/gpu/run.sh" --emulated --build "$work/build" --output "$work/results" "$@" >"$work/said" 2>&1 && status=0 || status=$?
  took=$((SECONDS - begin))
  summary="$work/results/summary.md"
  [ -s "$summary" ] || { cat "$work/said" >&2; fail "no summary"; }
  [ "$(find "$work/results" -type f | wc -l)" -le 8 ] || fail "more than 8 files: $(ls "$work/results")"
  [ "$(du -sm "$work/results" | cut -f1)" -le 64 ] || fail "more than 64 MiB"
  tar -tzf "$work/results/results.tar.gz" >"$work/files" || fail "the results cannot be unpacked"
}

# ---- Every suite has its row, whatever the others do; what failed ran again alone.
run --call 1 --only '^(device|test|again|memcheck)' --no-pytorch
[ "$status" -eq 1 ] || fail "exit $status, though suites failed"
[ "$took" -le 535 ] || fail "took $took s"
row device passed ''
row 'test planted_test First' passed '1 ran, 0 skipped'
row 'test planted_test Other/0' passed '1 ran'
row 'test planted_test Other/1' passed '1 ran'
row 'test planted_test Fails' FAILED '1 ran, 0 skipped, 1 complaints'
row 'test planted_test Hangs' FAILED 'ended after 8 s'
row 'test planted_test Crashes' FAILED 'it left no report \(exit 139\)'
for suite in Fails Hangs Crashes; do row "again planted_test $suite" FAILED ''; done
! grep -q 'again planted_test First' "$summary" || fail "a suite that passed ran again"
grep -q 'Without PyTorch (--no-pytorch)' "$summary" || fail "does not say that it ran without PyTorch"
grep -q 'results/again_planted_test_Fails.log' "$work/files" || fail "a log is missing"
tar -xzOf "$work/results/results.tar.gz" results/again_planted_test_Fails.log | grep -q 'execution of a_kernel' ||
  fail "the second run has no ENGINE_CUDA_SYNC"

# ---- The deadline: what runs is cut off, what is left is skipped, both are said.
sed -i 's/^2 /900 /' "$work/build/gpu_tests.txt"
run --only '^(test|repeat)' --deadline 33 --pack
[ "$took" -le 40 ] || fail "a deadline of 33 s was kept after $took s"
row 'test planted_test First' passed ''
row 'test planted_test Hangs' 'cut off' 'by the deadline'
row 'repeat convnet' skipped 'no time left'

# ---- Killed in the middle: the summary is that of the last step.
sed -i 's/^900 /2 /' "$work/build/gpu_tests.txt"
rm -rf "$work/results"
"$source/tests/gpu/run.sh" --emulated --build "$work/build" --output "$work/results" --only '^test' --pack >/dev/null 2>&1 &
pid=$!
for _ in $(seq 100); do
  ! grep -q 'Crashes | FAILED' "$summary" 2>/dev/null || break
  sleep 0.2
done
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true
row 'test planted_test Crashes' FAILED ''
row 'test planted_test Hangs' unfinished 'was running'
