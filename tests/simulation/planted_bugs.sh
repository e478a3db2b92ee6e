#!/usr/bin/env bash
# Plants known faults in a copy of the state machines of the store and of elastic membership, one at
# a time, and expects the simulation to find each of them.
#
# Usage: tests/simulation/planted_bugs.sh [SEEDS [NAME]]     only faults whose name contains NAME
# Needs the packages of tools/scripts/install_dependencies.sh --tests. Takes a few minutes: of each
# fault one source is compiled, and the simulation ends with the first history that shows it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export seeds=${1:-20000} only=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export work
protocol=backends/store/protocol membership=backends/membership simulation=tests/simulation
sources=("$protocol"/*.cc "$membership"/{roster,paxos,membership_message,membership_machine,membership_candidate}.cc
  backends/store/{secret,tcp_socket}.cc backends/{open_files,interruptible_wait}.cc io/base/{digest,visible_text}.cc "$simulation"/*.cc)

compile() {  # FILE OBJECT
  g++ -std=c++20 -O2 -w -I. -DENGINE_SIMULATED_HISTORIES="$seeds" -c "$1" -o "$2"
}
simulate() {  # PROGRAM KIND
  local tests='*Nobody*:*AWorldOf1000*:*ADeathIn*'
  [ "$2" = store ] || tests='*TheJobGoesOn*:*AProcessMayDie*:Proposer.*'
  ENGINE_SIMULATION_FAILURES=1 timeout 600 "$1" --gtest_filter="$tests" --gtest_fail_fast
}
link() { g++ -o "$@" -lgtest -lgtest_main -lsodium -lxxhash -pthread; }

# One fault: NUMBER KIND WHAT FILE EDIT; the edit is a sed script, or OLD and NEW behind a line @.
try() {
  local number=$1 kind=$2 what=$3 file=$4 edit=$5 folder=$work/$1
  mkdir "$folder"
  if [ "${edit:0:2}" = "@"$'\n' ]; then
    edit=${edit:2}
    OLD=${edit%%$'\n=>\n'*} NEW=${edit#*$'\n=>\n'} \
      perl -0pe 's/\Q$ENV{OLD}\E/$ENV{NEW}/' "$file" >"$folder/planted.cc"
  else
    sed -E "$edit" "$file" >"$folder/planted.cc"
  fi
  if cmp -s "$file" "$folder/planted.cc"; then
    echo "broken: $what: changes nothing in $file"
    return
  fi
  local object others
  object=$(basename "$file" .cc).o
  mapfile -t others < <(find "$work/objects" -name '*.o' ! -name "$object")
  if ! { compile "$folder/planted.cc" "$folder/planted.o" && link "$folder/run" "$folder/planted.o" "${others[@]}"; } 2>"$folder/log"; then
    echo "broken: $what: does not compile: $(grep -m 1 error "$folder/log")"
  elif simulate "$folder/run" "$kind" >"$folder/log" 2>&1; then
    echo "missed: $what"
  else
    echo "found: $what ($(grep -m 1 -oE '^seed [0-9]+|FAILED  . [A-Za-z]+[.][A-Za-z]+' "$folder/log" || echo 'by its end'))"
  fi
  rm -rf "$folder"
}
export -f compile simulate link try

# With twice as many processes as cores those that wait for the disk cost no time.
parallel() { xargs -0 -P "$((2 * $(nproc)))" "$@"; }
mkdir "$work/objects"
printf '%s\0' "${sources[@]}" | parallel -n 1 bash -c 'compile "$1" "$work/objects/$(basename "$1" .cc).o"' _
link "$work/sound" "$work"/objects/*.o
for kind in store elastic; do
  if ! ENGINE_SIMULATION_SEEDS=$((seeds / 10 + 1)) simulate "$work/sound" "$kind" >"$work/log" 2>&1; then
    cat "$work/log"
    echo "planted_bugs.sh: the simulation fails without a planted fault" >&2
    exit 1
  fi
done

# What is not found, each only a worse message or a second rule that covers it in all histories so far. They are tried and
# shown; only others that are missed are a failure.
unfound='who left before the start and comes again has still left
who comes late is not told of the failure
a lost rank is waited for without end
who has gone is not missing
the start takes effect before rank 0 can know
who leaves takes the end of rank 0 for a failure'
planted=0
plant_in() {  # FOLDER KIND WHAT FILE EDIT
  case $3 in *"$only"*) ;; *) return 0 ;; esac
  planted=$((planted + 1))
  printf '%s\0' "$planted" "$2" "$3" "$1/$4.cc" "$5" >>"$work/plants"
}
plant() { plant_in "$protocol" store "$@"; }
plant_elastic() { plant_in "$membership" elastic "$@"; }
# The same, with two texts: the first occurrence of OLD becomes NEW.
swap() { plant "$1" "$2" "@"$'\n'"$3"$'\n=>\n'"$4"; }
swap_elastic() { plant_elastic "$1" "$2" "@"$'\n'"$3"$'\n=>\n'"$4"; }

swap_elastic 'with which ballot a value was accepted is forgotten' paxos \
  '  accepted = ballot;' \
  ''
swap_elastic 'what is known already is learned again' paxos \
  '  if (generation_of(roster) <= generation_of(decided)) return;' \
  '  if (!roster || generation_of(roster) < generation_of(decided)) return;'
swap_elastic 'a register keeps the first value that it has accepted' paxos \
  '  value = proposed;' \
  '  if (!value) value = proposed;'
swap_elastic 'a register goes back to older decisions' paxos \
  '  if (generation_of(roster) <= generation_of(decided)) return;' \
  '  if (generation_of(roster) == generation_of(decided)) return;'
swap_elastic 'who is outbid is accepted' paxos \
  '  if (verdict != Verdict::kYes) return verdict;' \
  '  if (verdict == Verdict::kDecided) return verdict;'
swap_elastic 'a promise binds its own ballot' paxos \
  'if (ballot < promised)' \
  'if (ballot <= promised)'
swap_elastic 'ballots are compared by their rounds' paxos \
  'if (ballot < promised)' \
  'if (ballot.round < promised.round)'
swap_elastic 'a majority is one vote more' paxos \
  'return 2 * votes > base.members.size();' \
  'return 2 * votes > base.members.size() + 1;'
swap_elastic 'of two halves the last one decides' paxos \
  'base.members.front().reg' \
  'base.members.back().reg'
swap_elastic 'all votes count, of whichever register' paxos \
  'if (registers.contains(m.reg)) ++votes;' \
  '++votes;'
swap_elastic 'who promises has accepted' paxos \
  '  promised = ballot;' \
  '  promised = accepted = ballot;'
swap_elastic 'nobody calls at the door' membership_candidate \
  '    output_.push_back({Output::Kind::kSendToDoor, {}, report(), ""});' \
  ''
swap_elastic 'who was ready for an earlier generation is ready' membership_candidate \
  'peer.stage != Stage::kReady || peer.generation' \
  'peer.stage != Stage::kReady && peer.generation'
swap_elastic 'who trains is ready' membership_candidate \
  'if (peer.stage != Stage::kReady || peer.generation != roster_->generation) {' \
  'if (peer.generation != roster_->generation) {'
swap_elastic 'those behind wait too long' membership_candidate \
  'settled_since_ + options_.patience * place' \
  'settled_since_ + 100 * options_.patience * place'
swap_elastic 'a proposal is replaced at each turn' membership_candidate \
  'if (proposal_ || !is_time(turn)) return;' \
  'if (!is_time(turn)) return;'
swap_elastic 'members need not hear each other' membership_candidate \
  'return hear_each_other(c, m); })' \
  'return true; })'
swap_elastic 'the candidate goes on alone' membership_candidate \
  'clique({options_.self}, here)' \
  'clique({options_.self}, {})'
swap_elastic 'members do not take newcomers in' membership_candidate \
  'members = clique(std::move(members), waiting_members(false));' \
  ''
swap_elastic 'a job is founded by fewer than MIN' membership_candidate \
  '  if (size < options_.least) return;' \
  ''
swap_elastic 'members of other hosts are dead' membership_candidate \
  'return m.reg != options_.reg->id() || options_.reg->is_used_by(m.id);' \
  'return options_.reg->is_used_by(m.id);'
swap_elastic 'a generation is skipped' membership_candidate \
  'next->generation = generation_of(base) + 1;' \
  'next->generation = generation_of(base) + 2;'
swap_elastic 'founders have a past' membership_candidate \
  'place < 0 ? next' \
  'place < 0 && base ? next'
swap_elastic 'a proposer has one ballot for all' membership_candidate \
  'proposal_->ballot = {++round_, options_.self.id};' \
  'proposal_->ballot = {1, options_.self.id};'
swap_elastic 'all proposers have the same ballots' membership_candidate \
  'proposal_->ballot = {++round_, options_.self.id};' \
  'proposal_->ballot = {++round_, MemberId{1, 1}};'
swap_elastic 'what is to be accepted is not said' membership_candidate \
  '  if (p.accepting) m.value = p.value;' \
  ''
swap_elastic 'an outbid at home is a promise' membership_candidate \
  '  if (mine->kind == MembershipMessage::Kind::kOutbid) return on_outbid(*mine);' \
  ''
swap_elastic 'what is accepted is not kept' membership_candidate \
  'accepts ? s.accept(m.base, m.ballot, m.value) : s.prepare(m.base, m.ballot)' \
  's.prepare(m.base, m.ballot)'
swap_elastic 'a register that cannot be had says yes' membership_candidate \
  '  if (!kept) return std::nullopt;' \
  ''
swap_elastic 'a promise does not say what was accepted' membership_candidate \
  '    reply.value = state.value;
  }' \
  '  }'
swap_elastic 'a promise does not say with which ballot' membership_candidate \
  '    reply.other = state.accepted;' \
  ''
swap_elastic 'answers to earlier ballots count' membership_candidate \
  'm.ballot != proposal_->ballot' \
  'false'
swap_elastic 'a late promise is an acceptance' membership_candidate \
  'proposal_->accepting != accepted' \
  'false'
swap_elastic 'an answer that comes again is a second vote' membership_candidate \
  '  p.granted.insert(m.reg);' \
  '  if (!p.granted.insert(m.reg).second && p.base) {
    for (const Member& other : p.base->members)
      if (p.granted.insert(other.reg).second) break;
  }'
swap_elastic 'one register decides' membership_candidate \
  'p.base ? is_quorum(*p.base, p.granted)' \
  'p.base ? !p.granted.empty()'
swap_elastic 'the dead are waited for' membership_candidate \
  '    if (!is_reachable(m.id)) continue;' \
  '    if (!peers_.contains(m.id)) continue;'
swap_elastic 'the second phase never comes' membership_candidate \
  '  p.accepting = true;
' \
  '  if (p.granted.size() > 100) p.accepting = true;
  if (!p.accepting) return;
'
swap_elastic 'who is outbid goes on' membership_candidate \
  '  if (proposal_ && m.ballot == proposal_->ballot) back_off();
' \
  ''
swap_elastic 'an outbid of an earlier attempt ends this one' membership_candidate \
  '  if (proposal_ && m.ballot == proposal_->ballot) back_off();' \
  '  if (proposal_) back_off();'
swap_elastic 'attempts follow each other at once' membership_candidate \
  '  next_attempt_ =
      now_ + attempts_ *' \
  '  next_attempt_ =
      now_ + 0 * attempts_ *'
swap_elastic 'a process that was refused once is dead' membership_machine \
  '    peer->second.refused = false;' \
  ''
swap_elastic 'what is heard does not count against silence' membership_machine \
  '    peer->second.last_heard = now;' \
  ''
swap_elastic 'nobody is ever heard' membership_machine \
  '    peer->second.heard = true;' \
  ''
swap_elastic 'who gets the door does not know' membership_machine \
  '  has_door_ = held;' \
  ''
swap_elastic 'patience begins once and for all' membership_machine \
  '  wants_ = true;
  waiting_since_ = now;' \
  '  wants_ = true;'
swap_elastic 'heartbeats are rare' membership_machine \
  '    next_heartbeat_ = now + heartbeat;' \
  '    next_heartbeat_ = now + 10 * heartbeat;'
swap_elastic 'the register is not read' membership_machine \
  '    if (!is_member() || is_ready()) read_register();' \
  ''
swap_elastic 'a view is taken again and again' membership_machine \
  '  taken_ = roster_->generation;' \
  '  taken_ = roster_->generation - 1;'
swap_elastic 'who was left behind once is so for ever' membership_machine \
  '  left_behind_ = false;' \
  ''
swap_elastic 'who trains says that it is ready' membership_machine \
  'return is_ready() ? Stage::kReady : Stage::kTraining;' \
  'return Stage::kReady;'
swap_elastic 'who is ready says that it trains' membership_machine \
  'return is_ready() ? Stage::kReady : Stage::kTraining;' \
  'return Stage::kTraining;'
swap_elastic 'all members are said to be heard' membership_machine \
  'm.hears.push_back(hears(member.id));' \
  'm.hears.push_back(true);'
swap_elastic 'newcomers that are heard are not reported' membership_machine \
  'm.hears_others.push_back(id);' \
  ';'
swap_elastic 'an overtaken report is taken in' membership_machine \
  '  if (m.number < peer.reports) return;' \
  ''
swap_elastic 'reports are numbered backwards' membership_machine \
  'm.number = ++reports_;' \
  'm.number = --reports_;'
swap_elastic 'each turn of a member counts as behind a pause' membership_machine \
  '  last_turn_ = now;
' \
  ''
swap_elastic 'the generation of a report is not taken in' membership_machine \
  '  peer.generation = m.generation;' \
  ''
swap_elastic 'the stage of a report is not taken in' membership_machine \
  '  peer.stage = m.stage;' \
  ''
swap_elastic 'whom a member hears is not taken in' membership_machine \
  '  peer.hears = m.hears;' \
  ''
swap_elastic 'which newcomers others hear is not taken in' membership_machine \
  '  peer.hears_others = m.hears_others;' \
  ''
swap_elastic 'news are not taken in' membership_machine \
  '  learn(m.value);' \
  ''
swap_elastic 'older news are taken in' membership_machine \
  '  if (generation_of(roster) <= generation_of(roster_)) return;' \
  '  if (!roster || generation_of(roster) == generation_of(roster_)) return;'
swap_elastic 'who was left out remains who it was' membership_machine \
  '    options_.self.id = options_.random();' \
  ''
swap_elastic 'silence is three hundred heartbeats' membership_machine \
  'now_ - peer.last_heard <= 3 *' \
  'now_ - peer.last_heard <= 300 *'
swap_elastic 'silence is one heartbeat' membership_machine \
  'now_ - peer.last_heard <= 3 *' \
  'now_ - peer.last_heard <= 1 *'
swap_elastic 'to be heard is to hear' membership_machine \
  'return one_way(a, b) && one_way(b, a);' \
  'return one_way(a, b) || one_way(b, a);'
swap_elastic 'a full job pauses for those that wait' membership_machine \
  'static_cast<int>(roster_->members.size()) >= options_.most)
    return false;' \
  'static_cast<int>(roster_->members.size()) > options_.most)
    return false;'
swap_elastic 'nobody pauses for those that wait' membership_machine \
  'if (!is_member() || leaving_ ||' \
  'if (true ||'
swap_elastic 'who was left behind trains on' membership_machine \
  '  if (left_behind_) return "the others have gone on without this process";
' \
  ''
swap_elastic 'silence breaks no group' membership_machine \
  '} else if (!is_reachable(peer->second)) {' \
  '} else if (false) {'
swap_elastic 'who waits does not see that the job has ended' membership_machine \
  '  if (job_has_ended()) {
    failure_' \
  '  if (false) {
    failure_'
swap_elastic 'who leaves ends the job for all' membership_machine \
  'peer->second.stage == Stage::kLeft;
         });' \
  'peer->second.stage >= Stage::kLeft;
         });'
swap_elastic 'who leaves says that all have finished' membership_machine \
  '  parting_ = true;' \
  ''
swap_elastic 'who leaves says that it trains' membership_machine \
  'parting_ ? Stage::kParting : Stage::kLeft' \
  'parting_ ? Stage::kTraining : Stage::kLeft'
swap_elastic 'who leaves does not wait until the others agree' membership_machine \
  'leave_until_ = now + kPartHeartbeats *' \
  'leave_until_ = now + 0 * kPartHeartbeats *'
swap_elastic 'who leaves is waited for' membership_machine \
  'peer->second.stage != Stage::kParting' \
  'true'
swap_elastic 'the door is kept for those that may not use it' membership_machine \
  '(is_waiting() && options_.may_found)' \
  'is_waiting()'
swap_elastic 'rounds are cut short' membership_message \
  'out.i64(static_cast<std::int64_t>(ballot.round));' \
  'out.i64(static_cast<std::int64_t>(ballot.round & 1));'
swap_elastic 'whom a member hears is mixed up' membership_message \
  '1u << bit' \
  '1u << 0'
swap_elastic 'a message says an earlier generation' membership_message \
  'out.i64(static_cast<std::int64_t>(m.generation));' \
  'out.i64(static_cast<std::int64_t>(m.generation / 2));'
swap_elastic 'an answer names its own ballot twice' membership_message \
  'write_ballot(out, m.other);' \
  'write_ballot(out, m.ballot);'
swap_elastic 'who is no member has the first place' roster \
  'members.end() ? -1' \
  'members.end() ? 0'
swap_elastic 'since when a member is one is lost' roster \
  'i64(static_cast<std::int64_t>(m.since))' \
  'i64(0)'
swap_elastic 'each member has a register of its own' roster \
  'write_id(out, m.reg);' \
  'write_id(out, m.id);'
swap_elastic 'the members are in reverse' roster \
  'for (const Member& m : roster->members) write_member(out, m);' \
  'for (auto m = roster->members.rbegin(); m != roster->members.rend(); ++m) write_member(out, *m);'

swap 'who left before the start is only missing' server_members \
  'left_early_.insert(l.hello.rank);' \
  ''
swap 'who left before the start and comes again has still left' server_members \
  '  left_early_.erase(l.hello.rank);' \
  ''
swap 'who comes again is still given up for lost' server_members \
  '  disconnected_.erase(l.hello.rank);' \
  ''
swap 'who comes again is not told of the start' server_members \
  '  send(l, start_frame_);' \
  ''
swap 'who comes late is not told of the failure' server_members \
  '  if (failed_) send(l, failure_frame_);' \
  ''
swap 'that the start has been heard is forgotten' server_members \
  '      l.acknowledged_start = true;' \
  ''
swap 'who leaves counts as there' server_members \
  '      l.leaving = true;
      if (!started_) {' \
  '      if (!started_) {'
swap 'nobody is told that all have left' server_members \
  '  broadcast(FrameWriter(FrameType::kLeft).finish());' \
  ''
swap 'all have left although some train' server_members \
  'return m == nullptr || m->leaving;' \
  'return true;'
swap 'the group starts without one' server_members \
  'if (!left_early_.empty() || !missing().empty()) return;' \
  'if (!left_early_.empty() || missing().size() > 1) return;'
swap 'a reason to end is not passed on' server_members \
  'if (started_ && !l.leaving)
        fail_members' \
  'if (false)
        fail_members'
swap 'who gives up waiting for the start is not missed' server_members \
  '        declare_failure(l, early_end_text(""));' \
  ''
swap 'the first one to be declared silent is not told' server_members \
  '      return tell_silent(*root);' \
  '      return;'
swap 'what is set is not kept' server_members \
  '  values_[key] = std::move(value);' \
  ''
swap 'a sum forgets what was there' server_members \
  'sum += std::strtoll' \
  'sum = std::strtoll'
swap 'a question that comes before its answer is dropped' server_members \
  '      waiters_[key].emplace_back(&l, request);' \
  ''
swap 'silence is thirty heartbeats' server_members \
  '  const auto silence = std::chrono::milliseconds(3 *' \
  '  const auto silence = std::chrono::milliseconds(30 *'
swap 'silence is one heartbeat' server_members \
  '  const auto silence = std::chrono::milliseconds(3 *' \
  '  const auto silence = std::chrono::milliseconds(1 *'
swap 'a lost rank is waited for without end' server_members \
  '    absent.given_up = true;' \
  ''
swap 'a lost rank is waited for for long' server_members \
  'const auto limit = std::chrono::milliseconds(3 *' \
  'const auto limit = std::chrono::milliseconds(300 *'
swap 'each arrival is told to all at once' server_members \
  '  next_progress_ = now_ + kProgressInterval;' \
  ''
swap 'who has gone is not missing' server_members \
  '(m == nullptr || !m->alive())' \
  '(m == nullptr)'
swap 'the end before the start is not told' server_members \
  '  broadcast(fatal_frame_);' \
  ''
swap 'what is received does not count against silence' server_machine \
  '  Link& l = found->second;
  l.last_received = now;' \
  '  Link& l = found->second;'
swap 'a pause of rank 0 is never noticed' server_machine \
  'options_.heartbeat_ms + 250)' \
  'options_.heartbeat_ms + 250000)'
swap 'each turn counts as behind a pause' server_machine \
  '  last_turn_ = now;
}' \
  '}'
swap 'a closed connection is not noticed' server_machine \
  'found->second.end = cause;' \
  'found->second.peer = cause;'
swap 'a mismatch does not end the group' server_machine \
  '    if (kind == RefusalKind::kMismatch && !started_) fail_group(kind, text);' \
  ''
swap 'who comes behind the end is not told of it' server_machine \
  '    send(l, fatal_frame_);
' \
  ''
swap 'the start takes effect before rank 0 can know' member_machine \
  'if (starting_ && output_.empty() && !lost_)' \
  'if (starting_ && !lost_)'
swap 'heartbeats are rare' member_machine \
  'next_heartbeat_ = now + std::chrono::milliseconds(heartbeat_ms_)' \
  'next_heartbeat_ = now + 100 * std::chrono::milliseconds(heartbeat_ms_)'
swap 'a member leaves without a word' member_machine \
  '  leaving_ = true;
  send(FrameWriter(FrameType::kLeave).finish());' \
  '  leaving_ = true;'
swap 'a member that gives up does not say why' member_machine \
  '  send(abandon_frame(why));' \
  ''
swap 'that all have left is not taken in' member_machine \
  '      left_ = true;' \
  ''
swap 'answers are dropped' member_machine \
  'found->second = in.text();' \
  ';'
swap 'the start is not confirmed' member_machine \
  '  send(FrameWriter(FrameType::kStartAcknowledged).finish());' \
  ''
swap 'the end before the start is not taken in' member_machine \
  '      fatal_.emplace(kind, in.text());' \
  ''
swap 'who leaves takes the end of rank 0 for a failure' member_machine \
  'left_ || leaving_ || ended_' \
  'left_ || ended_'
swap 'an end in disorder is told as one in order' member_machine \
  'const bool orderly = leaving_ || failure_ || !started_;' \
  'const bool orderly = true;'
swap 'what comes in does not count against silence' member_machine \
  '  if (lost_) return;
  last_received_ = now;' \
  '  if (lost_) return;'
swap 'rank 0 is silent after one heartbeat' member_machine \
  'std::chrono::milliseconds(3 * heartbeat_ms_)) return;' \
  'std::chrono::milliseconds(heartbeat_ms_)) return;'
swap 'a broken connection to rank 0 is no failure' member_machine \
  '  failure_ = Failure{0, {member_failure_text(root, cause, root_activity_)}};' \
  ''

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
plant_elastic "who comes back keeps its state" membership_candidate 's/const int place = base \? base->place_of.m.id. : -1;/const int place = base ? 0 : -1;/'
plant_elastic "silence counts after an own pause" membership_machine \
  's/for \(auto& \[id, peer\] : peers_\) peer.last_heard = now;/;/'
plant_elastic "the slow are not waited for" membership_candidate 's/^      return;$/      continue;/'
plant_elastic "the old job is always dead" membership_candidate 's/^  return std::ranges::none_of\(roster_->members, .*/  return true || std::ranges::none_of(roster_->members, [\&](const Member\& m) {/'
plant_elastic "nobody takes the door over" membership_machine 's/\(is_member\(\) \|\| \(is_waiting\(\) && options_.may_found\)\)/taken_ == 0/'
plant_elastic "newcomers do not wait for those that have the state" membership_candidate 's/^  if \(lacks_state_\) return;//'
plant_elastic "more than MAX are taken" membership_candidate 's/>= options_.most\) break;/>= options_.most + 1) break;/'
plant_elastic "fewer than MIN go on" membership_candidate 's/>= options_.least && can_reach/>= 1 \&\& can_reach/'
plant_elastic "who leaves does not say so" membership_machine 's/^  if \(leaving_\) return parting_ .*//'
plant_elastic "who waits is not told of others that wait" membership_machine 's/^  if \(misses_others .*//'
plant_in "$simulation" elastic "each process has a register of its own" elastic_process \
  's/= this->host\(\);/= own;/; s/^  std::vector<backends::MemberId> ids;/&  ElasticWorld::Host own;/'
plant_in "$simulation" elastic "a write that failed counts as kept" elastic_process 's/(host.is_torn\)\)) return false;/\1 return true;/'

parallel -n 5 bash -c 'try "$@"' _ <"$work/plants" | tee "$work/results"
count() { grep -c "^$1" "$work/results" || true; }
echo "$(count found) of $planted found, $(count missed) missed, $(count broken) broken"
sed -n 's/^missed: //p' "$work/results" | grep -vxF "$unfound" >"$work/new" || true
[ "$(count broken)" -eq 0 ] && [ ! -s "$work/new" ]
