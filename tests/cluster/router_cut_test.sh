#!/usr/bin/env bash
# Two ranks behind routers, which rank 0 cannot connect to: their rendezvous connections are reset or silent for some seconds, and the
# training continues with the same bits. One that is killed is named soon, one that is cut off after the patience.
#
# Usage: tests/cluster/router_cut_test.sh ENGINE       needs root, iproute2 with ss and iptables; exits with 77 where one is missing
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/cluster_lib.sh"
engine=$(readlink -f "${1:?usage: router_cut_test.sh ENGINE}")
need_tools ss iptables

leave() {
  local status=$?
  set +e
  remove_inside
  (exit "$status")
  leave_hosts
}
on_hosts 198.51.100 # documentation addresses, which count as public
trap leave EXIT
for i in 1 2; do put_behind_router "$i"; done
host_of() { if [ "$1" = 0 ]; then echo "$base-0"; else echo "$base-in$1"; fi; }
filter() { ip netns exec "$base-1" iptables "$@" 2>/dev/null || skip "the kernel has no packet filter"; }

mkdir "$folder/home"
export HOME=$folder/home
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$folder/secret"
chmod 600 "$folder/secret"
export ENGINE_SECRET_FILE=$folder/secret
train=("$engine" train --model mlp --dataset synthetic --batch-size 48 --threads 1 --seed 3 --log-every 20 --eval-every 0 --local-stage off
  --job-id routed --rdzv-timeout "$(scaled 20)")

# start NAME OPTIONS...: the three ranks; returns when they train.
start() {
  local name=$1 i
  shift
  for i in 0 1 2; do
    LOCAL_WORLD_SIZE=1 ip netns exec "$(host_of "$i")" "${train[@]}" --world-size 3 --rank "$i" --init-method tcp://198.51.100.1:29500 \
      --relay rank0:29600 --save-dir "$folder/$name" "$@" >"$folder/$name.$i.log" 2>&1 &
    ranks[i]=$!
  done
  wait_for 60 "step of $name" grep -qs "Step \[" "$folder/$name.0.log"
}
behind=$base-in1
# port: that rank 1 has connected to the rendezvous from
port() { ip netns exec "$behind" ss -Htn state established dport = :29500 | awk '{ sub(".*:", "", $3); print $3 }'; }
gone() { [ "$(port)" != "$1" ]; }
# reset_connection: the router resets the rendezvous connection of rank 1 at both ends, and drops all packets of others to the rendezvous.
reset_connection() {
  local from
  from=$(port)
  filter -I FORWARD -p tcp --dport 29500 -j DROP
  filter -I FORWARD -p tcp --dport 29500 --sport "$from" -j REJECT --reject-with tcp-reset
  filter -I FORWARD -p tcp --sport 29500 --dport "$from" -j REJECT --reject-with tcp-reset
  wait_for 20 "reset" gone "$from"
}
is_back() { [ "$(grep -c 'the rendezvous connection of rank 1 is back after' "$folder/cut.0.log")" -ge "$1" ]; }

"${train[@]}" --backend socket --steps 1500 --spawn 3 --save-dir "$folder/plain" >"$folder/plain.log" 2>&1 ||
  fail "the run on one host" "$folder/plain.log"
start cut --backend socket --steps 1500
resets=0
for seconds in 1 5; do
  reset_connection
  sleep "$seconds"
  filter -F FORWARD
  resets=$((resets + 1))
  wait_for 20 "new connection after $seconds s" is_back "$resets"
done
# More than three heartbeats.
filter -I FORWARD -j DROP
sleep 5
filter -F FORWARD
end_with cut "0 0 0 "
check "rank 0 saw each reset" test "$(grep -c 'lost the rendezvous .* of rank 1 (.* broke' "$folder/cut.0.log")" -ge "$resets"
check "the bits of a run on one host" "$engine" verify "$folder/plain" "$folder/cut"

start killed --backend socket --steps 1000000
kill -KILL "${ranks[1]}"
end_with killed "69 137 69 "
for i in 0 2; do
  check "rank $i names the killed rank" \
    grep -q 'rank 1 (host .*) died: its connection closed; no new connection within 3.0 s (three heartbeats)' "$folder/killed.$i.log"
done

start unreachable --backend socket --steps 1000000 --link-patience 6
reset_connection
end_with unreachable "69 69 69 "
for i in 0 2; do
  check "rank $i names the unreachable rank" grep -qE \
    'rank 1 \(host .*\) is unreachable: its connection broke .*; no new connection within 6.0 s \(--link-patience\); rank 0 cannot connect' \
    "$folder/unreachable.$i.log"
done
ranks=()
echo "router_cut_test: all $checks checks passed"
