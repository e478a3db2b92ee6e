#!/usr/bin/env bash
# Runs a command for which Linux starts programs for ARM in QEMU, also those that this program starts.
#
# Usage: tests/scripts/under_qemu.sh SYSTEM COMMAND...
#   SYSTEM   the folder with ARM's C library, as tools/scripts/release.sh --arch aarch64 unpacks it
# The machine stays as it is: QEMU is registered (binfmt_misc) in a user namespace, which needs Linux 6.7 or newer.
# Exits with 77, before the command begins, if QEMU is missing or the namespace cannot be made.
set -euo pipefail
skip() { echo "under_qemu: skipped: $*" >&2; exit 77; }
qemu=$(command -v qemu-aarch64) || skip "qemu-aarch64 is missing: apt-get install qemu-user"
system=$(cd "$1" && pwd) || skip "there is no folder $1"
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '#!/bin/sh\nexec "%s" -L "%s" "$@"\n' "$qemu" "$system" >"$work/qemu"
chmod +x "$work/qemu"

# Programs for ARM by the first 20 bytes of their ELF header: 64 bits, little-endian, any kind of program (2 or 3), machine 183.
header='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
cat >"$work/register" <<'END'
set -e
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
echo "$1" >/proc/sys/fs/binfmt_misc/register
shift
[ "$*" = true ] || exec "$@"
END
in_namespace() { unshare --user --map-root-user --mount bash "$work/register" ":qemu-aarch64:M::$header:$mask:$work/qemu:" "$@"; }
in_namespace true 2>"$work/log" || skip "QEMU cannot be registered in a user namespace: $(cat "$work/log")"
in_namespace "$@"
