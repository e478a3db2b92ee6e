#!/usr/bin/env bash
# Plants known faults in a copy of the store's state machines, one at a time, and expects the
# simulation to find each of them.
#
# Usage: tests/simulation/planted_bugs.sh [SEEDS]
# Needs the packages of tools/scripts/install_dependencies.sh --tests. Takes a few minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seeds=${1:-20000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
protocol=backends/store/protocol
sources=("$protocol"/*.cc backends/store/{secret,tcp_socket}.cc backends/{open_files,interruptible_wait}.cc
  io/base/{digest,visible_text}.cc tests/simulation/*.cc)

compile() {  # FILE
  g++ -std=c++20 -O1 -w -I. -DENGINE_SIMULATED_HISTORIES="$seeds" -c "$1" -o "$work/$(basename "$1" .cc).o"
}
export -f compile
export work seeds
printf '%s\0' "${sources[@]}" | xargs -0 -P "$(nproc)" -n 1 bash -c 'compile "$1"' _

run() {  # whether the simulation passes
  g++ -o "$work/simulation" "$work"/*.o -lgtest -lgtest_main -lsodium -lxxhash -pthread
  timeout 300 "$work/simulation" --gtest_filter='*Nobody*' >"$work/log" 2>&1
}
if ! run; then
  cat "$work/log"
  echo "planted_bugs.sh: the simulation fails without a planted fault" >&2
  exit 1
fi

found=0 missed=0
# plant WHAT FILE SED: the edit must change the file.
plant() {
  local file=$protocol/$2.cc
  cp -r backends io tests "$work/" 2>/dev/null || true
  sed -E -i "$3" "$work/$file"
  if cmp -s "$file" "$work/$file"; then
    echo "planted_bugs.sh: \"$1\" changes nothing in $file" >&2
    exit 1
  fi
  (cd "$work" && g++ -std=c++20 -O1 -w -I. -c "$file" -o "$work/$2.o")
  if run; then
    echo "missed: $1"
    missed=$((missed + 1))
  else
    echo "found: $1 ($(grep -m 1 -o '^seed [0-9]*' "$work/log" || echo 'by its time'))"
    found=$((found + 1))
  fi
  compile "$file"
}

plant "rank 0 ignores that it was taken for dead" server_members \
  's/if \(!started_ \|\| root == nullptr\) return;/return;/'
plant "rank 0 does not notice silence" server_members 's/if \(now_ - l.last_received > silence\) .*//'
plant "rank 0 blames others for its own pause" server_members 's/if \(paused\) l.last_received = now_;//'
plant "rank 0 sends no heartbeats" server_members 's/^  broadcast\(FrameWriter\(FrameType::kHeartbeat\)/  (void)(FrameWriter(FrameType::kHeartbeat)/'
plant "a member does not notice the silence of rank 0" member_machine \
  's/if \(now - last_received_ <= .*/return;/'
plant "a member blames rank 0 for its own pause" member_machine \
  's/^    last_received_ = now;/    ;/'
plant "a broken connection cannot be made again" server_members 's/if \(same && \(member == nullptr.*/if (false) return "";/'
plant "a lost member is not declared dead" server_members 's/declare_failure\(l, "died: " \+ l.end\);//'
plant "who was silent is not told" server_members 's/^      tell_silent\(l\);//'
plant "the end of an earlier connection counts as the member's" server_members \
  's/if \(place != &l\) return;.*//'
plant "a rank that was lost at the start is forgotten" server_members \
  's/^    if \(now_ < absent.until\) continue;/    continue;/'
plant "rank 0 ends before the others have" server_machine \
  's/return std::ranges::none_of\(links_,/return true || std::ranges::none_of(links_,/'
echo "$found found, $missed missed"
[ "$missed" -eq 0 ]
