#!/usr/bin/env bash
# Packs a build with tools/scripts/bundle.sh and runs what was packed elsewhere: no variables, and (as root) no build and source tree.
#
# Usage: tests/scripts/bundle_test.sh BUILD_FOLDER
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "bundle_test: $*"; exit 1; }

# A release bundle has machine code for what this nvcc knows.
mkdir -p "$work/played" "$work/tree/tools"
cp -r "$root/tools/scripts" "$work/tree/tools/"
printf '#!/bin/sh\necho "$@" >"%s/configured"\nexit 1\n' "$work" >"$work/played/cmake"
configured_with() {  # RELEASE_OF_NVCC OPTION...
  printf '#!/bin/sh\necho "Cuda compilation tools, release %s, V%s.1"\n' "$1" "$1" >"$work/played/nvcc"
  chmod +x "$work"/played/*
  shift
  ! PATH="$work/played:$PATH" CUDA_HOME="" "$work/tree/tools/scripts/bundle.sh" --no-install "$@" >/dev/null 2>&1 || fail "it did not configure"
  cat "$work/configured"
}
expect_architectures() {  # RELEASE_OF_NVCC ARCHITECTURES
  [[ "$(configured_with "$1")" = *"/build/release-bundle "*"-DENGINE_CUDA_ARCHITECTURES=$2"* ]] ||
    fail "nvcc $1, expected $2: $(cat "$work/configured")"
}
expect_architectures 13.0 '75-real;80-real;90a-real;120-real;80-virtual'
expect_architectures 12.8 '60-real;70-real;75-real;80-real;90a-real;120-real;80-virtual'
expect_architectures 12.4 '60-real;70-real;75-real;80-real;90a-real;80-virtual'
[[ "$(configured_with 13.0 --arch 90a)" = *"-DENGINE_CUDA_ARCHITECTURES=90a"* ]] || fail "--arch is not taken: $(cat "$work/configured")"

# What is packed is a copy of now: somebody may edit or commit while this runs.
tree="$work/packed"
for part in README.md CHANGELOG.md LICENSE docs models/examples tests/parity/data tests/gpu tests/peers tools/scripts; do
  mkdir -p "$tree/$(dirname "$part")"
  cp -r "$root/$part" "$tree/$part"
done
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH
pack() { "$tree/tools/scripts/bundle.sh" "${options[@]}" --output "$1"; }

options=(--no-install --from "$build")
while read -r _ program; do
  [ -x "$program" ] || { options+=(--program-only); break; }  # somebody builds single targets
done <"$build/gpu_tests.txt"
pack "$work/one.tar.gz"
sleep 1.1  # a time of today in the archive would be another one
pack "$work/two.tar.gz" >/dev/null
cmp "$work/one.tar.gz" "$work/two.tar.gz" || fail "two bundles of one build differ"

# It has to reach machines that take 64 MiB: with kernels of one architecture and zstd.
if command -v zstd >/dev/null; then
  pack "$work/one.tar.zst" >/dev/null
  size=$(stat -c %s "$work/one.tar.zst")
  echo "bundle_test: $size bytes by zstd, $(stat -c %s "$work/one.tar.gz") by gzip"
  architectures=$(sed -n 's/^ENGINE_CUDA_ARCHITECTURES:STRING=//p' "$build/CMakeCache.txt")
  case $architectures in *';'*) most=200 ;; *) most=60 ;; esac
  [ "$size" -le $((most * 1024 * 1024)) ] || fail "the bundle is larger than $most MiB"
  zstd -dc --long=28 "$work/one.tar.zst" | cmp - <(gzip -dc "$work/one.tar.gz") || fail "zstd packs something else"
fi

mkdir "$work/else where"
tar -C "$work/else where" -xzf "$work/one.tar.gz"
bundle=$(echo "$work/else where"/engine-*)
[ ! -e "$bundle/licences/MISSING" ] || fail "$(cat "$bundle/licences/MISSING")"

# What says on which drivers it runs: the name, and the file BUILD.
case $(basename "$bundle") in
  *-cuda*) grep -q "^CUDA  *${bundle##*-cuda}[.0-9]*, " "$bundle/BUILD" || fail "$(basename "$bundle"): $(cat "$bundle/BUILD")" ;;
  *-emulated) grep -q "^CUDA  *played by the CPU, " "$bundle/BUILD" || fail "$(basename "$bundle"): $(cat "$bundle/BUILD")" ;;
  *) grep -qx "CUDA  *none" "$bundle/BUILD" || fail "$(basename "$bundle"): $(cat "$bundle/BUILD")" ;;
esac

for file in man/man1/engine-train.1 completion/engine.bash completion/_engine completion/engine.fish; do
  [ -s "$bundle/share/$file" ] || fail "the bundle lacks share/$file"
done

"$root/tests/scripts/doc_pages_test.py" --links "$bundle" || fail "its documentation names files that it lacks"

# Everything but the C library comes out of the bundle.
for program in "$bundle/bin/engine" $( [ ! -f "$bundle/tests/gpu_tests.txt" ] || echo tests); do
  [ "$program" != tests ] || program="$bundle/tests/$(awk 'NR == 1 { print $2 }' "$bundle/tests/gpu_tests.txt")"
  outside=$(env -i ldd "$program" | awk '/=>/' | grep -vF "$bundle" |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv)\.so[.0-9]* ' || true)
  [ -z "$outside" ] || fail "$program takes from elsewhere: $outside"
done

cat >"$work/commands" <<'END'
set -eu
cd "$1"
bin/engine version
bin/engine version --build
bin/engine train --model mlp --dataset synthetic --synthetic-size 200 --steps 3 --spawn 2 --save-dir run --save-rank-models
bin/engine verify run/final_model_rank_0.ckpt run/final_model_rank_1.ckpt
if [ -f tests/gpu_tests.txt ]; then tests/gpu/run.sh --emulated --only 'pad_channels' --output results; fi
END
hidden() {  # nothing of the trees can be seen, where this user may hide them
  if unshare --mount mount -t tmpfs none "$work" 2>/dev/null; then
    unshare --mount bash -c 'for tree in "$1" "$2"; do [ ! -d "$tree" ] || mount -t tmpfs none "$tree"; done; cd /; shift 2; exec "$@"' \
      hide "$build" "$root" "$@"
  else
    "$@"
  fi
}
hidden env -i PATH=/usr/bin:/bin HOME="$work" bash "$work/commands" "$bundle" || fail "the bundle does not run"
echo "the bundle runs by itself"
