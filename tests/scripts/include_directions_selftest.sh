#!/usr/bin/env bash
# Shows that include_directions_test.sh finds each kind of fault: a small tree with one of each.
set -euo pipefail
checker=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/include_directions_test.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
export GIT_DIR=/nonexistent  # the files are found without git, wherever the temporary folder lies

mkdir -p "$tree/engine/core" "$tree/io/data" "$tree/other"
printf '// A good file with a purpose.\n#include "engine/core/good.h"\n' >"$tree/engine/core/good.h"
"$checker" "$tree" >/dev/null || { echo "a tree without faults was refused"; exit 1; }

expect() {  # TEXT: must be in what the checker prints
  local found
  found=$("$checker" "$tree") && { echo "no fault found, expected: $1"; exit 1; }
  grep -qF "$1" <<<"$found" || { printf 'expected: %s\nfound: %s\n' "$1" "$found"; exit 1; }
}
printf '// Looks up where it must not.\n#include "tools/x.h"\n' >"$tree/engine/core/upward.h"
expect 'engine/core/upward.h:2: engine/core/ may not include "tools/x.h"'
mkdir -p "$tree/backends/store"
printf '// Looks up within a room.\n#include "backends/compose/x.h"\n' >"$tree/backends/store/upstairs.h"
expect 'backends/store/upstairs.h:2: backends/compose/ is no floor below backends/store/'
mkdir -p "$tree/backends/attic"
printf '// Lies in a folder without a place.\n#include "backends/store.h"\n' >"$tree/backends/attic/odd.h"
expect 'backends/attic/odd.h:2: backends/attic has no place in the order of backends/'
mkdir -p "$tree/io/metrics/lines" "$tree/io/metrics/pages" "$tree/io/metrics/rows"
printf '// One half of a circle of folders.\n#include "io/metrics/pages/page.h"\n' >"$tree/io/metrics/lines/line.h"
printf '// The other half.\n#include "io/metrics/lines/row.h"\n' >"$tree/io/metrics/pages/page.h"
printf '// Closes no circle of files.\n' >"$tree/io/metrics/lines/row.h"
expect 'folders include each other: io/metrics/lines -> io/metrics/pages (io/metrics/lines/line.h:2); io/metrics/pages -> io/metrics/lines'
mkdir -p "$tree/tests/scripts"
printf 'io/metrics/pages -> io/metrics/lines\nio/metrics/pages -> io/metrics/rows\n' >"$tree/tests/scripts/include_exceptions.txt"
expect 'exception is over, remove it: io/metrics/pages -> io/metrics/rows'
[ "$("$checker" "$tree" | grep -c 'folders include each other')" = 0 ] || { echo "an exception does not hold"; exit 1; }
rm "$tree/tests/scripts/include_exceptions.txt"
printf '// Closes a circle of files.\n#include "io/metrics/lines/line.h"\n' >"$tree/io/metrics/pages/page.h"
expect 'files include each other: io/metrics/lines/line.h, io/metrics/pages/page.h'
mkdir -p "$tree/tools/api/engine" "$tree/tools/run/session"
printf '// What users include.\n#include "engine/core/good.h"\n' >"$tree/tools/api/engine/model.h"
expect 'tools/api/engine/model.h:2: a public header includes "engine/core/good.h"'
printf '// Takes what users include.\n#include "engine/model.h"\n' >"$tree/tools/run/session/user.h"
expect 'tools/run/session/user.h:2: "engine/model.h" is for users of the library'
printf '// Takes what only the library may.\n#include "tools/api/model_impl.h"\n' >"$tree/tools/run/session/inner.h"
expect "tools/run/session/inner.h:2: includes the shared library's own part, tools/api/model_impl.h"
mkdir -p "$tree/backends/relay"
printf '// Declares what another folder defines.\nint relayed(int count);\n' >"$tree/backends/store/relayed.h"
printf '// Defines it.\n#include "backends/store/relayed.h"\nint relayed(int count) {\n  return count;\n}\n' >"$tree/backends/relay/relaying.cc"
expect 'backends/store/relayed.h: declares relayed() without "// Defined in backends/relay/relaying.cc."'
printf '// Declares what another folder defines.\n// Defined in backends/relay/relaying.cc.\nint relayed(int count);\n' >"$tree/backends/store/relayed.h"
[ "$("$checker" "$tree" | grep -c 'declares relayed')" = 0 ] || { echo "a declaration that says where is refused"; exit 1; }
printf '// Includes test code.\n#include "tests/emulator/simt/x.h"\n' >"$tree/backends/store/tested.h"
expect 'backends/store/tested.h:2: includes test code, "tests/emulator/simt/x.h"'
printf '// Takes the emulator for a device.\n#include <emulated_kernel_language.h>\n' >"$tree/backends/store/emulated.h"
expect 'backends/store/emulated.h:2: only io/gpu/kernel_language.h includes the emulator'
printf 'add_subdirectory(../tests/x)\n' >"$tree/backends/CMakeLists.txt"
expect 'backends/CMakeLists.txt:1:add_subdirectory(../tests/x)   <- test code in the build of the program'
printf '// Includes from its own folder.\n#include "y.h"\n' >"$tree/io/data/relative.h"
expect 'io/data/relative.h:2: "y.h" is not written from the root'
printf '#pragma once\n' >"$tree/io/data/silent.h"
expect 'io/data/silent.h:1: the first line does not say the purpose'
printf '// A long line follows.\n//%0140d\n' 0 >"$tree/io/data/wide.cc"
expect 'io/data/wide.cc:2: 142 columns'
printf '// The same name as another file.\n' >"$tree/io/data/good.h"
expect 'io/data/good.h: the same base name as engine/core/good.h'
printf '// In a folder of its own.\n' >"$tree/other/lost.cc"
expect 'other/lost.cc: in no folder'
printf 'see /%s/x\n' wo''rk >"$tree/notes.md"
expect 'notes.md:1'
echo "finds every kind of fault"
