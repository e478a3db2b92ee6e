// A clock, processes and a network that exist only in memory, for running state machines
// through failures: the same seed gives the same history.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/base/time/deadline.h"

namespace simulation {

using Time = base::Deadline;
using std::chrono::milliseconds;

// Random numbers that are equal everywhere (the standard's distributions are not).
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : bits_(seed) {}
  // In [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  std::string bytes(std::size_t count);

 private:
  std::mt19937_64 bits_;
};

// One end of a connection; the two ends have different numbers, also within one process.
using ConnectionId = std::uint64_t;
enum class Port { kStore, kData, kAgent, kProbe };

// The cause of closed() at the end of a connection that the other process, or its kernel, has
// closed.
inline constexpr const char* kFinishedText = "its connection closed";

// A process. It is called only while it is neither paused nor dead: a pause holds back what
// arrives, and lets it arrive at once when it ends.
class Process {
 public:
  virtual ~Process() = default;
  virtual void opened(ConnectionId id, int from, Port port) = 0;
  virtual void received(ConnectionId id, const std::string& bytes) = 0;
  virtual void closed(ConnectionId id, const std::string& cause) = 0;
  virtual void run_once() = 0;  // after what arrived at the same time, and at wake_at()
  virtual Time wake_at() const = 0;
  virtual bool listens(Port port) const = 0;
};

class VirtualNetwork {
 public:
  explicit VirtualNetwork(std::uint64_t seed);

  Time now() const { return now_; }
  Dice& dice() { return dice_; }
  int add(std::unique_ptr<Process> process);  // its number

  // For processes.
  ConnectionId connect(int from, int to, Port port);  // 0: refused
  void send(ConnectionId id, std::string bytes);
  void close(ConnectionId id);  // after what was sent
  void exit(int process);       // closes all its connections; being killed looks the same

  // Failures.
  void at(Time time, std::function<void()> action);
  void pause(int process);
  void thaw(int process);
  void cut(int a, int b);  // what they send each other waits until heal()
  void heal(int a, int b);
  void cut_one_way(int from, int to);  // likewise, in one direction
  // Breaks the connections between them; who accepted them notices it so much later.
  void reset(int a, int b, milliseconds later);
  // The same at once, and what is on its way is lost.
  void lose(int a, int b);
  // The same of the connections to this port.
  void lose(int a, int b, Port port);
  // From now on each message to this port comes again with this chance, up to so much later, by the
  // newest connection from its sender: maybe behind messages that were sent after it.
  void repeat(Port port, int percent, milliseconds longest);
  // What `from` sends next to the store of `to` is changed, comes twice, or does not come.
  enum class Damage { kChanged, kTwice, kLost };
  void damage(int from, int to, Damage how) { damage_ = {from, to, how}; }
  // From now on what is sent to a store or an agent comes in two pieces.
  void come_in_pieces() { in_pieces_ = true; }
  Time damaged_at() const { return damaged_at_; }  // Time{}: nothing was
  // Its router does so with connections from outside, except those for data, which a relay joins.
  enum class Router { kRefuses, kAccepts, kDrops };
  void put_behind(Router router, int process) { routers_[process] = router; }
  std::optional<Router> router_of(int process) const {
    const auto found = routers_.find(process);
    return found == routers_.end() ? std::nullopt : std::optional(found->second);
  }
  void slow_down(milliseconds longest) { longest_delay_ = longest; }
  void slow_down(int from, int to, milliseconds longest) { slow_links_[{from, to}] = longest; }

  // What one sends to the other does not arrive now.
  bool is_cut(int from, int to) const { return cut_.contains({from, to}); }
  bool has(int process) const { return process >= 0 && process < std::ssize(slots_); }
  bool is_running(int process) const;
  void wake(int process) { run_process(process); }  // its own clock says that it is time
  // Until nothing runs any more or `end`.
  void run(Time end);

  std::int64_t messages() const { return messages_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  struct Arrival {
    enum class Kind { kOpened, kBytes, kClosed } kind;
    ConnectionId id;  // of the end at which it arrives
    std::string text;
  };
  struct Connection {
    Port port;
    int process[2];               // who connected, who accepted
    Time last_arrival[2]{};       // at that end
    bool open[2] = {true, true};  // for what that end sends
    std::deque<Arrival> held[2];  // while the two are cut off
    bool lost = false;            // with all that was on its way
  };
  // Small, because a history has many thousands, and sorts them.
  struct Event {
    enum class Kind : std::uint8_t { kArrival, kRun, kAction };
    Time at;
    std::uint64_t order;
    Kind kind;
    std::uint32_t which;  // of arrivals_, slots_ or actions_
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  struct Slot {
    std::unique_ptr<Process> process;
    bool paused = false, gone = false;
    std::vector<Arrival> waiting;  // while paused
    Time next_turn = Time::max();
  };

  static std::size_t side(ConnectionId id) { return id % 2; }
  static ConnectionId other(ConnectionId id) { return id ^ 1; }
  Connection& connection(ConnectionId id) { return connections_.at(id / 2 - 1); }
  void plan(Time time, Event::Kind kind, std::size_t which);
  void carry_out(const Event& event);
  void post(Arrival arrival);  // to its end
  void arrive(Arrival arrival);
  void arrive_again(int from, int to, const std::string& bytes);
  void hand_over(Slot& slot, const Arrival& arrival);
  void plan_run(int process);
  void run_process(int process);

  Time now_{};
  Dice dice_;
  std::vector<Slot> slots_;
  std::size_t running_ = 0;             // processes
  std::deque<Connection> connections_;  // the ends of number i are 2 * (i + 1) and one more
  std::priority_queue<Event> events_;
  std::vector<Arrival> arrivals_;  // on their way; the places of others are in free_arrivals_
  std::vector<std::size_t> free_arrivals_;
  std::vector<std::function<void()>> actions_;
  std::uint64_t next_order_ = 0;
  std::set<std::pair<int, int>> cut_;  // from, to
  std::map<int, Router> routers_;      // by process
  std::map<std::pair<int, int>, milliseconds> slow_links_;
  milliseconds longest_delay_{2};
  struct {
    Port port = Port::kStore;
    int percent = 0;
    milliseconds longest{0};
  } repeats_;
  struct Planned {
    int from, to;
    Damage how;
  };
  std::optional<Planned> damage_;
  Time damaged_at_{};
  bool in_pieces_ = false;
  std::size_t pieces_ = 0;
  std::int64_t messages_ = 0, bytes_ = 0;
};

}  // namespace simulation
