// The events of the virtual network, in the order of their times.
#include "tests/simulation/virtual_network.h"

#include <algorithm>

namespace simulation {
namespace {

std::pair<int, int> pair_of(int a, int b) { return {std::min(a, b), std::max(a, b)}; }

}  // namespace

std::string Dice::bytes(std::size_t count) {
  std::string text;
  while (text.size() < count) {
    const std::uint64_t b = bits_();
    for (int i = 0; i < 8; ++i) text.push_back(static_cast<char>(b >> (8 * i)));
  }
  text.resize(count);
  return text;
}

// Not at zero: the machines compare with times that were never set.
VirtualNetwork::VirtualNetwork(std::uint64_t seed) : now_(std::chrono::hours(1)), dice_(seed) {}

int VirtualNetwork::add(std::unique_ptr<Process> process) {
  slots_.push_back({});
  slots_.back().process = std::move(process);
  ++running_;
  const int number = static_cast<int>(slots_.size()) - 1;
  plan_run(number);
  return number;
}

bool VirtualNetwork::is_running(int process) const {
  return !slots_[static_cast<std::size_t>(process)].gone;
}

void VirtualNetwork::at(Time time, std::function<void()> action) {
  plan(time, Event::Kind::kAction, actions_.size());
  actions_.push_back(std::move(action));
}

void VirtualNetwork::plan(Time time, Event::Kind kind, std::size_t which) {
  events_.push({std::max(time, now_), next_order_++, kind, static_cast<std::uint32_t>(which)});
}

ConnectionId VirtualNetwork::connect(int from, int to, Port port) {
  const Slot& slot = slots_[static_cast<std::size_t>(to)];
  if (slot.gone || !slot.process->listens(port)) return 0;
  Connection& c = connections_.emplace_back();
  const ConnectionId id = 2 * connections_.size();
  c.port = port;
  c.process[0] = from;
  c.process[1] = to;
  post({Arrival::Kind::kOpened, other(id), ""});
  return id;
}

void VirtualNetwork::send(ConnectionId id, std::string bytes) {
  if (bytes.empty() || !connection(id).open[side(id)]) return;
  ++messages_;
  bytes_ += static_cast<std::int64_t>(bytes.size());
  const Connection& c = connection(id);
  if (damage_ && c.port == Port::kStore && c.process[side(id)] == damage_->from &&
      c.process[1 - side(id)] == damage_->to) {
    const Damage how = damage_->how;
    damage_.reset();
    damaged_at_ = now_;
    if (how == Damage::kLost) return;
    if (how == Damage::kChanged) bytes.back() ^= 1;
    if (how == Damage::kTwice) bytes += bytes;
  }
  if (repeats_.percent > 0 && c.port == repeats_.port && side(id) == 0 &&
      dice_.chance(repeats_.percent)) {
    const auto later = milliseconds(dice_.between(0, repeats_.longest.count()));
    at(now_ + later,
       [this, from = c.process[0], to = c.process[1], bytes] { arrive_again(from, to, bytes); });
  }
  post({Arrival::Kind::kBytes, other(id), std::move(bytes)});
}

void VirtualNetwork::close(ConnectionId id) {
  if (!std::exchange(connection(id).open[side(id)], false)) return;
  post({Arrival::Kind::kClosed, other(id), kFinishedText});
}

void VirtualNetwork::exit(int process) {
  Slot& slot = slots_[static_cast<std::size_t>(process)];
  if (slot.gone) return;
  slot.gone = true;
  --running_;
  slot.waiting.clear();
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    for (const std::size_t end : {0, 1}) {
      if (connections_[i].process[end] == process) close(2 * (i + 1) + end);
    }
  }
}

void VirtualNetwork::pause(int process) { slots_[static_cast<std::size_t>(process)].paused = true; }

void VirtualNetwork::thaw(int process) {
  Slot& slot = slots_[static_cast<std::size_t>(process)];
  if (!slot.paused) return;
  slot.paused = false;
  // It was stopped either while it waited for something to arrive or after that, in run_once().
  if (dice_.chance(50)) run_process(process);
  for (const Arrival& arrival : std::exchange(slot.waiting, {})) hand_over(slot, arrival);
  run_process(process);
}

void VirtualNetwork::cut(int a, int b) {
  cut_one_way(a, b);
  cut_one_way(b, a);
}

void VirtualNetwork::cut_one_way(int from, int to) { cut_.insert({from, to}); }

void VirtualNetwork::heal(int a, int b) {
  cut_.erase({a, b});
  cut_.erase({b, a});
  for (std::size_t i = 0; i < connections_.size(); ++i) {  // arrivals may open others
    Connection& c = connections_[i];
    if (pair_of(c.process[0], c.process[1]) != pair_of(a, b)) continue;
    for (auto& held : c.held) {
      // Ahead of what is still on its way.
      for (Arrival& arrival : std::exchange(held, {})) arrive(std::move(arrival));
    }
  }
}

void VirtualNetwork::reset(int a, int b, milliseconds later) {
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    Connection& c = connections_[i];
    if (pair_of(c.process[0], c.process[1]) != pair_of(a, b)) continue;
    const bool open = c.open[0] || c.open[1];
    c.open[0] = c.open[1] = false;
    if (!open) continue;
    const std::string cause = "its connection broke (Connection reset by peer)";
    const ConnectionId id = 2 * (i + 1);
    post({Arrival::Kind::kClosed, id, cause});
    at(now_ + later, [this, id, cause] { post({Arrival::Kind::kClosed, other(id), cause}); });
  }
}

void VirtualNetwork::lose(int a, int b) {
  for (Connection& c : connections_) {
    if (pair_of(c.process[0], c.process[1]) != pair_of(a, b) || c.lost) continue;
    c.lost = true;
    // That it has broken already is learned all the same.
    for (auto& held : c.held)
      std::erase_if(held,
                    [](const Arrival& arrival) { return arrival.kind != Arrival::Kind::kClosed; });
  }
  reset(a, b, milliseconds(0));
}

void VirtualNetwork::lose(int a, int b, Port port) {
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    Connection& c = connections_[i];
    if (pair_of(c.process[0], c.process[1]) != pair_of(a, b) || c.port != port || c.lost) continue;
    c.lost = true;
    c.held[0].clear();
    c.held[1].clear();
    if (!std::exchange(c.open[0], false) && !c.open[1]) continue;
    c.open[1] = false;
    for (const std::uint64_t end : {0, 1})
      post({Arrival::Kind::kClosed, 2 * (i + 1) + end,
            "its connection broke (Connection reset by peer)"});
  }
}

void VirtualNetwork::repeat(Port port, int percent, milliseconds longest) {
  repeats_ = {port, percent, longest};
}

void VirtualNetwork::post(Arrival arrival) {
  Connection& c = connection(arrival.id);
  milliseconds longest = longest_delay_;
  if (!slow_links_.empty()) {
    const std::size_t to = side(arrival.id);
    const auto slow = slow_links_.find({c.process[1 - to], c.process[to]});
    if (slow != slow_links_.end()) longest = slow->second;
  }
  const auto delay = std::chrono::microseconds(dice_.between(50, 1000 * longest.count()));
  Time& last = c.last_arrival[side(arrival.id)];
  last = std::max(last, now_ + delay);
  if (free_arrivals_.empty()) {
    free_arrivals_.push_back(arrivals_.size());
    arrivals_.emplace_back();
  }
  const std::size_t place = free_arrivals_.back();
  free_arrivals_.pop_back();
  arrivals_[place] = std::move(arrival);
  plan(last, Event::Kind::kArrival, place);
}

void VirtualNetwork::arrive(Arrival arrival) {
  Connection& c = connection(arrival.id);
  if (c.lost && arrival.kind == Arrival::Kind::kBytes) return;
  const std::size_t to = side(arrival.id);
  if (!cut_.empty() && cut_.contains({c.process[1 - to], c.process[to]})) {
    c.held[side(arrival.id)].push_back(std::move(arrival));
    return;
  }
  const int process = c.process[side(arrival.id)];
  Slot& slot = slots_[static_cast<std::size_t>(process)];
  if (slot.gone) return;
  if (slot.paused) {
    slot.waiting.push_back(std::move(arrival));
    return;
  }
  hand_over(slot, arrival);
  run_process(process);
}

void VirtualNetwork::arrive_again(int from, int to, const std::string& bytes) {
  for (std::size_t i = connections_.size(); i-- > 0;) {
    const Connection& c = connections_[i];
    if (c.port != repeats_.port || c.process[0] != from || c.process[1] != to) continue;
    if (c.open[0]) arrive({Arrival::Kind::kBytes, 2 * (i + 1) + 1, bytes});
    return;
  }
}

void VirtualNetwork::hand_over(Slot& slot, const Arrival& arrival) {
  if (slot.gone) return;
  switch (arrival.kind) {
    case Arrival::Kind::kOpened: {
      const Connection& c = connection(arrival.id);
      return slot.process->opened(arrival.id, c.process[0], c.port);
    }
    case Arrival::Kind::kBytes: {
      const std::string& text = arrival.text;
      if (!in_pieces_ || text.size() < 2 || connection(arrival.id).port == Port::kData)
        return slot.process->received(arrival.id, text);
      const std::size_t at = 1 + 7 * ++pieces_ % (text.size() - 1);
      slot.process->received(arrival.id, text.substr(0, at));
      return slot.process->received(arrival.id, text.substr(at));
    }
    case Arrival::Kind::kClosed:
      return slot.process->closed(arrival.id, arrival.text);
  }
}

void VirtualNetwork::run_process(int process) {
  Slot& slot = slots_[static_cast<std::size_t>(process)];
  if (slot.gone || slot.paused) return;
  slot.process->run_once();
  plan_run(process);
}

void VirtualNetwork::plan_run(int process) {
  Slot& slot = slots_[static_cast<std::size_t>(process)];
  if (slot.gone) return;
  // The process may want nothing earlier than what is planned; an extra run_once() does no harm.
  const Time wanted = std::max(slot.process->wake_at(), now_ + std::chrono::microseconds(100));
  if (slot.next_turn > now_ && slot.next_turn <= wanted) return;
  slot.next_turn = wanted;
  plan(wanted, Event::Kind::kRun, static_cast<std::size_t>(process));
}

void VirtualNetwork::carry_out(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kArrival: {
      Arrival arrival = std::move(arrivals_[event.which]);
      free_arrivals_.push_back(event.which);
      return arrive(std::move(arrival));
    }
    case Event::Kind::kRun: {
      Slot& due = slots_[event.which];
      if (due.next_turn != event.at) return;
      due.next_turn = Time::max();
      return run_process(static_cast<int>(event.which));
    }
    case Event::Kind::kAction: {
      const auto action = std::move(actions_[event.which]);
      return action();
    }
  }
}

void VirtualNetwork::run(Time end) {
  while (!events_.empty() && events_.top().at <= end) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    carry_out(event);
    if (running_ == 0) return;
  }
  now_ = std::max(now_, end);
}

}  // namespace simulation
