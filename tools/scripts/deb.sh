#!/usr/bin/env bash
# Makes the Debian packages of a build, with CPack: engine (program, manual pages, completion, documentation), libengine0
# (the shared library) and engine-dev (headers, CMake's package, examples).
#
# Usage: tools/scripts/deb.sh [OPTIONS]
#   --preset NAME   what to build: release (default), minimal, ...
#   --from DIR      package this build as it is, instead of building one
#   --program-only  the package engine alone
#   --output DIR    where to write NAME_VERSION_ARCHITECTURE.deb (default: build)
#   --no-install    take the packages as they are
# Their version is that of project() in CMakeLists.txt. They depend on the libraries that program and library were linked with, as
# dpkg-shlibdeps finds them. -DENGINE_MAINTAINER="NAME <ADDRESS>" at configuration says who answers for them.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

preset=release build="" output="$root/build" install=yes library=yes
while [ $# -gt 0 ]; do
  case $1 in
    --preset | --from | --output) [ $# -ge 2 ] || fail "$1 needs a value (see --help)" ;;&
    --preset) preset=$2; shift ;;
    --from) build=$2; shift ;;
    --output) output=$2; shift ;;
    --program-only) library=no ;;
    --no-install) install=no ;;
    -h | --help) usage; exit 0 ;;
    *) fail "unknown option $1 (see --help)" ;;
  esac
  shift
done
if [ "$install" = yes ]; then
  step "Packages"
  "$root/tools/scripts/install_dependencies.sh" --for deb
fi
for tool in cpack dpkg-deb dpkg-shlibdeps file; do
  command -v "$tool" >/dev/null || fail "$tool is missing: tools/scripts/install_dependencies.sh --for deb installs it"
done
if [ -z "$build" ]; then
  configure_and_build "$preset" "engine manual$([ "$library" = no ] || echo " engine_api")" -DENGINE_CPU_KERNELS=all  # quickstart.sh may have chosen less
  build="$root/build/$preset"
fi
[ -x "$build/tools/engine" ] || fail "no program in $build: build it first (cmake --build $build)"
[ "$library" = no ] || [ -e "$build/tools/api/libengine.so" ] || fail "no library in $build: build it first (cmake --build $build --target engine_api)"
[ -f "$build/manual.stamp" ] || fail "no manual pages in $build: build them first (cmake --build $build --target manual)"
! grep -q '^ENGINE_WITH_CUDA:STRING=EMULATED' "$build/CMakeCache.txt" ||
  fail "$build emulates a GPU, for tests: package another build"
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}"

step "Debian packages"
mkdir -p "$output"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
components=()
[ "$library" = yes ] || components=(-D "CPACK_COMPONENTS_ALL=program;debian")
(umask 022 && cpack "${components[@]}" --config "$build/CPackConfig.cmake" -G DEB -B "$work") >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "CPack failed (see above)"; }
for package in "$work"/*.deb; do
  mv "$package" "$output/"
  echo "$output/$(basename "$package"): $(du -h --apparent-size "$output/$(basename "$package")" | cut -f1)"
done
