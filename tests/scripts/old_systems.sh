#!/usr/bin/env bash
# Runs one program file on bare trees of several systems: the tutorial, two ranks over socket and over gloo, an elastic job.
#
# Usage: tests/scripts/old_systems.sh [--directory DIR] FILE [SUITE...]
#   --directory DIR  keep the trees there, for the next run (default: a new folder under /tmp, removed at the end)
#   FILE             the program, as tools/scripts/release.sh writes it
#   SUITE            bullseye bookworm trixie focal jammy noble; default: all
# Needs root, debootstrap, and apt sources of Debian on the running system. Ubuntu's suites also need UBUNTU_MIRROR, a URL; they
# are skipped without. Every suite runs, also after a failure; a table comes last, and then "N passed, N failed, N skipped".
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../tools/scripts/lib.sh"

directory=""
if [ "${1:-}" = --directory ]; then
  directory=${2:?--directory needs a value}
  shift 2
fi
case ${1:-} in "" | -h | --help) usage; exit 0 ;; esac
program=$(realpath "$1")
shift
suites=("$@")
[ $# -gt 0 ] || suites=(bullseye bookworm trixie focal jammy noble)
[ "$(id -u)" -eq 0 ] || fail "needs root for chroot"
command -v debootstrap >/dev/null || fail "needs debootstrap (apt-get install debootstrap)"

# In a mount namespace of its own: what is mounted below goes with this process.
if [ "${ENGINE_OLD_SYSTEMS:-}" != inside ]; then
  options=()
  [ -z "$directory" ] || options=(--directory "$directory")
  ENGINE_OLD_SYSTEMS=inside exec unshare --mount --propagation private "$0" "${options[@]}" "$program" "${suites[@]}"
fi
kept=yes
[ -n "$directory" ] || { directory=$(mktemp -d /tmp/old-systems.XXXXXX); kept=no; }
mkdir -p "$directory"
clean_up() {
  local place
  while read -r place; do umount --lazy "$place" || return; done < <(
    awk -v tree="$directory/" 'index($5, tree) == 1 { print $5 }' /proc/self/mountinfo | sort -r)
  [ "$kept" = yes ] || rm -rf --one-file-system "$directory"
}
trap clean_up EXIT
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' | awk '$2 == "bookworm" { print $1; exit }')

# lay_out SUITE: a tree with what the tutorial needs besides the program.
lay_out() {
  local source=$mirror options=(--include=python3,curl) script=()
  [ -n "$source" ] || fail "the running system's apt has no source for Debian 12 (bookworm)"
  case $1 in
    focal | jammy | noble)
      source=$UBUNTU_MIRROR
      options+=(--components=main,universe)
      # The running system may lack Ubuntu's keys. Nothing of the tree is used outside it.
      [ -f /usr/share/keyrings/ubuntu-archive-keyring.gpg ] || options+=(--no-check-gpg)
      # All of Ubuntu's suites have the same script, and an older debootstrap does not know the newest name.
      [ -f "/usr/share/debootstrap/scripts/$1" ] || script=(/usr/share/debootstrap/scripts/jammy) ;;
  esac
  rm -rf --one-file-system "${directory:?}/$1"
  debootstrap --variant=minbase "${options[@]}" "$1" "$directory/$1" "$source" "${script[@]}" >"$directory/$1.log" 2>&1 || {
    tail -n 5 "$directory/$1.log"
    return 1
  }
  touch "$directory/$1.complete"
}

cat >"$directory/commands" <<'END'
set -euo pipefail
begin=$(date +%s%N)
lap() {  # NAME: prints the time since the last one
  local now tenths
  now=$(date +%s%N)
  tenths=$(((now - begin) / 100000000))
  echo "lap $1 $((tenths / 10)).$((tenths % 10))"
  begin=$now
}
cd "$(mktemp -d)"
engine version
lap start
for backend in socket gloo; do
  engine train --model mlp --dataset glyphs --limit 4000 --steps 60 --spawn 2 --threads 1 --backend "$backend" \
    --save-dir "$backend" --save-rank-models
  engine verify "$backend/final_model_rank_0.ckpt" "$backend/final_model_rank_1.ckpt"
  lap "$backend"
done
# One rank of four is killed; the others go on to the end.
engine train --model mlp --dataset glyphs --limit 8000 --epochs 6 --spawn 4 --threads 1 --elastic --save-dir elastic >log 2>&1 &
job=$!
until grep -q 'Step \[' log; do
  kill -0 "$job" || { cat log; exit 1; }
  sleep 0.1
done
ranks=($(cat "/proc/$job/task/$job/children"))
kill -KILL "${ranks[2]}"
wait "$job" || { cat log; exit 1; }
grep 'membership: 3 ranks' log
engine eval elastic
lap elastic
# The tutorial's own test: its commands, and what they have made. 77: programs that judge are missing.
status=0
/source/tests/scripts/tutorial_test.sh /usr/local/bin/engine || status=$?
[ "$status" -eq 0 ] || [ "$status" -eq 77 ]
lap tutorial
END

run_on() {  # SUITE
  local tree="$directory/$1"
  install -m 755 "$program" "$tree/usr/local/bin/engine"
  mkdir -p "$tree/source" "$tree/dev/shm"
  mount --bind "$root" "$tree/source"
  mount -t proc proc "$tree/proc"
  mount -t tmpfs tmpfs "$tree/dev/shm"
  mount -t tmpfs tmpfs "$tree/tmp"
  cp "$directory/commands" "$tree/tmp/commands"
  env --ignore-environment HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    chroot "$tree" bash /tmp/commands </dev/null >"$directory/$1.log" 2>&1
}

passed=0 failed=0 skipped=0 table=()
for suite in "${suites[@]}"; do
  step "$suite"
  case $suite in
    focal | jammy | noble)
      if [ -z "${UBUNTU_MIRROR:-}" ]; then
        echo "skipped: UBUNTU_MIRROR is not set"
        skipped=$((skipped + 1))
        continue
      fi ;;
    bullseye | bookworm | trixie) ;;
    *) fail "unknown suite $suite (see --help)" ;;
  esac
  status=0
  [ -f "$directory/$suite.complete" ] || lay_out "$suite" || status=$?
  [ "$status" -ne 0 ] || run_on "$suite" || status=$?
  name=$(. "$directory/$suite/etc/os-release" 2>/dev/null && echo "$PRETTY_NAME" || echo "$suite")
  if [ "$status" -eq 0 ]; then
    passed=$((passed + 1))
    table+=("$name, glibc $(chroot "$directory/$suite" ldd --version | awk 'NR == 1 { print $NF }'): $(
      sed -n 's/^lap //p' "$directory/$suite.log" | awk '{ printf "%s%s %s s", (NR > 1 ? ", " : ""), $1, $2 }')")
  else
    failed=$((failed + 1))
    tail -n 20 "$directory/$suite.log"
    table+=("$name: failed with exit status $status")
  fi
done
step "Systems"
printf '%s\n' "${table[@]}" "" "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
