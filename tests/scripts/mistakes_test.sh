#!/usr/bin/env bash
# Mistakes that users make with folders, files and options: each must end with its exit code and one line that
# says what is wrong, and none may touch a run that is already there.
#
# Usage: tests/scripts/mistakes_test.sh ENGINE [--table]     --table: also prints each command, code and line
set -uo pipefail
engine=$1
table=${2:-}
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; umount "$work/full" 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1
unset "${!ENGINE_@}"
count=0 faults=0

net=(--model mlp --threads 1)
synthetic=(--dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 --batch-size 12)
quick=("${net[@]}" "${synthetic[@]}")

# mistake CODE TEXT ARGUMENT...: the program's exit code, and what its error line must contain.
mistake() {
  local code=$1 text=$2 status line
  shift 2
  line=$("$engine" "$@" 2>&1 >out </dev/null)
  status=$?
  count=$((count + 1))
  [ -z "$table" ] || printf '%-3d engine %s\n    -> %d: %s\n' "$count" "$*" "$status" "$(tail -n 1 <<<"$line")"
  if [ "$status" -ne "$code" ] || ! grep -qF -- "$text" <<<"$line"; then
    faults=$((faults + 1))
    printf 'engine %s\n  expected %d and: %s\n  got %d and: %s\n' "$*" "$code" "$text" "$status" "$line" >&2
  fi
}

state() { (cd "$work" && find run -type f ! -name run.lock -printf '%p %s\n' | sort; cat run/latest run/run.json) | sha256sum; }

"$engine" train "${quick[@]}" --save-dir run --epochs 2 >/dev/null 2>&1 || { echo "the first run failed" >&2; exit 1; }
printf 'a,b,label\n1,2,x\n3,4,y\n5,6,x\n7,8,y\n' >good.csv
printf '[[layer]]\nkind = "flatten"\n[[layer]]\nkind = "dense"\nname = "fc"\nunits = 10\n' >net.toml
head -c 100 run/step-00000010.ckpt >torn.ckpt
echo hello >text.txt
mkdir -p empty images/a
before=$(state)

# Folders
mistake 73 "holds a run" train "${quick[@]}" --save-dir run
mistake 73 "holds a run" train "${quick[@]}" --save-dir run/ --lr 1
mistake 73 "another run" train "${quick[@]}" --save-dir run --resume torn.ckpt
mistake 73 "text.txt: it is a file" train "${quick[@]}" --save-dir text.txt
mistake 73 "/proc/nothing" train "${quick[@]}" --save-dir /proc/nothing
mistake 78 "holds no run" train --resume empty
mistake 65 "no/such/run" train "${quick[@]}" --resume no/such/run
mistake 78 "--save-dir" train "${quick[@]}" --resume auto
mistake 78 "overwrite" train "${quick[@]}" --save-dir run --overwrite --resume auto
mistake 65 "no checkpoint in empty" eval empty
mistake 65 "no checkpoint in empty" export empty -o a.npz
mistake 65 "no checkpoint in empty" train "${quick[@]}" --init-from empty
mistake 78 "--save-dir" train "${quick[@]}" --save-rank-models
# Going on otherwise
mistake 78 "--seed 0" train --resume run --epochs 3 --seed 1
mistake 78 "--optimizer sgd" train --resume run --epochs 3 --optimizer adamw
mistake 78 "--model mlp" train --resume run --epochs 3 --model convnet
mistake 78 "--synthetic-size 60" train --resume run --epochs 3 --synthetic-size 120
mistake 78 "--normalize auto" train --resume run --epochs 3 --normalize standard
mistake 78 "did you mean 'optimizer'" train --resume run --allow-change optimiser
# Files
mistake 65 "truncated" eval torn.ckpt
mistake 65 "neither a checkpoint" eval text.txt --model mlp --dataset synthetic
mistake 65 "truncated" train "${quick[@]}" --resume torn.ckpt
mistake 65 "no-such.ckpt" eval no-such.ckpt
mistake 2 "no-such.ckpt" verify run no-such.ckpt
mistake 2 "two or more files" verify run
mistake 78 "no label column 'nothing'" train --model mlp --dataset csv --annotations good.csv --label-column nothing
mistake 65 "nothing.csv" train --model mlp --dataset csv --annotations nothing.csv
mistake 65 "images" train --model mlp --dataset images --data-dir images
mistake 65 "get_data.sh" train --model mlp --dataset mnist --data-dir empty
mistake 78 "no-net.toml" train --model no-net.toml "${synthetic[@]}"
mistake 78 "net.toml" train --model net.toml "${synthetic[@]}" --dropout 0.1
mistake 78 "no-options.toml" train -c no-options.toml "${quick[@]}"
mistake 2 "-o 'a.bin'" export run -o a.bin
mistake 2 "--half" export run -o a.onnx --half
mistake 2 "--model is for ONNX" export run -o a.npz --model mlp
mistake 73 "/no/such" export run -o /no/such/a.npz
mistake 73 "/no/such" train "${quick[@]}" --metrics /no/such/m.jsonl
# Options
mistake 2 "did you mean '--batch-size'" train "${quick[@]}" --batchsize 3
mistake 78 "did you mean 'convnet'" train --model convnett "${synthetic[@]}"
mistake 78 "--lr" train "${quick[@]}" --lr fast
mistake 78 "--batch-size" train "${net[@]}" --dataset synthetic --batch-size 0
mistake 78 "--epochs" train "${quick[@]}" --epochs -1
mistake 78 "--crop-padding requires --augment crop" train "${quick[@]}" --crop-padding 5
mistake 78 "--sync params" train "${quick[@]}" --sync grad --sync-every 4
mistake 2 "typographic" train "${quick[@]}" —lr 0.1
mistake 2 "did you mean 'train'" trian
mistake 78 "--rank" train "${quick[@]}" --rank 2 --world-size 2 --init-method tcp://127.0.0.1:1

[ "$(state)" = "$before" ] || { echo "a mistake changed the run" >&2; faults=$((faults + 1)); }
echo "$count mistakes, $faults answered otherwise than expected"
[ "$faults" -eq 0 ]
