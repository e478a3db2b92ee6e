#!/bin/bash
# Drops all packets between two hosts for some seconds at random moments of a run, and compares its checkpoint with that of a
# run without cuts.
#
# Usage: timed_cuts.sh ENGINE "SECONDS..." [--runs N | --moments N] [--seed FIRST] [--jobs N] [BACKEND...]
#
# Each run has three cuts of 1 s, two of 5 s or one of 20 s, within the first 12 s, over each of socket, gloo and zmq (or those
# given). --runs (1): runs of each kind; --moments: as many as have so many cuts. --jobs (1): runs at a time. A run fails if a
# rank ends, starts again or has other bits. Prints a line per run and a table. Exit code 1 after a failure, 77 where
# link_emulator.py cannot make hosts.
set -eu
engine=$1 lengths=$2 runs=1 moments='' seed=1 jobs=1
shift 2
while [[ ${1:-} = --* ]]; do
  case $1 in
    --runs) runs=$2 ;;
    --moments) moments=$2 ;;
    --seed) seed=$2 ;;
    --jobs) jobs=$2 ;;
    *) echo "unknown option $1"; exit 64 ;;
  esac
  shift 2
done
backends=${*:-socket gloo zmq}
emulator=$(dirname "${BASH_SOURCE[0]}")/link_emulator.py
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export engine emulator folder ENGINE_SECRET=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff

# train NAME BACKEND OPTIONS_OF_THE_EMULATOR...: a run of two hosts, which takes 15 s and more without cuts.
train() {
  local name=$1 backend=$2
  shift 2
  python3 "$emulator" --hosts 2 "$@" -- "$engine" train --rank '{rank}' --world-size '{world}' --init-method 'tcp://{address}:29500' \
    --backend "$backend" --model mlp --dataset synthetic --seed 3 --steps 300 --log-every 50 --eval-every 0 --threads 1 \
    --save-dir "$folder/$name" > "$folder/$name.log" 2>&1
}
# cuts_of SECONDS: how many a run has.
cuts_of() { echo $(($1 < 5 ? 3 : $1 < 20 ? 2 : 1)); }
# cut_run BACKEND SECONDS SEED: one run with cuts; writes its line of the table's data.
cut_run() {
  local backend=$1 seconds=$2 seed=$3 name=$1-$2-$3 code=0 found=equal
  local count lost back
  count=$(cuts_of "$seconds")
  train "$name" "$backend" --seed "$seed" --delay 2 --host 1 --random-cuts "$count:$seconds:12" || code=$?
  lost=$(grep -c "lost the .*connection" "$folder/$name.log" || true)
  back=$(grep -c "connection .* is back after" "$folder/$name.log" || true)
  if [ $code != 0 ]; then
    found=failed
  elif ! "$engine" verify "$folder/whole-$backend" "$folder/$name" > "$folder/$name.verify" 2>&1; then
    found=differs
  fi
  echo "$backend $seconds $count $lost $back $found" >> "$folder/table"
  echo "$backend, $count cuts of $seconds s, seed $seed: $lost connections reported as lost, $back as back; bits: $found"
  [ $found = equal ] || cat "$folder/$name.log" "$folder/$name.verify" 2> /dev/null || true
  rm -rf "${folder:?}/$name"
}
# whole_run BACKEND: one without cuts.
whole_run() {
  local name=whole-$1 code=0
  train "$name" "$1" --delay 2 || code=$?
  [ $code = 0 ] || { cat "$folder/$name.log"; echo $code > "$folder/failed"; }
}
export -f train cuts_of cut_run whole_run

printf '%s\n' $backends | xargs -P "$jobs" -L 1 bash -c 'whole_run "$@"' whole_run
[ ! -e "$folder/failed" ] || exit "$(cat "$folder/failed")"
for seconds in $lengths; do
  count=$(cuts_of "$seconds")
  [ -z "$moments" ] || runs=$(((moments + count - 1) / count))
  for ((i = seed; i < seed + runs; ++i)); do
    for backend in $backends; do echo "$backend $seconds $i"; done
  done
done | xargs -P "$jobs" -L 1 bash -c 'cut_run "$@"' cut_run

sort "$folder/table" | awk '
  { key = $1 " | " $2; cuts[key] += $3; runs[key]++; lost[key] += $4; back[key] += $5; equal[key] += $6 == "equal" }
  END {
    print "backend | s | cuts | runs | connections lost | back | runs with equal bits"
    for (key in runs) {
      print key " | " cuts[key] " | " runs[key] " | " lost[key] " | " back[key] " | " equal[key]
      bad += runs[key] - equal[key]
    }
    exit bad > 0
  }'
