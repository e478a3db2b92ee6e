// The connections of an agent: one outgoing to each process that it sends to, and those that other
// processes have opened. They carry messages or lose them, and decide nothing.
#pragma once

#include <poll.h>

#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/membership/agent_link.h"
#include "backends/membership/membership_message.h"
#include "backends/store/connection_acceptor.h"
#include "backends/store/protocol/session_machine.h"
#include "backends/store/store_connection.h"
#include "io/base/files/wake_event.h"

namespace backends {

class AgentSockets {
 public:
  struct Events {
    std::function<void(const MembershipMessage&)> received;
    std::function<void(const MemberId&)> refused;  // no process listens there any more
    // No agent is there: no process listens, or (`answers`) the process is silent or speaks another
    // protocol.
    std::function<void(const Endpoint&, bool answers)> no_agent;
    // The process that listens there has another secret, or has rejected this one.
    std::function<void(const Endpoint&, RefusalKind, const std::string&)> turned_away;
    std::function<void(const std::string&)> notice;
  };
  // `own`: the values that a process of the job must match. A connection on which no data is
  // acknowledged for `patience` is closed.
  AgentSockets(Secret secret, Hello own, Events events, std::chrono::milliseconds patience);

  void listen(Socket listener) { listeners_.push_back(std::move(listener)); }
  void send(const Endpoint& to, const MembershipMessage& message);
  void drop(const Endpoint& to);  // closes the connection; the next send() opens another one
  // Runs the loop once: waits until something arrives on a socket or on `wake`, or `until`.
  void poll_once(const base::WakeEvent& wake, Deadline until);
  void flush(Deadline until);  // tries to send the remaining data

 private:
  struct Outgoing {
    StoreConnection connection;
    bool standing = false;   // the kernel has connected it, or failed to
    bool connecting = true;  // until the other side has accepted this process
    Deadline handshake_until{}, reopened{};
    std::optional<Deadline> retry_at;       // set if it broke while it was being established
    int retries = 0;                        // since it was last established
    std::optional<SessionMachine> session;  // until the other side has accepted it
    Seals seals;
    std::deque<MembershipMessage> waiting;  // sent after the acceptance
    std::set<MemberId> ids;                 // ids of the processes that were addressed there
  };
  struct Incoming {
    StoreConnection connection;
    AcceptedLink link;
    std::string address;  // the peer's, without its port
    Deadline handshake_until{};
    MemberId from = {};       // sender of its last message
    bool is_of_dead = false;  // messages that its process sent before it died are ignored
  };
  // The sockets of one poll: `fds` has the wake-up, the listeners, and then these connections.
  struct Polled {
    std::vector<pollfd> fds;
    std::vector<Endpoint> targets = {};
    std::vector<std::list<Incoming>::iterator> sources = {};
  };
  using Outgoings = std::map<std::pair<std::string, int>, Outgoing>;

  static Endpoint endpoint_of(const Outgoings::value_type& entry) {
    return {entry.first.first, entry.first.second};
  }
  Polled sockets_to_poll(int wake);
  void serve_ready(const Polled& polled);
  void drop_late();  // connections whose handshake takes too long
  bool open(const Endpoint& to, Outgoing& out);
  void refuse(const Endpoint& to);
  void ended(const Endpoint& to);
  void retry();
  void serve(const Endpoint& to, short events);
  void on_session(const Endpoint& to, Outgoing& out);
  void put(Outgoing& out, const MembershipMessage& message);
  void accept_from(const Socket& listener);
  void make_room(const std::string& address);
  void notice_refusal(const std::string& why);
  bool serve(Incoming& in, short events);  // returns false if it has ended

  const Secret secret_;
  const Hello own_;
  const Events events_;
  const std::chrono::milliseconds patience_;
  std::vector<Socket> listeners_;
  ConnectionAcceptor acceptor_;
  Outgoings outgoing_;
  std::list<Incoming> incoming_;
  Deadline next_refusal_notice_{};
  std::size_t unnoticed_refusals_ = 0;  // since the last notice
};

}  // namespace backends
