#!/usr/bin/env bash
# Packs the build of tools/scripts/release.sh as a Python wheel with tools/scripts/wheel.sh, installs it in an environment of its
# own, trains with it and removes it.
#
# Usage: tests/scripts/wheel_test.sh BUILD_FOLDER
# Exits with 77 (skipped) where there is no such build, python3-venv or tool that packs, and at the end where PEER_PYTHON (python3)
# has no auditwheel, which judges the wheel.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "wheel_test: $*"; exit 1; }
skip() { echo "wheel_test: skipped: $*"; exit 77; }
version=$(sed -n 's/^project(engine VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
[ "$("$build/tools/engine" version 2>/dev/null)" = "engine $version" ] ||
  skip "$build has no program of version $version: tools/scripts/release.sh builds it"
for tool in zip readelf openssl; do
  command -v "$tool" >/dev/null || skip "$tool is not installed"
done
python3 -m venv "$work/env" 2>"$work/log" || skip "python3 makes no environment: $(tail -n 1 "$work/log")"

"$root/tools/scripts/wheel.sh" --no-install --from "$build" --output "$work" >"$work/log" || { cat "$work/log"; fail "wheel.sh has failed"; }
wheel=$(echo "$work"/engine_train-*.whl)
"$root/tools/scripts/wheel.sh" --no-install --from "$build" --output "$work/again" >"$work/log"
cmp "$wheel" "$work/again/$(basename "$wheel")" || fail "the same build gives two wheels"

"$work/env/bin/pip" install --quiet --no-index --disable-pip-version-check "$wheel" || fail "pip does not install $wheel"
run() { env -i HOME="$work" PATH=/usr/bin:/bin "$work/env/bin/engine" "$@"; }
[ "$(run version)" = "engine $version" ] || fail "engine version says $(run version)"
for file in bash-completion/completions/engine zsh/site-functions/_engine fish/vendor_completions.d/engine.fish man/man1/engine-train.1; do
  [ -s "$work/env/share/$file" ] || fail "the wheel lacks share/$file"
done
case $wheel in *-py3-none-manylinux_2_28_x86_64.whl | *-py3-none-manylinux_2_28_aarch64.whl) ;; *) fail "the wheel is for other systems: $wheel" ;; esac
"$root/tools/scripts/release.sh" --check "$work/env/bin/engine" >"$work/log" 2>&1 || { cat "$work/log"; fail "the program needs too much"; }
run train --model mlp --dataset glyphs --spawn 2 --threads 1 --steps 20 --limit 2000 --save-dir "$work/run" --save-rank-models \
  >"$work/log" 2>&1 || { cat "$work/log"; fail "the installed program does not train"; }
run verify "$work/run/final_model_rank_0.ckpt" "$work/run/final_model_rank_1.ckpt" || fail "the two ranks' models differ"

judge=("${PEER_PYTHON:-python3}" -m auditwheel)
judged=no
if "${judge[@]}" --version >/dev/null 2>&1; then
  judged=yes
  "${judge[@]}" show "$wheel" >"$work/log" || { cat "$work/log"; fail "auditwheel cannot read the wheel"; }
  tag=$(basename "$wheel" .whl); tag=${tag##*-none-}
  tr -s ' \n' ' ' <"$work/log" | grep -q "$tag" || { cat "$work/log"; fail "auditwheel does not find $tag"; }
fi

"$work/env/bin/pip" uninstall --quiet --yes --disable-pip-version-check engine-train
left=$(cd "$work/env" && find . -path '*engine*' ! -path '*/site-packages/*' -type f)
[ -z "$left" ] || fail "left behind: $left"
[ "$judged" = yes ] || skip "the wheel installs, trains and goes, but ${judge[0]} has no auditwheel"
echo "the wheel installs, trains and goes"
