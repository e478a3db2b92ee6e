#!/usr/bin/env bash
# Installs programs of others that read what this one writes, for tests, in a folder of their own: a Python environment with
# tests/requirements.txt, and Prometheus' promtool, of which no service runs. Does nothing, quickly, where they are there.
# Prints the folder, with python/bin/python and programs/promtool, and on stderr what it does.
#
# Usage: tools/scripts/readers.sh [--torch]
#   --torch   also tests/requirements_torch.txt (several GB)
# The folder is ENGINE_READERS, by default ~/.cache/engine/readers. Needs python3 with venv, and for promtool Debian.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

torch=no
case ${1:-} in
  "") ;;
  --torch) torch=yes ;;
  -h | --help) usage; exit 0 ;;
  *) fail "unknown option $1 (see --help)" ;;
esac
folder=${ENGINE_READERS:-${XDG_CACHE_HOME:-$HOME/.cache}/engine/readers}
mkdir -p "$folder/programs"
exec 9>"$folder/lock"
flock 9 # another checkout may be at it
exec 8>&1 >&2

installed() { cmp -s "$root/tests/$1" "$folder/$1" && "$folder/python/bin/python" -c 'import numpy' 2>/dev/null; }
install() {
  step "Python packages of tests/$1"
  "$folder/python/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$root/tests/$1" ||
    fail "pip could not install tests/$1"
  cp "$root/tests/$1" "$folder/" # by which the next call knows
}
if ! installed requirements.txt; then
  rm -f "$folder"/*.txt
  python3 -m venv --clear "$folder/python" || fail "python3 makes no environment: install python3-venv"
  install requirements.txt
fi
[ "$torch" = no ] || installed requirements_torch.txt || install requirements_torch.txt

# Unpacked, not installed: the package would start a server.
if [ ! -x "$folder/programs/promtool" ]; then
  step "promtool, of the package prometheus"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  download() { (cd "$work" && apt-get -q -o APT::Sandbox::User=root download prometheus); }
  download || { apt-get -q update && download; } || fail "apt-get could not fetch the package prometheus"
  dpkg-deb --fsys-tarfile "$work"/prometheus_*.deb | tar -xO ./usr/bin/promtool >"$folder/programs/new"
  chmod +x "$folder/programs/new"
  mv "$folder/programs/new" "$folder/programs/promtool"
fi
echo "$folder" >&8
