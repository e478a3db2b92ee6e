#!/usr/bin/env bash
# Plants known faults in a copy of the state machines of the store and of elastic membership, one at
# a time, and expects the simulation to find each of them.
#
# Usage: tests/simulation/planted_bugs.sh [SEEDS]
# Needs the packages of tools/scripts/install_dependencies.sh --tests. Takes a few minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seeds=${1:-20000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
protocol=backends/store/protocol membership=backends/membership simulation=tests/simulation
sources=("$protocol"/*.cc "$membership"/{roster,paxos,membership_message,membership_machine,membership_candidate}.cc backends/store/{secret,tcp_socket}.cc backends/{open_files,interruptible_wait}.cc
  io/base/{digest,visible_text}.cc tests/simulation/*.cc)

compile() {  # FILE
  g++ -std=c++20 -O1 -w -I. -DENGINE_SIMULATED_HISTORIES="$seeds" -c "$1" -o "$work/$(basename "$1" .cc).o"
}
export -f compile
export work seeds
printf '%s\0' "${sources[@]}" | xargs -0 -P "$(nproc)" -n 1 bash -c 'compile "$1"' _

run() {  # FILTER: whether the simulation passes
  g++ -o "$work/simulation" "$work"/*.o -lgtest -lgtest_main -lsodium -lxxhash -pthread
  timeout 300 "$work/simulation" --gtest_filter="$1" >"$work/log" 2>&1
}
if ! run '*Nobody*:*TheJobGoesOn*'; then
  cat "$work/log"
  echo "planted_bugs.sh: the simulation fails without a planted fault" >&2
  exit 1
fi

found=0 missed=0
# plant_in FOLDER FILTER WHAT FILE SED: the edit must change the file.
plant_in() {
  local folder=$1 filter=$2
  shift 2
  local file=$folder/$2.cc
  cp -r backends io tests "$work/" 2>/dev/null || true
  sed -E -i "$3" "$work/$file"
  if cmp -s "$file" "$work/$file"; then
    echo "planted_bugs.sh: \"$1\" changes nothing in $file" >&2
    exit 1
  fi
  (cd "$work" && g++ -std=c++20 -O1 -w -I. -c "$file" -o "$work/$2.o")
  if run "$filter"; then
    echo "missed: $1"
    missed=$((missed + 1))
  else
    echo "found: $1 ($(grep -m 1 -o '^seed [0-9]*' "$work/log" || echo 'by its time'))"
    found=$((found + 1))
  fi
  compile "$file"
}
plant() { plant_in "$protocol" '*Nobody*' "$@"; }
plant_elastic() { plant_in "$membership" '*TheJobGoesOn*' "$@"; }

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

plant_elastic "half of the votes are a quorum" paxos 's/return 2 \* votes > base/return 2 * votes + 2 > base/'
plant_elastic "of two halves each decides" paxos 's/return registers.contains\(base.members.front\(\).reg\);/return true;/'
plant_elastic "of two halves none decides" paxos 's/return registers.contains\(base.members.front\(\).reg\);/return false;/'
plant_elastic "a register has one vote" paxos \
  's/^  return 2 \* votes > .*/  std::set<RegisterId> all; for (const Member\& m : base.members) all.insert(m.reg); return 2 * registers.size() > all.size();/'
plant_elastic "a promise is not remembered" paxos 's/^  promised = ballot;//'
plant_elastic "an accepted value is not remembered" paxos 's/^  value = proposed;//'
plant_elastic "ballots are not compared" paxos 's/if \(ballot < promised\) .*//'
plant_elastic "a register votes on what is decided" paxos 's/^  if \(generation_of\(decided\) > generation_of\(base\)\) .*//'
plant_elastic "a value outlives its instance" paxos 's/^  \*this = .*/  decided = roster;/'
plant_elastic "the accepted value is ignored in prepare" membership_candidate 's/^    p.value = m.value;//'
plant_elastic "promises count as acceptances" membership_candidate 's/^  p.granted.clear\(\);//'
plant_elastic "a decision is not passed on to who is behind" membership_machine 's/^    send_news\(m.members.front\(\)\);//'
plant_elastic "who comes back keeps its state" membership_candidate 's/if \(!base \|\| !base->has\(m.id\)\) m.since/if (!base) m.since/'
plant_elastic "silence counts after an own pause" membership_machine \
  's/for \(auto& \[id, peer\] : peers_\) peer.last_heard = now;/;/'
plant_elastic "the slow are not waited for" membership_candidate 's/^      return;$/      continue;/'
plant_elastic "the old job is always dead" membership_candidate 's/^  return std::ranges::none_of\(roster_->members, .*/  return true || std::ranges::none_of(roster_->members, [\&](const Member\& m) {/'
plant_elastic "nobody takes the door over" membership_machine 's/\(is_member\(\) \|\| \(is_waiting\(\) && options_.may_found\)\)/taken_ == 0/'
plant_elastic "more than MAX are taken" membership_candidate 's/>= options_.most\) break;/>= options_.most + 1) break;/'
plant_elastic "fewer than MIN go on" membership_candidate 's/>= options_.least && can_reach/>= 1 \&\& can_reach/'
plant_elastic "who leaves does not say so" membership_machine 's/^  if \(leaving_\) return Stage::kLeft;//'
plant_elastic "who waits is not told of others that wait" membership_machine 's/^  if \(misses_others .*//'
plant_in "$simulation" '*TheJobGoesOn*' "each process has a register of its own" elastic_process \
  's/^    change\(host\(\).state\);/    change(own);/; s/^  std::vector<backends::MemberId> ids;/&  backends::AcceptorState own;/'
echo "$found found, $missed missed"
[ "$missed" -eq 0 ]
