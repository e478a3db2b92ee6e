#!/usr/bin/env bash
# Compiles the example of a backend outside the tree and runs the conformance checks on it, under mpirun with 2, 3 and 4 ranks; and
# trains with it by its name, beside the program of the build and in lib/engine where it was installed.
#
# Usage: tests/backends/mpi_plugin_test.sh CONFORMANCE_TEST ENGINE BUILD_FOLDER
# Exits with 77 (skipped) where there is no MPI, and at the end where the build has none.
set -euo pipefail
program=$(realpath "$1") engine=$(realpath "$2") build=$3
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
for tool in mpicxx mpirun; do
  command -v "$tool" >/dev/null || { echo "skipped: no $tool (Debian: openmpi-bin libopenmpi-dev)"; exit 77; }
done
folder=$(mktemp -d)
# mpirun may hang once one of its programs has failed, and its TERM takes long: hence --kill-after.
trap 'rm -rf "$folder"' EXIT
mpicxx -std=c++20 -O2 -fPIC -shared -I"$root" "$root/docs/examples/mpi-backend/libengine_mpi.cc" -o "$folder/libengine_mpi.so"

# As root in a container, more ranks than cores, and loopback only.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,vader OMPI_MCA_oob_tcp_if_include=lo
export OMPI_MCA_mpi_yield_when_idle=1 ENGINE_TEST_BACKEND="$folder/libengine_mpi.so"
run() {
  timeout --kill-after=5 60 mpirun --oversubscribe -np "$ranks" sh -c '
    export ENGINE_TEST_RANK=$OMPI_COMM_WORLD_RANK ENGINE_TEST_WORLD_SIZE=$OMPI_COMM_WORLD_SIZE
    exec "$0" --gtest_filter="*external*" >"$ENGINE_TEST_FOLDER/out.$OMPI_COMM_WORLD_RANK" 2>&1' "$program"
}
for ranks in 2 3 4; do
  ENGINE_TEST_FOLDER=$(mktemp -d "$folder/ranks$ranks.XXXX")
  export ENGINE_TEST_FOLDER
  if ! run; then
    # Seen once in many: mpirun waits for ever before it has started anything. That is no fault of the plug-in.
    compgen -G "$ENGINE_TEST_FOLDER/out.*" >/dev/null && { tail -n 30 "$ENGINE_TEST_FOLDER"/out.*; exit 1; }
    echo "mpirun started nothing in time; once more"
    run || { tail -n 30 "$ENGINE_TEST_FOLDER"/out.*; exit 1; }
  fi
  for out in "$ENGINE_TEST_FOLDER"/out.*; do
    passed=$(grep -oP '\[  PASSED  \] \K[0-9]+' "$out") || { cat "$out"; exit 1; }
    [ "$passed" -ge 7 ] || { echo "only $passed tests ran, expected 7 or more"; cat "$out"; exit 1; }
  done
  echo "$ranks ranks: $passed tests passed on each"
done

[ -e "$(dirname "$engine")/libengine_mpi.so" ] || { echo "skipped: the build has no plug-in beside the program to train with"; exit 77; }
train() {
  timeout --kill-after=5 60 mpirun --oversubscribe -np 2 "$1" train --backend mpi --model mlp --dataset glyphs --limit 2000 \
    --steps 10 --threads 1 >"$folder/train" 2>&1
}
export MASTER_ADDR=127.0.0.1 MASTER_PORT
MASTER_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
ENGINE_SECRET=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
export ENGINE_SECRET
expect_trained() {
  train "$1" || { [ ! -s "$folder/train" ] && train "$1"; } || { cat "$folder/train"; exit 1; }
  grep -q '| backend mpi ' "$folder/train" || { cat "$folder/train"; echo "another backend than mpi"; exit 1; }
}
expect_trained "$engine"

mkdir -p "$folder/prefix/bin"
cp "$engine" "$folder/prefix/bin/"
! train "$folder/prefix/bin/engine" || { echo "trained without the plug-in"; exit 1; }
cmake --install "$build" --prefix "$folder/prefix" --component mpi >/dev/null
expect_trained "$folder/prefix/bin/engine"
echo "trained by --backend mpi, from the build and installed"
