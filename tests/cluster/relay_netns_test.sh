#!/usr/bin/env bash
# Two ranks behind two routers that masquerade, with the same private address, and a public host with rank 0: without a relay no
# training comes about; with one, on rank 0 or alone, it has the bits of a run on one host, and no packet takes another way.
#
# Usage: tests/cluster/relay_netns_test.sh ENGINE       needs root, iproute2 with ss and iptables; exits with 77 where one is missing
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/cluster_lib.sh"
engine=$(readlink -f "${1:?usage: relay_netns_test.sh ENGINE}")
need_tools ss iptables

relay=""
leave() {
  local status=$?
  set +e # the next-to-last line only sets the status for leave_hosts
  [ -z "$relay" ] || kill -KILL "$relay" 2>/dev/null || true
  remove_inside
  (exit "$status")
  leave_hosts
}
on_hosts 198.51.100 # documentation addresses, which count as public
trap leave EXIT
for i in 1 2; do
  router=$base-$i
  put_behind_router "$i"
  # Packets between the private network and the public host are counted by the first two rules, all others by the third.
  for rule in "-d 198.51.100.1 -j ACCEPT" "-s 198.51.100.1 -j ACCEPT" "-j DROP"; do
    # shellcheck disable=SC2086
    ip netns exec "$router" iptables -A FORWARD $rule 2>/dev/null || skip "the kernel has no packet filter"
  done
done
host_of() { if [ "$1" = 0 ]; then echo "$base-0"; else echo "$base-in$1"; fi; }
# packets ROUTER RULE: that the rule of FORWARD has counted
packets() { ip netns exec "$base-$1" iptables -L FORWARD "$2" -v -x -n | awk '{ print $1 }'; }

mkdir "$folder/home"
export HOME=$folder/home
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$folder/secret"
chmod 600 "$folder/secret"
export ENGINE_SECRET_FILE=$folder/secret
train=("$engine" train --model mlp --dataset synthetic --synthetic-shape 8x8x1 --synthetic-size 480 --batch-size 48 --threads 1
  --log-every 0 --local-stage off --job-id relayed --rdzv-timeout "$(scaled 20)")

# start NAME OPTIONS...: the three ranks
start() {
  local name=$1 i
  shift
  for i in 0 1 2; do
    LOCAL_WORLD_SIZE=1 ip netns exec "$(host_of "$i")" "${train[@]}" --world-size 3 --rank "$i" --init-method tcp://198.51.100.1:29500 \
      --save-dir "$folder/$name" "$@" >"$folder/$name.$i.log" 2>&1 &
    ranks[i]=$!
  done
}

# Without a relay rank 2 has no way to rank 1, and the message names one.
start without --epochs 2 --backend socket --timeout "$(scaled 4)"
end_with without "69 69 69 "
check "the error names --relay" grep -q 'no connection with rank [12].*--relay rank0:PORT' "$folder"/without.[12].log
check "nothing but connections to the public host left the networks" test "$(packets 1 3)$(packets 2 3)" = 00

links='links: 2 direct, 1 .* 198.51.100.1:29600 (ranks 1-2)'
for backend in socket gloo; do
  "${train[@]}" --epochs 2 --backend "$backend" --spawn 3 --save-dir "$folder/plain-$backend" >"$folder/plain.log" 2>&1 ||
    fail "the run on one host" "$folder/plain.log"
  start "$backend" --epochs 2 --backend "$backend" --relay rank0:29600 --timeout "$(scaled 60)"
  end_with "$backend" "0 0 0 "
  check "$backend: the links are named" grep -q "$links" "$folder/$backend.0.log"
  check "$backend: what the relay sees is encrypted" grep -q 'links encrypted (.*): 198.51.100.1 is public' "$folder/$backend.0.log"
  check "$backend: the bits of a run on one host" "$engine" verify "$folder/plain-$backend" "$folder/$backend"
done
for i in 1 2; do
  check "router $i passed packets of the public host" test "$(packets "$i" 1)" -gt 100
  check "and no others" test "$(packets "$i" 3)" = 0
done

# A relay of its own, with only two ports of the public host open: the pairs with rank 0 need it as well.
for rule in "-i lo -j ACCEPT" "-p tcp --dport 29500 -j ACCEPT" "-p tcp --dport 29700 -j ACCEPT" "-p tcp --syn -j REJECT --reject-with tcp-reset"; do
  # shellcheck disable=SC2086
  ip netns exec "$base-0" iptables -A INPUT $rule
done
ip netns exec "$base-0" "$engine" relay --listen 198.51.100.1:29700 >"$folder/relay.log" 2>&1 &
relay=$!
wait_for 20 "line of the relay" grep -qs '^relay at 198.51.100.1:29700' "$folder/relay.log"
start alone --backend socket --relay 198.51.100.1:29700 --timeout "$(scaled 60)" --epochs 1000000
wait_for 60 "line about links" grep -qs 'links: 0 direct, 3 .* 198.51.100.1:29700 (ranks 0-1, 0-2, 1-2)' "$folder/alone.0.log"
for i in 1 2; do
  ip netns exec "$(host_of "$i")" ss -Htn state established | awk '{ print $4 }' >"$folder/peers"
  check "rank $i has connections" test -s "$folder/peers"
  check "and only to the two ports" test -z "$(grep -vE '^198\.51\.100\.1:(29500|29700)$' "$folder/peers" || true)"
done
check "the relay names the pair" grep -q '^job relayed: ranks 1 and 2 are joined (198.51.100.' "$folder/relay.log"
kill -TERM "${ranks[0]}"
for pid in "${ranks[@]}"; do wait "$pid" || true; done
wait_for 20 "end of the pair" grep -q '^job relayed: ranks 1 and 2 ended after ' "$folder/relay.log"
# A relay that is stopped accepts connections and is silent: it is named long before the time limit of the ranks.
start stopped --backend socket --relay 198.51.100.1:29700 --timeout "$(scaled 60)" --epochs 1000000
wait_for 60 "line about links" grep -qs 'links: 0 direct, 3 ' "$folder/stopped.0.log"
kill -STOP "$relay"
end_with stopped "69 69 69 "
kill -CONT "$relay"
for i in 0 1 2; do
  check "rank $i names the relay that is stopped" grep -qE 'relay at 198.51.100.1:29700 (accepts|has not answered).* for [0-9.]+ s' \
    "$folder/stopped.$i.log"
done
# A relay that ends is named by every rank, also by rank 0, and so is one that is missing at the start.
start gone --backend socket --relay 198.51.100.1:29700 --timeout "$(scaled 60)" --epochs 1000000
wait_for 60 "line about links" grep -qs 'links: 0 direct, 3 ' "$folder/gone.0.log"
kill -TERM "$relay"
end_with gone "69 69 69 "
for i in 0 1 2; do
  check "rank $i names the relay that has ended" grep -q 'relay at 198.51.100.1:29700 does not ' "$folder/gone.$i.log"
done
start missing --backend socket --relay 198.51.100.1:29700 --rdzv-timeout "$(scaled 10)"
end_with missing "69 69 69 "
for i in 0 1 2; do
  check "rank $i names the relay that is missing" grep -q 'error: .*no relay at 198.51.100.1:29700: ' "$folder/missing.$i.log"
done
status=0
wait "$relay" || status=$?
relay=""
check "SIGTERM ends the relay in order (status $status)" test "$status" -eq 0
check "and prints that it stopped" grep -qx 'relay stopped' "$folder/relay.log"

ranks=()
check "no rank is left over" test -z "$(for i in 0 1 2; do ip netns pids "$(host_of "$i")"; done)"
echo "relay_netns_test: all $checks checks passed"
