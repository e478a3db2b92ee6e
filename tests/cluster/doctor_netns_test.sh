#!/usr/bin/env bash
# engine doctor finds a slow link: three network namespaces on a bridge, delay or too little bandwidth on the cable of one.
#
# Usage: tests/cluster/doctor_netns_test.sh ENGINE     needs root, ip and tc; exits with 77 where one is missing
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/cluster_lib.sh"
engine=$(readlink -f "${1:?usage: doctor_netns_test.sh ENGINE}")
need_tools tc

on_hosts 10.99.0

# doctor NAME ARGUMENT...: three ranks, one a namespace; the exit codes are left in $codes, rank 0's output in $folder/NAME.
doctor() {
  local output=$1 i
  shift
  ranks=() codes=
  for i in 0 1 2; do
    ip netns exec "$base-$i" timeout "$(scaled 100)" "$engine" doctor --rank $i --world-size 3 --init-method tcp://10.99.0.1:29500 \
      --job-id "$base" --backend gloo --rdzv-timeout "$(scaled "${joining:-30}")" --timeout "$(scaled 30)" "$@" >"$folder/$output.$i" 2>&1 &
    ranks+=($!)
  done
  for i in 0 1 2; do
    local code=0
    wait "${ranks[i]}" || code=$?
    codes+=" $code"
  done
  cat "$folder/$output.0"
}
expect() { # NAME CODES TEXT...
  local output=$1 wanted=$2 text
  shift 2
  [ "$codes" = " $wanted" ] || { echo "FAILED: exit codes$codes, expected $wanted"; cat "$folder/$output".*; exit 1; }
  for text in "$@"; do
    grep -qF -- "$text" "$folder/$output.0" || { echo "FAILED: no '$text' in the output of rank 0"; exit 1; }
  done
}

# healthy NAME: up to three times, for this machine's other work may starve one link twice in a row.
healthy() {
  for _ in 1 2 3; do
    doctor "$1"
    [ "$codes" = " 1 1 1" ] || break
  done
}
healthy sound
expect sound "0 0 0" "met at 10.99.0.1:29500" "10.99.0.3" "healthy"

# harm WORDS TC...: with this on the cable of rank 2, its links are bad in these words, and the other one is not.
tried=0
harm() {
  local words=$1
  shift
  ip netns exec "$base-2" tc qdisc add dev data0 root "$@" 2>/dev/null || { echo "this kernel cannot do: tc $*"; return 0; }
  tried=$((tried + 1))
  doctor slow
  expect slow "1 1 1" "link between ranks 0 and 2 (gloo) $words" "link between ranks 1 and 2 (gloo) $words" \
    "one of rank 2" "not healthy"
  ! grep -q "^BAD.*ranks 0 and 1 " "$folder/slow.0" || { echo "FAILED: the good link is called bad"; exit 1; }
  doctor json --format json
  expect json "1 1 1" '"healthy":false' '"ranks":[0,2]'
  ip netns exec "$base-2" tc qdisc del dev data0 root
}
harm "answers slowly" netem delay 20ms
harm "carries little" tbf rate 40mbit burst 32kbit latency 400ms
[ $tried -gt 0 ] || skip "this kernel can neither delay nor throttle"
# Ranks 1 and 2 reach rank 0, but not each other.
ip -n "$base-2" route add blackhole 10.99.0.2/32
joining=5
doctor apart
joining=30
expect apart "69 69 69" "3 ranks met at 10.99.0.1:29500" "BAD   " "no connection with rank" "not healthy"
ip -n "$base-2" route delete blackhole 10.99.0.2/32
healthy again
expect again "0 0 0" "healthy"
echo "doctor finds the slow links and their rank, $tried of 2 ways"
