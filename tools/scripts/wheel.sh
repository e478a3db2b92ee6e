#!/usr/bin/env bash
# Packs the program that tools/scripts/release.sh has built as a Python wheel: after `pip install FILE` there is `engine` beside
# python. It needs no Python to run.
#
# Usage: tools/scripts/wheel.sh [OPTIONS]
#   --from DIR       the build (default: build/release-ARCHITECTURE); its program must need the C library alone
#   --output DIR     where to write engine_train-VERSION-py3-none-PLATFORM.whl (default: build)
#   --no-install     take the packages as they are
# The platform is manylinux with the C library whose symbols the program asks for. The same build gives the same bytes
# (SOURCE_DATE_EPOCH, by default the date of the last commit).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

output="$root/build" build="$root/build/release-$(uname -m)" install=yes
while [ $# -gt 0 ]; do
  case $1 in
    --from | --output) [ $# -ge 2 ] || fail "$1 needs a value (see --help)" ;;&
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
for tool in zip readelf openssl; do
  command -v "$tool" >/dev/null || fail "$tool is missing: tools/scripts/install_dependencies.sh --for wheel installs it"
done
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$root/tools/scripts/bundle.sh" --no-install --program-only --from "$build" --output "$work/bundle.tar.gz"
tar -C "$work" -xzf "$work/bundle.tar.gz"
bundle=$(echo "$work"/engine-*)
[ ! -d "$bundle/lib" ] || fail "the program in $build needs other libraries beside it; tools/scripts/release.sh builds one that has them inside"
version=$(sed -n 's/^project(engine VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")

step "Wheel"
# Beside python: bin/engine, manual pages and completion in share.
tree="$work/wheel" data="engine_train-$version.data" info="engine_train-$version.dist-info"
mkdir -p "$tree/$data/scripts" "$tree/$data/data/share/man" "$tree/$info/licenses"
cp "$bundle/bin/engine" "$tree/$data/scripts/engine"
cp -r "$bundle/share/man/man1" "$tree/$data/data/share/man/"
mkdir -p "$tree/$data/data/share"/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
cp "$bundle/share/completion/engine.bash" "$tree/$data/data/share/bash-completion/completions/engine"
cp "$bundle/share/completion/_engine" "$tree/$data/data/share/zsh/site-functions/"
cp "$bundle/share/completion/engine.fish" "$tree/$data/data/share/fish/vendor_completions.d/"
cp "$bundle/LICENSE" "$tree/$info/licenses/"
cp -r "$bundle/licences" "$tree/$info/licenses/compiled-in"

platform="manylinux_$(newest_glibc "$bundle/bin/engine" | tr . _)_$(machine_of "$bundle/bin/engine")"
cat >"$tree/$info/METADATA" <<EOF
Metadata-Version: 2.1
Name: engine-train
Version: $version
Summary: Data-parallel training of neural networks on CPUs and GPUs: one program, without Python
License: MIT
Requires-Python: >=3.8
Classifier: Operating System :: POSIX :: Linux
Classifier: Environment :: Console
EOF
cat >"$tree/$info/WHEEL" <<EOF
Wheel-Version: 1.0
Generator: tools/scripts/wheel.sh
Root-Is-Purelib: false
Tag: py3-none-$platform
EOF
pack_wheel "$tree" "$info" "$output/engine_train-$version-py3-none-$platform.whl"
