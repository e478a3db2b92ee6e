#!/usr/bin/env bash
# Packs the bundle of tools/scripts/bundle.sh as a container image: the program, its libraries and the C library, nothing else (no
# shell). It runs as user 10001; its entry point is `engine`.
#
# Usage: tools/scripts/container.sh [OPTIONS]
#   --from DIR       the build (default: build/release-ARCHITECTURE, which tools/scripts/release.sh makes)
#   --output FILE    where to write the image, as an OCI archive (default: build/engine-VERSION-linux-ARCHITECTURE-oci.tar)
#   --no-install     take the packages as they are
# Needs buildah, no network and no registry. `podman load -i FILE` or `skopeo copy oci-archive:FILE docker://...` take the image on.
# The same build gives the same layer (SOURCE_DATE_EPOCH, by default the date of the last commit).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

output="" build="$root/build/release-$(uname -m)" install=yes
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
  "$root/tools/scripts/install_dependencies.sh" --for container
fi
for tool in buildah readelf; do
  command -v "$tool" >/dev/null || fail "$tool is missing: tools/scripts/install_dependencies.sh --for container installs it"
done
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH
version=$(sed -n 's/^project(engine VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
[ -n "$output" ] || output="$root/build/engine-$version-linux-$(uname -m)-oci.tar"

work=$(mktemp -d)
storage=(--root "$work/storage" --runroot "$work/run" --storage-driver vfs)
clean_up() {
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT
"$root/tools/scripts/bundle.sh" --no-install --program-only --from "$build" --output "$work/bundle.tar.gz"
tar -C "$work" -xzf "$work/bundle.tar.gz"

step "Image"
tree="$work/tree"
mkdir -p "$tree"/{etc,tmp,usr/bin,usr/lib,engine}
mv "$work"/engine-* "$tree/usr/lib/engine"
rm -r "$tree/usr/lib/engine"/{docs,examples,share}
ln -s ../lib/engine/bin/engine "$tree/usr/bin/engine"
# The C library where the program's loader looks, with what looks up names of hosts.
loader=$(readelf -l "$tree/usr/lib/engine/bin/engine" | sed -n 's/.*interpreter: \(.*\)]/\1/p')
libraries=$(dirname "$(ldd "$tree/usr/lib/engine/bin/engine" | awk '$1 == "libc.so.6" { print $3 }')")
mkdir -p "$tree$(dirname "$loader")" "$tree$libraries"
cp -L "$loader" "$tree$loader"
for library in libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0 libresolv.so.2 libnss_dns.so.2 libnss_files.so.2; do
  cp -L "$libraries/$library" "$tree$libraries/"
done
cp /usr/share/doc/libc6/copyright "$tree/usr/lib/engine/licences/libc6"
printf 'root:x:0:0::/:/sbin/nologin\nengine:x:10001:10001::/engine:/sbin/nologin\n' >"$tree/etc/passwd"
printf 'root:x:0:\nengine:x:10001:\n' >"$tree/etc/group"
echo 'hosts: files dns' >"$tree/etc/nsswitch.conf"
chmod 1777 "$tree/tmp"
chmod 777 "$tree/engine" # whichever user the job runs as
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

container=$(buildah "${storage[@]}" from scratch)
buildah "${storage[@]}" copy --quiet "$container" "$tree" / >/dev/null
buildah "${storage[@]}" config --entrypoint '["engine"]' --user 10001:10001 --workingdir /engine \
  --env PATH=/usr/bin --env HOME=/engine --label org.opencontainers.image.title=engine \
  --label "org.opencontainers.image.version=$version" --label org.opencontainers.image.licenses=MIT "$container"
buildah "${storage[@]}" commit --quiet --timestamp "$SOURCE_DATE_EPOCH" "$container" "engine:$version" >/dev/null
mkdir -p "$(dirname "$output")"
rm -f "$output"
buildah "${storage[@]}" push --quiet "engine:$version" "oci-archive:$output:engine:$version"
echo "$output: $(du -h --apparent-size "$output" | cut -f1), unpacked $(du -sh --apparent-size "$tree" | cut -f1)"
