#!/usr/bin/env bash
# Fetches a public data set, checks it by SHA-256 and unpacks it where `engine` finds it.
#
# Usage: tools/scripts/get_data.sh NAME [--mirror URL] [--dir DIR]
#   NAME          mnist, fashion-mnist, cifar10, tinyshakespeare, or all
#   --mirror URL  fetch URL/NAME/FILE (http, https, ftp, file) instead of the authors' or a well-known public copy
#   --dir DIR     where to put the files (default ./data/NAME); with `all`, each set in DIR/NAME
# Run again, it fetches only what is missing or damaged. Exit status: 0 complete, 1 a program or a right is missing,
# 2 wrong usage, 65 wrong checksum, 69 cannot be fetched.
set -euo pipefail
# shellcheck source=tools/scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly kSets="mnist fashion-mnist cifar10 tinyshakespeare"

log_info() { echo "get_data.sh: $*"; }

# fail_with CODE WORD...
fail_with() {
  local code=$1
  shift
  echo "get_data.sh: $*" >&2
  exit "$code"
}

# Lines of: data set, file, SHA-256.
# cifar10 names the unpacked files: a mirror keeps each as FILE.xz, the authors keep all in one archive. A mirror's test file
# may lack some images, so it has a name of its own.
readonly kChecksums="\
mnist train-images-idx3-ubyte.gz 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
mnist train-labels-idx1-ubyte.gz 3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
mnist t10k-images-idx3-ubyte.gz 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
mnist t10k-labels-idx1-ubyte.gz f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
fashion-mnist train-images-idx3-ubyte.gz 3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
fashion-mnist train-labels-idx1-ubyte.gz a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
fashion-mnist t10k-images-idx3-ubyte.gz 346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
fashion-mnist t10k-labels-idx1-ubyte.gz 67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5
tinyshakespeare input.txt 86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
cifar10 data_batch_1.bin cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5
cifar10 data_batch_2.bin a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed
cifar10 data_batch_3.bin bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67
cifar10 data_batch_4.bin 014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48
cifar10 data_batch_5.bin 755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add
cifar10-test-authors test_batch.bin 8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b
cifar10-test-mirror test_batch_9980.bin 20243591dbebc9e6ebeb9cc523dcd7efb3fbf00c08e71be49991b16db4157819
cifar10-archive cifar-10-binary.tar.gz c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"

upstream() {
  case $1 in
    mnist) echo https://ossci-datasets.s3.amazonaws.com/mnist ;;
    fashion-mnist) echo http://fashion-mnist.s3-website.eu-central-1.amazonaws.com ;;
    cifar10) echo https://www.cs.toronto.edu/~kriz ;;
    tinyshakespeare) echo https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare ;;
  esac
}

# require PROGRAM PACKAGE
require() { command -v "$1" >/dev/null || fail_with 1 "$1 is missing: install it (Debian: apt-get install $2)"; }

# fetch URL FILE: whatever the protocol; gives up when nothing arrives for half a minute.
fetch() {
  local url=$1 file=$2 reason
  log_info "fetching $url"
  if [[ $url == file://* ]]; then
    reason=$({ cat -- "${url#file://}" >"$file"; } 2>&1) || fail_with 69 "cannot fetch $url: $reason"
  elif command -v curl >/dev/null; then
    reason=$(curl -fsSL --retry 2 --connect-timeout 20 --speed-limit 1 --speed-time 30 -o "$file" -- "$url" 2>&1) ||
      fail_with 69 "cannot fetch $url: $reason; try again or name another --mirror"
  elif command -v wget >/dev/null; then
    reason=$(wget -nv --tries=3 --timeout=30 -O "$file" -- "$url" 2>&1) ||
      fail_with 69 "cannot fetch $url: ${reason//$'\n'/ }; try again or name another --mirror"
  else
    fail_with 1 "curl and wget are missing: install one of them (Debian: apt-get install curl)"
  fi
}

# Everything is made under this folder beside its goal and moved when right: what has a final name is whole.
scratch=""
trap '[[ -z $scratch ]] || rm -rf -- "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
open_scratch() {
  mkdir -p -- "$1" 2>/dev/null || fail_with 1 "cannot create the folder $1"
  scratch=$(mktemp -d -- "$1/.get_data.XXXXXX" 2>/dev/null) || fail_with 1 "cannot write to the folder $1"
}
close_scratch() {
  rm -rf -- "$scratch"
  scratch=""
}

sha256_of() { sha256sum -- "$1" | cut -d ' ' -f 1; }

# missing_files SET DIR: "FILE SHA256" of each file of the set that is not there or not right.
missing_files() {
  local set file sum
  while read -r set file sum; do
    [ "$set" = "$1" ] || continue
    [ -f "$2/$file" ] && [ "$(sha256_of "$2/$file")" = "$sum" ] || echo "$file $sum"
  done <<<"$kChecksums"
}

# check FILE SHA256 ORIGIN
check() {
  local found
  found=$(sha256_of "$1")
  [ "$found" = "$2" ] || fail_with 65 "$3: wrong SHA-256 of $(basename "$1"): found $found, expected $2; it was not kept"
}

# The three ways to get files: from BASE into $scratch, and from there, checked, into DIR.
# Arguments: BASE DIR. Standard input: lines of missing_files.
get_plain() {
  local file sum
  while read -r file sum; do
    fetch "$1/$file" "$scratch/$file"
    check "$scratch/$file" "$sum" "$1/$file"
    mv -f -- "$scratch/$file" "$2/$file"
  done
}

get_packed() {
  local file sum
  require xz xz-utils
  while read -r file sum; do
    fetch "$1/$file.xz" "$scratch/$file.xz"
    log_info "unpacking $file.xz"
    xz -dc -- "$scratch/$file.xz" >"$scratch/$file" 2>/dev/null || fail_with 65 "$1/$file.xz: xz cannot unpack it; it was not kept"
    check "$scratch/$file" "$sum" "$1/$file.xz"
    mv -f -- "$scratch/$file" "$2/$file"
    rm -- "$scratch/$file.xz"
  done
}

get_archived() {
  local archive archive_sum file sum
  require tar tar
  require gzip gzip
  read -r archive archive_sum < <(missing_files cifar10-archive "$scratch")
  fetch "$1/$archive" "$scratch/$archive"
  check "$scratch/$archive" "$archive_sum" "$1/$archive"
  log_info "unpacking $archive"
  tar -xzf "$scratch/$archive" -C "$scratch" --strip-components=1 || fail_with 65 "$1/$archive: tar cannot unpack it"
  while read -r file sum; do
    [ -f "$scratch/$file" ] || fail_with 65 "$1/$archive: $file is not in it"
    check "$scratch/$file" "$sum" "$1/$archive"
    mv -f -- "$scratch/$file" "$2/$file"
  done
}

# Like missing_files, for cifar10 with its test file: the authors' and the mirror's both will do, and the two
# together would count images twice.
missing_cifar10() {
  local authors mirrors
  missing_files cifar10 "$1"
  authors=$(missing_files cifar10-test-authors "$1")
  mirrors=$(missing_files cifar10-test-mirror "$1")
  if [ -n "$authors" ] && [ -n "$mirrors" ]; then
    [ -z "$mirror" ] && echo "$authors" || echo "$mirrors"
  fi
}

get_set() {
  local name=$1 dir=$2 base way=get_plain missing
  [ -n "$mirror" ] && base=${mirror%/}/$name || base=$(upstream "$name")
  if [ "$name" = cifar10 ]; then
    missing=$(missing_cifar10 "$dir")
    [ -n "$mirror" ] && way=get_packed || way=get_archived
  else
    missing=$(missing_files "$name" "$dir")
  fi
  if [ -n "$missing" ]; then
    open_scratch "$dir"
    "$way" "$base" "$dir" <<<"$missing"
    close_scratch
  fi
  log_info "$name is complete in $dir"
}

wrong_usage() { fail_with 2 "$* (see --help)"; }

name="" mirror="" dir=""
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --mirror | --dir) [ -n "${2:-}" ] || wrong_usage "$1 needs a value" ;;&
    --mirror) mirror=$2; shift ;;
    --dir) dir=$2; shift ;;
    -*) wrong_usage "unknown option $1" ;;
    *) [ -z "$name" ] || wrong_usage "one name at a time, not $name and $1"; name=$1 ;;
  esac
  shift
done
[ -n "$name" ] || wrong_usage "which data set? One of: $kSets all"
require sha256sum coreutils

if [ "$name" = all ]; then
  for set in $kSets; do get_set "$set" "${dir:-./data}/$set"; done
elif [[ " $kSets " = *" $name "* ]]; then
  get_set "$name" "${dir:-./data/$name}"
else
  wrong_usage "unknown data set $name; known: $kSets all"
fi
