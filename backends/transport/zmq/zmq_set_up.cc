// Implements the rounds of greetings until all links are established.
#include "backends/transport/zmq/zmq_set_up.h"

#include <algorithm>

namespace backends {
namespace {

using std::chrono::milliseconds;
constexpr int kRoundMs = 20;  // between checks for abort and deadline

}  // namespace

ZmqLinks::SetUp::SetUp(ZmqLinks& links, Ends& ends)
    : links_(links), ends_(ends), context_(ends.context()) {}

void ZmqLinks::SetUp::run() {
  ends_.exchange_records();
  for (int peer = 0; peer < links_.rank_; ++peer) ends_.connect(peer);
  exchange_greetings();
  for (const Link& l : links_.links_) {
    if (l.listener >= 0) take_no_more_connections(l.listener);
  }
  ends_.guard().end_unproven();
}

int ZmqLinks::SetUp::first_missing() {
  for (int peer = 0; peer < links_.size_; ++peer) {
    if (peer != links_.rank_ && ends_.end(peer).machine.needs_connection()) return peer;
  }
  return links_.size_;
}

void ZmqLinks::SetUp::exchange_greetings() {
  base::Deadline until = context_.clock.deadline_in(context_.time_to_connect());
  for (int first = first_missing(), slice = 1; first < links_.size_;
       slice = std::min(2 * slice, kRoundMs)) {
    ends_.wait(milliseconds(slice));
    links_.abort_.throw_if_aborted();
    ends_.guard().count();
    for (int peer = first; peer < links_.size_; ++peer) {
      if (peer == links_.rank_ || !ends_.end(peer).machine.needs_connection()) continue;
      serve(peer);
      if (!ends_.end(peer).machine.needs_connection()) {
        until = context_.clock.deadline_in(context_.time_to_connect());
        slice = 1;
      }
    }
    first = first_missing();
    if (first < links_.size_ && context_.clock.has_passed(until))
      links_.throw_timeout(first, context_.time_to_connect());
  }
}

void ZmqLinks::SetUp::serve(int peer) {
  const bool connects = peer < links_.rank_;
  bool established = false;
  while (!established && ends_.next_greeting(peer)) established = connects;
  LinkMachine& machine = ends_.end(peer).machine;
  if (established) {
    context_.store.add(ends_.link_text(links_.rank_, peer) + "/stands", 1);
  } else if (connects) {
    ends_.connect(peer);
  } else {
    established = !machine.numbers().is_current(0) && is_established_by_store(peer);
  }
  if (established) machine.on_established(context_.clock.now());
}

bool ZmqLinks::SetUp::is_established_by_store(int peer) const {
  const std::string key = ends_.link_text(peer, links_.rank_) + "/stands";
  if (context_.store.add(key, 0) == 0) return false;
  context_.store.remove(key);
  return true;
}

}  // namespace backends
