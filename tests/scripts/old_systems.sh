#!/usr/bin/env bash
# Runs one program file on bare trees of several systems: two ranks over socket and over gloo, a job of two hosts, an elastic job that
# loses a rank, the tutorial; and installs the Debian package that lies beside the file, if there is one.
#
# Usage: tests/scripts/old_systems.sh [--directory DIR] FILE [SUITE...]
#   --directory DIR  keep the trees there, for the next run (default: a new folder under /tmp, removed at the end)
#   FILE             the program, as tools/scripts/release.sh writes it
#   SUITE            bullseye bookworm trixie focal jammy noble musl; default: all. On musl, which is no glibc, the program cannot start:
#                    the shell must say so in one line
# Needs root, debootstrap, ip, and apt sources of Debian on the running system. Ubuntu's suites also need UBUNTU_MIRROR, a URL; they
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
[ -x "$program" ] || fail "there is no program $program"
shift
suites=("$@")
[ $# -gt 0 ] || suites=(bullseye bookworm trixie focal jammy noble musl)
[ "$(id -u)" -eq 0 ] || fail "needs root for chroot"
command -v debootstrap >/dev/null || fail "needs debootstrap (apt-get install debootstrap)"
command -v ip >/dev/null || fail "needs ip (apt-get install iproute2)"
package=$(find "$(dirname "$program")" -name 'engine_*.deb' | sort -V | tail -n 1)

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

# lay_out_musl: musl's loader and a static shell.
lay_out_musl() {
  local tree="$directory/musl" file
  mkdir -p "$tree"/{bin,etc,tmp,proc,dev/shm,usr/local/bin}
  (cd "$tree" && apt-get -q -o APT::Sandbox::User=root download musl busybox-static) || return
  for file in "$tree"/*.deb; do dpkg-deb --extract "$file" "$tree" || return; done
  ln -sf busybox "$tree/bin/sh"
  echo 'PRETTY_NAME="musl, busybox"' >"$tree/etc/os-release"
}
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
  if [ "$1" = musl ]; then
    lay_out_musl || return
    touch "$directory/musl.complete"
    return
  fi
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
if [ -f /tmp/engine.deb ]; then
  dpkg --install /tmp/engine.deb
  cmp /usr/bin/engine /usr/local/bin/engine
  dpkg --purge engine
  lap package
fi
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

clean=(env --ignore-environment HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
inside() { "${clean[@]}" chroot "$tree" "$@" </dev/null; }  # COMMAND...
# two_hosts: a job of two hosts with network, name and /dev/shm of their own and a cable between them; they share the file system.
two_hosts() {
  local i hosts=() ranks=() status=0 begin
  begin=$(date +%s%N)
  for i in 0 1; do
    unshare --net --uts --mount --propagation private sh -c "hostname host-$i && mount -t tmpfs tmpfs '$tree/dev/shm' &&
      ip link set lo up && exec sleep 1000" &
    hosts+=($!)
  done
  for i in 0 1; do
    until [ "$(nsenter --target "${hosts[i]}" --uts hostname)" = "host-$i" ]; do sleep 0.1; done
  done
  ip link add cable0 netns "${hosts[0]}" type veth peer name cable1 netns "${hosts[1]}" || return
  for i in 0 1; do
    nsenter --target "${hosts[i]}" --net sh -c "ip address add 10.99.0.$((i + 1))/24 dev cable$i && ip link set cable$i up"
  done
  for i in 0 1; do
    nsenter --target "${hosts[i]}" --net --uts --mount "${clean[@]}" chroot "$tree" engine launch --nnodes 2 --node-rank "$i" \
      --nproc-per-node 2 --master-addr 10.99.0.1 --master-port 29500 train --model mlp --dataset glyphs --limit 4000 --steps 60 \
      --threads 1 --save-dir /tmp/hosts --save-rank-models </dev/null &
    ranks+=($!)
  done
  for i in 0 1; do wait "${ranks[i]}" || status=$?; done
  kill "${hosts[@]}"
  inside engine verify /tmp/hosts/final_model_rank_0.ckpt /tmp/hosts/final_model_rank_3.ckpt || status=$?
  inside grep -q host-1 /tmp/hosts/run.json || status=$?
  echo "lap two-hosts $((($(date +%s%N) - begin) / 1000000000))"
  return "$status"
}

run_on_musl() {
  local status=0
  install -m 755 "$program" "$tree/usr/local/bin/engine" || return
  inside /bin/sh -c 'engine version' >"$directory/musl.log" 2>&1 || status=$?
  [ "$status" -eq 127 ] && [ "$(wc -l <"$directory/musl.log")" -eq 1 ]
}
run_on() {  # SUITE
  local tree="$directory/$1"
  if [ "$1" = musl ]; then
    run_on_musl
    return
  fi
  install -m 755 "$program" "$tree/usr/local/bin/engine"
  mkdir -p "$tree/source" "$tree/dev/shm"
  mount --bind "$root" "$tree/source"
  mount -t proc proc "$tree/proc"
  mount -t tmpfs tmpfs "$tree/dev/shm"
  mount -t tmpfs tmpfs "$tree/tmp"
  cp "$directory/commands" "$tree/tmp/commands"
  [ -z "$package" ] || cp "$package" "$tree/tmp/engine.deb"
  { two_hosts && inside bash /tmp/commands; } >"$directory/$1.log" 2>&1
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
    bullseye | bookworm | trixie | musl) ;;
    *) fail "unknown suite $suite (see --help)" ;;
  esac
  status=0
  [ -f "$directory/$suite.complete" ] || lay_out "$suite" || status=$?
  [ "$status" -ne 0 ] || run_on "$suite" || status=$?
  name=$(. "$directory/$suite/etc/os-release" 2>/dev/null && echo "$PRETTY_NAME" || echo "$suite")
  if [ "$status" -eq 0 ]; then
    passed=$((passed + 1))
    if [ "$suite" = musl ]; then
      table+=("$name: does not start, as expected: $(cat "$directory/musl.log")")
      continue
    fi
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
