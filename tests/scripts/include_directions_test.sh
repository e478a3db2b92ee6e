#!/usr/bin/env bash
# Checks the rules of the tree that no compiler checks: who may include whom, names, first lines, line lengths.
#
# Usage: tests/scripts/include_directions_test.sh [ROOT]     prints one line a fault; exits with 1 if there is any
# The folders and what each may include are those of docs/architecture.md. Between sub-folders: include_folders.py.
set -euo pipefail
folders=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/include_folders.py
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"

# Tracked files and new ones that are not ignored; without git (an unpacked archive) all but build folders.
files=$( (git ls-files --cached --others --exclude-standard 2>/dev/null || find . -name 'build*' -prune -o -type f -printf '%P\n') |
  while read -r file; do [ ! -f "$file" ] || echo "$file"; done | sort -u)
sources=$(grep -E '\.(h|cc|cu|cuh)$' <<<"$files")
own_text=$(grep -vE '^(LICENSE|tests/parity/data/)|\.(gz|npz|pth|safetensors|ckpt|png)$' <<<"$files")

# shellcheck disable=SC2086
{
  # Longest prefix first: FOLDER: prefixes it may include, beside itself. tools and tests may include everything.
  awk '
    BEGIN {
      allow("io/base", "")
      allow("io/gpu", "io/base")
      allow("io/data", "io/base io/interchange io/checkpoint")
      allow("io/checkpoint", "io/base")
      allow("io/interchange", "io/base io/checkpoint")
      allow("io/metrics", "io/base")
      allow("io/tokenizer", "io/base")
      allow("backends", "io/base io/gpu")
      allow("engine/core", "io/base io/gpu")
      allow("engine/ops", "engine/core io/base io/gpu")
      allow("engine/layers", "engine/ops engine/core io/base")
      allow("engine/optim", "engine/ops engine/core io/base")
      allow("engine/graph", "engine/layers engine/ops engine/core io/base")
      allow("engine/averaging", "engine/optim engine/ops engine/core io/base backends/communicator.h backends/device_communicator.h backends/control_word.h")
      allow("engine/train", "engine backends io/data io/checkpoint io/base")
      below_train = "engine/averaging engine/optim engine/graph engine/layers engine/ops engine/core backends io/checkpoint io/base"
      allow("engine/train/step", below_train " io/data")
      allow("engine/train/replicas", below_train)
      allow("engine/train/saving", below_train " engine/train/replicas io/data/order")
      allow("engine/train/checks", below_train " engine/train/replicas engine/train/saving engine/train/step")
      allow("models", "engine/graph engine/layers engine/core io/interchange io/checkpoint io/base")
      allow("tools", "*")
      allow("tests", "*")
      allow("docs/examples", "backends")

    }
    function allow(folder, list) { allowed[folder] = list; order[++folders] = folder }
    function within(path, prefix) { return path == prefix || index(path, prefix "/") == 1 }
    FNR == 1 {
      folder = ""
      for (i = 1; i <= folders; ++i) if (within(FILENAME, order[i])) folder = order[i]
      if (folder == "") print FILENAME ": in no folder that the table knows"
    }
    # The emulator of the GPU has headers by the names of CUDA, which are those of CUDA elsewhere, and one of its own.
    /^[ \t]*#[ \t]*include[ \t]*<emulated_/ && FILENAME != "io/gpu/kernel_language.h" {
      print FILENAME ":" FNR ": only io/gpu/kernel_language.h includes the emulator"
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ && folder != "" {
      match($0, /"[^"]+"/)
      path = substr($0, RSTART + 1, RLENGTH - 2)
      if (within(path, "tests") && folder != "tests")
        print FILENAME ":" FNR ": includes test code, \"" path "\""
      if (path !~ /\//) { print FILENAME ":" FNR ": \"" path "\" is not written from the root of the tree"; next }
      if (within(path, folder) || allowed[folder] == "*") next
      count = split(allowed[folder], list, " ")
      good = 0
      for (i = 1; i <= count; ++i) if (within(path, list[i])) good = 1
      if (!good) print FILENAME ":" FNR ": " folder "/ may not include \"" path "\""
    }' $sources

  # Between the folders of a layer: order, circles, public headers.
  between=$(python3 "$folders" <<<"$sources") || echo "$between"

  # Each header says in its first line what it is for, and so does a source without a header.
  for file in $sources; do
    case $file in *.cc | *.cu) [ -f "${file%.*}.h" ] && continue ;; esac
    IFS= read -r line <"$file" || true  # not a process for each file
    [[ $line =~ ^//\ .{10,} ]] || echo "$file:1: the first line does not say the purpose"
  done

  awk 'length($0) > 100 { print FILENAME ":" FNR ": " length($0) " columns; at most 100" }' $sources

  # Names of headers of CUDA are not ours to choose.
  awk -F/ '/emulator\/include\/(cuda|nccl)/ { next } { if ($NF in seen && $NF != "CMakeLists.txt") print $0 ": the same base name as " seen[$NF]; seen[$NF] = $0 }' <<<"$files"

  # The build of the program takes in one folder of test code, and only where it is asked to.
  # shellcheck disable=SC2016
  builds=$(grep -E '^(CMakeLists.txt|(backends|engine|io|models|tools)/(.*/)?(CMakeLists.txt|[^/]*[.]cmake))$' <<<"$files" || true)
  [ -z "$builds" ] || grep -nE '^[^#]*\btests/' $builds /dev/null |
    grep -vE '^tools/cmake/Dependencies.cmake:[0-9]+:  add_subdirectory\("\$\{PROJECT_SOURCE_DIR\}/tests/emulator"' |
    sed 's/$/   <- test code in the build of the program/' || true

  # Absolute paths of somebody's machine. Split, so that this line does not name one itself.
  grep -nE '(^|[^[:alnum:]_.])/(wo''rk|ho''me)/' $own_text /dev/null | sed 's/$/   <- a path of one machine/' || true
} >"${TMPDIR:-/tmp}/include_directions.$$"
faults=$(cat "${TMPDIR:-/tmp}/include_directions.$$")
rm -f "${TMPDIR:-/tmp}/include_directions.$$"
[ -z "$faults" ] || { printf '%s\n' "$faults"; exit 1; }
echo "$(wc -l <<<"$sources") sources keep the rules"
echo "$between"
