#!/usr/bin/env bash
# Types the commands of README.md and docs/tutorial.md on a bare Debian 12: each part in a fresh
# system tree that contains nothing but git.
#
# Usage: tests/scripts/bare_debian.sh [--keep] [--only PART [--row KIND]] [DIRECTORY]
#   --only PART  run one part:
#     install     each row of README's table "Install": what it needs, then its commands. The program
#                 trains, and has manual pages and completion. Then what the row has built is installed
#                 in a second bare tree, without packages for building and without the source tree.
#     tutorial    docs/tutorial.md, from the build of its package to its last command
#     quickstart  tools/quickstart.sh, twice
#     test        tools/test.sh, twice
#   --row KIND   of the table only this row: file, old-deb, deb, source, wheel, container or bundle
#   --keep       leave everything in DIRECTORY (default: a new folder under /tmp), for the next run
# Needs root, debootstrap, and apt sources of Debian 12 on the running system: they are used inside the
# trees too, which are in memory (2 GB). What runs is a clone of the last commit. The trees share this
# clone, so the first part builds it and the next ones find its objects; they also share downloaded
# packages. Every part runs, also after a failure. Their times come last, and then "N passed, N failed,
# N skipped".
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../tools/scripts/lib.sh"

keep=no directory="" row="" parts=(install tutorial quickstart test)
while [ $# -gt 0 ]; do
  case $1 in
    --keep) keep=yes ;;
    --only)
      case ${2:-} in
        install | tutorial | quickstart | test) parts=("$2"); shift ;;
        *) fail "--only takes install, tutorial, quickstart or test, not '${2:-}'" ;;
      esac ;;
    --row)
      case ${2:-} in
        file | old-deb | deb | source | wheel | container | bundle) row=$2; shift ;;
        *) fail "--row takes file, old-deb, deb, source, wheel, container or bundle, not '${2:-}'" ;;
      esac ;;
    -h | --help) usage; exit 0 ;;
    -*) fail "unknown option $1 (see --help)" ;;
    *) directory=$1 ;;
  esac
  shift
done
[ "$(id -u)" -eq 0 ] || fail "needs root for chroot"
command -v debootstrap >/dev/null || fail "needs debootstrap (apt-get install debootstrap)"
[ -n "$directory" ] || directory=$(mktemp -d /tmp/bare-debian.XXXXXX)
mkdir -p "$directory"
directory=$(cd "$directory" && pwd -P)
case $directory in *[[:space:]]*) fail "the name of $directory contains white space" ;; esac
bare="$directory/bare" system="" clone="$directory/engine"

# release TREE: unmounts what attach() has mounted below it, and deletes it.
release() {
  local place
  while read -r place; do
    umount "$place" || return  # never delete below something still mounted
  done < <(awk -v tree="$1" '$5 == tree || index($5, tree "/") == 1 { print $5 }' /proc/self/mountinfo | sort -r)
  rm -rf --one-file-system "$1"
}
clean_up() {
  release "$directory/builder" && release "$directory/machine" || return
  [ "$keep" = yes ] || rm -rf --one-file-system "$directory"
}
trap clean_up EXIT

lay_out_bare() {
  local mirror item
  mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' |
    awk '$2 == "bookworm" { print $1; exit }')
  [ -n "$mirror" ] || fail "the running system's apt has no source for Debian 12 (bookworm)"
  step "Laying out a bare Debian 12 in $bare"
  rm -rf --one-file-system "$bare"
  debootstrap --variant=minbase --include=git bookworm "$bare" "$mirror" >"$directory/log" 2>&1 || {
    tail -n 5 "$directory/log" >&2
    fail "debootstrap failed (see above)"
  }
  # The running system's way to the package sources, whatever it is.
  rm -f "$bare/etc/apt/sources.list"
  for item in sources.list sources.list.d apt.conf apt.conf.d auth.conf.d keyrings trusted.gpg.d; do
    [ ! -e "/etc/apt/$item" ] || cp -a "/etc/apt/$item" "$bare/etc/apt/"
  done
  # A user answers yes. Downloads are kept for the other trees, whatever a container's image says.
  printf '%s\n' 'APT::Get::Assume-Yes "true";' 'APT::Keep-Downloaded-Packages "true";' \
    '#clear DPkg::Post-Invoke;' '#clear APT::Update::Post-Invoke;' >"$bare/etc/apt/apt.conf.d/zz-rows"
  for item in resolv.conf hosts; do
    cat "/etc/$item" >"$bare/etc/$item"
  done
  # Certificates of authorities that the running system has added, for pip.
  mkdir -p "$bare/usr/local/share/ca-certificates"
  cp /usr/local/share/ca-certificates/*.crt "$bare/usr/local/share/ca-certificates/" 2>/dev/null || true
  touch "$directory/complete"
}

attach() {  # PLACE MOUNT'S ARGUMENT...
  mkdir -p "$system/$1"
  mount "${@:2}" "$system/$1"
}
# enter builder|machine: a fresh bare tree, the one that inside() runs commands in from now on; a
# builder has the clone, in /root/engine.
enter() {
  system="$directory/$1"
  release "$system"
  attach "" -t tmpfs -o mode=755,size=4g tmpfs  # quick; and podman needs a root that is a mount
  cp -a "$bare/." "$system/"
  attach proc -t proc proc
  attach sys -t sysfs sysfs
  attach dev/shm -t tmpfs tmpfs
  attach dev/pts -t devpts devpts
  attach var/cache/apt/archives --bind "$directory/archives"
  [ "$1" = machine ] || attach root/engine --bind "$clone"
}
inside() {
  env --ignore-environment HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive chroot "$system" "$@" </dev/null
}
typed() {  # COMMANDS: as a user types them in the source tree
  printf '$ %s\n' "$1"
  inside bash -euo pipefail -c "cd /root/engine && $1"
}
installed_packages() { inside dpkg-query --show | wc -l; }

results=() passed=0 failed=0
# part NAME COMMAND...: runs it, also if an earlier one has failed; its last line goes to the table.
part() {
  local name=$1 begin=$SECONDS status=0 remark
  shift
  step "$name"
  rm -f "$directory/remark"
  set +e
  (set -e; "$@")
  status=$?
  set -e
  remark=$(cat "$directory/remark" 2>/dev/null || true)
  if [ "$status" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  results+=("$name: $((SECONDS - begin)) s, exit status $status${remark:+, $remark}")
}
remark() { printf '%s\n' "$*" >"$directory/remark"; }

# trains PROGRAM: it trains with two ranks, whose models are equal.
trains() {
  typed "$1 train --model mlp --dataset synthetic --synthetic-size 200 --steps 3 --spawn 2 \
--save-dir /tmp/run --save-rank-models"
  typed "$1 verify /tmp/run/final_model_rank_0.ckpt /tmp/run/final_model_rank_1.ckpt"
}
# explains SHARE: manual pages and completion for three shells are below it; bash completes by it.
explains() {
  local file reply
  for file in 'man1/engine-train.1*' _engine engine.fish; do
    typed "find $1 -path '*/$file' | grep ." || fail "no $file below $1"
  done
  reply=$(inside bash -euc "cd /root/engine
    . \$(find $1 -path '*/completions/engine' -o -name engine.bash)
    COMP_WORDS=(engine train --uneven j) COMP_CWORD=3
    _engine
    echo \"\${COMPREPLY[*]}\"")
  [ "$reply" = join ] || fail "bash completes --uneven j to '$reply'"
}
# The image runs as podman runs it, but with this system's network and limits, which a chroot in
# somebody's container cannot change.
image_trains() {
  attach sys/fs/cgroup -t cgroup2 cgroup2
  inside install -d -m 1777 /tmp/image
  trains "podman run --rm --network host --cgroups disabled --ulimit nofile=512:512 \
--ulimit nproc=4000:4000 -v /tmp/image:/tmp engine:$version"
}
works() {  # KIND
  case $1 in
    file) trains '~/.local/bin/engine' ;;
    deb | old-deb) trains engine; explains /usr/share ;;
    source) trains '~/.local/bin/engine'; explains '~/.local/share' ;;
    wheel) trains '~/engine-venv/bin/engine'; explains '~/engine-venv/share' ;;
    bundle) trains 'engine-*/bin/engine'; explains 'engine-*/share' ;;
    container) image_trains ;;
  esac
}

# install_row KIND FILES NEEDS COMMANDS: the row on the machine that builds; then, if it builds FILES
# to be taken elsewhere, all that follows the script, on another machine.
install_row() {
  local kind=$1 files=$2 needs=$3 commands=$4 before after begin=$SECONDS built
  rm -rf "$clone"/engine-*
  enter builder
  [ -z "$needs" ] || { inside apt-get -q update; typed "$needs"; }
  before=$(installed_packages)
  typed "$commands"
  after=$(installed_packages)
  works "$kind"
  built=$((SECONDS - begin))
  remark "$((after - before)) packages installed to build"
  [ -n "$files" ] || return 0
  begin=$SECONDS
  step "Another machine"
  enter machine
  mkdir -p "$system/root/engine/build/$(dirname "$files")"
  cp "$clone"/build/$files "$system/root/engine/build/$(dirname "$files")/"
  [ "$kind" = bundle ] || [ "$kind" = file ] || inside apt-get -q update
  [ -z "$needs" ] || typed "$needs"
  typed "${commands#* && }"
  works "$kind"
  remark "$((after - before)) packages installed to build, $built s; another machine $((SECONDS - begin)) s"
}

walk_install_table() {
  local rows=0 name needs commands kind files
  code() { sed -n 's/^[^`]*`\([^`]*\)`.*/\1/p' <<<"$1"; }
  rm -rf "$clone"/build/*.deb "$clone"/build/release-*/dist
  while IFS='|' read -r _ name needs commands _; do
    commands=$(code "$commands") needs=$(code "$needs")
    case $commands in
      *'--cuda '*) continue ;;  # Debian's archive has no toolkit of CUDA 12.4
      *'--only file'*) kind=file files='release-x86_64/dist/engine-*-linux-x86_64' ;;
      *'--only deb'*) kind=old-deb files='release-x86_64/dist/engine_*.deb' ;;
      *'--only wheel'*) kind=wheel files='release-x86_64/dist/engine_train-*.whl' ;;
      *'--only container'*) kind=container files='release-x86_64/dist/engine-*-oci.tar' ;;
      *'--only bundle'*) kind=bundle files='release-x86_64/dist/engine-*.tar.gz' ;;
      *deb.sh*) kind=deb files='engine_*.deb' ;;
      *--install*) kind=source files="" ;;
      *) continue ;;
    esac
    rows=$((rows + 1))
    [ "${row:-$kind}" = "$kind" ] || continue
    part "README, Install, ${name//[[:space:]]/ }" install_row "$kind" "$files" "$needs" "$commands"
  done < <(sed -n '/^## Install/,/^## First run/p' "$clone/README.md" | grep '^| ')
  [ "$rows" -eq 7 ] || fail "README's table has $rows rows that this script knows, expected 7"
}

# The commands in a block of docs/tutorial.md.
block() {  # WORD: of a block that begins with ```sh WORD
  awk -v begin="\`\`\`sh $1" '/^```/ { inside = $0 == begin; next } inside' "$clone/docs/tutorial.md"
}
walk_tutorial() {
  local word commands status=0
  enter builder
  for word in build install needs; do
    commands=$(block "$word")
    [ -n "$commands" ] || fail "docs/tutorial.md has no block of commands '$word'"
    typed "$commands"
  done
  inside sh -c 'command -v engine python3 curl' || fail "the tutorial does not install what it uses"
  typed "tests/scripts/tutorial_test.sh /usr/bin/engine" || status=$?
  [ "$status" -eq 0 ] || [ "$status" -eq 77 ] || fail "the tutorial ends with exit status $status"
}

mkdir -p "$directory/archives"
[ -f "$directory/complete" ] || lay_out_bare
step "Cloning the last commit"
if [ -d "$clone" ]; then
  git -C "$clone" fetch --quiet "$root" HEAD
  git -C "$clone" checkout --quiet --force --detach FETCH_HEAD
else
  git clone --quiet --no-hardlinks "$root" "$clone"
fi
version=$(sed -n 's/^project(engine VERSION \([0-9.]*\).*/\1/p' "$clone/CMakeLists.txt")

for script in "${parts[@]}"; do
  case $script in
    install) walk_install_table ;;
    tutorial) part "docs/tutorial.md" walk_tutorial ;;
    *)
      enter builder
      for time in first second; do
        part "$script.sh, $time time" typed "tools/$script.sh"
      done ;;
  esac
done
step "Times"
printf '%s\n' "${results[@]}" "" "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
