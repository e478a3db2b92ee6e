# Shared by the scripts of this folder: prerequisites, waiting, checking. Sourced.

checks=0

skip() {
  echo "skipped: $*"
  exit 77
}
need_root() { [ "$(id -u)" -eq 0 ] || skip "needs root"; }
need_tools() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || skip "no $tool here (tools/install_dependencies.sh --tests --cluster)"
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
  "$@" || fail "$what ($*)"
  checks=$((checks + 1))
  echo "ok: $what"
}

# wait_for SECONDS WHAT COMMAND...
wait_for() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || fail "no $what in time"
    sleep 0.1
  done
}

# in_sync ENGINE COUNT FOLDER: the ranks' final models are COUNT, and their parameters have the same bits.
in_sync() {
  local models
  mapfile -t models < <(find "$3" -name '*rank*' -type f | sort)
  check "$2 models in $(basename "$3")" test "${#models[@]}" -eq "$2"
  check "engine verify $(basename "$3"): in sync" "$1" verify --only params "${models[@]}"
}
