#!/bin/bash
# Cuts the link between ranks 0 and 2 of a run on three hosts: all learn that rank 1 still reaches both. Exit code 77 where
# link_emulator.py cannot make hosts.
set -eu
engine=$1
emulator=$(dirname "${BASH_SOURCE[0]}")/link_emulator.py
folder=$(mktemp -d)
job=''
end() {
  [ -z "$job" ] || kill "$job" 2> /dev/null || true
  rm -rf "$folder"
}
trap end EXIT
export ENGINE_SECRET=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff

fail() {
  cat "$folder/log"
  echo "FAILED: $*"
  exit 1
}

# expect BACKEND TEXT...: runs until the cut ends the job; the output must have each text.
expect() {
  local backend=$1 code=0 text
  shift
  rm -f "$folder/log"
  python3 "$emulator" --hosts 3 -- "$engine" train --rank '{rank}' --world-size '{world}' --init-method 'tcp://{address}:29500' \
    --backend "$backend" --link-patience 8 --heartbeat 0.5 --model mlp --dataset synthetic --seed 3 --steps 1000000 --log-every 20 \
    --eval-every 0 --threads 1 --save-dir "$folder/$backend" > "$folder/log" 2>&1 &
  job=$!
  until grep -qs "Step \[" "$folder/log"; do
    kill -0 "$job" 2> /dev/null || { wait "$job" || code=$?; [ $code != 77 ] || exit 77; fail "$backend: it ended before the cut"; }
    sleep 0.1
  done
  ip -n "links$job-0" route add blackhole 10.86.0.3/32
  ip -n "links$job-2" route add blackhole 10.86.0.1/32
  wait "$job" || code=$?
  job=''
  [ $code = 69 ] || fail "$backend: exit code $code, expected 69"
  for text in "$@"; do
    grep -q "$text" "$folder/log" || fail "$backend: no line with: $text"
  done
  echo "$backend: $(grep -cF "still reaches both" "$folder/log") lines name the cut link"
}

for backend in socket zmq; do
  expect $backend "lost the rendezvous .* of rank 2" "lost the connection to rank 2" \
    "rank 0 and rank 2 .* rank 1 " "(--link-patience)"
done
