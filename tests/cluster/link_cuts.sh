#!/bin/bash
# Cuts the connections between two ranks of a run at random moments, and compares its checkpoint with that of a whole run.
#
# Usage: link_cuts.sh ENGINE [RUNS [FIRST_SEED [BACKEND]]]
#
# Each run over each of socket, gloo and zmq (at the same time), plain and encrypted, has six resets (ss --kill, as by a router) of
# all connections of rank 1, also that to the rendezvous. Exit code 77 without root, ss, or a kernel that closes sockets for others.
set -eu
engine=$1 runs=${2:-2} first=${3:-1} backend=${4:-}
[ "$(id -u)" = 0 ] && command -v ss > /dev/null || { echo "skipped: needs root and ss"; exit 77; }

if [ -z "$backend" ]; then
  pids=()
  for backend in socket gloo zmq; do
    "${BASH_SOURCE[0]}" "$engine" "$runs" "$first" $backend &
    pids+=($!)
  done
  worst=0
  for pid in "${pids[@]}"; do
    code=0
    wait "$pid" || code=$?
    [ $worst = 1 ] || [ $code = 0 ] || worst=$code
  done
  exit $worst
fi

folder=$(mktemp -d)
pids=()
end() {
  [ ${#pids[@]} = 0 ] || kill -9 "${pids[@]}" 2> /dev/null || true
  rm -rf "$folder"
}
trap end EXIT

port=0
# start BACKEND ENCRYPT NAME: starts both ranks of a run.
start() {
  port=$((20000 + SRANDOM % 10000))  # RANDOM is the seed's, for all backends the same
  pids=()
  local rank
  for rank in 0 1; do
    ENGINE_SECRET=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff "$engine" train --rank $rank --world-size 2 \
      --init-method "tcp://127.0.0.1:$port" --backend "$1" --encrypt "$2" --model mlp --dataset synthetic --seed 3 --steps 500 \
      --log-every 100 --eval-every 0 --threads 1 --save-dir "$folder/$3" > "$folder/$3.$rank" 2>&1 &
    pids+=($!)
  done
}
# finish NAME: waits for the run; fails as it does.
finish() {
  local pid
  for pid in "${pids[@]}"; do
    wait "$pid" || { cat "$folder/$1".?; echo "FAILED: $1"; exit 1; }
  done
  pids=()
}
# Prints the local ports of the connections of rank 1 with rank 0.
ports() {
  ss -Htnp state established | grep -E "pid=${pids[1]}," | awk '{sub(/.*:/, "", $3); print $3}'
}
reset_all() {
  local each cut=0
  for each in $(ports); do
    ss -HtnK state established "sport = :$each" > /dev/null && cut=1
  done
  [ $cut = 1 ]
}

for encrypt in off on; do
  name=$backend-$encrypt
  start "$backend" $encrypt "whole-$name"
  finish "whole-$name"
  for ((seed = first; seed < first + runs; ++seed)); do
    RANDOM=$seed
    start "$backend" $encrypt "$name-$seed"
    until grep -q "step" "$folder/$name-$seed.0" || ! kill -0 "${pids[0]}" 2> /dev/null; do sleep 0.05; done
    for ((cut = 0; cut < 6; ++cut)); do
      sleep 0.0$((RANDOM % 10))
      reset_all || true
    done
    finish "$name-$seed"
    lost=$(grep -c "lost the connection to rank" "$folder/$name-$seed.0" || true)
    [ "$lost" -gt 0 ] || { ports; echo "skipped: this kernel closes no sockets for others"; exit 77; }
    "$engine" verify "$folder/whole-$name" "$folder/$name-$seed" > "$folder/verify" || { cat "$folder/verify"; exit 1; }
    echo "$name, seed $seed: $lost breaks reported by rank 0, equal bits"
  done
done
