// Links over ZeroMQ: listening, keys, and the first messages.
#include <linux/filter.h>
#include <malloc.h>
#include <sys/socket.h>

#include <iterator>
#include <map>
#include <sstream>

#include "backends/backend_error.h"
#include "backends/identity/name_lookup.h"
#include "backends/open_files.h"
#include "backends/store/tcp_socket.h"
#include "backends/transport/direct/direct_communicator.h"
#include "backends/transport/zmq/zmq_attempt.h"
#include "backends/transport/zmq/zmq_backend.h"
#include "backends/transport/zmq/zmq_limits.h"
#include "backends/transport/zmq/zmq_links.h"

namespace backends {
namespace {

// libzmq allocates each large message that it receives. glibc gives such blocks back to the kernel
// at once, so that the next one is cleared page by page, until a large block has been freed: where
// 32 MiB have been, the bounds stand at these.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
}

constexpr int kSliceMs = 20;  // between checks for abort and deadline
constexpr int kReconnectMs = 100;
constexpr std::size_t kKeyBytes = 32, kKeyText = 40;  // of CURVE, plain and in Z85

struct KeyPair {
  std::string open, secret;  // in Z85
};
KeyPair make_key_pair() {
  char open[kKeyText + 1] = {}, secret[kKeyText + 1] = {};
  if (zmq_curve_keypair(open, secret) != 0)
    throw Error("ZeroMQ cannot make keys: this libzmq was built without CURVE");
  return {open, secret};
}

std::string decoded(const std::string& key) {
  std::string bytes(kKeyBytes, '\0');
  if (key.size() != kKeyText ||
      zmq_z85_decode(reinterpret_cast<std::uint8_t*>(bytes.data()), key.c_str()) == nullptr)
    throw PeerError("a rank published \"" + key + "\", which is not a key");
  return bytes;
}

std::string link_text(const BackendContext& context, int from, int to) {
  return context.prefix + "/zmq/" + std::to_string(from) + "/" + std::to_string(to);
}

}  // namespace

// What a rank publishes for one peer: its key and, if it listens for this peer, mechanism and
// address.
struct ZmqLinks::Peer {
  std::string key, mechanism, endpoint;

  std::string text(const BackendContext& context, int from, int to) const {
    const std::string body = key + " " + mechanism + " " + endpoint;
    return body + " " +
           to_hex(keyed_hash(context.secret, "engine zmq record",
                             link_text(context, from, to) + " " + body));
  }
  static Peer read(const BackendContext& context, int from, int to, const std::string& text) {
    Peer peer;
    std::istringstream(text) >> peer.key >> peer.mechanism >> peer.endpoint;
    if (!equal_in_constant_time(text, peer.text(context, from, to)))
      throw AuthenticationError("what rank " + std::to_string(context.group_rank(from)) +
                                " published for zmq was not made with this job's secret");
    return peer;
  }
};

namespace {

// Sent by `from` to `to`, once per communicator: both keys were made for it.
std::string proof(const BackendContext& context, const char* label, int from, int to,
                  const std::string& from_key, const std::string& to_key) {
  return keyed_hash(context.secret, label,
                    link_text(context, from, to) + " " + from_key + " " + to_key);
}
std::string password(const BackendContext& context, int from, int to, const std::string& from_key,
                     const std::string& to_key) {
  return to_hex(proof(context, "engine zmq password", from, to, from_key, to_key));
}

// The kernel drops what comes to this listener, connections already made excepted: libzmq spends
// its thread on those of unauthenticated peers, and offers no way to stop listening without ending
// the connections that came there.
void take_no_more_connections(int listener) {
  sock_filter drop_all[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog program{std::size(drop_all), drop_all};
  setsockopt(listener, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

zmq::socket_t make_socket(zmq::context_t& zmq, const BackendContext& context,
                          std::size_t max_message_bytes) {
  zmq::socket_t socket(zmq, zmq::socket_type::pair);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, 0);  // the schedule bounds what is under way
  socket.set(zmq::sockopt::rcvhwm, 0);
  socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(max_message_bytes));
  socket.set(zmq::sockopt::sndtimeo, kSliceMs);
  socket.set(zmq::sockopt::rcvtimeo, kSliceMs);
  socket.set(zmq::sockopt::reconnect_ivl, kReconnectMs);
  socket.set(zmq::sockopt::ipv6, context.address.find(':') != std::string::npos);
  return socket;
}

}  // namespace

ZmqLinks::ZmqLinks(const BackendContext& context, ZmqEncryption encryption)
    : rank_(context.rank),
      size_(context.world_size),
      encrypted_(encryption == ZmqEncryption::kAlways || !is_loopback(context.address)),
      members_(context.members),
      timeout_(context.timeout),
      context_(zmq_io_threads(context.world_size)),
      zap_handler_(std::make_unique<ZapHandler>(context_)) {
  for (int peer = 0; peer < size_; ++peer) links_.emplace_back();
}

void ZmqLinks::connect(const BackendContext& context) {
  const KeyPair keys = make_key_pair();
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    Peer own{keys.open, "-", "-"};
    link(peer).socket = make_socket(context_, context, max_message_bytes());
    if (peer > rank_) {
      own.mechanism = encrypted_ ? "curve" : "plain";
      own.endpoint = listen(context, peer, keys.secret);
    }
    context.store.set(link_text(context, rank_, peer), own.text(context, rank_, peer));
  }
  std::vector<Peer> peers(static_cast<std::size_t>(size_));
  std::map<std::string, ZapHandler::Peer> allowed;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const std::string key = link_text(context, peer, rank_);
    Peer& p = peers[static_cast<std::size_t>(peer)];
    p = Peer::read(context, peer, rank_, context.store.get(key, context.timeout));
    context.store.remove(key);  // it has one reader
    if (peer > rank_)
      allowed[std::to_string(peer)] = {decoded(p.key),
                                       password(context, peer, rank_, p.key, keys.open)};
  }
  zap_handler_->serve(std::move(allowed));
  for (int peer = 0; peer < rank_; ++peer) {
    const Peer& p = peers[static_cast<std::size_t>(peer)];
    zmq::socket_t& socket = link(peer).socket;
    if (p.mechanism == "plain") {
      socket.set(zmq::sockopt::plain_username, std::to_string(rank_));
      socket.set(zmq::sockopt::plain_password, password(context, rank_, peer, keys.open, p.key));
    } else {
      socket.set(zmq::sockopt::curve_serverkey, p.key);
      socket.set(zmq::sockopt::curve_publickey, keys.open);
      socket.set(zmq::sockopt::curve_secretkey, keys.secret);
    }
    while (!attempt_zmq([&] { return socket.connect(p.endpoint), true; })) {
    }
  }
  exchange_hellos(context, keys.open, peers);
  for (const Link& l : links_) {
    if (l.listener >= 0) take_no_more_connections(l.listener);
    if (!encrypted_) do_not_pace(l.connection.fd());
  }
}

std::string ZmqLinks::listen(const BackendContext& context, int peer,
                             const std::string& secret_key) {
  zmq::socket_t& socket = link(peer).socket;
  socket.set(zmq::sockopt::zap_domain, std::to_string(peer));
  if (!encrypted_) {
    socket.set(zmq::sockopt::plain_server, true);
  } else {
    socket.set(zmq::sockopt::curve_server, true);
    socket.set(zmq::sockopt::curve_secretkey, secret_key);
  }
  Socket listener = listen_on({context.address, 0});
  const std::string place = "tcp://" + to_string(local_endpoint(listener.fd()));
  socket.set(zmq::sockopt::use_fd, listener.fd());
  while (!attempt_zmq([&] { return socket.bind(place), true; })) {
  }
  link(peer).listener = listener.release();  // closed by libzmq
  return place;
}

// Mutual authentication, independent of the mechanism. The connecting side sends first, because the
// listening one does not know when it is connected.
void ZmqLinks::exchange_hellos(const BackendContext& context, const std::string& own_key,
                               const std::vector<Peer>& peers) {
  const auto key = [&](int peer) { return peers[static_cast<std::size_t>(peer)].key; };
  const auto send_hello = [&](int peer) {
    send_message(
        peer, zmq::message_t(proof(context, "engine zmq hello", rank_, peer, own_key, key(peer))),
        zmq::send_flags::none);
  };
  const auto receive_hello = [&](int peer) {
    zmq::message_t hello = wait_for_message(peer);
    link(peer).connection = Connection(hello.get(ZMQ_SRCFD));
    if (!equal_in_constant_time(
            hello.to_string(), proof(context, "engine zmq hello", peer, rank_, key(peer), own_key)))
      throw AuthenticationError("rank " + std::to_string(context.group_rank(peer)) +
                                "'s greeting was not made with this job's secret");
  };
  for (int peer = 0; peer < rank_; ++peer) send_hello(peer);
  for (int peer = rank_ + 1; peer < size_; ++peer) {
    receive_hello(peer);
    send_hello(peer);
  }
  for (int peer = 0; peer < rank_; ++peer) receive_hello(peer);
}

extern const bool kZmqIsBuilt = true;
extern const char* const kZmqNote =
    "ZeroMQ over TCP, ranks are processes; encrypted unless all ranks are on loopback";

std::unique_ptr<Communicator> make_zmq_communicator(const BackendContext& context) {
  // The library's own, a queue and a connection for each peer, a listener for each higher rank. It
  // aborts the process where it is refused one.
  const int peers = context.world_size - 1;
  require_files(8 + 2 * peers + (peers - context.rank), "backend zmq");
  require_zmq_resources(context.world_size);
  report_zmq_aborts();
  const InsideZmq inside;
  keep_freed_memory();
  auto links = std::make_shared<ZmqLinks>(context);
  auto communicator = make_direct_communicator("zmq", context, links);
  const AbortOnFailure scope(context.watch, *communicator);  // if a peer dies while connecting
  links->connect(context);
  return communicator;
}

}  // namespace backends
