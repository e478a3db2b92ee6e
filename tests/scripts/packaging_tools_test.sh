#!/usr/bin/env bash
# The packaging scripts install packages before they look for tools, and each asks only for what it needs itself. With --no-install they
# name the tool that is missing and what installs it. release.sh rejects options, and bundle.sh packs a cross build by its own tools.
#
# Usage: tests/scripts/packaging_tools_test.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "packaging_tools_test: $*" >&2; exit 1; }

# A source tree whose install_dependencies.sh "installs" the tool named by $lacking.
mkdir -p "$work/tree/tools" "$work/programs"
cp -r "$root/tools/scripts" "$root/CMakeLists.txt" "$work/tree/tools/"
mv "$work/tree/tools/CMakeLists.txt" "$work/tree/"
cat >"$work/tree/tools/scripts/install_dependencies.sh" <<END
#!/bin/sh
echo "\$@" >"$work/asked"
cp "$work/tool" "$work/programs/\$lacking"
END
printf '#!/bin/sh\nexit 0\n' >"$work/tool"
chmod +x "$work/tool" "$work/tree/tools/scripts/install_dependencies.sh"
# What all scripts use; every tool is one of these, so that this machine's own do not matter.
for program in awk basename bash cat cp cut date dirname env grep mkdir mktemp rm sed tail uname; do
  ln -s "$(command -v "$program")" "$work/programs/$program"
done
run() { env -i PATH="$work/programs" HOME="$work" lacking="$lacking" "$work/tree/tools/scripts/$kind.sh" "$@" 2>&1; }

packages_of() { "$root/tools/scripts/install_dependencies.sh" --list "$@" | sort; }
packages_of >"$work/base"

check_kind() {  # KIND "TOOLS" "PACKAGES"
  local kind=$1 tools=$2 packages=$3 lacking tool reply
  reply=$(packages_of --for "$kind" | comm -13 "$work/base" - | paste -sd ' ')
  [ "$reply" = "$packages" ] || fail "--for $kind adds '$reply', expected '$packages'"
  for lacking in $tools; do
    for tool in $tools; do
      cp "$work/tool" "$work/programs/$tool"
    done
    rm "$work/programs/$lacking" "$work/asked" 2>/dev/null || true
    if reply=$(run --no-install --from "$work/nowhere"); then fail "$kind.sh works without $lacking"; fi
    grep -q "$lacking is missing: .*install_dependencies.sh --for $kind installs it" <<<"$reply" ||
      fail "$kind.sh without $lacking prints: $reply"
    [ ! -e "$work/asked" ] || fail "$kind.sh --no-install installs packages"
    if reply=$(run --from "$work/nowhere"); then fail "$kind.sh packs a build that is not there"; fi
    grep -q "no program in $work/nowhere" <<<"$reply" ||
      fail "$kind.sh looks for $lacking before packages are installed: $reply"
  done
}
check_kind deb "cpack dpkg-deb dpkg-shlibdeps file" "dpkg-dev file"
check_kind bundle "strip readelf" "binutils zstd"
# These also run bundle.sh.
cp "$work/tool" "$work/programs/strip"
check_kind wheel "zip readelf openssl" "binutils openssl zip"
cp "$work/tool" "$work/programs/strip"
check_kind container "buildah readelf" "binutils buildah"

# release.sh rejects what it cannot make, before it builds or installs anything.
rejects() {  # MESSAGE OPTION...
  local reply
  ! reply=$("$work/tree/tools/scripts/release.sh" "${@:2}" 2>&1) || fail "release.sh ${*:2} works"
  [ "$reply" = "release.sh: $1" ] || fail "release.sh ${*:2} prints: $reply"
}
rm -f "$work/asked"
rejects "--arch takes x86_64 or aarch64, not 'arm64'" --arch arm64
rejects "--only deb exists for x86_64 alone: --arch aarch64 makes file, bundle and wheel" --only deb --arch aarch64
rejects "--cuda is for --arch x86_64 alone" --cuda /nowhere --arch aarch64
rejects "no nvcc in /nowhere/bin: --cuda takes the folder of a CUDA toolkit" --cuda /nowhere
rejects "--kernels needs --cuda HOME" --kernels 90a-real
[ ! -e "$work/asked" ] || fail "release.sh installs packages before it rejects options"

# A cross build: its own strip and emulator are used, and the names are those of the program's machine.
foreign="$work/foreign"
mkdir -p "$foreign/tools" "$foreign/licences"
echo MIT >"$foreign/licences/engine"
printf '\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\2\0\267\0\1\0\0\0' >"$foreign/tools/engine"
head -c 40 /dev/zero >>"$foreign/tools/engine"
chmod +x "$foreign/tools/engine"
printf '#!/bin/sh\nshift 2\necho "engine 1.2.3 $*"\n' >"$work/emulator"
printf '#!/bin/sh\necho stripped >"$1"\n' >"$work/foreign_strip"
chmod +x "$work/emulator" "$work/foreign_strip"
printf 'CMAKE_CROSSCOMPILING_EMULATOR:STRING=%s;-L\nCMAKE_STRIP:FILEPATH=%s\nENGINE_WITH_CUDA:STRING=OFF\n' \
  "$work/emulator" "$work/foreign_strip" >"$foreign/CMakeCache.txt"
"$root/tools/scripts/bundle.sh" --no-install --program-only --from "$foreign" --output "$work/foreign.tar.gz" >"$work/log" 2>&1 ||
  fail "a cross build is not packed: $(cat "$work/log")"
packed() { tar -xzOf "$work/foreign.tar.gz" "engine-1.2.3-linux-aarch64/$1"; }
[ "$(packed bin/engine)" = stripped ] || fail "the program is not stripped by the build's own strip"
[ "$(packed share/completion/engine.bash)" = "engine 1.2.3 completion bash" ] || fail "completion is not of the emulated program"
echo "the packaging scripts install what they need before they look for it"
