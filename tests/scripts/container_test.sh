#!/usr/bin/env bash
# Packs a build as a container image with tools/scripts/container.sh, and trains in it, as its own user.
#
# Usage: tests/scripts/container_test.sh BUILD_FOLDER
# Needs root (for buildah's simplest form of isolation) and buildah: exits with 77 (skipped) without them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
fail() { echo "container_test: $*"; exit 1; }
skip() { echo "container_test: skipped: $*"; exit 77; }
command -v buildah >/dev/null || skip "buildah is not installed"
[ "$(id -u)" -eq 0 ] || skip "needs root"
in_store() { buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"; }
in_store from scratch >/dev/null 2>"$work/log" || skip "buildah cannot work here: $(tail -n 1 "$work/log")"

"$root/tools/scripts/container.sh" --no-install --from "$build" --output "$work/image.tar" >"$work/log" 2>&1 || { cat "$work/log"; fail "container.sh has failed"; }
"$root/tools/scripts/container.sh" --no-install --from "$build" --output "$work/again.tar" >"$work/log" 2>&1
layer() { tar -xOf "$1" index.json | grep -o 'sha256:[0-9a-f]*'; }
[ "$(layer "$work/image.tar")" = "$(layer "$work/again.tar")" ] || fail "the same build gives two images"

container=$(in_store from --quiet "oci-archive:$work/image.tar")
tree=$(in_store mount "$container")
mib=$(du -sm --apparent-size "$tree" | cut -f1)
[ "$mib" -le 60 ] || fail "the image has $mib MiB, expected 60 at most"
[ ! -e "$tree/bin/sh" ] || fail "the image has a shell"
inside() { in_store run --isolation chroot --user 10001 "$container" -- engine "$@"; }
version=$(sed -n 's/^project(engine VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
said=$(inside version 2>"$work/log") || { grep -qi 'operation not permitted\|permission denied' "$work/log" && skip "the kernel allows no containers: $(tail -n 1 "$work/log")"; cat "$work/log"; fail "the program does not start"; }
[ "$said" = "engine $version" ] || fail "engine version says $said"
inside train --model mlp --dataset glyphs --spawn 2 --threads 1 --steps 20 --limit 2000 --save-dir run --save-rank-models \
  >"$work/log" 2>&1 || { cat "$work/log"; fail "the program does not train"; }
inside verify run/final_model_rank_0.ckpt run/final_model_rank_1.ckpt || fail "the two ranks' models differ"
[ "$(stat -c %u "$tree/engine/run/run.json")" = 10001 ] || fail "the run does not belong to user 10001"
config=$(in_store inspect --format '{{.OCIv1.Config}}' "$container")
case $config in *engine*) ;; *) fail "the image has no entry point: $config" ;; esac
echo "the image has $mib MiB, and trains"
