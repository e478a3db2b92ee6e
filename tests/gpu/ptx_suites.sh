#!/usr/bin/env bash
# Runs the tests of label gpu, suite by suite, with the PTX that nvcc makes of the kernels, on the CPU: layers, whole training
# steps, trainings beside the CPU, ranks, the real program. Prints a table with a row for each suite.
#
# Usage: tests/gpu/ptx_suites.sh ARCHITECTURE FOLDER BUILD [REGEX]
#   ARCHITECTURE  60, 70, 75, 80 or 90a
#   FOLDER        for the PTX, which is made there where it is missing or old (make_ptx.sh)
#   BUILD         a build with the emulator (build/emulated), with its targets gpu_tests and ops_cuda_test
#   REGEX         of suites; by default all but those of ops_cuda_test, which ptx_tests.sh runs, and those without a kernel
# ENGINE_TEST_PTX_SEED, ENGINE_EMULATED_GRAPH_SEED and ENGINE_WARPGROUP_PRODUCTS as in the environment. Two suites at a time.
# Exits with 77 where there is no nvcc, with 1 if a test fails or a suite takes longer than PTX_SUITE_LIMIT seconds (900).
set -euo pipefail
if [ $# -lt 3 ]; then
  sed -n '2,/^set /p' "$0" | sed -n 's/^# \{0,1\}//p' >&2
  exit 2
fi
here=$(dirname "${BASH_SOURCE[0]}")
architecture=$1 folder=$2 build=$(cd "$3" && pwd)
wanted=${4:-}
if [ -z "${ENGINE_NVCC:-}" ] && ! PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v nvcc >/dev/null; then
  echo "ptx_suites.sh: skipped: there is no nvcc"
  exit 77
fi
"$here/make_ptx.sh" "$architecture" "$folder"
program=$build/tests/all_gpu_tests
ENGINE_TEST_PTX=$(cd "$folder" && pwd)
export program ENGINE_TEST_PTX ENGINE_BINARY="$build/tools/engine"
without_kernels='^(CompiledCode|DeviceChoice|Emulator(DeathTest)?|Hopper|LazyLoadingDeathTest|NcclLibraryFile|Ptx|PtxCopies|TensorMaps|Ways/.*)$'
# As many devices as the suite with most ranks wants; of a capability that has the instructions.
export ENGINE_EMULATED_GPUS=4 ENGINE_EMULATED_COMPUTE=8.0
case $architecture in
  90a) ENGINE_EMULATED_COMPUTE=9.0 ;;
  60 | 70 | 75)
    ENGINE_EMULATED_COMPUTE="${architecture%?}.${architecture#?}"
    export ENGINE_EMULATED_ARCHITECTURES="$architecture-real"
    without_kernels+='|^Programs$'  # they test the choice of devices, with capabilities of their own
    ;;
esac

run_suite() {
  local suite=$1 xml log status=0 all failed skipped result=passed
  xml=$(mktemp) log=$(mktemp)
  TIMEFORMAT='%U %S'
  { time timeout "${PTX_SUITE_LIMIT:-900}" "$program" --gtest_filter="$suite.*" --gtest_output="xml:$xml" >"$log" 2>&1; } 2>"$xml.time" ||
    status=$?
  all=$(grep -c '<testcase ' "$xml" || true) failed=$(grep -c '<failure ' "$xml" || true)
  skipped=$(grep -c 'result="skipped"' "$xml" || true)
  if [ "$status" -ne 0 ]; then
    result="**exit $status**"
    grep -aE 'emulated device:|Failure|error:' "$log" | head -n 5 >&2
  fi
  echo "| $suite | $result | $((all - skipped)) | $failed | $skipped | $(awk '{ printf "%.0f", $1 + $2 }' "$xml.time") s |"
  rm -f "$xml" "$xml.time" "$log"
  return $((status != 0))
}
export -f run_suite
names_of() { "$1" --gtest_list_tests 2>/dev/null | sed -n 's/^\([^ ].*\)\.\( .*\)\{0,1\}$/\1/p'; }
if [ -n "$wanted" ]; then
  suites=$(names_of "$program" | grep -E "$wanted")
else
  suites=$(names_of "$program" | grep -vxFf <(names_of "$build/tests/engine/ops/ops_cuda_test") | grep -vE "$without_kernels")
fi
echo '| suite | result | ran | failures | skipped | CPU time |'
echo '|---|---|--:|--:|--:|--:|'
xargs -P 2 -I{} bash -c 'run_suite "$1"' _ {} <<<"$suites"
