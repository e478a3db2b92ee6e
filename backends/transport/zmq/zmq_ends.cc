// Implements the records in the store, the sockets, and the greetings.
#include "backends/transport/zmq/zmq_ends.h"

#include <linux/filter.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <sstream>

#include "backends/backend_error.h"
#include "backends/identity/name_lookup.h"
#include "backends/store/awaited_value.h"
#include "backends/transport/repair/link_patience.h"
#include "backends/transport/zmq/zmq_attempt.h"

namespace backends {
namespace {

using std::chrono::milliseconds;
constexpr int kSliceMs = 20;  // between checks for abort and deadline
constexpr int kReconnectMs = 100;
// An attempt usually takes moments, but longer if ranks share cores.
constexpr milliseconds kFirstAttempt{500}, kLongestAttempt{16'000};
// The longest one is shorter after a break: what was sent may have been dropped on the way.
constexpr milliseconds kLongestRepairAttempt{2000};
// The listener has noticed the break by then as well, and takes connections.
constexpr milliseconds kZmqFirstWait{150};
// A break is reported if the peer's process has not proved gone by then.
constexpr milliseconds kZmqReportTime{1000};
constexpr milliseconds kZmqProbePause{1000};
constexpr std::size_t kGreetingBytes = sizeof(std::uint32_t) + sizeof(std::uint64_t);
constexpr std::size_t kKeyBytes = 32, kKeyText = 40;  // CURVE's keys, plain and in Z85

// Whether `fd` is connected to the port of `place`, or was accepted there.
bool is_connection_of(int fd, const std::string& place, bool connects) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return false;
  const int port = (connects ? peer_endpoint(fd) : local_endpoint(fd)).port;
  return place.ends_with(":" + std::to_string(port));
}

LinkMachine::Rules zmq_link_rules(const BackendContext& context) {
  const ConnectSchedule::Pace probe{{}, kZmqProbePause, kZmqProbePause};
  return {.patience = context.link_patience,
          .report_delay = kZmqReportTime,
          .numbers = ConnectionNumbers::Of::kAttempts,
          .set_up = {{{}, kFirstAttempt, kLongestAttempt}, probe, {}},
          .repair = {{kZmqFirstWait, kFirstAttempt, kLongestRepairAttempt}, probe, {}}};
}

std::string decoded(const std::string& key) {
  std::string bytes(kKeyBytes, '\0');
  if (key.size() != kKeyText ||
      zmq_z85_decode(reinterpret_cast<std::uint8_t*>(bytes.data()), key.c_str()) == nullptr)
    throw PeerError("a rank published \"" + key + "\", which is not a key");
  return bytes;
}

}  // namespace

// libzmq would spend its thread on unauthenticated peers, and cannot stop listening without closing
// the accepted connections.
void take_no_more_connections(int listener) {
  sock_filter drop_all[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog program{std::size(drop_all), drop_all};
  setsockopt(listener, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

ZmqLinks::Ends::Ends(ZmqLinks& links, const BackendContext& context)
    : links_(links),
      context_(context),
      rank_(context.rank),
      size_(context.world_size),
      ends_(static_cast<std::size_t>(context.world_size)),
      guard_(links.context_, context.world_size - 1 - context.rank) {
  char open[kKeyText + 1] = {}, secret[kKeyText + 1] = {};
  if (zmq_curve_keypair(open, secret) != 0)
    throw Error("ZeroMQ cannot make keys: this libzmq was built without CURVE");
  key_ = open;
  secret_key_ = secret;
}

void ZmqLinks::Ends::exchange_records() {
  publish();
  read_records();
  std::map<std::string, ZapHandler::Peer> allowed;
  for (int peer = rank_ + 1; peer < size_; ++peer)
    allowed[std::to_string(peer)] = {decoded(key_of(peer)), password(peer, rank_)};
  links_.zap_handler_->serve(std::move(allowed));
  for (int peer = rank_ + 1; peer < size_; ++peer) bind(peer);
  for (End& end : ends_) end.machine = LinkMachine(zmq_link_rules(context_), context_.clock.now());
}

// libzmq may have closed the descriptor meanwhile, and another file may have it.
void ZmqLinks::Ends::use_connection(int peer, int fd) {
  const std::string& place = peer < rank_ ? end(peer).peer.endpoint : end(peer).listens;
  links_.link(peer).connection =
      is_connection_of(fd, place, peer < rank_) ? Connection(fd) : Connection::ended();
  if (is_loopback(context_.address)) do_not_pace(fd);
  if (links_.resumes()) notice_silence(fd, links_.link_patience_);
}

// ---- Records and proofs.

std::string ZmqLinks::Ends::link_text(int from, int to) const {
  return context_.prefix + "/zmq/" + std::to_string(from) + "/" + std::to_string(to);
}

const std::string& ZmqLinks::Ends::key_of(int rank) const {
  return rank == rank_ ? key_ : ends_[static_cast<std::size_t>(rank)].peer.key;
}

std::string ZmqLinks::Ends::record_text(const Record& record, int from, int to) const {
  const std::string body = record.key + " " + record.mechanism + " " + record.endpoint;
  return body + " " +
         to_hex(keyed_hash(context_.secret, "engine zmq record", link_text(from, to) + " " + body));
}

ZmqLinks::Ends::Record ZmqLinks::Ends::read_record(int from, base::Deadline deadline) const {
  const std::string key = link_text(from, rank_),
                    text = awaited_value(
                        context_, key, deadline,
                        "the address of rank " + std::to_string(context_.group_rank(from)));
  context_.store.remove(key);  // it has one reader
  Record record;
  std::istringstream(text) >> record.key >> record.mechanism >> record.endpoint;
  if (!equal_in_constant_time(text, record_text(record, from, rank_)))
    throw AuthenticationError("what rank " + std::to_string(context_.group_rank(from)) +
                              " published for zmq was not made with this job's secret");
  require_same_mechanism(record, from);
  return record;
}

// Only `auto` leaves the choice to the listening side.
void ZmqLinks::Ends::require_same_mechanism(const Record& record, int from) const {
  const std::string own = links_.encrypted_ ? "curve" : "plain";
  const bool free =
      context_.encryption == Encryption::kAuto && context_.cipher == LinkCipher::kNone;
  if (free || record.mechanism == "-" || record.mechanism == own) return;
  throw MismatchError("rank " + std::to_string(context_.group_rank(rank_)) + " uses zmq with " +
                      own + ", rank " + std::to_string(context_.group_rank(from)) + " with " +
                      record.mechanism + ": give all ranks the same --encrypt");
}

// Sent by `from` to `to`: proves that both keys were made for this communicator.
std::string ZmqLinks::Ends::proof(const char* label, int from, int to,
                                  const std::string& more) const {
  return keyed_hash(context_.secret, label,
                    link_text(from, to) + " " + key_of(from) + " " + key_of(to) + more);
}

std::string ZmqLinks::Ends::password(int from, int to) const {
  return to_hex(proof("engine zmq password", from, to, ""));
}

std::string ZmqLinks::Ends::hello(int from, int to, const Greeting& greeting) const {
  std::string text(kGreetingBytes, '\0');
  std::memcpy(text.data(), &greeting.attempt, sizeof greeting.attempt);
  std::memcpy(text.data() + sizeof greeting.attempt, &greeting.received, sizeof greeting.received);
  return text.append(
      proof("engine zmq hello", from, to,
            " " + std::to_string(greeting.attempt) + " " + std::to_string(greeting.received)));
}

std::optional<ZmqLinks::Ends::Greeting> ZmqLinks::Ends::read_hello(const zmq::message_t& message,
                                                                   int from) const {
  Greeting greeting;
  if (message.size() != kGreetingBytes + kMacBytes) return std::nullopt;
  std::memcpy(&greeting.attempt, message.data(), sizeof greeting.attempt);
  std::memcpy(&greeting.received, message.data<char>() + sizeof greeting.attempt,
              sizeof greeting.received);
  if (!equal_in_constant_time(message.to_string_view(), hello(from, rank_, greeting)))
    return std::nullopt;
  return greeting;
}

void ZmqLinks::Ends::publish() {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    Record own{key_, "-", "-"};
    if (peer > rank_) {
      own.mechanism = links_.encrypted_ ? "curve" : "plain";
      own.endpoint = listen(peer);
    }
    context_.store.set(link_text(rank_, peer), record_text(own, rank_, peer));
  }
}

void ZmqLinks::Ends::read_records() {
  const auto deadline = context_.clock.deadline_in(context_.time_to_connect());
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) end(peer).peer = read_record(peer, deadline);
  }
}

// ---- Sockets.

zmq::socket_t ZmqLinks::Ends::make_socket() const {
  zmq::socket_t socket(links_.context_, zmq::socket_type::pair);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, 0);  // the schedule bounds the messages in flight
  socket.set(zmq::sockopt::rcvhwm, 0);
  socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(links_.max_message_bytes()));
  socket.set(zmq::sockopt::sndtimeo, kSliceMs);
  socket.set(zmq::sockopt::rcvtimeo, kSliceMs);
  // A silent new connection of libzmq's would look like the old one.
  socket.set(zmq::sockopt::reconnect_ivl, links_.resumes() ? -1 : kReconnectMs);
  socket.set(zmq::sockopt::ipv6, context_.address.find(':') != std::string::npos);
  return socket;
}

// The kernel accepts connections from here on, and libzmq after bind(): none is counted before.
std::string ZmqLinks::Ends::listen(int peer) {
  Socket listener = listen_on({context_.address, 0});
  const std::string place = "tcp://" + to_string(local_endpoint(listener.fd()));
  zmq::socket_t& socket = links_.link(peer).socket = make_socket();
  socket.set(zmq::sockopt::zap_domain, std::to_string(peer));
  if (!links_.encrypted_) {
    socket.set(zmq::sockopt::plain_server, true);
  } else {
    socket.set(zmq::sockopt::curve_server, true);
    socket.set(zmq::sockopt::curve_secretkey, secret_key_);
  }
  end(peer).unbound = std::move(listener);
  return end(peer).listens = place;
}

void ZmqLinks::Ends::bind(int peer) {
  Link& l = links_.link(peer);
  Socket& listener = end(peer).unbound;
  const std::string place = "tcp://" + to_string(local_endpoint(listener.fd()));
  guard_.watch(l.socket, listener.fd());
  l.socket.set(zmq::sockopt::use_fd, listener.fd());
  while (!attempt_zmq([&] { return l.socket.bind(place), true; })) {
  }
  l.listener = listener.release();  // libzmq closes it
}

// Uses a new socket: libzmq does not reconnect one whose handshake failed.
void ZmqLinks::Ends::connect(int peer) {
  End& end = this->end(peer);
  if (peer > rank_ || !end.machine.begin(ConnectWay::kDirect, context_.clock.now())) return;
  const auto until = context_.clock.deadline_in(end.machine.schedule().pause(ConnectWay::kDirect));
  end.machine.schedule().end(ConnectWay::kDirect);  // the next attempt replaces this one
  zmq::socket_t& socket = links_.link(peer).socket = make_socket();
  if (end.peer.mechanism == "plain") {
    socket.set(zmq::sockopt::plain_username, std::to_string(rank_));
    socket.set(zmq::sockopt::plain_password, password(rank_, peer));
  } else {
    socket.set(zmq::sockopt::curve_serverkey, end.peer.key);
    socket.set(zmq::sockopt::curve_publickey, key_);
    socket.set(zmq::sockopt::curve_secretkey, secret_key_);
  }
  while (!attempt_zmq([&] { return socket.connect(end.peer.endpoint), true; })) {
  }
  const std::string greeting =
      hello(rank_, peer, {end.machine.numbers().offer(), links_.link(peer).received_bytes});
  while (!attempt_zmq([&] { return socket.send(zmq::buffer(greeting)); }) &&
         !context_.clock.has_passed(until)) {
    links_.abort_.throw_if_aborted();
  }
}

// ---- Greetings.

// Returns early if a rank whose link needs a connection has sent something, or a process connects.
void ZmqLinks::Ends::wait(milliseconds time) {
  std::vector<zmq::pollitem_t> items = guard_.poll_items();
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && end(peer).machine.needs_connection())
      items.push_back({links_.link(peer).socket.handle(), 0, ZMQ_POLLIN, 0});
  }
  attempt_zmq([&] { return zmq::poll(items, time); });
}

std::optional<ZmqLinks::Ends::Greeting> ZmqLinks::Ends::next_greeting(int peer) {
  Link& l = links_.link(peer);
  zmq::message_t message;
  const auto receive = [&] { return l.socket.recv(message, zmq::recv_flags::dontwait); };
  while (attempt_zmq(receive)) {
    const std::optional<Greeting> theirs = read_hello(message, peer);
    if (theirs && is_newest(peer, *theirs)) {
      take(peer, *theirs, message.get(ZMQ_SRCFD));
      return theirs;
    }
    // The connecting end may send before this one knows that the link is established.
    if (peer > rank_ && has_greeted(peer)) l.early.push_back(std::move(message));
  }
  return std::nullopt;
}

bool ZmqLinks::Ends::is_newest(int peer, const Greeting& theirs) {
  LinkMachine& machine = end(peer).machine;
  return peer < rank_ ? machine.numbers().is_current(theirs.attempt)
                      : machine.on_proof(theirs.attempt, context_.clock.now());
}

// In set-up.
bool ZmqLinks::Ends::has_greeted(int peer) {
  LinkMachine& machine = end(peer).machine;
  return machine.state() == LinkMachine::State::kNew && !machine.numbers().is_current(0);
}

void ZmqLinks::Ends::take(int peer, const Greeting& theirs, int fd) {
  if (peer < rank_) return use_connection(peer, fd);
  Link& l = links_.link(peer);
  l.early.clear();  // it belongs to an earlier attempt
  guard_.proven(fd);
  use_connection(peer, fd);
  const std::string answer = hello(rank_, peer, {theirs.attempt, l.received_bytes});
  attempt_zmq([&] {  // a connection that has ended meanwhile accepts none
    return l.socket.send(zmq::buffer(answer), zmq::send_flags::dontwait);
  });
}

}  // namespace backends
