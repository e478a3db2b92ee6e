#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests. The last line is "N passed, N failed, N skipped".
#
# Usage: tools/test.sh [OPTIONS]
#   --sanitize address,undefined | thread   with these sanitizers and clang (build/asan, build/tsan)
#   --clang                                 with clang, warnings being errors (build/clang)
#   --coverage                              count the lines of engine/ and io/ that run; less than 90 % is a failure
#   --emulated                              CUDA kernels run on the CPU, against tests/emulator (build/emulated)
#   --minimal                               with every optional dependency switched off (build/minimal; with
#                                           --sanitize thread build/minimal-tsan)
#   --label A|B, --exclude-label REGEX      only, or without, tests of these labels: unit io comm cli gpu cluster slow;
#                                           with --label only their programs are built
#   --match REGEX, --exclude REGEX          only, or without, tests of these names
#   --all                                   the tests labelled slow too
#   --cluster                               also install SLURM and Open MPI, for the tests under real launchers (root)
#   --readers                               also install what reads the program's files and packages elsewhere: onnxruntime,
#                                           TensorBoard, promtool, shells, lintian ... (install_dependencies.sh --packaging,
#                                           readers.sh); tests skip what is missing
#   --build-only                            build, but run nothing
#   -DNAME=VALUE                            for CMake, e.g. -DENGINE_CUDA_ARCHITECTURES=90a
#   --no-install                            take the packages as they are
# Without options: all tests but the slow ones, in build/release. Exits with 0 only if every test that ran has passed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/scripts/lib.sh"

preset=release
choose() {
  case "$preset $1" in
    release\ *) preset=$1 ;;
    "minimal tsan" | "tsan minimal") preset=minimal-tsan ;;
    *) fail "choose one of --sanitize, --clang, --coverage, --emulated and --minimal, or --minimal with --sanitize thread" ;;
  esac
}
install=yes run=yes slow=no readers=no packages=(--tests) filters=() targets=all options=()
excluded=() # labels
while [ $# -gt 0 ]; do
  case $1 in
    --sanitize | --label | --exclude-label | --match | --exclude) [ $# -ge 2 ] || fail "$1 needs a value (see --help)" ;;&
    --sanitize)
      case $2 in
        address,undefined) choose asan ;;
        thread) choose tsan ;;
        *) fail "--sanitize takes address,undefined or thread, not $2" ;;
      esac
      packages+=(--sanitizers)
      shift ;;
    --clang) choose clang; packages+=(--clang) ;;
    --emulated) choose emulated ;;
    --minimal) choose minimal ;;
    --coverage) choose coverage; packages+=(--coverage) ;;
    --label) filters+=(--label-regex "$2"); targets=$(sed -E 's/(^|\|)/ tests_/g' <<<"$2"); shift ;;
    --exclude-label) excluded+=("$2"); shift ;;
    --all) slow=yes ;;
    --match) filters+=(--tests-regex "$2"); shift ;;
    --cluster) packages+=(--cluster) ;;
    --readers) readers=yes; packages+=(--packaging) ;;
    --exclude) filters+=(--exclude-regex "$2"); shift ;;
    --build-only) run=no ;;
    -D*) options+=("$1") ;;
    --no-install) install=no ;;
    -h | --help) usage; exit 0 ;;
    *) fail "unknown option $1 (see --help)" ;;
  esac
  shift
done

[ "$preset" != release ] || options=(-DENGINE_WITH_CUDA=AUTO -DENGINE_CPU_KERNELS=all "${options[@]}")  # quickstart.sh may have chosen less
[ "$slow" = yes ] || excluded+=(slow)
[ "${#excluded[@]}" -eq 0 ] || filters+=(--label-exclude "$(IFS='|'; echo "${excluded[*]}")")

if [ "$install" = yes ]; then
  step "Packages"
  "$root/tools/scripts/install_dependencies.sh" "${packages[@]}"
fi
if [ "$readers" = yes ]; then
  step "Readers"
  if folder=$("$root/tools/scripts/readers.sh"); then
    export PEER_PYTHON="${PEER_PYTHON:-$folder/python/bin/python}" PATH="$PATH:$folder/programs"
  else
    echo "Tests that need them will be skipped."
  fi
fi

# The thread sanitizer cannot place its shadow memory where the kernel randomizes addresses widely.
if [[ $preset == *tsan ]] && setarch -R true 2>/dev/null; then
  runner=(setarch -R)
fi
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}"
export LSAN_OPTIONS="${LSAN_OPTIONS:-}:suppressions=$root/tests/support/leak_sanitizer.supp:print_suppressions=0"
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}:suppressions=$root/tests/support/thread_sanitizer.supp"

configure_and_build "$preset" "$targets" -DENGINE_BUILD_TESTS=ON "${options[@]}"
[ "$run" = yes ] || exit 0

[ "$preset" != coverage ] || find "$root/build/coverage" -name '*.gcda' -delete
step "Testing build/$preset"
# All that tests write lies here. Tests become other users, too, who have to find their files.
scratch=$(mktemp -d "${TMPDIR:-/tmp}/engine-tests.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch"
export TMPDIR="$scratch" TEST_TMPDIR="$scratch/" # the latter for GoogleTest
shared_memory() { find /dev/shm -mindepth 1 -user "$(id -un)" ! -type d 2>/dev/null | sort || true; }
shared_before=$(shared_memory)
report="$root/build/$preset/tests.xml"
rm -f "$report"
status=0
# A test takes three places, or one if it mostly waits. Five places a core, since tests that compute wait too.
"${runner[@]}" ctest --test-dir "$root/build/$preset" --parallel "$((5 * $(nproc)))" --output-on-failure --no-tests=error \
  --output-junit "$report" "${filters[@]}" || status=$?
[ -s "$report" ] || fail "ctest wrote no report (exit status $status)"
left=$(find "$scratch" -mindepth 1 -maxdepth 1 -printf '%f ' && comm -13 <(echo "$shared_before") <(shared_memory) | tr '\n' ' ')
[ -z "$left" ] || echo "Left behind by tests, or in /dev/shm by programs beside them: $left"

# The report's first element carries the counts: <testsuite ... tests="9" failures="0" disabled="0" skipped="1" ...>
count_of() { tr '\n' ' ' <"$report" | grep -oE '<testsuite [^>]*>' | grep -oE "[[:space:]]$1=\"[0-9]+\"" | grep -oE '[0-9]+'; }
failed=$(count_of failures)
skipped=$(($(count_of skipped) + $(count_of disabled)))
passed=$(($(count_of tests) - failed - skipped))
# A test that could not even start is not in `failures`, but ctest's exit status tells of it.
if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
  failed=1
fi
if [ "$preset" = coverage ]; then
  step "Lines that ran"
  for folder in engine io; do
    gcovr --root "$root" --object-directory "$root/build/coverage" --filter "$folder/" --exclude-throw-branches --print-summary \
      --txt "$root/build/coverage/$folder.txt" --fail-under-line 90 -j "$(nproc)" "$root/build/coverage" | grep -E '^lines' |
      sed "s/^/$folder: /" || { echo "$folder: under 90 %: see build/coverage/$folder.txt"; failed=$((failed + 1)); }
  done
fi
echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
