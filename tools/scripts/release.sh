#!/usr/bin/env bash
# Builds the program for every x86-64 or ARM Linux with glibc 2.28 or newer, with all libraries but the C library inside, and packs it
# as one file, archive, Python wheel, Debian package and container image. No variant has the C++ library (ADR 57).
#
# Usage: tools/scripts/release.sh [OPTIONS]
#   --arch A         for which machines: x86_64 (default) or aarch64, for which this machine compiles, and which QEMU runs here;
#                    aarch64 has file, bundle and wheel
#   --cuda HOME      with kernels for CUDA devices, by the toolkit in this folder (/usr/local/cuda): file and bundle for x86_64, with
#                    names that end with -cuda13; a driver of that CUDA runs them
#   --kernels LIST   kernels for these architectures alone (90a-real), instead of those of bundle.sh
#   --only KIND      beside the file only this one: file (nothing else), bundle, wheel, deb or container
#   --output DIR     where to write (default: build/release-ARCHITECTURE[-cuda13]/dist)
#   --check FILE     build nothing: check that this program needs no more than such a system has
#   --no-install     take the packages as they are
# Writes engine-VERSION-linux-ARCHITECTURE[-cuda13] and the same name with .tar.gz (bundle.sh), -oci.tar (container.sh) and .contents (what is
# inside: versions, origins, licences), engine_train-VERSION-py3-none-PLATFORM.whl (wheel.sh), engine_VERSION_amd64.deb (deb.sh)
# and SHA256SUMS over all.
# Compiles with zig's clang and libc++, which PyPI's package ziglang contains (docs/adr/0057-one-file-for-old-systems.md). C
# libraries are Debian 12's static ones; Gloo, ZeroMQ and hwloc are compiled from their sources. All are kept in build/release-ARCHITECTURE.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

glibc=2.28  # RHEL 8, Debian 10, Ubuntu 20.04, SLES 15.3
zig_version=0.13.0
zig_wheel="ziglang==$zig_version --hash=sha256:3ce0c9f16547e5d61b32e0d226926e9a2552ef4b91fccf7ab5ea1a623a77824b"
# Gloo has no releases. PyPI's package horovod carries its sources.
gloo_carrier="horovod==0.28.1 --hash=sha256:92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
declare -A source_digests=(  # by the name of Debian's source package
  [zeromq3]=0ff5a531c9ffaf0dfdc7dc78d13d1383088f454896d252934c429b2554d10559
  [hwloc]=b3fb1a43a14d8fbcd8e976de5ede2ea7ce1d768ed173adb33c7ceaaf098dc970)
# Debian's packages: static C libraries, and headers alone; each with its licence's name.
declare -A licences=([libsodium-dev]=ISC [libxxhash-dev]=BSD-2-Clause [zlib1g-dev]=Zlib [libpng-dev]=libpng-2.0 [libdeflate-dev]=MIT
  [libjpeg62-turbo-dev]="IJG, BSD-3-Clause and Zlib" [libeigen3-dev]=MPL-2.0 [libcereal-dev]=BSD-3-Clause [libcli11-dev]=BSD-3-Clause
  [libtomlplusplus-dev]=MIT [nlohmann-json3-dev]=MIT [cppzmq-dev]=MIT
  [libpcre2-dev]="BSD-3-Clause with an exception for binaries" [libutf8proc-dev]="MIT and Unicode")

arch=x86_64 toolkit="" kernels="" output="" install=yes checked="" kinds=()
while [ $# -gt 0 ]; do
  case $1 in
    --arch | --cuda | --kernels | --only | --output | --check) [ $# -ge 2 ] || fail "$1 needs a value (see --help)" ;;&
    --arch)
      case $2 in
        x86_64 | aarch64) arch=$2 ;;
        *) fail "--arch takes x86_64 or aarch64, not '$2'" ;;
      esac
      shift ;;
    --cuda) toolkit=$2; shift ;;
    --kernels) kernels=$2; shift ;;
    --only)
      case $2 in
        file | bundle | wheel | deb | container) kinds=("$2") ;;
        *) fail "--only takes file, bundle, wheel, deb or container, not '$2'" ;;
      esac
      shift ;;
    --output) output=$2; shift ;;
    --check) checked=$2; shift ;;
    --no-install) install=no ;;
    -h | --help) usage; exit 0 ;;
    *) fail "unknown option $1 (see --help)" ;;
  esac
  shift
done
triplet=$arch-linux-gnu
cuda=""  # e.g. cuda13
if [ -n "$toolkit" ]; then
  [ "$arch" = x86_64 ] || fail "--cuda is for --arch x86_64 alone"
  nvcc="$toolkit/bin/nvcc"
  [ -x "$nvcc" ] || fail "no nvcc in $toolkit/bin: --cuda takes the folder of a CUDA toolkit"
  cuda=cuda$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
elif [ -n "$kernels" ]; then
  fail "--kernels needs --cuda HOME"
fi
case $arch$cuda:${kinds[*]} in
  *:file) kinds=() ;;
  x86_64:) kinds=(bundle wheel deb container) ;;
  aarch64:) kinds=(bundle wheel) ;;
  *cuda*:) kinds=(bundle) ;;
  *cuda*:wheel | *cuda*:deb | *cuda*:container) fail "--only ${kinds[*]} has no CUDA: --cuda makes file and bundle" ;;
  aarch64:deb | aarch64:container) fail "--only ${kinds[*]} exists for x86_64 alone: --arch aarch64 makes file, bundle and wheel" ;;
esac

# check_program FILE: fails unless every library it names is glibc's, with symbols up to version $glibc, and it exports nothing of the
# libraries inside: libraries that it loads, MPI's for one, would call that instead of what they were linked with.
check_program() {
  local needed versions newest
  needed=$(readelf --dynamic --wide "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p') || fail "readelf cannot read $1"
  [ -n "$needed" ] || fail "$1 names no library: is it a static program?"
  needed=$(grep -vxE '(libc|libm|libdl|librt|libpthread)\.so\.[0-9]+|ld-linux[-a-z0-9]*\.so\.[0-9]+' <<<"$needed" || true)
  [ -z "$needed" ] || fail "$1 needs libraries beside the C library: "$needed
  versions=$(readelf --version-info --wide "$1" | grep -oE 'Name: [A-Za-z]+_[0-9.]+' | cut -d' ' -f2 | sort -uV)
  ! grep -v '^GLIBC_' <<<"$versions" || fail "$1 asks for the symbols above, which are not the C library's"
  newest=$(tail -n 1 <<<"$versions")
  [ "$(printf '%s\n' "GLIBC_$glibc" "$newest" | sort -V | tail -n 1)" = "GLIBC_$glibc" ] ||
    fail "$1 asks for $newest, and the oldest systems have GLIBC_$glibc"
  ! readelf --relocs --wide "$1" | grep 'R_[A-Z0-9_]*_COPY' || fail "$1 copies the variables above of the C library, whose place is unknown"
  ! readelf --dyn-syms --wide "$1" |
    awk '$7 != "UND" && $8 ~ /^(_ZN|hwloc_|inflate|deflate|zmq_|png_|pcre2_|XXH)/ { if (n++ < 5) print $8 } END { exit n == 0 }' ||
    fail "$1 exports the functions above, which libraries that it loads would call"
  echo "$(basename "$1"): needs the C library alone, $newest or newer"
}
if [ -n "$checked" ]; then
  check_program "$checked"
  exit 0
fi

needed_tools() {  # of the kinds
  local kind
  for kind in "${kinds[@]}"; do
    case $kind in
      wheel) echo zip openssl ;;
      deb) echo cpack dpkg-deb dpkg-shlibdeps file ;;
      container) echo buildah ;;
    esac
  done
}
[ "$(uname -m)" = x86_64 ] || fail "runs on x86_64 only, and this is $(uname -m)"
strip=strip objcopy=objcopy purpose=release processor_flags=(-Xclang -target-feature -Xclang +evex512) emulator=()
if [ "$arch" = aarch64 ]; then
  strip=$triplet-strip objcopy=$triplet-objcopy purpose=release-aarch64 processor_flags=() emulator=(qemu-aarch64)
fi
if [ "$install" = yes ]; then
  step "Packages"
  "$root/tools/scripts/install_dependencies.sh" --for "$purpose"
fi
for tool in cmake ninja readelf "$strip" "$objcopy" make bzip2 apt-get "${emulator[@]}" $(needed_tools); do
  command -v "$tool" >/dev/null || fail "$tool is missing: tools/scripts/install_dependencies.sh --for $purpose installs it"
done
shared="$root/build/release-$arch"
work="$shared/libraries"        # sources, and what becomes of them
tools="$shared/toolchain"
foreign="$shared/system"        # Debian's packages of another architecture, unpacked: for QEMU, a system
libraries="$shared/prefix"      # include/ and lib/, all that the program finds
folder="$shared${cuda:+-$cuda}" # the build
[ -n "$output" ] || output="$folder/dist"
mkdir -p "$work" "$tools/bin" "$libraries"/{include,lib}

# fetch_package REQUIREMENT PIP_OPTION...: a file of PyPI, by its digest, into $work/files.
fetch_package() {
  echo "$1" >"$work/requirement"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --dest "$work/files" "${@:2}" \
    --requirement "$work/requirement" || fail "pip could not download ${1%% *}"
}

install_zig() {
  local name flags=("${processor_flags[@]}" -O2 -fno-lto -fno-sanitize=undefined -D_LIBCPP_ENABLE_EXPERIMENTAL
    -Xclang -debug-info-kind=line-directives-only)
  export ZIG_GLOBAL_CACHE_DIR="$shared/zig-cache"
  if [ ! -x "$tools/ziglang/zig" ]; then
    step "zig $zig_version"
    fetch_package "$zig_wheel" --only-binary :all:
    python3 -m zipfile -e "$work/files"/ziglang-"$zig_version"-*.whl "$tools"
    chmod +x "$tools/ziglang/zig"
  fi
  # evex512: else this clang uses no 512-bit registers. Optimized code is not linked as a whole: code for one instruction set
  # stays in its file. zig adds checks of undefined behaviour to code that is compiled with -Og, and compiles libc++ once more for
  # a program that is linked without -O2. For this libc++, std::jthread is experimental.
  for name in cc c++; do
    printf '#!/bin/sh\nexport ZIG_GLOBAL_CACHE_DIR="%s"\nexec "%s" %s -target %s.%s %s "$@"\n' \
      "$ZIG_GLOBAL_CACHE_DIR" "$tools/ziglang/zig" "$name" "$triplet" "$glibc" "${flags[*]}" >"$tools/bin/$name"
  done
  for name in ar ranlib; do
    printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$tools/ziglang/zig" "$name" >"$tools/bin/$name"
  done
  chmod +x "$tools/bin"/*
}

# Downloads by lists of their own, so that the system's architectures and sources stay as they are.
apt=(apt-get -q -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$work/lists"
  -o APT::Sandbox::User=root)
# read_package_lists KIND: of Debian 12, for binary packages of $arch (deb) or sources (deb-src).
read_package_lists() {
  mkdir -p "$work/lists/partial" "$work/files"
  apt-get indextargets --format "$1"' [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(SITE) $(RELEASE) main' \
    'Created-By: Packages' | grep -E ' bookworm(-security)? ' | sort -u >"$work/sources.list"
  [ -s "$work/sources.list" ] || fail "the system's apt has no source for Debian 12 (bookworm)"
  "${apt[@]}" update >/dev/null || fail "apt-get could not read Debian's package lists"
}

# fetch_foreign: all Debian packages that the program needs, of architecture arm64, into $foreign; and the C library with which QEMU
# runs the program.
fetch_foreign() {
  local package packages=("${!licences[@]}" libc6)
  [ ! -f "$foreign/made" ] || return 0
  step "Debian's packages for arm64"
  rm -rf "$foreign" "$work/arm64"
  mkdir -p "$foreign" "$work/arm64"
  : >"$work/status"
  apt+=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::status=$work/status")
  read_package_lists deb
  (cd "$work/arm64" && "${apt[@]}" download "${packages[@]}" >/dev/null) || fail "apt-get could not download packages for arm64"
  for package in "$work/arm64"/*.deb; do
    dpkg-deb --extract "$package" "$foreign"
    dpkg-deb --show --showformat '${Package} ${Version}\n' "$package" >>"$foreign/versions"
  done
  touch "$foreign/made"
}

# installed_package PACKAGE FORMAT: of this machine's architecture, also where another one's is beside it.
installed_package() {
  dpkg-query --show --showformat "$2" "$1:amd64" 2>/dev/null || dpkg-query --show --showformat "$2" "$1" ||
    fail "the package $1 is missing"
}
package_version() {
  if [ "$arch" = x86_64 ]; then installed_package "$1" '${Version}'; else awk -v p="$1" '$1 == p { print $2 }' "$foreign/versions"; fi
}
package_files() {
  if [ "$arch" = x86_64 ]; then
    dpkg-query --listfiles "$(installed_package "$1" '${binary:Package}')"
  else
    dpkg-deb --contents "$work/arm64/$1"_*.deb | awk '$1 ~ /^-|^l/ { print substr($6, 2) }'
  fi
}
# package_text PACKAGE: the file with its licence.
package_text() { [ "$arch" = x86_64 ] && echo "/usr/share/doc/$1/copyright" || echo "$foreign/usr/share/doc/$1/copyright"; }

# take_package PACKAGE: the headers and static libraries of a package of Debian's, apart from the system's own headers.
take_package() {
  local file files made origin=""
  made="$work/$1_$(package_version "$1").made"
  [ ! -f "$made" ] || return 0
  [ "$arch" = x86_64 ] || origin=$foreign
  files=$(package_files "$1")
  while read -r file; do
    [ ! -d "$origin$file" ] || continue
    case $file in
      "/usr/include/$triplet"/*) install -C -D -m 644 "$origin$file" "$libraries/include/${file#"/usr/include/$triplet"/}" ;;
      /usr/include/*) install -C -D -m 644 "$origin$file" "$libraries/include/${file#/usr/include/}" ;;
      /usr/lib/*.a) install -C -m 644 "$origin$file" "$libraries/lib/" ;;
    esac
  done <<<"$files"
  # GCC lets a program copy the variable stderr. zig's list of glibc's symbols has no places of variables, so a copy would take the
  # place of all.
  case $1 in
    libpng-dev | libjpeg62-turbo-dev)
      "$tools/bin/cc" -fPIC -x c -c - -o "$work/stderr.o" <<<'#include <stdio.h>
FILE* release_stderr;
__attribute__((constructor(101))) static void set(void) { release_stderr = stderr; }'
      for file in "$libraries"/lib/lib{png,jpeg}*.a; do
        [ -f "$file" ] && ! "$tools/bin/ar" t "$file" | grep -qx stderr.o || continue
        "$objcopy" --redefine-sym stderr=release_stderr "$file"
        "$tools/bin/ar" rcs "$file" "$work/stderr.o"
      done ;;
  esac
  touch "$made"
}

# fetch_source NAME: Debian 12's source package, whose tarball has the digest above, into $work/NAME.
fetch_source() {
  local tarball
  read_package_lists deb-src
  (cd "$work/files" && "${apt[@]}" source --download-only "$1" >/dev/null) || fail "apt-get could not download the source of $1"
  tarball=$(echo "$work/files/$1"_*.orig.tar.*)
  sha256sum --check --quiet <<<"${source_digests[$1]}  $tarball" || fail "$tarball is not the source that was checked"
  rm -rf "${work:?}/$1"
  mkdir "$work/$1"
  tar -C "$work/$1" --strip-components=1 -xf "$tarball"
}
cmake_options=(-G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_C_COMPILER=$tools/bin/cc" "-DCMAKE_CXX_COMPILER=$tools/bin/c++"
  "-DCMAKE_AR=$tools/bin/ar" "-DCMAKE_RANLIB=$tools/bin/ranlib" "-DCMAKE_PREFIX_PATH=$libraries" "-DCMAKE_FIND_ROOT_PATH=$libraries"
  -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY
  -DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=NEVER)
if [ "$arch" = aarch64 ]; then
  emulator+=(-L "$foreign")
  cmake_options+=(-DCMAKE_SYSTEM_NAME=Linux "-DCMAKE_SYSTEM_PROCESSOR=$arch" "-DCMAKE_CROSSCOMPILING_EMULATOR=$(IFS=';' && echo "${emulator[*]}")")
fi

version_of() { basename "$work/files/$1"_*.dsc .dsc | cut -d_ -f2; }  # of a source package

make_gloo() {  # the interface of its transports: all that the program uses
  fetch_package "$gloo_carrier" --no-binary horovod
  rm -rf "$work/gloo"
  mkdir "$work/gloo"
  tar -C "$work/gloo" --strip-components=3 -xzf "$work/files/horovod-0.28.1.tar.gz" horovod-0.28.1/third_party/gloo
  sed -e 's/@GLOO_VERSION_MAJOR@/0/; s/@GLOO_VERSION_MINOR@/5/; s/@GLOO_VERSION_PATCH@/0/; s/^#cmakedefine .*//; s/^#cmakedefine01 \(.*\)/#define \1 0/' \
    "$work/gloo/gloo/config.h.in" >"$work/gloo/gloo/config.h"
  (
    cd "$work/gloo"
    for file in gloo/transport/*.cc; do
      "$tools/bin/c++" -std=c++14 -O2 -fPIC -I. -c "$file" -o "$(basename "$file").o"
    done
    "$tools/bin/ar" rcs "$libraries/lib/libgloo.a" ./*.o
    find gloo -name '*.h' -exec install -D -m 644 {} "$libraries/include/{}" \;
  ) || fail "Gloo could not be compiled"
}
make_zeromq3() {
  fetch_source zeromq3
  sed -i 's/cmake_minimum_required(VERSION 2[0-9.]*)/cmake_minimum_required(VERSION 3.5)/' "$work/zeromq3/CMakeLists.txt"
  cmake -S "$work/zeromq3" -B "$work/zeromq3/build" "${cmake_options[@]}" "-DCMAKE_INSTALL_PREFIX=$libraries" -DCMAKE_INSTALL_LIBDIR=lib \
    -DBUILD_SHARED=OFF -DBUILD_TESTS=OFF -DWITH_PERF_TOOL=OFF -DWITH_DOCS=OFF -DENABLE_DRAFTS=OFF -DENABLE_WS=OFF -DWITH_TLS=OFF \
    -DENABLE_CURVE=ON -DWITH_LIBSODIUM=ON -DWITH_LIBBSD=OFF -DZMQ_BUILD_TESTS=OFF \
    "-DSODIUM_INCLUDE_DIRS=$libraries/include" "-DSODIUM_LIBRARIES=$libraries/lib/libsodium.a" >"$work/zeromq3.log" 2>&1 &&
    cmake --build "$work/zeromq3/build" --target install --parallel "$(build_jobs)" >>"$work/zeromq3.log" 2>&1 ||
    { tail -n 30 "$work/zeromq3.log" >&2; fail "ZeroMQ could not be compiled"; }
}
make_hwloc() {
  fetch_source hwloc
  (
    cd "$work/hwloc"
    ./configure --host="$triplet" --build=x86_64-linux-gnu --prefix="$libraries" --enable-static --disable-shared --disable-libxml2 \
      --disable-libudev --disable-pci --disable-opencl --disable-cuda --disable-nvml --disable-rsmi --disable-levelzero --disable-gl \
      --disable-cairo --disable-plugins --disable-doxygen --disable-picky \
      CC="$tools/bin/cc" CXX="$tools/bin/c++" AR="$tools/bin/ar" RANLIB="$tools/bin/ranlib" CFLAGS="-O2 -fPIC"
    make -C include install
    make -C hwloc -j "$(build_jobs)" install
  ) >"$work/hwloc.log" 2>&1 || { tail -n 30 "$work/hwloc.log" >&2; fail "hwloc could not be compiled"; }
}

install_zig
[ "$arch" = x86_64 ] || fetch_foreign
for package in "${!licences[@]}"; do take_package "$package"; done
for library in gloo zeromq3 hwloc; do
  [ ! -f "$work/$library.made" ] || continue
  step "$library"
  "make_$library"
  touch "$work/$library.made"
done

options=("${cmake_options[@]}" -DENGINE_CPU_KERNELS=all -DENGINE_BUILD_TESTS=OFF
  -DCMAKE_SKIP_RPATH=ON -DCMAKE_EXE_LINKER_FLAGS=-pie "-DCMAKE_STRIP=$(command -v "$strip")" "-DENGINE_GLIBC=$glibc" "-DENGINE_DEBIAN_REVISION=1+glibc$glibc")
for option in GLOO ZMQ PNG DEFLATE JPEG HWLOC PCRE2 UTF8PROC; do options+=("-DENGINE_WITH_$option=ON"); done
if [ -z "$cuda" ]; then
  options+=(-DENGINE_WITH_CUDA=OFF)
else
  # __HORIZON__: else nvcc's headers reject libc++ (ADR 57).
  options+=(-DENGINE_WITH_CUDA=ON -DENGINE_WITH_NCCL=ON "-DENGINE_CUDA_ARCHITECTURES=${kernels:-$(kernel_architectures "$nvcc")}"
    "-DCUDAToolkit_ROOT=$toolkit"
    -DCUDAToolkit_rt_LIBRARY=rt "-DCMAKE_EXE_LINKER_FLAGS=-pie -L$toolkit/lib64" "-DCMAKE_FIND_ROOT_PATH=$libraries;$toolkit;$(readlink -f "$toolkit")")
  export CUDA_HOME="$toolkit" CUDACXX="$nvcc" CUDAHOSTCXX="$tools/bin/c++" CUDAFLAGS="-D__HORIZON__ -Xcompiler=-fPIC"
  for header in "$toolkit/include/nccl.h" /usr/include/nccl.h /usr/local/include/nccl.h; do [ ! -f "$header" ] || break; done
  [ -f "$header" ] || fail "no nccl.h in $toolkit/include or /usr/include: install NCCL's development files"
  install -C -m 644 "$header" "$libraries/include/"
fi
build_folder="$folder" configure_and_build release "engine manual" "${options[@]}"
program="$folder/tools/engine"
check_program "$program"

step "Files"
version=$(sed -n 's/^project(engine VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
name="engine-$version-linux-$arch${cuda:+-$cuda}"
texts="$folder/licences" made="$folder/made"
rm -rf "$texts" "$made"
mkdir -p "$texts" "$made" "$output"
# inside NAME VERSION LICENCE ORIGIN TEXT: a line of the list of contents, and the licence's text.
inside() {
  printf '%-24s %-30s %-45s %s\n' "${@:1:4}" >>"$folder/contents"
  cp -L "$5" "$texts/$1"
}
commit=$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)
printf '%s: one file for Linux on %s with glibc %s or newer, of commit %s.\n%s\n\n' "$name" "$arch" "$glibc" "$commit" \
  "Archive, wheel, Debian package and container image contain the same program." >"$folder/contents"
inside engine "$version" MIT "this project" "$root/LICENSE"
inside gloo 0.5.0 BSD-3-Clause "${gloo_carrier%% *} of PyPI" /usr/share/doc/libgloo-dev/copyright
inside zeromq3 "$(version_of zeromq3)" "LGPL-3.0 with an exception for static linking" "source of Debian 12" "$work/zeromq3/COPYING.LESSER"
inside hwloc "$(version_of hwloc)" BSD-3-Clause "source of Debian 12" "$work/hwloc/COPYING"
for package in $(printf '%s\n' "${!licences[@]}" | LC_ALL=C sort); do
  inside "$package" "$(package_version "$package")" "${licences[$package]}" "package of Debian 12" "$(package_text "$package")"
done
if [ -n "$cuda" ]; then
  cuda_runtime_licence >"$work/cuda-runtime"
  inside cuda-runtime "$("$nvcc" --version | sed -n 's/.*release .*, V\(.*\)/\1/p')" "CUDA Toolkit EULA, attachment A" \
    "libcudart_static of the toolkit" "$work/cuda-runtime"
fi
inside libc++ "18 (zig $zig_version)" "Apache-2.0 with LLVM exceptions" "${zig_wheel%% *} of PyPI" "$tools/ziglang/lib/libcxx/LICENSE.TXT"
inside libunwind "18 (zig $zig_version)" "Apache-2.0 with LLVM exceptions" "${zig_wheel%% *} of PyPI" "$tools/ziglang/lib/libunwind/LICENSE.TXT"
inside compiler_rt "zig $zig_version" MIT "${zig_wheel%% *} of PyPI" "$tools/ziglang/LICENSE"
inside glibc-start-files "2.28 (zig $zig_version)" "LGPL-2.1 with an exception for linking" "${zig_wheel%% *} of PyPI" \
  "$tools/ziglang/lib/libc/glibc/LICENSES"
[ "$arch" != x86_64 ] || inside libc6 "$(package_version libc6)" "LGPL-2.1 and others" "package of Debian 12, in the container image alone" \
  /usr/share/doc/libc6/copyright
{
  cat "$folder/contents"
  for text in "$texts"/*; do
    printf '\n==== %s ====\n' "$(basename "$text")"
    cat "$text"
  done
} >"$made/$name.contents"
"$strip" -o "$made/$name" "$program"
for kind in "${kinds[@]}"; do
  from=(--no-install --from "$folder" --output)
  case $kind in
    bundle) "$root/tools/scripts/bundle.sh" "${from[@]}" "$made/$name.tar.gz" --program-only ;;
    wheel) "$root/tools/scripts/wheel.sh" "${from[@]}" "$made" ;;
    deb) "$root/tools/scripts/deb.sh" "${from[@]}" "$made" --program-only ;;
    container) "$root/tools/scripts/container.sh" "${from[@]}" "$made/$name-oci.tar" ;;
  esac
done
(cd "$made" && sha256sum ./* | sed 's, \./, ,' >"$folder/sums")
mv "$folder/sums" "$made/SHA256SUMS"
rm -f "$output"/engine{-,_,_train-}"$version"*  # what an earlier build has made
cp "$made"/* "$output/"
step "Made"
(cd "$made" && du -h --apparent-size ./* | sed "s,\./,$output/,")
