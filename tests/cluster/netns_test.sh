#!/usr/bin/env bash
# Three "hosts" as network namespaces on a bridge, one rank each over tcp://: they train, listen where they should and nowhere else,
# and a link that goes down in the middle ends the run with a message in time.
#
# Usage: tests/cluster/netns_test.sh ENGINE       needs root and iproute2 with ss; exits with 77 where one is missing
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/cluster_lib.sh"
engine=$(readlink -f "${1:?usage: netns_test.sh ENGINE}")
need_tools ss

on_hosts 10.88.0
for i in 0 1 2; do
  # A second interface to another network: no rank may listen there.
  ip -n "$base-$i" link add other type veth peer name other-end
  ip -n "$base-$i" address add "192.168.77.$((i + 1))/24" dev other
  ip -n "$base-$i" link set other up
  ip -n "$base-$i" link set other-end up
done
mkdir "$folder/home"
export HOME=$folder/home
train=("$engine" train --model mlp --dataset synthetic --synthetic-shape 8x8x1 --batch-size 48 --threads 1 --rdzv-timeout "$(scaled 20)" --timeout "$(scaled 60)"
  --world-size 3)

# start_rank NAME METHOD RANK OPTIONS...: its output in NAME.RANK.log
start_rank() {
  local name=$1 method=$2 i=$3
  shift 3
  LOCAL_WORLD_SIZE=1 ip netns exec "$base-$i" "${train[@]}" --rank "$i" --init-method "$method" "$@" >"$folder/$name.$i.log" 2>&1 &
  ranks[i]=$!
}
# start NAME METHOD OPTIONS...: all three
start() {
  local name=$1 method=$2
  shift 2
  for i in 0 1 2; do start_rank "$name" "$method" "$i" "$@"; done
}
listeners() { for i in 0 1 2; do ip netns exec "$base-$i" ss -Hltn | awk '{ print $4 }'; done; }
wait_for_line() { wait_for 20 "line \"$2\"" grep -q "$2" "$folder/$1"; }

# Trains; the listening sockets are checked while it runs.
start run tcp://10.88.0.1:29500 --steps 1000000 --log-every 100 --link-patience 8
wait_for_line run.0.log "Step \[100/"
listeners >"$folder/listeners"
check "rank 0 listens on the address that was given" grep -qx '10.88.0.1:29500' "$folder/listeners"
check "and no rank on any other interface or on all" test -z "$(grep -v '^10\.88\.0\.[123]:' "$folder/listeners" || true)"

# The link of rank 2 goes down: no connection is closed, so only missing heartbeats reveal it. It stays down
# for longer than the ranks' patience.
begin=$SECONDS
ip -n "$base-2" link set data0 down
end_with run "69 69 69 "
check "in time ($((SECONDS - begin)) s)" test $((SECONDS - begin)) -le "$(scaled 15)"
for i in 0 1; do
  check "rank $i names rank 2" grep -qE 'rank 2 \(host [^ ]+, pid [0-9]+\)' "$folder/run.$i.log"
done
ip -n "$base-2" link set data0 up
check "the link is back" ip netns exec "$base-2" ip route get 10.88.0.1

start sync tcp://10.88.0.1:29501 --steps 30 --save-dir "$folder/sync" --save-rank-models
end_with sync "0 0 0 "
in_sync "$engine" 3 "$folder/sync"

# file:// without a default route: rank 0 must not listen on loopback.
start file "file://$folder/meet" --steps 30 --iface data0 --save-dir "$folder/file" --save-rank-models
end_with file "0 0 0 "
in_sync "$engine" 3 "$folder/file"

# An interface that only this host can reach is refused, by the rank that has it.
for i in 0 2; do start_rank loopback tcp://10.88.0.1:29502 "$i" --steps 30; done
start_rank loopback tcp://10.88.0.1:29502 1 --steps 30 --iface lo
status=0
wait "${ranks[1]}" || status=$?
[ "$status" -eq 78 ] || fail "loopback in a world of several hosts: exit code $status, expected 78" "$folder"/loopback.?.log
check "it is refused with its address" grep -q 'rank 1 can be reached only at 127.0.0.1' "$folder/loopback.1.log"
for i in 0 2; do
  status=0
  wait "${ranks[i]}" || status=$?
  check "rank $i ends with it (status $status)" test "$status" -eq 69
done

# A name that /etc/hosts maps to loopback.
sed '/box0/d' /etc/hosts >"$folder/hosts"
echo "127.0.1.1 box0" >>"$folder/hosts"
status=0
LOCAL_WORLD_SIZE=1 ip netns exec "$base-0" unshare --mount bash -c 'mount --bind "$0" /etc/hosts; exec "$@"' "$folder/hosts" \
  "${train[@]}" --rank 0 --init-method tcp://box0:29503 >"$folder/name.log" 2>&1 || status=$?
[ "$status" -eq 78 ] || fail "a name that leads to loopback: exit code $status, expected 78" "$folder/name.log"
check "the message names the address" grep -q 'rank 0, "box0", .* 127.0.1.1' "$folder/name.log"

ranks=()
check "no rank is left over" test -z "$(for i in 0 1 2; do ip netns pids "$base-$i"; done)"
echo "netns_test: all $checks checks passed"
