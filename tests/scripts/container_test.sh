#!/usr/bin/env bash
# Packs the build of tools/scripts/release.sh as a container image with tools/scripts/container.sh, and runs it with podman as
# clusters do: as another user, with a read-only root and 64 MiB of shared memory.
#
# Usage: tests/scripts/container_test.sh BUILD_FOLDER
# Needs root, buildah and podman: exits with 77 (skipped) without them, or without such a build.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$1
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
fail() { echo "container_test: $*"; exit 1; }
skip() { echo "container_test: skipped: $*"; exit 77; }
version=$(sed -n 's/^project(engine VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
[ "$("$build/tools/engine" version 2>/dev/null)" = "engine $version" ] ||
  skip "$build has no program of version $version: tools/scripts/release.sh builds it"
for tool in buildah podman; do
  command -v "$tool" >/dev/null || skip "$tool is not installed"
done
[ "$(id -u)" -eq 0 ] || skip "needs root"
storage=(--root "$work/storage" --runroot "$work/run" --storage-driver vfs)
buildah "${storage[@]}" from scratch >/dev/null 2>"$work/log" || skip "buildah cannot work here: $(tail -n 1 "$work/log")"

pack() { "$root/tools/scripts/container.sh" --no-install --from "$build" --output "$1" >"$work/log" 2>&1 || { cat "$work/log"; fail "container.sh has failed"; }; }
pack "$work/image.tar"
pack "$work/again.tar"
layer() { tar -xOf "$1" index.json | grep -o 'sha256:[0-9a-f]*'; }
[ "$(layer "$work/image.tar")" = "$(layer "$work/again.tar")" ] || fail "the same build gives two images"

container=$(buildah "${storage[@]}" from --quiet "oci-archive:$work/image.tar")
tree=$(buildah "${storage[@]}" mount "$container")
mib=$(du -sm --apparent-size "$tree" | cut -f1)
[ "$mib" -le 60 ] || fail "the image has $mib MiB, expected 60 at most"
[ ! -e "$tree/bin/sh" ] || fail "the image has a shell"
[ ! -e "$tree/usr/lib/engine/lib" ] || fail "the image has libraries beside the C library"

# crun accepts no mixture of cgroups v1 and v2; network and limits of this machine, where it may itself be a container.
in_podman() {
  unshare --mount --propagation private sh -c 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec podman "$@"' podman \
    "${storage[@]}" --cgroup-manager cgroupfs "$@"
}
in_podman load --quiet -i "$work/image.tar" >"$work/log" 2>&1 || { cat "$work/log"; fail "podman cannot load the image"; }
mkdir -m 777 "$work/out"
inside() {  # PODMAN'S OPTIONS -- ARGUMENT...
  local options=()
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  in_podman run --rm --network host --cgroups disabled --ulimit nofile=512:512 --ulimit nproc=4000:4000 --volume "$work/out:/out" \
    "${options[@]}" "localhost/engine:$version" "$@" >"$work/log" 2>&1
}
train=(train --model mlp --dataset glyphs --spawn 2 --threads 1 --steps 20 --limit 2000)
inside -- version || {
  grep -qi 'operation not permitted\|permission denied' "$work/log" && skip "the kernel allows no containers: $(tail -n 1 "$work/log")"
  cat "$work/log"
  fail "the program does not start"
}
grep -qx "engine $version" "$work/log" || fail "engine version says $(cat "$work/log")"
inside -- "${train[@]}" --save-dir /out/own || { cat "$work/log"; fail "the program does not train"; }
[ "$(stat -c %u "$work/out/own/run.json")" = 10001 ] || fail "the run does not belong to user 10001"

# As clusters run it: nothing can be written but the volume and 64 MiB of /dev/shm, as a user without an entry in /etc/passwd.
strict=(--read-only --read-only-tmpfs=false --user 20000:20000 --shm-size 64m)
for backend in shm socket gloo zmq; do
  inside "${strict[@]}" -- "${train[@]}" --backend "$backend" --save-dir "/out/$backend" --save-rank-models ||
    { cat "$work/log"; fail "$backend does not train with a read-only root as user 20000"; }
  inside "${strict[@]}" -- verify "/out/$backend"/final_model_rank_{0,1}.ckpt || { cat "$work/log"; fail "the two ranks' models differ"; }
done
[ "$(stat -c %u "$work/out/shm/run.json")" = 20000 ] || fail "the run does not belong to user 20000"
inside "${strict[@]}" -- "${train[@]}" --elastic || { cat "$work/log"; fail "an elastic job does not train with a read-only root"; }
# More parameters than the shared memory has bytes for in 4 ranks.
inside "${strict[@]}" -- train --model resnet18-cifar --dataset synthetic --synthetic-shape 32x32x3 --synthetic-size 64 --batch-size 8 \
  --spawn 4 --threads 1 --steps 1 --backend shm || { cat "$work/log"; fail "a large model does not train with 64 MiB of shared memory"; }
echo "the image has $mib MiB, and trains, also with a read-only root, 64 MiB of shared memory and as another user"
