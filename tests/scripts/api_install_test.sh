#!/usr/bin/env bash
# Installs the library and its headers into an empty folder, compiles the examples against nothing but that, and runs them.
#
# Usage: tests/scripts/api_install_test.sh BUILD_FOLDER [CXX_COMPILER]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$1" && pwd)
compiler=${2:-c++}
work=$(mktemp -d "${TMPDIR:-/tmp}/engine-api.XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() { echo "api_install_test: $*"; exit 1; }

prefix="$work/a prefix"
for component in library development; do
  cmake --install "$build" --prefix "$prefix" --component $component >"$work/log" || { cat "$work/log"; fail "installing failed"; }
done
[ ! -e "$prefix/bin" ] || fail "the program is in component development"
grep -rl "$root" "$prefix/lib/cmake" && fail "the installed package names the source tree"

# The library exports the interface and nothing else, and needs nothing of the build.
library=$(readlink -f "$prefix/lib/libengine.so")
nm --dynamic --defined-only --demangle "$library" | sed 's/^[0-9a-f]* //' >"$work/symbols"
[ -s "$work/symbols" ] || fail "the library exports nothing"
foreign=$(grep -vE '^A ENGINE_|^[A-Z] ((typeinfo|typeinfo name|vtable) for )?engine::api::' "$work/symbols" || true)
[ -z "$foreign" ] || fail "the library exports more than the interface: $(head -n 3 <<<"$foreign")"
readelf --dynamic "$library" | grep -E 'R(UN)?PATH' && fail "the installed library looks for others in a folder of the build"
# An empty entry is the current folder: whoever can write there could give the library's programs others of its libraries.
for built in "$build/tools/engine" "$build/tools/api/libengine.so"; do
  path=$(readelf --dynamic "$built" | sed -nE 's/.*R(UN)?PATH.*\[(.*)\]/\2/p')
  case ":$path:" in *::*) [ -z "$path" ] || fail "$built looks for libraries in the current folder: '$path'" ;; esac
done

# Each header stands alone, in the strictest terms.
for header in "$prefix"/include/engine/*.h; do
  echo "#include <engine/$(basename "$header")>" >"$work/alone.cc"
  "$compiler" -std=c++20 -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror -fsyntax-only -isystem /nonexistent \
    -I"$prefix/include" "$work/alone.cc" || fail "$(basename "$header") does not compile by itself"
done

cp -r "$prefix/share/doc/engine-dev/examples" "$work/examples"
cmake -S "$work/examples" -B "$work/build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wpedantic -Werror -fvisibility=hidden" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" ||
  { cat "$work/log"; fail "the examples cannot be configured"; }
grep -q "^engine_DIR:PATH=$prefix/" "$work/build/CMakeCache.txt" || fail "another engine was found: $(grep '^engine_DIR' "$work/build/CMakeCache.txt")"
cmake --build "$work/build" >"$work/log" || { cat "$work/log"; fail "the examples do not compile"; }
# A version that the package does not have is refused.
sed -i 's/find_package(engine 0.2/find_package(engine 0.99/' "$work/examples/CMakeLists.txt"
cmake -S "$work/examples" -B "$work/other" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 &&
  fail "version 0.99 was found"
grep -q '0\.99' "$work/log" || { cat "$work/log"; fail "nothing is said of version 0.99"; }

export CUDA_VISIBLE_DEVICES=
"$work/build/train_mlp" >"$work/out" || fail "train_mlp failed"
grep -q '^epoch 10: accuracy 0\.9' "$work/out" || { cat "$work/out"; fail "train_mlp has not learned"; }
grep -q '^(0.1, 0.2) lies inside$' "$work/out" || { cat "$work/out"; fail "train_mlp predicts wrongly"; }

code=0
"$work/build/train_mlp" gpu 2>"$work/err" || code=$?
[ "$code" = 78 ] && grep -q "'gpu'" "$work/err" || fail "train_mlp on device gpu ends with $code, expected 78: $(cat "$work/err")"

RANK=1 WORLD_SIZE=2 "$work/build/estimate_pi" "file://$work/meeting" >"$work/out.1" &
other=$!
RANK=0 WORLD_SIZE=2 "$work/build/estimate_pi" "file://$work/meeting" >"$work/out" || fail "estimate_pi failed"
wait $other || fail "rank 1 of estimate_pi failed"
[ ! -s "$work/out.1" ] || fail "rank 1 prints, too"
grep -q '^pi is about 3\.14.* (2 ranks over ' "$work/out" || { cat "$work/out"; fail "estimate_pi is wrong"; }

# An error ends with one line and its code.
code=0
RANK=2 WORLD_SIZE=2 "$work/build/estimate_pi" 2>"$work/err" || code=$?
[ "$code" = 78 ] || fail "rank 2 of 2 ends with $code, expected 78: $(cat "$work/err")"
[ "$(wc -l <"$work/err")" = 1 ] || fail "more than a line: $(cat "$work/err")"
echo "both examples run on the installed library"
