#!/usr/bin/env bash
# Packs a build into one archive that runs where it is unpacked, on machines that can install nothing: the program, the shared
# libraries it needs beside the C library with their licences, the tests of label gpu, tests/gpu/run.sh, examples,
# manual pages, completion.
#
# Usage: tools/scripts/bundle.sh [OPTIONS]
#   --preset NAME    what to build: release (default), emulated, ...
#   --from DIR       pack this build as it is, instead of building one
#   --program-only   without tests
#   --arch A         kernels for these architectures alone (90a), built in build/PRESET-A: smaller, and sooner compiled. By default
#                    a release has those of kernel_architectures() in lib.sh, in build/PRESET-bundle
#   --cuda HOME      by the CUDA toolkit in this folder (/usr/local/cuda-12.9), built in build/PRESET-cuda12: a bundle for drivers
#                    of that CUDA; the default is the newest one's, or what CUDA_HOME names
#   --output FILE    where to write (default: build/engine-VERSION-linux-ARCHITECTURE[-cuda13].tar.gz). A name that ends with .tar.zst
#                    packs with zstd: each test carries all kernels, and zstd writes them once: a third of the size
#   --no-install     take the packages as they are
# The machine that runs it needs no CUDA, and for GPUs a driver. Its C library must be as new as the file BUILD says: as the building
# machine's, or 2.28 for the build of tools/scripts/release.sh, which has all other libraries inside the program. The same build
# gives the same bytes: SOURCE_DATE_EPOCH is the date of all files, by default that of the last commit.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

preset=release arch="" toolkit="" build="" output="" tests=yes install=yes
while [ $# -gt 0 ]; do
  case $1 in
    --preset | --from | --output | --arch | --cuda) [ $# -ge 2 ] || fail "$1 needs a value (see --help)" ;;&
    --preset) preset=$2; shift ;;
    --from) build=$2; shift ;;
    --arch) arch=$2; shift ;;
    --cuda) toolkit=$2; shift ;;
    --output) output=$2; shift ;;
    --program-only) tests=no ;;
    --no-install) install=no ;;
    -h | --help) usage; exit 0 ;;
    *) fail "unknown option $1 (see --help)" ;;
  esac
  shift
done
if [ "$install" = yes ]; then
  step "Packages"
  packages=(--for bundle)
  [ "$tests" = no ] || [ -n "$build" ] || packages+=(--tests)
  "$root/tools/scripts/install_dependencies.sh" "${packages[@]}"
fi
for tool in strip readelf $([[ $output != *.zst ]] || echo zstd); do
  command -v "$tool" >/dev/null || fail "$tool is missing: tools/scripts/install_dependencies.sh --for bundle installs it"
done
if [ -z "$build" ]; then
  options=(-DENGINE_CPU_KERNELS=all)  # quickstart.sh may have chosen less
  folder="$root/build/$preset${arch:+-${arch//[^a-z0-9-]/_}}"
  if [ -z "$arch" ] && [ "$preset" = release ]; then
    nvcc=$(PATH="${toolkit:-${CUDA_HOME:-/nowhere}}/bin:$PATH:/usr/local/cuda/bin" command -v nvcc || true)
    if [ -n "$nvcc" ]; then
      arch=$(kernel_architectures "$nvcc")
      folder="$root/build/$preset-bundle"
    fi
  fi
  [ -z "$arch" ] || options+=("-DENGINE_CUDA_ARCHITECTURES=$arch")
  if [ -n "$toolkit" ]; then
    release=$("$toolkit/bin/nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p') || fail "no nvcc in $toolkit/bin"
    folder+="-cuda$release"
    export CUDA_HOME="$toolkit" CUDACXX="$toolkit/bin/nvcc"
    options+=(-DENGINE_WITH_CUDA=ON "-DCUDAToolkit_ROOT=$toolkit")
  fi
  if [ "$tests" = yes ]; then
    build_folder="$folder" configure_and_build "$preset" gpu_tests -DENGINE_BUILD_TESTS=ON "${options[@]}"
  else
    build_folder="$folder" configure_and_build "$preset" engine "${options[@]}"
  fi
  build="$folder"
fi
program="$build/tools/engine"
[ -x "$program" ] || fail "no program in $build: build it first (tools/scripts/release.sh, or cmake --build $build)"
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}"

# A program for other machines runs under the emulator that its build names, and needs that machine's strip.
IFS=';' read -r -a runner <<<"$(cached "$build" CMAKE_CROSSCOMPILING_EMULATOR)"
strip=$(cached "$build" CMAKE_STRIP)
strip_program() { install -m 755 -s --strip-program="${strip:-strip}" "$1" "$2"; }

version=$("${runner[@]}" "$program" version | awk '{ print $2 }')
cuda=$(cached "$build" ENGINE_WITH_CUDA)
flavour=""
if [ "$cuda" = EMULATED ]; then
  flavour=-emulated
elif grep -q '^CMAKE_CUDA_COMPILER:' "$build/CMakeCache.txt" && [ "$cuda" != OFF ]; then
  cuda_version=$(sed -n 's/^set(CMAKE_CUDA_COMPILER_TOOLKIT_VERSION "\(.*\)")/\1/p' "$build"/CMakeFiles/*/CMakeCUDACompiler.cmake)
  flavour=-cuda${cuda_version%%.*}
fi
name="engine-$version-linux-$(machine_of "$program")$flavour"
[ -n "$output" ] || output="$root/build/$name.tar.gz"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle="$work/$name"
mkdir -p "$bundle"/{bin,licences}

step "Program and tests"
strip_program "$program" "$bundle/bin/engine"
programs=("$program")
if [ "$tests" = yes ]; then
  mkdir -p "$bundle/tests/gpu"
  while read -r limit file; do
    [ -x "$file" ] || fail "$file is not built: cmake --build $build --target gpu_tests"
    strip_program "$file" "$bundle/tests/$(basename "$file")"
    echo "$limit $(basename "$file")" >>"$bundle/tests/gpu_tests.txt"
    programs+=("$file")
  done < <(grep . "$build/gpu_tests.txt")
  [ -x "$build/tests/hold_device" ] || fail "$build/tests/hold_device is not built: cmake --build $build --target gpu_tests"
  strip_program "$build/tests/hold_device" "$bundle/tests/hold_device"
  programs+=("$build/tests/hold_device")
  mkdir -p "$bundle/tests/parity" "$bundle/tests/peers"
  cp -r "$root/tests/parity/data" "$bundle/tests/parity/"
  cp "$root"/tests/gpu/*.sh "$bundle/tests/gpu/"
  cp "$root"/tests/peers/torch_{kernels,steps}.py "$bundle/tests/peers/"
fi
mkdir -p "$bundle/share/man/man1" "$bundle/share/completion"
"${runner[@]}" "$program" manual "$bundle/share/man/man1" --date "$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)"
"${runner[@]}" "$program" completion bash >"$bundle/share/completion/engine.bash"
"${runner[@]}" "$program" completion zsh >"$bundle/share/completion/_engine"
"${runner[@]}" "$program" completion fish >"$bundle/share/completion/engine.fish"
# The documentation, and the files outside it that its links name.
cp "$root/README.md" "$root/CHANGELOG.md" "$root/LICENSE" "$bundle/"
cp -r "$root/docs" "$bundle/"
ln -s docs/examples "$bundle/examples"
mkdir -p "$bundle/models" "$bundle/tools/scripts"
cp -r "$root/models/examples" "$bundle/models/"
cp "$root/tools/scripts/report_picture.sh" "$bundle/tools/scripts/"

step "Libraries"
if [ -d "$build/licences" ]; then
  cp "$build/licences"/* "$bundle/licences/"  # all libraries are inside the program: tools/scripts/release.sh has built it
else
  copy_libraries "$bundle/lib" "$bundle/licences" "" "${programs[@]}"
  programs+=("$bundle/lib"/*)
  for package in cppzmq-dev libgtest-dev; do
    copy_licence "$package" "$bundle/licences" || true  # compiled in
  done
  ls "$bundle/lib"
fi
[[ "$flavour" != -cuda* ]] || cuda_runtime_licence >"$bundle/licences/cuda-runtime"

{
  "${runner[@]}" "$program" version --build
  echo "C library    $(newest_glibc "${programs[@]}") or newer"
} | grep -v '^backend' >"$bundle/BUILD"

step "Archive"
find "$bundle" -type d -exec chmod 755 {} + -o -type f -perm -u+x -exec chmod 755 {} + -o -type f -exec chmod 644 {} +
mkdir -p "$(dirname "$output")"
tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -cf - "$name" |
  case $output in
    *.zst) zstd -q -12 --long=28 -T1 ;;  # a window of 256 MiB, over all programs
    *) gzip -9n ;;
  esac >"$output.part"
mv "$output.part" "$output"
echo "$output: $(du -h --apparent-size "$output" | cut -f1), unpacked $(du -sh --apparent-size "$bundle" | cut -f1)"
