#!/usr/bin/env bash
# Builds the backend of torch.distributed (docs/pytorch.md) and packs it as a Python wheel for one version of Python and PyTorch: after
# `pip install FILE`, init_process_group("engine") works in any script.
#
# Usage: tools/scripts/torch_wheel.sh [OPTIONS]
#   --python PYTHON  the Python whose PyTorch to build for (default: python3)
#   --from DIR       pack the library of this build, instead of building one without optional libraries in build/torch-wheel
#   --output DIR     where to write engine_torch-VERSION-cpXY-cpXY-linux_MACHINE.whl (default: build)
#   --no-install     take the packages as they are
# The wheel contains the library and those that it needs, but not the C and C++ libraries, which must be as new as this machine's.
# The same build gives the same bytes (SOURCE_DATE_EPOCH, by default the date of the last commit).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

python=python3 build="" output="$root/build" install=yes
while [ $# -gt 0 ]; do
  case $1 in
    --python | --from | --output) [ $# -ge 2 ] || fail "$1 needs a value (see --help)" ;;&
    --python) python=$2; shift ;;
    --from) build=$2; shift ;;
    --output) output=$2; shift ;;
    --no-install) install=no ;;
    -h | --help) usage; exit 0 ;;
    *) fail "unknown option $1 (see --help)" ;;
  esac
  shift
done
if [ "$install" = yes ]; then
  step "Packages"
  "$root/tools/scripts/install_dependencies.sh" --for wheel
fi
for tool in strip zip readelf openssl cmake; do
  command -v "$tool" >/dev/null || fail "$tool is missing: tools/scripts/install_dependencies.sh --for wheel installs it"
done
python=$("$python" -c 'import sys; print(sys.executable)') || fail "$python does not run: expected a Python; give --python PYTHON"
# For 3.11 and 2.15: cp311 linux_x86_64 2.15 2.16, and the folder of PyTorch's licences.
found=$("$python" -c '
import importlib.metadata, sys, sysconfig, torch
major, minor = torch.__version__.split(".")[:2]
print("cp%d%d" % sys.version_info[:2], sysconfig.get_platform().replace("-", "_"), f"{major}.{minor}", f"{major}.{int(minor) + 1}",
      importlib.metadata.distribution("torch")._path)') ||
  fail "$python has no PyTorch: expected one with torch; give --python PYTHON"
read -r tag platform torch next_torch torch_info <<<"$found"
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH

if [ -z "$build" ]; then
  build="$root/build/torch-wheel"
  build_folder="$build" configure_and_build minimal engine_api -DENGINE_CPU_KERNELS=all -DENGINE_BUILD_TESTS=OFF
fi
[ -f "$build/tools/api/libengine.so" ] || fail "no library in $build: build it first (cmake --build $build --target engine_api)"
build=$(cd "$build" && pwd)
step "Building $build/torch for $tag and PyTorch $torch"
rm -f "$build/torch/CMakeCache.txt"  # it may be of another Python
cmake -S "$root/tools/api/torch" -B "$build/torch" "-DENGINE_BUILD=$build" "-DPython3_EXECUTABLE=$python" \
  >"$build/torch_configure.log" 2>&1 || { cat "$build/torch_configure.log" >&2; fail "CMake could not configure the backend (see above)"; }
cmake --build "$build/torch" --parallel "$(build_jobs)" || fail "the build in $build/torch failed"

step "Wheel"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^project(engine VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
tree="$work/wheel" info="engine_torch-$version.dist-info"
licences="$tree/$info/licenses"
mkdir -p "$licences"
cmake --install "$build/torch" --prefix "$tree" --strip >/dev/null
cmake --install "$build" --prefix "$work/library" --component library --strip >/dev/null
library=$(echo "$work"/library/lib*/libengine.so.?)
install -m 644 "$(readlink -f "$library")" "$tree/engine_torch/$(basename "$library")"
copy_libraries "$tree/engine_torch" "$licences/compiled-in" 'libstdc\+\+\.so\.6|libgcc_s\.so\.1' "$library"
cp "$root/LICENSE" "$licences/"
while read -r name file; do  # headers are compiled in
  cp "$torch_info/licenses/$file" "$licences/compiled-in/$name" || echo "no licence found for $name" | tee -a "$licences/compiled-in/MISSING"
done <<<"torch LICENSE
pybind11 third_party/pybind11/LICENSE"
find "$tree" -type f -exec chmod 644 {} +

cat >"$tree/$info/METADATA" <<EOF
Metadata-Version: 2.1
Name: engine-torch
Version: $version
Summary: Backend "engine" of torch.distributed: shared memory within a host, authenticated connections between hosts
License: MIT
Requires-Python: ==3.${tag#cp3}.*
Requires-Dist: torch>=$torch,<$next_torch
Classifier: Operating System :: POSIX :: Linux
EOF
cat >"$tree/$info/entry_points.txt" <<EOF
[torch.backends]
engine = engine_torch:register
EOF
cat >"$tree/$info/WHEEL" <<EOF
Wheel-Version: 1.0
Generator: tools/scripts/torch_wheel.sh
Root-Is-Purelib: false
Tag: $tag-$tag-$platform
EOF
pack_wheel "$tree" "$info" "$output/engine_torch-$version-$tag-$tag-$platform.whl"
