# Shared by the scripts of this folder: prerequisites, waiting, checking. Sourced.

# scaled SECONDS: a time limit that grows with the load, as in tests/support/time_limits.h.
scaled() {
  awk -v base="$1" -v given="${ENGINE_TEST_TIME_SCALE:-1}" -v cores="$(nproc)" '{
    split($4, running, "/")
    load = ($1 > running[1] ? $1 : running[1]) / cores
    scale = 2 * load < 1 ? 1 : 2 * load > 20 ? 20 : 2 * load
    print int(base * given * scale + 1)
  }' /proc/loadavg
}

checks=0

skip() {
  echo "skipped: $*"
  exit 77
}
need_root() { [ "$(id -u)" -eq 0 ] || skip "needs root"; }
need_tools() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || skip "no $tool here (tools/scripts/install_dependencies.sh --tests --cluster)"
  done
}

# fail WHAT [FILE...]: ends the test and shows the files.
fail() {
  echo "FAILED: $1" >&2
  shift
  for file in "$@"; do
    echo "---- $file" >&2
    tail -n 20 "$file" >&2
  done
  exit 1
}

# check WHAT COMMAND...
check() {
  local what=$1
  shift
  "$@" || fail "$what ($*)" $([ -f "${!#}" ] && echo "${!#}")  # the file that was searched
  checks=$((checks + 1))
  echo "ok: $what"
}

# end_with NAME CODES: waits for the processes in `ranks`, whose output is in $folder/NAME.RANK.log, and compares their exit codes.
end_with() {
  local codes="" status pid
  for pid in "${ranks[@]}"; do
    status=0
    wait "$pid" || status=$?
    codes+="$status "
  done
  [ "$codes" = "$2" ] || fail "$1: exit codes $codes, expected $2" "$folder/$1".[012].log
  checks=$((checks + 1))
  echo "ok: $1: exit codes $codes"
}

# wait_for SECONDS WHAT COMMAND...: scaled
wait_for() {
  local begin=$SECONDS base=$1 what=$2
  shift 2
  until "$@"; do
    [ $((SECONDS - begin)) -lt "$(scaled "$base")" ] || fail "no $what in time"
    sleep 0.1
  done
}

hosts=3 # that make_hosts() makes

# make_hosts BASE SUBNET: network namespaces BASE-0, BASE-1, ... with SUBNET.1, .2, ... on data0, joined by a bridge in BASE-hub. Skips where the system has none. BASE must be unique: other runs may use this machine.
make_hosts() {
  local base=$1 subnet=$2 i
  need_root
  need_tools ip
  ip netns add "$base-hub" 2>/dev/null || skip "cannot make a network namespace"
  ip -n "$base-hub" link add bridge type bridge 2>/dev/null || skip "the kernel has no bridge"
  ip -n "$base-hub" link set bridge up
  for ((i = 0; i < hosts; ++i)); do
    ip netns add "$base-$i"
    ip -n "$base-hub" link add "port$i" type veth peer name data0 netns "$base-$i"
    ip -n "$base-hub" link set "port$i" master bridge up
    ip -n "$base-$i" address add "$subnet.$((i + 1))/24" dev data0
    ip -n "$base-$i" link set data0 up
    ip -n "$base-$i" link set lo up
  done
}
# Also removes their interfaces.
remove_hosts() {
  local i
  for i in $(seq 0 $((hosts - 1))) hub; do ip netns delete "$1-$i" 2>/dev/null || true; done
}

# on_hosts SUBNET: make_hosts under a unique name, `base`, and a temporary folder, `folder`. When the script ends, for whatever
# reason, the processes of the list `ranks`, the hosts and the folder are removed.
on_hosts() {
  base=engine$$
  folder=$(mktemp -d)
  ranks=()
  trap leave_hosts EXIT
  make_hosts "$base" "$1"
}
leave_hosts() {
  local status=$? pid
  for pid in "${ranks[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  remove_hosts "$base"
  rm -rf "$folder"
  exit "$status"
}

# put_behind_router I: BASE-I becomes a router that masquerades. Behind it lies BASE-inI, which has the address 192.168.7.2 on data0.
inside=() # such namespaces, which remove_inside removes
put_behind_router() {
  local router=$base-$1 name=$base-in$1
  ip netns add "$name"
  inside+=("$name")
  ip -n "$router" link add inner type veth peer name data0 netns "$name"
  ip -n "$router" address add 192.168.7.1/24 dev inner
  ip -n "$router" link set inner up
  ip -n "$name" address add 192.168.7.2/24 dev data0
  ip -n "$name" link set data0 up
  ip -n "$name" link set lo up
  ip -n "$name" route add default via 192.168.7.1
  ip netns exec "$router" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward' 2>/dev/null || skip "cannot make a router"
  ip netns exec "$router" iptables -t nat -A POSTROUTING -o data0 -j MASQUERADE 2>/dev/null || skip "the kernel has no masquerading"
}
remove_inside() {
  local name
  for name in "${inside[@]}"; do ip netns delete "$name" 2>/dev/null || true; done
}

# in_sync ENGINE COUNT FOLDER: the ranks' final models are COUNT, and their parameters have the same bits.
in_sync() {
  local models
  mapfile -t models < <(find "$3" -name '*rank*' -type f | sort)
  check "$2 models in $(basename "$3")" test "${#models[@]}" -eq "$2"
  check "engine verify $(basename "$3"): in sync" "$1" verify --only params "${models[@]}"
}
