// Implements the records in the store, the sockets, and the rounds of greetings.
#include "backends/transport/zmq/zmq_set_up.h"

#include <linux/filter.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <sstream>

#include "backends/backend_error.h"
#include "backends/identity/name_lookup.h"
#include "backends/transport/socket/link_patience.h"
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

ZmqLinks::SetUp::SetUp(ZmqLinks& links, const BackendContext& context)
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

void ZmqLinks::SetUp::run() {
  publish();
  read_records();
  std::map<std::string, ZapHandler::Peer> allowed;
  for (int peer = rank_ + 1; peer < size_; ++peer)
    allowed[std::to_string(peer)] = {decoded(key_of(peer)), password(peer, rank_)};
  links_.zap_handler_->serve(std::move(allowed));
  for (int peer = rank_ + 1; peer < size_; ++peer) bind(peer);
  for (int peer = 0; peer < rank_; ++peer) try_again(peer);
  exchange_hellos();
  for (const Link& l : links_.links_) {
    if (l.listener >= 0) take_no_more_connections(l.listener);
  }
  guard_.end_unproven();
}

// libzmq may have closed the descriptor meanwhile, and another file may have it.
void ZmqLinks::SetUp::use_connection(int peer, int fd) {
  const std::string& place = peer < rank_ ? end(peer).peer.endpoint : end(peer).listens;
  links_.link(peer).connection =
      is_connection_of(fd, place, peer < rank_) ? Connection(fd) : Connection::ended();
  if (is_loopback(context_.address)) do_not_pace(fd);
  if (links_.resumes()) notice_silence(fd, links_.link_patience_);
}

// ---- Records and proofs.

std::string ZmqLinks::SetUp::link_text(int from, int to) const {
  return context_.prefix + "/zmq/" + std::to_string(from) + "/" + std::to_string(to);
}

const std::string& ZmqLinks::SetUp::key_of(int rank) const {
  return rank == rank_ ? key_ : ends_[static_cast<std::size_t>(rank)].peer.key;
}

std::string ZmqLinks::SetUp::record_text(const Record& record, int from, int to) const {
  const std::string body = record.key + " " + record.mechanism + " " + record.endpoint;
  return body + " " +
         to_hex(keyed_hash(context_.secret, "engine zmq record", link_text(from, to) + " " + body));
}

ZmqLinks::SetUp::Record ZmqLinks::SetUp::read_record(int from, int to) const {
  const std::string key = link_text(from, to),
                    text = context_.store.get(key, context_.time_to_connect());
  context_.store.remove(key);  // it has one reader
  Record record;
  std::istringstream(text) >> record.key >> record.mechanism >> record.endpoint;
  if (!equal_in_constant_time(text, record_text(record, from, to)))
    throw AuthenticationError("what rank " + std::to_string(context_.group_rank(from)) +
                              " published for zmq was not made with this job's secret");
  require_same_mechanism(record, from);
  return record;
}

// Only `auto` leaves the choice to the listening side.
void ZmqLinks::SetUp::require_same_mechanism(const Record& record, int from) const {
  const std::string own = links_.encrypted_ ? "curve" : "plain";
  const bool free =
      context_.encryption == Encryption::kAuto && context_.cipher == LinkCipher::kNone;
  if (free || record.mechanism == "-" || record.mechanism == own) return;
  throw MismatchError("rank " + std::to_string(context_.group_rank(rank_)) + " uses zmq with " +
                      own + ", rank " + std::to_string(context_.group_rank(from)) + " with " +
                      record.mechanism + ": give all ranks the same --encrypt");
}

// Sent by `from` to `to`: proves that both keys were made for this communicator.
std::string ZmqLinks::SetUp::proof(const char* label, int from, int to,
                                   const std::string& more) const {
  return keyed_hash(context_.secret, label,
                    link_text(from, to) + " " + key_of(from) + " " + key_of(to) + more);
}

std::string ZmqLinks::SetUp::password(int from, int to) const {
  return to_hex(proof("engine zmq password", from, to, ""));
}

std::string ZmqLinks::SetUp::hello(int from, int to, const Greeting& greeting) const {
  std::string text(kGreetingBytes, '\0');
  std::memcpy(text.data(), &greeting.attempt, sizeof greeting.attempt);
  std::memcpy(text.data() + sizeof greeting.attempt, &greeting.received, sizeof greeting.received);
  return text.append(
      proof("engine zmq hello", from, to,
            " " + std::to_string(greeting.attempt) + " " + std::to_string(greeting.received)));
}

std::optional<ZmqLinks::SetUp::Greeting> ZmqLinks::SetUp::read_hello(const zmq::message_t& message,
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

void ZmqLinks::SetUp::publish() {
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

void ZmqLinks::SetUp::read_records() {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) ends_[static_cast<std::size_t>(peer)].peer = read_record(peer, rank_);
  }
}

// ---- Sockets.

zmq::socket_t ZmqLinks::SetUp::make_socket() const {
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
std::string ZmqLinks::SetUp::listen(int peer) {
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

void ZmqLinks::SetUp::bind(int peer) {
  Link& l = links_.link(peer);
  Socket& listener = ends_[static_cast<std::size_t>(peer)].unbound;
  const std::string place = "tcp://" + to_string(local_endpoint(listener.fd()));
  guard_.watch(l.socket, listener.fd());
  l.socket.set(zmq::sockopt::use_fd, listener.fd());
  while (!attempt_zmq([&] { return l.socket.bind(place), true; })) {
  }
  l.listener = listener.release();  // libzmq closes it
}

// Uses a new socket: libzmq does not reconnect one whose handshake failed.
void ZmqLinks::SetUp::try_again(int peer) {
  End& end = this->end(peer);
  ++end.attempt;
  ++end.tries;
  end.until = base::deadline_in(std::min(repairing_ ? kLongestRepairAttempt : kLongestAttempt,
                                         kFirstAttempt * (1 << std::min(end.tries - 1, 10u))));
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
  const std::string greeting = hello(rank_, peer, {end.attempt, links_.link(peer).received_bytes});
  while (!attempt_zmq([&] { return socket.send(zmq::buffer(greeting)); }) &&
         !base::has_passed(end.until)) {
    links_.abort_.throw_if_aborted();
  }
}

// ---- Greetings.

void ZmqLinks::SetUp::exchange_hellos() {
  const auto missing = [this] {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_ && !ends_[static_cast<std::size_t>(peer)].stands) return peer;
    }
    return size_;
  };
  base::Deadline end = context_.clock.deadline_in(context_.time_to_connect());
  for (int first = missing(), slice = 1; first < size_; slice = std::min(2 * slice, kSliceMs)) {
    wait(milliseconds(slice));
    links_.abort_.throw_if_aborted();
    guard_.count();
    for (int peer = first; peer < size_; ++peer) {
      if (peer == rank_ || ends_[static_cast<std::size_t>(peer)].stands) continue;
      serve(peer);
      if (ends_[static_cast<std::size_t>(peer)].stands) {
        end = context_.clock.deadline_in(context_.time_to_connect());
        slice = 1;
      }
    }
    first = missing();
    if (first < size_ && context_.clock.has_passed(end))
      links_.throw_timeout(first, context_.time_to_connect());
  }
}

// Returns early if a rank whose link is not established yet has sent something, or a process
// connects.
void ZmqLinks::SetUp::wait(milliseconds time) {
  std::vector<zmq::pollitem_t> items = guard_.poll_items();
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && !ends_[static_cast<std::size_t>(peer)].stands)
      items.push_back({links_.link(peer).socket.handle(), 0, ZMQ_POLLIN, 0});
  }
  attempt_zmq([&] { return zmq::poll(items, time); });
}

void ZmqLinks::SetUp::serve(int peer) {
  End& end = ends_[static_cast<std::size_t>(peer)];
  zmq::message_t message;
  const auto receive = [&] {
    return links_.link(peer).socket.recv(message, zmq::recv_flags::dontwait);
  };
  while (!end.stands && attempt_zmq(receive))
    peer < rank_ ? serve_connector(peer, message) : serve_listener(peer, message);
  if (end.stands) return;
  if (peer < rank_ && base::has_passed(end.until)) try_again(peer);
  if (peer > rank_ && !repairing_ && end.attempt > 0 && store_has_it_standing(peer)) stands(peer);
}

void ZmqLinks::SetUp::serve_connector(int peer, zmq::message_t& message) {
  const std::optional<Greeting> theirs = read_hello(message, peer);
  if (!theirs || theirs->attempt != end(peer).attempt) return;
  use_connection(peer, message.get(ZMQ_SRCFD));
  if (repairing_) return resume(peer, *theirs);
  context_.store.add(link_text(rank_, peer) + "/stands", 1);
  stands(peer);
}

void ZmqLinks::SetUp::serve_listener(int peer, zmq::message_t& message) {
  End& end = this->end(peer);
  Link& l = links_.link(peer);
  const std::optional<Greeting> theirs = read_hello(message, peer);
  if (!theirs || theirs->attempt <= end.attempt) {
    if (end.attempt > 0 && !repairing_) l.early.push_back(std::move(message));
    return;
  }
  l.early.clear();  // it belongs to an earlier attempt
  end.attempt = theirs->attempt;
  const int fd = message.get(ZMQ_SRCFD);
  guard_.proven(fd);
  use_connection(peer, fd);
  const std::string answer = hello(rank_, peer, {end.attempt, l.received_bytes});
  attempt_zmq([&] {  // a connection that has ended meanwhile accepts none
    return l.socket.send(zmq::buffer(answer), zmq::send_flags::dontwait);
  });
  if (repairing_) resume(peer, *theirs);
}

bool ZmqLinks::SetUp::store_has_it_standing(int peer) const {
  const std::string key = link_text(peer, rank_) + "/stands";
  if (context_.store.add(key, 0) == 0) return false;
  context_.store.remove(key);
  return true;
}

}  // namespace backends
