#!/usr/bin/env bash
# Packages a build with tools/scripts/deb.sh, lets lintian judge the packages, and installs, uses and removes them in a bare Debian:
# all commands of the tutorial work there, its first one being the installation; what they make is read outside (tutorial_test.sh).
# From there to a model of MNIST it is a minute at most.
#
# Usage: tests/scripts/deb_test.sh BUILD_FOLDER
# Needs root, debootstrap and a source of Debian 12 that answers: exits with 77 (skipped) without them, after what can be said of
# the packages alone; and at the end if something else was not there (lintian, MNIST in ENGINE_TEST_DATA, readers of the tutorial's
# files).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/engine-deb.XXXXXX")
system="$work/system" mounted=()
clean_up() {
  local i
  for ((i = ${#mounted[@]} - 1; i >= 0; --i)); do
    umount "${mounted[i]}" || return  # never delete below something still mounted
  done
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT
fail() { echo "deb_test: $*"; exit 1; }
skip() { echo "deb_test: skipped: $*"; exit 77; }
missing=()

[ -e "$build/tools/api/libengine.so" ] || skip "the build has no library: cmake --build $build --target engine_api"
[ -f "$build/manual.stamp" ] || skip "the build has no manual pages: cmake --build $build --target manual"
"$root/tools/scripts/deb.sh" --no-install --from "$build" --output "$work"
package=$(echo "$work"/engine_*.deb) library=$(echo "$work"/libengine*.deb) headers=$(echo "$work"/engine-dev_*.deb)
version=$(sed -n 's/^project(engine VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
field() { dpkg-deb --field "$package" "$1"; }
[ "$(field Version)" = "$version-1" ] || fail "the package is of version $(field Version), the project of $version"
case $(field Depends) in *libc6*libsodium*) ;; *) fail "dpkg-shlibdeps has not been asked: Depends is '$(field Depends)'" ;; esac
[ -n "$(field Maintainer)" ] || fail "nobody maintains the package"
listing=$(dpkg-deb --contents "$package")
for file in bin/engine share/man/man1/engine.1.gz share/man/man1/engine-bench-step.1.gz share/bash-completion/completions/engine \
  share/zsh/vendor-completions/_engine share/fish/vendor_completions.d/engine.fish share/doc/engine/copyright \
  share/doc/engine/changelog.Debian.gz share/doc/engine/docs/installing.md; do
  grep -q " ./usr/$file\$" <<<"$listing" || fail "the package lacks /usr/$file"
done
wild=$(awk '$6 !~ /^\.\/(usr\/((bin|share)\/.*)?)?$/ || $2 != "root/root" { print }' <<<"$listing")
[ -z "$wild" ] || fail "files elsewhere, or of somebody else: $wild"

# The library and what it takes to compile programs, by which those depend on the very package.
soname=$(basename "$library"); soname=libengine.so.${soname#libengine}; soname=${soname%%_*}
[ "$(dpkg-deb --field "$headers" Depends)" = "$(dpkg-deb --field "$library" Package) (= $version-1)" ] ||
  fail "engine-dev depends on '$(dpkg-deb --field "$headers" Depends)'"
case $(dpkg-deb --field "$library" Depends) in *libc6*libsodium*) ;; *) fail "the library depends on '$(dpkg-deb --field "$library" Depends)'" ;; esac
dpkg-deb --ctrl-tarfile "$library" | tar -xO ./shlibs >"$work/shlibs"
grep -qx "libengine ${soname##*.} libengine${soname##*.} (>= $version-1)" "$work/shlibs" || fail "shlibs is '$(cat "$work/shlibs")'"
grep -q " ./usr/lib/$soname -> " <<<"$(dpkg-deb --contents "$library")" || fail "the library's package lacks /usr/lib/$soname"
for file in include/engine/training.h lib/cmake/engine/engineConfig.cmake lib/libengine.so share/doc/engine-dev/examples/train_mlp.cc; do
  grep -q " ./usr/$file\( \|\$\)" <<<"$(dpkg-deb --contents "$headers")" || fail "engine-dev lacks /usr/$file"
done

packages=("$package" "$library" "$headers")
if command -v lintian >/dev/null; then
  lintian --allow-root --fail-on error,warning "${packages[@]}" || fail "lintian has found what tools/cmake/lintian_overrides.in does not name"
else
  missing+=(lintian)
fi

[ "$(id -u)" -eq 0 ] || skip "installing needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' | awk '$2 == "bookworm" { print $1; exit }')
[ -n "$mirror" ] || skip "the running system's apt has no source of Debian 12"
debootstrap --variant=minbase bookworm "$system" "$mirror" >"$work/log" 2>&1 ||
  { tail -n 3 "$work/log"; skip "debootstrap found no way to $mirror"; }
rm -f "$system/etc/apt/sources.list"
for item in sources.list sources.list.d apt.conf apt.conf.d auth.conf.d keyrings trusted.gpg.d; do
  [ ! -e "/etc/apt/$item" ] || cp -a "/etc/apt/$item" "$system/etc/apt/"
done
for item in resolv.conf hosts; do
  cat "/etc/$item" >"$system/etc/$item"
done
for type_place in "proc proc" "sysfs sys" "tmpfs dev/shm"; do
  read -r type place <<<"$type_place"
  mkdir -p "$system/$place"
  mount -t "$type" "$type" "$system/$place"
  mounted+=("$system/$place")
done
inside() { env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$system" "$@"; }

# A program compiled with the packages' files alone, for the bare system, which has no compiler.
mkdir "$work/dev"
dpkg-deb --extract "$library" "$work/dev"
dpkg-deb --extract "$headers" "$work/dev"
cmake -S "$work/dev/usr/share/doc/engine-dev/examples" -B "$work/examples" -DCMAKE_PREFIX_PATH="$work/dev/usr" \
  -DCMAKE_SKIP_RPATH=ON >"$work/log" 2>&1 && cmake --build "$work/examples" >>"$work/log" 2>&1 ||
  { cat "$work/log"; fail "the examples do not compile with engine-dev"; }

cp "$library" "$work/examples/train_mlp" "$system/root/"
mkdir "$system/root/build"
cp "$package" "$system/root/build/"
echo 'APT::Get::Assume-Yes "true";' >"$system/etc/apt/apt.conf.d/99answers"
# The tutorial's own command.
install=$(awk '/^```/ { inside = $0 == "```sh install"; next } inside' "$root/docs/tutorial.md")
case $install in "apt install "*) ;; *) fail "docs/tutorial.md installs by '$install'" ;; esac
inside apt-get -q update >"$work/log" 2>&1 || { tail -n 3 "$work/log"; skip "apt-get update failed"; }
inside sh -c "cd /root && $install --download-only" >"$work/log" 2>&1 ||
  { cat "$work/log"; fail "apt-get could not fetch what the package needs"; }
began=$(date +%s%N)
inside sh -c "cd /root && $install" >"$work/log" 2>&1 || { cat "$work/log"; fail "'$install' fails"; }
if [ -d "${ENGINE_TEST_DATA:-$root/../shared/data}/mnist" ]; then
  cp -r "${ENGINE_TEST_DATA:-$root/../shared/data}/mnist" "$system/root/mnist"
  inside engine train --model convnet --dataset mnist --data-dir /root/mnist --epochs 1 --lr 0.05 --spawn --save-dir /root/digits \
    >"$work/log" 2>&1 || { cat "$work/log"; fail "MNIST cannot be trained"; }
  seconds=$((($(date +%s%N) - began) / 1000000000))
  percent=$(sed -n 's/^Test after.*accuracy \([0-9]*\)\..*/\1/p' "$work/log" | tail -n 1)
  [ "${percent:-0}" -ge 97 ] || fail "the model of MNIST is right in ${percent:-no} % only"
  # A minute, and as many times more as other work there is for each core.
  limit=$(awk -v given="${ENGINE_TEST_TIME_SCALE:-1}" -v cores="$(nproc)" '{
    split($4, running, "/")
    load = ($1 > running[1] ? $1 : running[1]) / cores
    print int(60 * given * (load > 1 ? load : 1))
  }' /proc/loadavg)
  echo "from a bare system, all downloads done, to a model of MNIST that is right in $percent %: $seconds s (at most $limit)"
  [ "$seconds" -le "$limit" ] || fail "that is too long"
else
  missing+=("MNIST (in ${ENGINE_TEST_DATA:-$root/../shared/data})")
fi
inside dpkg --listfiles engine | sort >"$work/installed"

[ "$(inside engine version)" = "engine $version" ] || fail "engine version says $(inside engine version)"
inside engine train --model mlp --dataset glyphs --spawn 2 --threads 1 --steps 20 --limit 2000 --save-dir /root/run \
  --save-rank-models >"$work/log" 2>&1 || { cat "$work/log"; fail "the installed program does not train"; }
inside engine verify /root/run/final_model_rank_0.ckpt /root/run/final_model_rank_1.ckpt || fail "the two ranks' models differ"
reply=$(inside bash -c 'set -eu; . /usr/share/bash-completion/completions/engine; COMP_WORDS=(engine train --uneven j)
  COMP_CWORD=3; _engine; echo "${COMPREPLY[*]}"')
[ "$reply" = join ] || fail "bash completes --uneven j to '$reply'"

# The tutorial, in a folder that has another name inside.
cat >"$work/engine" <<EOF
#!/bin/sh
cd=\${PWD#$system} HOME=\${HOME#$system} PATH=/usr/bin:/bin
export cd HOME PATH
exec /usr/sbin/chroot "$system" sh -c 'cd "\$cd" && unset cd && exec engine "\$@"' engine "\$@"
EOF
chmod +x "$work/engine"
status=0
TMPDIR="$system/root" "$root/tests/scripts/tutorial_test.sh" "$work/engine" || status=$?
case $status in
  0) ;;
  77) missing+=("what reads the tutorial's files") ;;
  *) fail "the tutorial does not work with the installed program" ;;
esac
inside gzip -t /usr/share/man/man1/engine-train.1.gz || fail "a manual page is damaged"

[ ! -e "$system/usr/lib/$soname" ] || fail "the program's package brings the library"
inside apt-get -q install --yes --no-install-recommends "/root/$(basename "$library")" >"$work/log" 2>&1 ||
  { cat "$work/log"; fail "apt-get could not install the library"; }
inside dpkg --listfiles "libengine${soname##*.}" | sort >>"$work/installed"
inside /root/train_mlp >"$work/log" 2>&1 && grep -q 'lies inside' "$work/log" ||
  { cat "$work/log"; fail "a program on the installed library does not train"; }

inside apt-get -q purge --yes engine "libengine${soname##*.}" >"$work/log" 2>&1 || { cat "$work/log"; fail "apt-get could not remove the package"; }
left=$(grep -E '/(engine|_engine|libengine)' "$work/installed" | while read -r file; do [ ! -e "$system$file" ] || echo "$file"; done)
[ -z "$left" ] || fail "left behind: $left"
[ -f "$system/root/run/run.json" ] || fail "the user's run is gone"
[ ${#missing[@]} -eq 0 ] || skip "the packages install, train and go, but these were not there: $(printf '%s, ' "${missing[@]}")"
echo "the packages install, train and go"
