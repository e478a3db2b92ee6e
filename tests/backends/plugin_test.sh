#!/usr/bin/env bash
# The example of a backend outside the tree (docs/examples/file-backend): the conformance checks with 2, 3 and 4 ranks, and training
# with it by its name, in the folder lib/engine beside that of the program.
#
# Usage: tests/backends/plugin_test.sh CONFORMANCE_TEST ENGINE PLUGIN
set -euo pipefail
program=$(realpath "$1") engine=$(realpath "$2") plugin=$(realpath "$3")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export ENGINE_FILES_FOLDER="$folder"
for ranks in 2 3 4; do
  export ENGINE_TEST_BACKEND="$plugin" ENGINE_TEST_WORLD_SIZE=$ranks ENGINE_TEST_FOLDER="$folder/ranks$ranks"
  mkdir "$ENGINE_TEST_FOLDER"
  for ((rank = 0; rank < ranks; rank++)); do
    ENGINE_TEST_RANK=$rank timeout 120 "$program" --gtest_filter="*external*" >"$ENGINE_TEST_FOLDER/out.$rank" 2>&1 &
  done
  wait
  for out in "$ENGINE_TEST_FOLDER"/out.*; do
    passed=$(grep -oP '\[  PASSED  \] \K[0-9]+' "$out") || passed=0
    ! grep -q '\[  FAILED  \]' "$out" && [ "$passed" -ge 7 ] || { tail -n 30 "$out" | cut -c1-500; echo "$ranks ranks: $out"; exit 1; }
  done
  echo "$ranks ranks: $passed conformance tests passed on each"
done
unset ENGINE_TEST_BACKEND ENGINE_TEST_WORLD_SIZE ENGINE_TEST_FOLDER

export ENGINE_FILES_FOLDER="$folder/exchange"
mkdir -p "$ENGINE_FILES_FOLDER" "$folder/prefix/bin" "$folder/prefix/lib/engine"
cp "$engine" "$folder/prefix/bin/"
train() {
  timeout 60 "$folder/prefix/bin/engine" train --backend files --spawn 2 --model mlp --dataset synthetic --synthetic-shape 8x8x1 \
    --steps 10 --threads 1 >"$folder/train" 2>&1
}
! train || { echo "trained without the plug-in"; exit 1; }
grep -q "no plug-in .*/prefix/bin/libengine_files.so or .*/prefix/lib/engine/libengine_files.so" "$folder/train" ||
  { cut -c1-500 "$folder/train"; echo "the error does not name the searched paths"; exit 1; }
cp "$plugin" "$folder/prefix/lib/engine/libengine_files.so"
train && grep -q '| backend files ' "$folder/train" || { cut -c1-500 "$folder/train"; echo "no training by the plug-in"; exit 1; }
[ -z "$(ls "$ENGINE_FILES_FOLDER")" ] || { find "$ENGINE_FILES_FOLDER"; echo "files remain"; exit 1; }
echo "trained by --backend files, which left no files"
