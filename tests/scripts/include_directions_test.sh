#!/usr/bin/env bash
# Checks the rules of the tree that no compiler checks: who may include whom, names, first lines, line lengths.
#
# Usage: tests/scripts/include_directions_test.sh [ROOT]     prints one line a fault; exits with 1 if there is any
# The folders and what each may include are those of docs/architecture.md.
set -euo pipefail
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
      allow("io/data", "io/base")
      allow("io/checkpoint", "io/base")
      allow("io/interchange", "io/base io/checkpoint")
      allow("io/metrics", "io/base")
      allow("backends", "io/base io/gpu")
      allow("engine/core", "io/base io/gpu")
      allow("engine/ops", "engine/core io/base io/gpu")
      allow("engine/layers", "engine/ops engine/core io/base")
      allow("engine/optim", "engine/ops engine/core io/base")
      allow("engine/graph", "engine/layers engine/ops engine/core io/base")
      allow("engine/averaging", "engine/optim engine/ops engine/core io/base backends/communicator.h backends/device_communicator.h backends/control_word.h")
      allow("engine/train", "engine backends io/data io/checkpoint io/base")
      allow("models", "engine/graph engine/layers engine/core io/base")
      allow("tools", "*")
      allow("tests", "*")
      allow("docs/examples", "backends")

      # Within a room: a floor includes only lower ones, and no neighbour on its own floor.
      floors("backends", "store identity membership,transport compose")
      floors("engine/ops", "common device elementwise,embedding,images,loss,pool,optim_step gemm,norm attention,conv2d")
      floors("engine/averaging", "sums policies")
      floors("io/data", "sources order loader")
      floors("tools", "report machine options manual workers run group flight,launch,onnx,session bench,doctor commands")
    }
    function floors(room, list,   i, j, levels, names) {
      split(list, levels, " ")
      for (i = 1; i in levels; ++i) {
        split(levels[i], names, ",")
        for (j = 1; j in names; ++j) { floor_of[room "/" names[j]] = i; room_of[room "/" names[j]] = room }
      }
    }
    # The sub-folder with a floor that the path lies in, or "".
    function floored(path,   parts, n, at) {
      n = split(path, parts, "/")
      at = parts[1]
      for (i = 2; i < n; ++i) { at = at "/" parts[i]; if (at in floor_of) return at }
      return ""
    }
    function allow(folder, list) { allowed[folder] = list; order[++folders] = folder }
    function within(path, prefix) { return path == prefix || index(path, prefix "/") == 1 }
    FNR == 1 {
      folder = ""
      for (i = 1; i <= folders; ++i) if (within(FILENAME, order[i])) folder = order[i]
      if (folder == "") print FILENAME ": in no folder that the table knows"
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ && folder != "" {
      match($0, /"[^"]+"/)
      path = substr($0, RSTART + 1, RLENGTH - 2)
      mine = floored(FILENAME); theirs = floored(path)
      if (theirs != "" && mine != theirs && mine != "" && room_of[mine] == room_of[theirs] && floor_of[theirs] >= floor_of[mine])
        print FILENAME ":" FNR ": " theirs "/ is no floor below " mine "/"
      if (within(path, "io/gpu/stand_in") && !within(FILENAME, "io/gpu/stand_in") && FILENAME != "io/gpu/kernel_language.h" && folder != "tests")
        print FILENAME ":" FNR ": only io/gpu/kernel_language.h includes the stand-in"
      if (path !~ /\//) { print FILENAME ":" FNR ": \"" path "\" is not written from the root of the tree"; next }
      if (within(path, folder) || allowed[folder] == "*") next
      count = split(allowed[folder], list, " ")
      good = 0
      for (i = 1; i <= count; ++i) if (within(path, list[i])) good = 1
      if (!good) print FILENAME ":" FNR ": " folder "/ may not include \"" path "\""
    }' $sources

  # Each header and source says in its first line what it is for.
  for file in $sources; do
    head -n 1 "$file" | grep -qE '^// .{10,}' || echo "$file:1: the first line does not say the purpose"
  done

  awk 'length($0) > 100 { print FILENAME ":" FNR ": " length($0) " columns; at most 100" }' $sources

  # Names of headers of CUDA are not ours to choose.
  awk -F/ '/stand_in\/include\// { next } { if ($NF in seen && $NF != "CMakeLists.txt") print $0 ": the same base name as " seen[$NF]; seen[$NF] = $0 }' <<<"$files"

  # Absolute paths of somebody's machine. Split, so that this line does not name one itself.
  grep -nE '(^|[^[:alnum:]_.])/(wo''rk|ho''me)/' $own_text /dev/null | sed 's/$/   <- a path of one machine/' || true
} >"${TMPDIR:-/tmp}/include_directions.$$"
faults=$(cat "${TMPDIR:-/tmp}/include_directions.$$")
rm -f "${TMPDIR:-/tmp}/include_directions.$$"
[ -z "$faults" ] || { printf '%s\n' "$faults"; exit 1; }
echo "$(wc -l <<<"$sources") sources keep the rules"
