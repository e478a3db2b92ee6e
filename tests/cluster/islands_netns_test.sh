#!/usr/bin/env bash
# Two "hosts" as network namespaces with two ranks each: hierarchical averaging between real processes. Gradients are averaged
# within a host over shared memory, parameters across hosts; all four ranks end with one model.
#
# Usage: tests/cluster/islands_netns_test.sh ENGINE       needs root and iproute2; exits with 77 where one is missing
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/cluster_lib.sh"
engine=$(readlink -f "${1:?usage: islands_netns_test.sh ENGINE}")

on_hosts 10.89.0
mkdir "$folder/home"
export HOME=$folder/home

for sync in "params" "diloco"; do
  for rank in 0 1 2 3; do
    LOCAL_WORLD_SIZE=2 ip netns exec "$base-$((rank / 2))" "$engine" train --model mlp --dataset synthetic --synthetic-shape 8x8x1 \
      --synthetic-size 480 --batch-size 48 --threads 1 --rdzv-timeout "$(scaled 20)" --timeout "$(scaled 60)" --epochs 2 --log-every 0 \
      --world-size 4 --rank "$rank" --local-rank $((rank % 2)) --init-method tcp://10.89.0.1:29500 \
      --sync "$sync" --sync-every 4 --sync-island host --save-dir "$folder/$sync" --save-rank-models \
      >"$folder/$sync.$rank.log" 2>&1 &
    ranks[rank]=$!
  done
  for rank in 0 1 2 3; do
    wait "${ranks[rank]}" || fail "$sync: rank $rank failed" "$folder/$sync".[0123].log
  done
  check "$sync: the plan names two hosts" grep -q '^Averaging: gradients within 2 hosts every step' "$folder/$sync.0.log"
  check "$sync: shared memory within a host" grep -q 'backend shm+' "$folder/$sync.0.log"
  check "$sync: six averagings in twenty steps" grep -qE 'parameters 6 times in 20 steps.*within 2 hosts' "$folder/$sync.0.log"
  in_sync "$engine" 4 "$folder/$sync"
done
ranks=()
echo "islands_netns_test: all $checks checks passed"
