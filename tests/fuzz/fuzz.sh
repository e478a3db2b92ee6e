#!/usr/bin/env bash
# Builds the fuzz targets with clang and its sanitizers and runs each for a while, from tests/fuzz/corpus.
#
# Usage: tests/fuzz/fuzz.sh SECONDS [TARGET ...]      ENGINE_FUZZ_RUNS=N: at most N runs of each
# A finding ends a target at once and makes the exit status 1; the input is left in build/fuzz/findings. Copy it to
# tests/fuzz/corpus/TARGET, under a name that says what it is, and fix the reader: fuzz_corpus_test replays it from then on.
# What the corpus grows by meanwhile is kept in build/fuzz/corpus. Needs tools/scripts/install_dependencies.sh --sanitizers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:?usage: tests/fuzz/fuzz.sh SECONDS [TARGET ...]}
shift
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(ls tests/fuzz/corpus)

build=build/fuzz
mkdir -p build
cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DENGINE_FUZZ=ON -DENGINE_BUILD_TESTS=ON -DENGINE_WITH_CUDA=OFF -DENGINE_CPU_KERNELS=avx2 >"$build.log" 2>&1 ||
  { cat "$build.log" >&2; exit 2; }
cmake --build "$build" --target "${targets[@]/#/fuzz_of_}"
mkdir -p "$build/findings"
status=0
for target in "${targets[@]}"; do
  mkdir -p "$build/corpus/$target"
  if ! "$build/tests/fuzz/fuzz_of_$target" -max_total_time="$seconds" -runs="${ENGINE_FUZZ_RUNS:--1}" -timeout=10 -rss_limit_mb=1024 -max_len=65536 \
    -artifact_prefix="$build/findings/$target-" "$build/corpus/$target" "tests/fuzz/corpus/$target" \
    >"$build/$target.log" 2>&1; then
    echo "$target: a finding; see $build/$target.log" >&2
    status=1
  else
    echo "$target: $(grep -E '^(#[0-9]+|Done)' "$build/$target.log" | tail -1)"
  fi
done
exit $status
