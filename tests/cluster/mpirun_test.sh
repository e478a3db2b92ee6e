#!/usr/bin/env bash
# The program under Debian's mpirun (Open MPI): ranks from OMPI_*, two jobs at once, a job within a world of torchrun's variables.
#
# Usage: tests/cluster/mpirun_test.sh ENGINE      needs root and openmpi-bin; exits with 77 where one is missing
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/cluster_lib.sh"
engine=$(readlink -f "${1:?usage: mpirun_test.sh ENGINE}")
need_root
need_tools mpirun
folder=$(mktemp -d)
finish() {
  local status=$? pid
  for pid in $(jobs -p); do kill "$pid" 2>/dev/null || true; done
  wait || true
  rm -rf "$folder"
  exit "$status"
}
trap finish EXIT
mkdir -p "$folder/home"
export HOME=$folder/home
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT

# mpi ARGUMENTS...: each in a session folder of its own: two that start at once would collide in a common one.
mpi() {
  timeout "$(scaled 50)" mpirun --allow-run-as-root --oversubscribe --bind-to none --mca plm isolated --mca orte_tmpdir_base "$(mktemp -d -p "$folder")" "$@"
}
train=("$engine" train --model mlp --dataset synthetic --synthetic-shape 8x8x1 --batch-size 48 --steps 30 --threads 1 --rdzv-timeout "$(scaled 20)"
  --save-rank-models)

mpi -np 2 "$engine" env >"$folder/env.txt" 2>"$folder/env.log" || fail "mpirun engine env" "$folder/env.log"
check "two ranks of two" test "$(grep -cE '^RANK *[01] *from OMPI_COMM_WORLD_RANK' "$folder/env.txt")" = 2
check "they meet on this host" test "$(grep -c '^init method *tcp://127.0.0.1:1[0-9]' "$folder/env.txt")" = 2

mpi -np 2 "${train[@]}" --save-dir "$folder/two" >"$folder/two.log" 2>&1 || fail "mpirun -np 2" "$folder/two.log"
in_sync "$engine" 2 "$folder/two"

# Two jobs at once with the same MASTER_PORT.
MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 10000))
export MASTER_ADDR MASTER_PORT
mpi -np 2 "${train[@]}" --save-dir "$folder/left" >"$folder/left.log" 2>&1 &
left=$!
mpi -np 3 "${train[@]}" --save-dir "$folder/right" >"$folder/right.log" 2>&1 || fail "the second job" "$folder/right.log"
wait "$left" || fail "the first job" "$folder/left.log"
in_sync "$engine" 2 "$folder/left"
in_sync "$engine" 3 "$folder/right"
unset MASTER_ADDR MASTER_PORT

# A world size that contradicts mpirun's is an error.
status=0
RANK=0 WORLD_SIZE=3 mpi -np 2 -x RANK -x WORLD_SIZE "${train[@]}" --save-dir "$folder/none" >"$folder/conflict.log" 2>&1 || status=$?
check "a contradiction is bad configuration (status $status)" test "$status" -eq 78
grep -q 'WORLD_SIZE=3 (environment) and OMPI_COMM_WORLD_SIZE=2 (Open MPI) contradict' "$folder/conflict.log" || fail "both variables named" "$folder/conflict.log"
echo "mpirun_test: all $checks checks passed"
