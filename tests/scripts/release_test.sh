#!/usr/bin/env bash
# Checks what tools/scripts/release.sh has made: that archive, wheel, Debian package and container image contain the very program of
# the one file, what that needs of the system, its list of contents, and that it runs.
#
# Usage: tests/scripts/release_test.sh BUILD_FOLDER [FLAVOUR]
#   FLAVOUR  x86_64 (default), x86_64-cuda13, or aarch64, whose program runs under QEMU
# Exits with 77 (skipped) where build/release-FLAVOUR/dist has no file of this version, as making it takes as long as a build; and at
# the end where it lacks one of the others.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$1" && pwd) flavour=${2:-x86_64}
version=$(sed -n 's/^project(engine VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
dist="$root/build/release-$flavour/dist" name="engine-$version-linux-$flavour"
if [ "$flavour" = aarch64 ] && [ -x "$dist/$name" ] && [ -z "${ENGINE_UNDER_QEMU:-}" ]; then
  ENGINE_UNDER_QEMU=yes exec "$root/tests/scripts/under_qemu.sh" "$root/build/release-aarch64/system" "$0" "$@"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "release_test: $*"; exit 1; }
check() { "$root/tools/scripts/release.sh" --check "$1" >"$work/log" 2>&1; }
rejects() {  # FILE MESSAGE
  ! check "$1" || fail "$1 is accepted"
  grep -q "$2" "$work/log" || fail "$1 is rejected with: $(cat "$work/log")"
}

if [ "$flavour" = x86_64 ]; then
  # The check rejects a program of a usual build, a symbol that is too new, a program that names no library, one that
  # copies a variable of the C library, and one that exports functions of a library inside.
  rejects "$build/tools/engine" 'needs libraries beside the C library: .*libstdc++'
  ! "$root/tools/scripts/wheel.sh" --no-install --from "$build" --output "$work" >"$work/log" 2>&1 || fail "wheel.sh packs any build"
  grep -q 'needs other libraries beside it; tools/scripts/release.sh builds one' "$work/log" || fail "wheel.sh rejects $build with: $(cat "$work/log")"
  compile() { "${CC:-cc}" -x c - -o "$work/$1" "${@:2}" 2>"$work/log"; }
  if command -v "${CC:-cc}" >/dev/null; then
    compile new <<<'#include <stdlib.h>
int main(void) { return (int)arc4random(); }' && rejects "$work/new" 'asks for GLIBC_2.36, and the oldest systems have GLIBC_2.28'
    compile static -static <<<'int main(void) { return 0; }' && rejects "$work/static" 'names no library'
    compile copy -no-pie -fno-pie -nostartfiles -Wl,--entry=main <<<'#include <stdio.h>
int main(void) { return fputs("", stderr); }' && rejects "$work/copy" 'copies the variables above'
    compile exports -rdynamic -nostartfiles -Wl,--entry=main <<<'#include <stdio.h>
int hwloc_topology_init(void) { return puts(""); }
int main(void) { return 0; }' && rejects "$work/exports" 'exports the functions above'
  fi
fi

if [ ! -x "$dist/$name" ]; then
  echo "release_test: skipped: there is no $dist/$name; tools/scripts/release.sh makes it (--arch aarch64 that for ARM, --cuda HOME that with CUDA)"
  exit 77
fi
(cd "$dist" && sha256sum --check --quiet SHA256SUMS) || fail "SHA256SUMS is wrong"
check "$dist/$name" || fail "$(cat "$work/log")"
cp "$dist/$name" "$work/engine"
parts=(engine gloo zeromq3 hwloc libsodium-dev libpng-dev libjpeg62-turbo-dev libdeflate-dev libpcre2-dev libutf8proc-dev libc++)
case $flavour in
  x86_64) parts+=(libc6) artefacts="bundle wheel deb container" ;;
  x86_64-cuda*) parts+=(cuda-runtime) artefacts="bundle" ;;
  aarch64) artefacts="bundle wheel" ;;
esac
for part in "${parts[@]}"; do
  grep -q "^$part  *[0-9]" "$dist/$name.contents" || fail "the list of contents lacks $part"
  sed -n "/^==== $part ====/,/^==== .* ====/p" "$dist/$name.contents" | grep -i 'licen[sc]e\|copyright' >/dev/null || fail "the licence of $part is missing"
done

# unpack_KIND FILE: into the current folder.
unpack_bundle() { tar -xzf "$1"; }
unpack_wheel() { python3 -m zipfile -e "$1" .; }
unpack_deb() { dpkg-deb --extract "$1" .; }
unpack_container() {
  local layer
  mkdir image
  tar -C image -xf "$1"
  layer=$(python3 -c 'import json; blob = lambda d: json.load(open("image/blobs/" + d["digest"].replace(":", "/")))
print(blob(json.load(open("image/index.json"))["manifests"][0])["layers"][0]["digest"].replace(":", "/"))')
  tar -xzf "image/blobs/$layer"
}
# check_artefact KIND FILE: its programs and libraries are the one program, and in the image the C library.
check_artefact() {
  local file found=0
  mkdir "$work/$1"
  (cd "$work/$1" && "unpack_$1" "$2") || fail "$2 cannot be unpacked"
  while read -r file; do
    cmp -s <(head -c 4 "$file") <(printf '\177ELF') || continue
    case $1:/${file#"$work/$1/"} in container:/lib*/ld-linux* | container:/lib*/x86_64-linux-gnu/lib*.so.?) continue ;; esac
    cmp "$work/engine" "$file" || fail "${file#"$work/"} of $2 is not the program of the one file"
    found=$((found + 1))
  done < <(find "$work/$1" -type f -size +3c ! -path '*/image/blobs/*')
  [ "$found" -eq 1 ] || fail "$2 has the program $found times"
}
missing=()
for kind in $artefacts; do
  case $kind in
    bundle) file="$name.tar.gz" ;;
    wheel) file="engine_train-$version-py3-none-manylinux_2_28_$flavour.whl" ;;
    deb) file="engine_$version-1+glibc2.28_amd64.deb" ;;
    container) file="$name-oci.tar" ;;
  esac
  grep -q "  $file\$" "$dist/SHA256SUMS" || { missing+=("$file"); continue; }
  check_artefact "$kind" "$dist/$file"
  [ "$kind" != bundle ] || grep -qx 'C library  *2[.]2[0-8] or newer' "$work/bundle/$name/BUILD" || fail "$file: $(cat "$work/bundle/$name/BUILD")"
  [ "$kind" = deb ] || continue
  needed=$(dpkg-deb --field "$dist/$file" Depends)
  grep -qxE 'libc6 \(>= 2\.(2[0-8]|1?[0-9])\)' <<<"$needed" || fail "$file depends on $needed"
  ! command -v lintian >/dev/null || lintian --allow-root --fail-on error,warning "$dist/$file" || fail "lintian rejects $file"
done

# It runs without any variable, as the commands of the tables in the documentation.
run() { env -i HOME="$work" PATH=/usr/bin:/bin "$work/engine" "$@" >"$work/log" 2>&1 || { cat "$work/log"; fail "engine $* fails"; }; }
small=(train --model mlp --dataset glyphs --limit 2000 --steps 20 --threads 1)
[ "$flavour" != aarch64 ] || small=(train --model mlp --dataset synthetic --synthetic-size 64 --batch-size 32 --steps 2 --threads 1)
run version --build
case $flavour in
  *-cuda*)
    grep -q '^CUDA  *[0-9]' "$work/log" || fail "the program was built without CUDA: $(cat "$work/log")"
    if [ -e /dev/nvidiactl ]; then
      run "${small[@]}" --device cuda --save-dir "$work/device"
    else
      ! (run "${small[@]}" --device cuda --save-dir "$work/device") >"$work/text" || fail "--device cuda trains without a driver"
      grep -q 'no CUDA device' "$work/log" || fail "--device cuda prints: $(cat "$work/log")"
    fi ;;
esac
for backend in shm socket gloo zmq inproc; do
  run "${small[@]}" --spawn 2 --backend "$backend" --save-dir "$work/$backend" --save-rank-models
  run verify "$work/$backend/final_model_rank_0.ckpt" "$work/$backend/final_model_rank_1.ckpt"
done
run launch --nproc-per-node 2 "${small[@]}" --save-dir "$work/launched"
run "${small[@]}" --spawn 2 --elastic --save-dir "$work/elastic"
run eval "$work/elastic"
# The table and the PNG images of the tutorial, and a JPEG image.
(cd "$work" && python3 "$root/docs/examples/tutorial/make_data.py") >"$work/log" || fail "make_data.py fails: $(cat "$work/log")"
run train --model mlp --dataset csv --annotations "$work/flowers.csv" --label-column kind --epochs 1 --save-dir "$work/flowers"
run train --model resnet20-cifar --dataset images --data-dir "$work/shapes" --image-size 32 --limit 40 --batch-size 20 --steps 2 --spawn 2 \
  --sync-bn --save-dir "$work/images" --save-rank-models
run verify "$work/images/final_model_rank_0.ckpt" "$work/images/final_model_rank_1.ckpt"
cp "$root/tests/fuzz/corpus/image/image-jpeg" "$work/image.jpg"
run predict "$work/images" "$work/image.jpg"
# PCRE2 keeps a letter and a digit apart, which are one token otherwise, and utf8proc composes a letter and its accent.
python3 - "$work/tokenizer.json" <<'END'
import json, sys
shown = [b for b in range(256) if 0x21 <= b <= 0x7E or (b >= 0xA1 and b != 0xAD)]
others = [b for b in range(256) if b not in shown]
vocabulary = {chr(b if b in shown else 0x100 + others.index(b)): b for b in range(256)}
json.dump({"version": "1.0", "added_tokens": [],
           "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
           "model": {"type": "BPE", "vocab": {**vocabulary, "a1": 256}, "merges": ["a 1"]}}, open(sys.argv[1], "w"))
END
printf 'a1e\xCC\x81' >"$work/text"
run tokenize --tokenizer "$work/tokenizer.json" --separator none -o "$work/tokens" "$work/text" --val "$work/text"
ids=$(tail -c +129 "$work/tokens/train.npy" | od -An -v -tu2 | xargs)
[ "$ids" = "97 49 195 169" ] || fail "the ids of a text are $ids"

# It finds the same instruction sets as a build by another compiler.
kernels() { "$1" env | sed -n 's/^CPU kernels  *//p'; }
[ "$flavour" = aarch64 ] || [ "$(kernels "$work/engine")" = "$(kernels "$build/tools/engine")" ] ||
  fail "it finds $(kernels "$work/engine"), the usual build $(kernels "$build/tools/engine")"
if [ ${#missing[@]} -gt 0 ]; then
  echo "release_test: skipped: the program is right, but $dist has no ${missing[*]}"
  exit 77
fi
echo "the file needs the C library alone, trains over each backend, under the launcher and elastically, and makes tokens"
