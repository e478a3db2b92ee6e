// A relay: joins connections of two ranks that cannot reach each other, and copies bytes both ways.
//
// One thread with epoll. A connection must prove the job's secret before the relay keeps anything
// of it. Each direction of a pair buffers a bounded number of bytes: while they wait for a slow
// receiver, the relay does not read from its sender; other pairs are not affected. What the kernel
// holds is bounded as well, so ranks can send again what is lost with a connection.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/relay/relay_message.h"
#include "backends/store/connection_acceptor.h"
#include "backends/store/tcp_socket.h"
#include "io/base/files/wake_event.h"

namespace backends {

// The maximum numbers of connections; beyond them the oldest unproven one is closed.
inline constexpr std::size_t kMaxUnprovenPerSource = 64, kMaxUnprovenAtRelay = 256;
inline constexpr std::size_t kRelayBufferBytes = 256u << 10;  // of each direction of a pair

struct RelayServerOptions {
  Socket listener;
  Secret secret;
  std::size_t max_links = 4096;  // proven connections; beyond them new ones are closed
  std::chrono::milliseconds pairing_timeout{60'000};  // for the other end; a rank then returns
  // Called from the relay's thread; may be empty. `report`: a line for each pair that is joined or
  // ends; `notice`: rejected connections, at most one line per 10 s, and shortages.
  std::function<void(const std::string&)> report, notice;
};

class RelayServer {
 public:
  explicit RelayServer(RelayServerOptions options);  // starts the thread
  ~RelayServer();                                    // closes all connections
  RelayServer(const RelayServer&) = delete;
  RelayServer& operator=(const RelayServer&) = delete;

  Endpoint endpoint() const { return endpoint_; }

 private:
  using LinkId = std::uint64_t;  // grows, and is never reused
  enum class Stage { kHello, kProof, kWaiting, kJoined };
  // One end of a pair.
  struct Link {
    LinkId id = 0;
    Socket socket;
    std::string address, source;  // "10.0.0.7:4711", "10.0.0.7"
    Stage stage = Stage::kHello;
    RelayHello hello;
    RelayChallenge challenge;
    std::string in;    // received part of the next message
    Deadline until{};  // of the handshake, of pairing, or of a broken link's last bytes
    Deadline joined_at{};
    Link* partner = nullptr;
    std::string pending;        // bytes of this end that the partner has not accepted yet
    std::uint64_t passed = 0;   // bytes of this end
    std::uint32_t watched = 0;  // epoll events
    bool ended = false;         // sends no more, and the partner knows
    bool broken = false;        // no longer in epoll: only what it has sent is still to be passed

    bool is_unproven() const { return stage == Stage::kHello || stage == Stage::kProof; }
  };

  void run();
  void serve(Link& link, std::uint32_t events);
  void accept_all();
  void make_room(const std::string& source);
  void receive_message(Link& link);
  void on_hello(Link& link);
  void on_proof(Link& link);
  void await_partner(Link& link);
  void join(Link& acceptor, Link& connector);
  void pass(Link& from);
  void flush(Link& from);
  void pass_rest(Link& from);
  void end_direction(Link& from);
  void break_off(Link& link);
  void watch(Link& link);
  void refuse(Link& link, const std::string& why);
  void close(Link& link);  // with its partner
  void sweep();
  void report_end(const Link& link) const;
  void notice_refusals();

  RelayServerOptions options_;
  const Endpoint endpoint_;
  const base::WakeEvent stop_;
  base::Descriptor epoll_;
  std::map<LinkId, Link> links_;
  std::set<LinkId> unproven_;                       // the oldest first
  std::map<std::string, LinkId> waiting_, joined_;  // by pair and end
  std::vector<LinkId> closed_;                      // removed after the events of a poll
  LinkId next_id_ = 2;                              // after those of stop_ and listener
  std::vector<char> scratch_;
  Deadline next_sweep_{}, next_notice_{};
  ConnectionAcceptor acceptor_;
  bool accepting_ = true;     // the listener is watched
  std::size_t refusals_ = 0;  // since the last notice
  std::string last_refusal_;
  std::thread thread_;
};

}  // namespace backends
