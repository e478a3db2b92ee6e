#!/usr/bin/env bash
# Checks the layout of all sources (clang-format), and what changed since a commit for mistakes (clang-tidy).
#
# Usage: tests/scripts/lint.sh [--since COMMIT] [--most N]
#   --since COMMIT  clang-tidy reads the .cc files that differ from it (default: HEAD~1)
#   --most N        at most so many of them, newest changes first (default: 12; each takes some seconds)
# Exits with 1 if anything is found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
since=HEAD~1 most=12
while [ $# -gt 0 ]; do
  case $1 in
    --since) since=$2; shift ;;
    --most) most=$2; shift ;;
    *) echo "lint.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done

# clang-tidy needs a compile command for each file.
commands=build/lint
cmake --preset clang -B "$commands" -DENGINE_UNITY=OFF -DENGINE_PRECOMPILE=OFF -DENGINE_BUILD_TESTS=ON >/dev/null

status=0
git ls-files '*.cc' '*.h' '*.cu' | xargs -P "$(nproc)" -n 40 clang-format --dry-run -Werror || status=1
echo "clang-format: $(git ls-files '*.cc' '*.h' '*.cu' | wc -l) files"

mapfile -t changed < <(git diff --name-only --diff-filter=d "$since" -- '*.cc' 2>/dev/null)
known=()
for file in "${changed[@]}"; do
  grep -qF "\"$PWD/$file\"" "$commands/compile_commands.json" && known+=("$file")
done
echo "clang-tidy: ${#known[@]} changed sources, the first $most are read"
if [ ${#known[@]} -gt 0 ]; then
  printf '%s\n' "${known[@]:0:$most}" |
    xargs -P "$(nproc)" -n 1 clang-tidy -p "$commands" --quiet --warnings-as-errors='*' 2>/dev/null || status=1
fi
exit $status
