#!/usr/bin/env bash
# Runs quickstart.sh and test.sh, each twice, and the commands of README's table "Install", on a bare Debian 12: a fresh system tree
# with nothing but git.
#
# Usage: tests/scripts/bare_debian.sh [--keep] [--only quickstart|test|install] [DIRECTORY]
#   --keep     leave the system tree in DIRECTORY (default: a new folder under /tmp) and use it again if it is there
#   --only     run only this script
# Needs root, debootstrap, and apt sources of Debian 12 on the running system: they are used inside the tree too.
# What runs is a clone of the last commit. Every run happens, also after a failure; the times of all of them come last, and the exit
# status is 1 if any of them failed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../tools/scripts/lib.sh"

keep=no directory="" scripts=(quickstart test install)
while [ $# -gt 0 ]; do
  case $1 in
    --keep) keep=yes ;;
    --only) [ $# -ge 2 ] || fail "--only needs a value"; scripts=("$2"); shift ;;
    -h | --help) usage; exit 0 ;;
    -*) fail "unknown option $1 (see --help)" ;;
    *) directory=$1 ;;
  esac
  shift
done
[ "$(id -u)" -eq 0 ] || fail "needs root for chroot"
command -v debootstrap >/dev/null || fail "needs debootstrap (apt-get install debootstrap)"
[ -n "$directory" ] || directory=$(mktemp -d /tmp/bare-debian.XXXXXX)
system="$directory/system"

mounted=()
clean_up() {
  local i
  for ((i = ${#mounted[@]} - 1; i >= 0; --i)); do
    umount "${mounted[i]}" || return  # never delete below something still mounted
  done
  [ "$keep" = yes ] || rm -rf --one-file-system "$directory"
}
trap clean_up EXIT

if [ ! -f "$directory/complete" ]; then
  mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' | awk '$2 == "bookworm" { print $1; exit }')
  [ -n "$mirror" ] || fail "the running system's apt has no source for Debian 12 (bookworm)"
  step "Laying out a bare Debian 12 in $system"
  mkdir -p "$directory"
  debootstrap --variant=minbase --include=git bookworm "$system" "$mirror" >"$directory/debootstrap.log" 2>&1 ||
    fail "debootstrap failed; see $directory/debootstrap.log"
  # The running system's way to the package sources, whatever it is.
  rm -f "$system/etc/apt/sources.list"
  for item in sources.list sources.list.d apt.conf apt.conf.d auth.conf.d keyrings trusted.gpg.d; do
    [ ! -e "/etc/apt/$item" ] || cp -a "/etc/apt/$item" "$system/etc/apt/"
  done
  touch "$directory/complete"
fi
for item in resolv.conf hosts; do
  cat "/etc/$item" >"$system/etc/$item"
done
attach() {  # TYPE PLACE
  mkdir -p "$system/$2"
  mount -t "$1" "$1" "$system/$2"
  mounted+=("$system/$2")
}
attach proc proc
attach sysfs sys
attach tmpfs dev/shm

step "Cloning the last commit"
rm -rf "$system/root/engine"
git clone --quiet --no-hardlinks "$root" "$system/root/engine"
results=() failed=no
inside() { env --ignore-environment HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$system" "$@"; }

# install_row NAME COMMANDS PROGRAM: types a row's commands in the clone; then the program trains. A row begins with the packages of
# the bare system where the tree can be copied; here rows follow one another, the Debian package first.
install_row() {
  local begin=$SECONDS status=0
  step "README, Install: $1"
  inside bash -euc "cd /root/engine && $2" </dev/null || status=$?
  if [ "$status" -eq 0 ] && [ -n "$3" ]; then
    inside bash -euc "cd /root/engine && $3 train --model mlp --dataset synthetic --synthetic-size 200 --steps 3 --spawn 2" || status=$?
  fi
  [ "$status" -eq 0 ] || failed=yes
  results+=("README, Install, $1: $((SECONDS - begin)) s, exit status $status")
}
walk_install_table() {
  local rows=0 name commands program
  echo 'APT::Get::Assume-Yes "true";' >"$system/etc/apt/apt.conf.d/99answers"
  while IFS='|' read -r _ name commands _; do
    commands=$(sed -n 's/^[^`]*`\([^`]*\)`.*/\1/p' <<<"$commands")
    case $commands in
      *deb.sh*) program=/usr/bin/engine ;;
      *--install*) program=/root/.local/bin/engine ;;
      *wheel.sh*) program=/root/engine-venv/bin/engine commands="apt-get -q install python3-venv && $commands" ;;
      *container.sh*) program="" commands=${commands%% &&*} ;;  # podman needs more than a chroot has
      *bundle.sh*) program='engine-*/bin/engine' ;;
      *) continue ;;
    esac
    rows=$((rows + 1))
    install_row "$name" "$commands" "$program"
  done < <(sed -n '/^## Install/,/^Each brings/p' "$root/README.md" | grep '^| ')
  [ "$rows" -eq 5 ] || fail "README's table has $rows rows that this script knows, expected 5"
}

for script in "${scripts[@]}"; do
  if [ "$script" = install ]; then
    walk_install_table
    continue
  fi
  for time in first second; do
    step "$script.sh, $time time"
    begin=$SECONDS status=0
    inside /root/engine/tools/"$script.sh" || status=$?
    [ "$status" -eq 0 ] || failed=yes
    results+=("$script.sh, $time time: $((SECONDS - begin)) s, exit status $status")
  done
done
step "Times"
printf '%s\n' "${results[@]}"
[ "$failed" = no ]
