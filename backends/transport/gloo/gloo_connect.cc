// Links over Gloo: connecting, and proofs of who is at the other end.
#include <gloo/common/error.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stop_token>
#include <thread>

#include "backends/backend_error.h"
#include "backends/transport/gloo/gloo_links.h"
#include "io/base/stoppable_sleep.h"

namespace backends {
namespace {

// Connections are proved within milliseconds; after this time the other end is not a rank.
constexpr auto kProofTime = std::chrono::seconds(10);
// A stranger spoils an attempt by being faster than a rank; what takes longer is another trouble.
constexpr auto kStrangersTime = std::chrono::seconds(30);
constexpr int kAttempts = 20;

// Of the two connections between two ranks: the one whose payload goes as the proof, or the other.
std::string proof(const BackendContext& context, int from, int to, bool with_payload) {
  return keyed_hash(context.secret, "engine gloo pair",
                    context.prefix + (with_payload ? "/" : "/against/") + std::to_string(from) +
                        "/" + std::to_string(to));
}

// Gloo's own wait would last for the timeout of a collective. A rank whose connection a stranger
// took sees its end; the one that has the stranger's learns of it by the end of others.
void limit_proofs(GlooMesh& mesh, const std::stop_token& stop) {
  const auto end = std::chrono::steady_clock::now() + kProofTime;
  while (!mesh.ended() && std::chrono::steady_clock::now() < end)
    if (!base::sleep_unless_stopped(stop, std::chrono::milliseconds(5))) return;
  mesh.shut_down();
}

}  // namespace

// Gloo knows no authentication, and the port for a pair takes one connection only. So each pair
// proves itself as its first message, and where a connection is not a rank's, or a port was taken,
// all ranks connect again with new ports: a stranger costs an attempt, not the job.
void GlooLinks::connect(const BackendContext& context) {
  for (int number = 0;; ++number) {
    const auto begin = std::chrono::steady_clock::now();
    BackendContext attempt = context;
    attempt.prefix += "/gloo/" + std::to_string(number);
    install(make_mesh(attempt));
    Verdict verdict = agree(attempt, mesh_->connect(attempt), number, begin);
    if (verdict.kind == Verdict::Kind::kGood)
      verdict = agree(attempt, prove(attempt), number, begin);
    if (verdict.kind == Verdict::Kind::kGood) return;
    if (verdict.kind == Verdict::Kind::kEnd) throw PeerError(verdict.text);
    if (attempt.notice) attempt.notice("backend gloo connects again: " + verdict.text);
    disconnect();
  }
}

std::shared_ptr<GlooMesh> GlooLinks::make_mesh(const BackendContext& context) {
  for (int tries = 1;; ++tries) {
    try {
      return std::make_shared<GlooMesh>(context);
    } catch (const gloo::Exception& error) {
      throw PeerError(plain_gloo_text(error.what()));
    } catch (const PeerError&) {  // a stranger was there before the ports were published
      if (tries == kAttempts) throw;
    }
  }
}

void GlooLinks::install(std::shared_ptr<GlooMesh> mesh) {
  const std::lock_guard lock(mutex_);
  if (aborted_) throw PeerError("aborted");
  mesh_ = std::move(mesh);
}

void GlooLinks::bind(Channel& w, gloo::transport::Pair& out, gloo::transport::Pair& in, int number,
                     std::size_t bytes) {
  w.inbox.resize(bytes);
  w.receive = in.createRecvBuffer(number, w.inbox.data(), bytes);
  // Bound to the whole address space: offsets are addresses, so that sending from any buffer needs
  // no new object.
  w.send = out.createSendBuffer(number, nullptr, std::numeric_limits<std::size_t>::max());
}

void GlooLinks::bind_channels() {
  const std::size_t head = sizeof(ControlWord) + kHeadBytes,
                    message = piece_bytes(mesh_->size) + sizeof(double);
  const std::size_t inbox[kKinds] = {head, message, message};
  const auto peers = static_cast<std::size_t>(mesh_->size);
  hears_.assign(2 * peers, false);
  proofs_.resize(2 * peers);
  for (auto& of_peers : heads_) of_peers.assign(peers, std::vector<char>(head));
  for (auto& slots : channels_) {
    for (auto& channels : slots) channels.resize(peers);
  }
  for (int peer = 0; peer < mesh_->size; ++peer) {
    if (peer == mesh_->rank) continue;
    gloo::transport::Pair &out = mesh_->out(peer), &in = mesh_->in(peer);
    for (int kind = 0; kind < kKinds; ++kind) {
      for (unsigned slot = 0; slot < 2; ++slot)
        bind(channel(static_cast<Kind>(kind), slot, peer), out, in,
             2 * kind + static_cast<int>(slot), inbox[kind]);
    }
    const std::size_t at = 2 * static_cast<std::size_t>(peer);
    bind(proofs_[at], out, out, 2 * kKinds, kMacBytes);
    bind(proofs_[at + 1], in, in, 2 * kKinds, kMacBytes);
  }
}

// Binds the buffers, sends a proof over every pair and checks the peers'. Returns what is wrong, ""
// if nothing is.
std::string GlooLinks::prove(const BackendContext& context) {
  const std::jthread limit([&](const std::stop_token& stop) { limit_proofs(*mesh_, stop); });
  const auto each_pair = [&](const auto& body) {
    for (int peer = 0; peer < mesh_->size; ++peer) {
      for (unsigned in = 0; in < 2 && peer != mesh_->rank; ++in)
        body(peer, in, 2 * static_cast<std::size_t>(peer) + in);
    }
  };
  std::string trouble;
  const auto attempt = [&](const auto& step) {
    try {
      step();
    } catch (const PeerError& error) {
      if (trouble.empty()) trouble = error.what();
      mesh_->shut_down();  // the peers need not wait
    }
  };
  attempt([&] { mesh_->take_handles(members_); });
  if (!trouble.empty()) return trouble;
  bind_channels();
  each_pair([&](int peer, unsigned in, std::size_t at) {
    char* out = heads_[in][static_cast<std::size_t>(peer)].data();
    std::memcpy(out, proof(context, mesh_->rank, peer, in == 0).data(), kMacBytes);
    attempt([&] {
      send_from(peer, proofs_[at], out, kMacBytes);
      hears_[at] = true;
    });
  });
  each_pair([&](int peer, unsigned in, std::size_t at) {
    if (!trouble.empty()) return;
    attempt(
        [&] { trouble = check(peer, proofs_[at], proof(context, peer, mesh_->rank, in == 1)); });
  });
  attempt([&] {
    if (trouble.empty()) widen();
  });
  return trouble;
}

// Gloo makes the kernel's buffer for sending as long as the longest message so far, and the kernel
// doubles that for its own needs. On loopback, where a segment has 64 KiB, a receiver acknowledges
// a single one 40 ms later, and until then what follows it waits if it does not fit as well: every
// call took 44 or 88 ms at some sizes. So the first message is as long as any that will follow.
void GlooLinks::widen() {
  const auto peers = [&](const auto& body) {
    for (int peer = 0; peer < mesh_->size; ++peer) {
      if (peer == mesh_->rank) continue;
      Channel &head = channel(kHead, 0, peer), &share = channel(kShare, 0, peer);
      body(peer, head.inbox.size() > share.inbox.size() ? head : share);
    }
  };
  std::vector<char> longest;
  peers([&](int peer, Channel& w) {
    longest.resize(w.inbox.size());
    send_from(peer, w, longest.data(), longest.size());
  });
  peers([&](int peer, Channel& w) { wait_for(peer, w); });
  peers([&](int peer, Channel& w) { finish(peer, w); });
}

std::string GlooLinks::check(int peer, Channel& w, const std::string& proof) {
  wait_for(peer, w);
  if (!equal_in_constant_time({w.inbox.data(), kMacBytes}, proof))
    return "the connection that should be of rank " +
           std::to_string(members_[static_cast<std::size_t>(peer)]) +
           " was made by a process that does not know this job's secret";
  finish(peer, w);
  return "";
}

// Collective: what rank 0 makes of all ranks' troubles.
GlooLinks::Verdict GlooLinks::agree(const BackendContext& context, const std::string& trouble,
                                    int number, std::chrono::steady_clock::time_point begin) {
  const auto key = [&](const char* what, int peer) {
    return context.prefix + "/" + what + "/" + std::to_string(peer);
  };
  const auto take = [&](const std::string& name) {
    std::string value = context.store.get(name, context.timeout);
    context.store.remove(name);  // it has one reader
    return value;
  };
  if (context.rank != 0) {
    context.store.set(key("trouble", context.rank), trouble);
    const std::string verdict = take(key("verdict", context.rank));
    if (verdict.empty()) throw PeerError("rank 0 sent no verdict on the connections");
    return {static_cast<Verdict::Kind>(verdict[0]), verdict.substr(1)};
  }
  Verdict verdict{Verdict::Kind::kGood, ""};
  for (int peer = 0; peer < context.world_size; ++peer) {
    const std::string text = peer == 0 ? trouble : take(key("trouble", peer));
    if (text.empty() || !verdict.text.empty()) continue;
    const std::chrono::nanoseconds most =
        std::min<std::chrono::nanoseconds>(kStrangersTime, context.timeout);
    const bool strange = number + 1 < kAttempts && std::chrono::steady_clock::now() - begin < most;
    verdict = {strange ? Verdict::Kind::kAgain : Verdict::Kind::kEnd,
               "rank " + std::to_string(context.group_rank(peer)) + ": " + text};
  }
  for (int peer = 1; peer < context.world_size; ++peer)
    context.store.set(key("verdict", peer), static_cast<char>(verdict.kind) + verdict.text);
  return verdict;
}

}  // namespace backends
