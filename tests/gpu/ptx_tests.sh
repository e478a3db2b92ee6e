#!/usr/bin/env bash
# Runs programs of tests with the PTX that nvcc makes of the kernels, on the CPU.
#
# Usage: tests/gpu/ptx_tests.sh ARCHITECTURE FOLDER PROGRAM [PROGRAM ...]
#   ARCHITECTURE  60, 70, 75, 80 or 90a
#   FOLDER        for the PTX, which is made there where it is missing or old
#   PROGRAM       of a build with the emulator (preset emulated)
# ENGINE_TEST_PTX_SEED, GTEST_FILTER as in the environment. Exits with 77 where there is no nvcc.
set -euo pipefail
if [ $# -lt 3 ]; then
  sed -n '2,/^set /p' "$0" | sed -n 's/^# \{0,1\}//p' >&2
  exit 2
fi
here=$(dirname "${BASH_SOURCE[0]}")
architecture=$1 folder=$2
shift 2
if [ -z "${ENGINE_NVCC:-}" ] && ! PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v nvcc >/dev/null; then
  echo "ptx_tests.sh: skipped: there is no nvcc"
  exit 77
fi
"$here/make_ptx.sh" "$architecture" "$folder"
filter=${GTEST_FILTER:-*}
# Compiled for less than sm_90a these kernels are a trap.
if [ "$architecture" != 90a ]; then
  case $filter in *-*) filter+=:*CudaWarpgroup* ;; *) filter+=-*CudaWarpgroup* ;; esac
fi
case $architecture in
  60 | 70 | 75)
    export ENGINE_EMULATED_COMPUTE="${architecture%?}.${architecture#?}" ENGINE_EMULATED_ARCHITECTURES="$architecture-real"
    ;;
esac
status=0
for program in "$@"; do
  ENGINE_TEST_PTX=$folder "$program" --gtest_brief=1 --gtest_filter="$filter" || status=1
done
exit $status
