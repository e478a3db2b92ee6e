#!/usr/bin/env bash
# Runs the commands of docs/tutorial.md as they stand there, all blocks that begin with ```sh, in an empty folder, and lets others
# look at what they have made: Chromium, promtool, and what PEER_PYTHON (python3) has of onnxruntime, safetensors and TensorBoard.
# Only the ports are others, so that tests beside it cannot meet.
#
# Usage: tests/scripts/tutorial_test.sh ENGINE [--keep]     --keep: leaves the folder, and names it
# Exits with 77 (skipped) if all went well but some of these programs were not there.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
engine=$(realpath "$1")
work=$(mktemp -d)
launched=""
clean_up() {
  [ -z "$launched" ] || kill -- "-$launched" 2>/dev/null || true
  [ "${keep:-}" = --keep ] && echo "left in $work" || rm -rf "$work"
}
trap clean_up EXIT
keep=${2:-}
fail() { echo "tutorial_test: $*" >&2; exit 1; }
peer_python=$(command -v "${PEER_PYTHON:-python3}")
missing=()
"$peer_python" -c 'import onnx, onnxruntime, PIL, safetensors, tensorboard' 2>/dev/null ||
  missing+=("onnx, onnxruntime, pillow, safetensors, tensorboard for $peer_python")
for tool in curl chromium promtool; do
  command -v "$tool" >/dev/null || missing+=("$tool")
done
has() { [[ " ${missing[*]} " != *" $1 "* ]]; }
unset "${!ENGINE_@}" RANK WORLD_SIZE MASTER_ADDR MASTER_PORT

mkdir "$work/bin" "$work/home" "$work/place"
ln -s "$engine" "$work/bin/engine"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$peer_python" >"$work/bin/python3"
chmod +x "$work/bin/python3"
export PATH="$work/bin:$PATH" HOME="$work/home" OMP_NUM_THREADS=1
cd "$work/place"
ln -s "$root/docs" docs
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
awk -v elsewhere="$(has onnxruntime, && echo yes)" \
  '/^```/ { inside = $0 == "```sh" || elsewhere && $0 == "```sh elsewhere"; next } inside' "$root/docs/tutorial.md" |
  sed "s/29500/$(port)/g; s/9400/$(port)/g" >commands
has curl || sed -i '/^until curl/d' commands
count=$(grep -c '^engine ' commands)
[ "$count" -ge 20 ] || fail "only $count commands found in docs/tutorial.md"

# In a process group of its own, so that nothing stays behind; the deadline is that of a machine that does much else.
set -m
timeout 500 bash -eux commands >output 2>&1 </dev/null &
launched=$!
set +m
status=0
wait "$launched" || status=$?
[ "$status" -eq 0 ] || { tail -n 40 output >&2; fail "a command of docs/tutorial.md ended with $status"; }

launched=""

accuracy() { engine eval "$1" | sed -n 's/.*accuracy \([0-9]*\)\..*/\1/p'; }
for run in flowers shapes; do
  percent=$(accuracy runs/$run)
  [ "${percent:-0}" -ge 85 ] || fail "the model of runs/$run is right in ${percent:-no} % only"
done
grep -q '^unnamed.csv,3,' output || fail "no prediction for the third flower"
[ "$(grep -c '^verify: 0 of [1-9][0-9]* tensors differ$' output)" -eq 2 ] || fail "verify has not found equal models twice"
grep -q '"event":"end","step":400' runs/stories/metrics.jsonl || fail "runs/stories has not gone on to step 400"
[ "$(grep -A 1 '^+ engine sample' output | grep -c '^The cat ')" -eq 2 ] || fail "sample has not begun two texts with the prompt"
grep -q '^beginning.txt,1,t,' output || fail "predict does not complete 'The ca': $(grep '^beginning.txt' output)"
grep -q 'runs/shapes' report.html || fail "report.html does not name runs/shapes"
for file in shapes.onnx shapes.safetensors; do
  [ "$(stat -c %s "$file")" -gt 1000000 ] || fail "$file is too small for 269,267 parameters"
done

# Others look at it.
if has chromium; then
  timeout 300 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$work/home/chromium" --enable-logging=stderr \
    --dump-dom "file://$PWD/report.html" >page 2>log || { tail -n 5 log >&2; fail "Chromium does not open report.html"; }
  grep -q '<figcaption[^>]*>Loss</figcaption>' page || fail "Chromium sees no curve of the loss in report.html"
  ! grep CONSOLE log >&2 || fail "Chromium finds fault with report.html"
fi
if has curl; then
  grep -qx 'engine_ranks 2' metrics.txt || fail "the metrics are not those of two ranks: $(cat metrics.txt)"
  ! has promtool || [ -z "$(promtool check metrics <metrics.txt 2>&1)" ] || fail "$(promtool check metrics <metrics.txt 2>&1)"
fi
if has onnxruntime,; then
  python3 "$root/tests/scripts/tutorial_files.py" "$work/bin/engine" || fail "others do not read what it has made"
fi
if [ ${#missing[@]} -gt 0 ]; then
  echo "skipped: $count commands of the tutorial work, but these were not there to look at the results: ${missing[*]}"
  exit 77
fi
echo "$count commands of the tutorial work"
