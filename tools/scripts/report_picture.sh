#!/usr/bin/env bash
# Makes docs/pictures/report.png, the picture of README.md: the page of `engine report` about a real run, in headless Chromium.
#
# Usage: tools/scripts/report_picture.sh [ENGINE] [--output FILE]
#   ENGINE         the program (default: build/release/tools/engine)
#   --output FILE  where to write (default: docs/pictures/report.png)
# Trains mlp on the built-in digits with two ranks, for a few seconds. Needs chromium (Debian: chromium).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

engine="$root/build/release/tools/engine" output="$root/docs/pictures/report.png"
while [ $# -gt 0 ]; do
  case $1 in
    --output) [ $# -ge 2 ] || fail "$1 needs a value (see --help)"; output=$(realpath -m "$2"); shift ;;
    -h | --help) usage; exit 0 ;;
    -*) fail "unknown option $1 (see --help)" ;;
    *) engine=$(realpath "$1") ;;
  esac
  shift
done
[ -x "$engine" ] || fail "no program $engine: build it first"
command -v chromium >/dev/null || fail "chromium is missing: apt-get install chromium"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

step "Training"
"$engine" train --model mlp --dataset glyphs --limit 4000 --spawn 2 --threads 1 --epochs 12 --batch-size 100 --lr 0.05 \
  --lr-schedule cosine --log-every 5 --eval-every 20s --save-dir digits >log 2>&1 || { cat log >&2; fail "the training failed"; }
tail -n 1 log
"$engine" report digits -o report.html

step "Picture"
# Root may not use Chromium's sandbox; the page is our own. A deadline, because a browser may wait for what never comes.
timeout 60 chromium --headless $([ "$(id -u)" -ne 0 ] || echo --no-sandbox) --disable-gpu --hide-scrollbars \
  --user-data-dir="$work/profile" --window-size=1400,1330 --virtual-time-budget=3000 \
  --screenshot="$work/report.png" "file://$work/report.html" >browser.log 2>&1 ||
  { cat browser.log >&2; fail "chromium made no picture"; }
[ -s report.png ] || fail "chromium made no picture"
size=$(stat -c %s report.png)
[ "$size" -lt 200000 ] || fail "the picture has $size bytes, at most 200,000 are meant for the tree"
mkdir -p "$(dirname "$output")"
mv report.png "$output"
echo "$output: $size bytes"
