#!/usr/bin/env bash
# Compiles every .cu file to PTX, with the flags of engine/ops/CMakeLists.txt, for tests with ENGINE_TEST_PTX.
#
# Usage: tests/gpu/make_ptx.sh ARCHITECTURE FOLDER [FILE.cu ...]
#   ARCHITECTURE  60, 70, 75, 80 or 90a. nvcc 13 knows none before 75: for 60 and 70 it makes the PTX of what these run, for 75
#   FILE.cu       only these
# A file whose PTX is newer than its source and all headers is left as it is. nvcc: ENGINE_NVCC, else from the PATH or CUDA_HOME.
set -euo pipefail
if [ $# -lt 2 ]; then
  sed -n '2,/^set /p' "$0" | sed -n 's/^# \{0,1\}//p' >&2
  exit 2
fi
architecture=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
shift 2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
nvcc=${ENGINE_NVCC:-$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v nvcc)} || {
  echo "make_ptx.sh: there is no nvcc" >&2
  exit 1
}
if [ $# -eq 0 ]; then
  # These tests have kernels of their own.
  set -- engine/ops/*/*_cuda.cu tests/engine/ops/device/{block_max,tensor_core}_cuda_test.cc
  [ "$architecture" != 90a ] || set -- "$@" tests/emulator/tests/hopper_kernels.cu
fi
known=$architecture compute=
if ! "$nvcc" --list-gpu-arch | grep -qx "compute_${architecture%a}"; then
  known=75 compute=-DENGINE_COMPUTE=${architecture}0
fi
exec 9>"$folder/lock"  # tests that run at the same time make it once
flock 9
newest=$(find engine/ops engine/core io/gpu io/base tests/emulator/tests -name '*.h' -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2-)

make_one() {
  local source=$1 to to_part flags=()
  to=$folder/$(basename "${source%.*}").ptx
  to_part=${to%.ptx}.part
  [ "$to" -nt "$source" ] && [ "$to" -nt "$newest" ] && return
  case $source in
    *optimizer_step_cuda.cu | *quantized_codes_cuda.cu | *sparse_codes_cuda.cu | *low_rank_codes_cuda.cu) flags+=(--fmad=false) ;;
    *.cc) flags+=(-x cu -DENGINE_HAS_CUDA=1 -DENGINE_HAS_AVX512=0) ;;
  esac
  # -lineinfo: faults name the line of the source. To another name first: what was interrupted is no PTX.
  "$nvcc" -std=c++20 -O3 -DNDEBUG -I. -lineinfo --expt-relaxed-constexpr -ptx -arch="compute_$known" \
    $compute "${flags[@]}" -o "$to_part" "$source" 9>&-
  mv "$to_part" "$to"
}
export -f make_one
export folder architecture known compute nvcc newest
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c 'make_one "$1"' _ {}
