#!/usr/bin/env bash
# Trains with every averaging policy on real data and prints Markdown tables: accuracy (or loss) against bytes sent.
#
# Usage: tools/scripts/bench_averaging.sh [--long] [--data DIR] [--ranks N] [--seeds N] [--only SET] [--lr RATE] [--quick]
#   --long        ten epochs of the whole sets with a cosine schedule, and 2000 steps of the text: few policies, of few bytes; the text with
#                 AdamW, then with Muon
#   --data DIR    the folder with mnist/, fashion-mnist/, cifar10/ and tinyshakespeare/ (default: $ENGINE_TEST_DATA, then
#                 ../shared/data beside the source tree); sets that are not there are left out, and that is said
#   --ranks N     ranks (default 2); with more, gossip is measured, too
#   --seeds N     runs of each cell (default 3); the table has their mean and range
#   --only SET    mnist, fashion-mnist, cifar10 or tinyshakespeare; with --long also cifar10-resnet20
#   --lr RATE     learning rate of the images (default 0.02)
#   --quick       an eighth of the samples: tries the script, measures nothing
#   ENGINE_BINARY the program to measure (default: the Release build, made first)
# Ranks of one thread; within a set every cell sees the same number of samples in the same number of steps.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

data=${ENGINE_TEST_DATA:-$root/../shared/data}
seeds=3 only='' shrink=1 ranks=2 long=no rate=0.02
while [ $# -gt 0 ]; do
  case $1 in
    --data) data=${2:?}; shift 2 ;;
    --ranks) ranks=${2:?}; shift 2 ;;
    --seeds) seeds=${2:?}; shift 2 ;;
    --only) only=${2:?}; shift 2 ;;
    --lr) rate=${2:?}; shift 2 ;;
    --quick) shrink=8; shift ;;
    --long) long=yes; shift ;;
    -h|--help) usage; exit 0 ;;
    *) fail "unknown argument '$1' (see --help)" ;;
  esac
done
if [ -z "${ENGINE_BINARY:-}" ]; then
  configure_and_build release engine >&2
  ENGINE_BINARY="$root/build/release/tools/engine"
fi
list=policies
[ $long = no ] || list=long_policies
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# NAME|OPTIONS, in the order of the table. The first one is what the others' bytes are compared with.
long_policies() {
  cat <<EOF
grad|--sync grad
params, K = 4, int8|--sync params --sync-every 4 --compress int8
diloco, K = 16, int8|--sync diloco --sync-every 16 --compress int8
diloco, K = 32, int4|--sync diloco --sync-every 32 --compress int4
diloco, K = 160, 1 / 0.5, int4|--sync diloco --sync-every 160 --compress int4 --outer-lr 1 --outer-momentum 0.5
streaming, K = 160, overlap 10, mixing 1, 1 / 0.5, int4|--sync streaming --sync-every 160 --sync-overlap 10 --sync-mixing 1 --compress int4 --outer-lr 1 --outer-momentum 0.5
EOF
}

# STEPS/4 is a quarter of the run.
policies() {
  local steps=$1
  cat <<EOF
grad|--sync grad
params, K = 4|--sync params --sync-every 4
params, K = 16|--sync params --sync-every 16
params, K = 64|--sync params --sync-every 64
params, K = 16, momentum too|--sync params --sync-every 16 --average-state momentum
params, K = 16, momentum every third time|--sync params --sync-every 16 --average-state momentum:3
post-local, a quarter grad, then K = 16|--sync post-local --sync-warmup $((steps / 4)) --sync-every 16
slowmo, K = 16, beta 0.5|--sync slowmo --sync-every 16
diloco, K = 16|--sync diloco --sync-every 16
diloco, K = 16, 0.7 / 0.9|--sync diloco --sync-every 16 --outer-lr 0.7 --outer-momentum 0.9
diloco, K = 16, 0.7 / 0.5|--sync diloco --sync-every 16 --outer-lr 0.7 --outer-momentum 0.5
streaming, K = 16, overlap 2|--sync streaming --sync-every 16 --sync-overlap 2
grad, bf16|--sync grad --compress bf16
grad, top-k 1 %|--sync grad --compress topk --topk-ratio 0.01
grad, PowerSGD rank 4|--sync grad --compress powersgd --powersgd-rank 4
grad, int8|--sync grad --compress int8
grad, int4|--sync grad --compress int4
grad, sparse 2 %|--sync grad --compress sparse --sparse-warmup $((steps / 4))
params, K = 16, int8|--sync params --sync-every 16 --compress int8
diloco, K = 16, int4|--sync diloco --sync-every 16 --compress int4
diloco, K = 16, sparse 2 %|--sync diloco --sync-every 16 --compress sparse
diloco, K = 16, 1 / 0, sparse 2 %|--sync diloco --sync-every 16 --outer-lr 1 --outer-momentum 0 --compress sparse
EOF
  # A pair of two ranks is all of them.
  [ "$ranks" -eq 2 ] || cat <<EOF
gossip, K = 4|--sync gossip --sync-every 4
gossip, K = 16|--sync gossip --sync-every 16
gossip, K = 16, 0.7 / 0.5|--sync gossip --sync-every 16 --outer-lr 0.7 --outer-momentum 0.5
EOF
}

# The last evaluation and the last count of a metrics file: accuracy, loss, averagings, bytes.
figures() {
  awk '
    function value(key,  at, rest) {
      at = index($0, "\"" key "\":")
      if (!at) return ""
      rest = substr($0, at + length(key) + 3)
      match(rest, /^[^,}]*/)
      return substr(rest, 1, RLENGTH)
    }
    /"event":"eval"/ { accuracy = value("accuracy"); loss = value("loss") }
    /"event":"averaging"/ { averagings = value("averagings"); bytes = value("bytes_sent") }
    END { print accuracy, loss, averagings, bytes }' "$1"
}

# table SET TITLE WHAT STEPS OPTIONS...: WHAT is accuracy or loss.
table() {
  local set=$1 title=$2 what=$3 steps=$4 name options seed
  shift 4
  rm -f "$scratch/most"
  printf '\n**%s**\n\n| policy | averagings | MB sent by a rank | fraction of the first | test %s, mean | range of %d seeds |\n' \
    "$title" "$what" "$seeds"
  echo '|---|--:|--:|--:|--:|--:|'
  "$list" "$steps" | while IFS='|' read -r name options; do
    # First moments are not averaged alone where second ones divide them.
    [[ "$* $options" != *adamw*--average-state\ momentum* ]] || continue
    for ((seed = 0; seed < seeds; ++seed)); do
      # shellcheck disable=SC2086
      "$ENGINE_BINARY" train "$@" $options --steps "$steps" --seed "$seed" --spawn "$ranks" --threads 1 --log-every 0 \
        --eval-every "${steps}s" --progress never --metrics "$scratch/run.jsonl" >"$scratch/log" 2>&1 </dev/null ||
        { cat "$scratch/log" >&2; fail "$set: '$name' with seed $seed failed"; }
      figures "$scratch/run.jsonl"
    done | awk -v name="$name" -v what="$what" -v seeds="$seeds" -v most="$scratch/most" '
      BEGIN { getline first <most }
      {
        x = what == "accuracy" ? 100 * $1 : $2
        sum += x; averagings = $3; bytes = $4
        if (NR == 1 || x < low) low = x
        if (NR == 1 || x > high) high = x
      }
      END {
        if (NR < seeds) exit 1  # a run failed, and has said so
        if (first == "") { first = bytes; print bytes >most }
        shape = what == "accuracy" ? "%.2f %%" : "%.4f"
        printf "| %s | %d | %.3f | 1/%.1f | " shape " | " shape " to " shape " |\n", name, averagings, bytes / 1e6,
          first / bytes, sum / NR, low, high
      }'
  done
}

wanted() {
  [ -z "$only" ] || [ "$only" = "$1" ] || return 1
  [ -d "$data/${1%-resnet20}" ] && return 0
  echo "no $data/$1: left out" >&2
  return 1
}

# Steps of 64 samples: two epochs of 12,800 images, or ten of the whole set.
train() {
  local set=$1 model=$2 title=$3 count=$4 folder=$5
  shift 5
  local steps=$((400 / shrink)) options=(--limit $((12800 / shrink))) images="$((12800 / shrink)) images" schedule=''
  if [ $long = yes ]; then
    steps=$((count * 10 / 64 / shrink)) options=(--lr-schedule cosine) images="$count images" schedule=', cosine'
  fi
  table "$set" "$title, $model: $images, $steps steps of 64, SGD lr $rate momentum 0.9$schedule" accuracy "$steps" \
    --model "$model" --dataset "${set%-resnet20}" --data-dir "$folder" --batch-size 64 --lr "$rate" "${options[@]}" "$@"
}
# CIFAR-10's files, unpacked.
cifar10() {
  local file
  [ ! -d "$scratch/cifar10" ] || return 0
  mkdir "$scratch/cifar10"
  for file in "$data"/cifar10/*.bin*; do
    case $file in
      *.xz) xz -dc "$file" >"$scratch/cifar10/$(basename "$file" .xz)" ;;
      *) ln -s "$(realpath "$file")" "$scratch/cifar10/" ;;
    esac
  done
}

if wanted mnist; then train mnist mlp MNIST 60000 "$data/mnist"; fi
if wanted fashion-mnist; then train fashion-mnist convnet Fashion-MNIST 60000 "$data/fashion-mnist"; fi
if wanted cifar10; then
  cifar10
  train cifar10 convnet CIFAR-10 50000 "$scratch/cifar10"
fi
if [ $long = yes ] && wanted cifar10-resnet20; then
  cifar10
  train cifar10-resnet20 resnet20-cifar CIFAR-10 50000 "$scratch/cifar10"
fi
if wanted tinyshakespeare; then
  steps=$((128 / shrink))
  [ $long = no ] || steps=$((2000 / shrink))
  text() {  # OPTIMIZER LR
    table tinyshakespeare "Tiny Shakespeare, gpt-nano: $steps steps of 16 x 64 characters, $1 lr $2" loss "$steps" \
      --model gpt-nano --dataset tinyshakespeare --data-dir "$data/tinyshakespeare" --context 64 --batch-size 16 \
      --optimizer "$1" --lr "$2"
  }
  text adamw 0.001
  if [ $long = yes ]; then text muon 0.02; fi
fi
