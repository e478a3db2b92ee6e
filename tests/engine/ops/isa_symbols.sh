#!/bin/sh
# Checks the object files of one instruction set: every symbol that the linker may merge with one of another object (weak and
# unique ones) must belong to that instruction set's own namespaces. Else code for one CPU could end up in another's path.
# Usage: gemm_isa_symbols.sh NM NAME OBJECT...
set -eu
nm=$1 isa=$2
shift 2
[ $# -gt 0 ] || { echo "no object files given"; exit 1; }
"$nm" --defined-only --format=posix "$@" >/dev/null
foreign=$("$nm" --defined-only --format=posix "$@" | awk -v isa="$isa" \
  '$2 ~ /^[WVwvu]$/ && $1 !~ ("isa_" isa) && $1 !~ ("Eigen_" isa) && $1 !~ /^DW\.ref\./ {print $1}' | sort -u)
if [ -n "$foreign" ]; then
  echo "symbols outside isa_$isa that the linker may merge:"
  echo "$foreign"
  exit 1
fi
