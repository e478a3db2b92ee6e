#!/bin/bash
# Drops all packets between two hosts for some seconds at random moments of a run, and compares its checkpoint with that of a
# run without cuts.
#
# Usage: timed_cuts.sh ENGINE "SECONDS..." [RUNS [FIRST_SEED [BACKEND...]]]
#
# Each run has three cuts of 1 s, two of 5 s or one of 20 s, within the first 12 s, over each of socket and gloo. Exit code 77
# where link_emulator.py cannot make hosts.
set -eu
engine=$1 lengths=$2 runs=${3:-1} first=${4:-1}
shift $(($# < 4 ? $# : 4))
backends=${*:-socket gloo}
emulator=$(dirname "${BASH_SOURCE[0]}")/link_emulator.py
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export ENGINE_SECRET=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff

# train NAME BACKEND OPTIONS_OF_THE_EMULATOR...: a run of two hosts, which takes 15 s and more without cuts.
train() {
  local name=$1 backend=$2 code=0
  shift 2
  python3 "$emulator" --hosts 2 "$@" -- "$engine" train --rank '{rank}' --world-size '{world}' --init-method 'tcp://{address}:29500' \
    --backend "$backend" --model mlp --dataset synthetic --seed 3 --steps 300 --log-every 50 --eval-every 0 --threads 1 \
    --save-dir "$folder/$name" > "$folder/$name.log" 2>&1 || code=$?
  [ $code = 0 ] || { cat "$folder/$name.log"; [ $code = 77 ] || echo "FAILED: $name"; exit $code; }
}

for backend in $backends; do
  train "whole-$backend" "$backend" --delay 2
  for seconds in $lengths; do
    count=$((seconds < 5 ? 3 : seconds < 20 ? 2 : 1))
    for ((seed = first; seed < first + runs; ++seed)); do
      name=$backend-$seconds-$seed
      train "$name" "$backend" --seed "$seed" --delay 2 --host 1 --random-cuts "$count:$seconds:12"
      "$engine" verify "$folder/whole-$backend" "$folder/$name" > "$folder/verify" || { cat "$folder/$name.log" "$folder/verify"; exit 1; }
      lost=$(grep -c "lost the .*connection" "$folder/$name.log" || true)
      echo "$backend, $count cuts of $seconds s, seed $seed: $lost connections reported as lost, equal bits"
    done
  done
done
