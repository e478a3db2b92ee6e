// Links over Gloo.
#include "backends/transport/gloo/gloo_links.h"

#include <gloo/common/error.h>

#include <cstring>
#include <limits>
#include <stop_token>
#include <thread>

#include "backends/backend_error.h"
#include "io/base/stoppable_sleep.h"

namespace backends {
namespace {

// After a failed write to a closed connection Gloo does not read what has arrived there, such as
// this rank's word. So a rank that has seen a mismatch keeps its connections open for the time that
// its peers may need to make their calls.
constexpr auto kGlooDrainTime = std::chrono::milliseconds(300);

// Connections are proved within milliseconds; after this time the other end is not a rank.
constexpr auto kProofTime = std::chrono::seconds(10);
// A stranger spoils an attempt by being faster than a rank; what takes longer is another trouble.
constexpr auto kStrangersTime = std::chrono::seconds(30);
constexpr int kAttempts = 20;

template <typename Call>
void translate(int peer, const Call& call) {
  try {
    call();
  } catch (const gloo::Exception& error) {
    throw PeerError("waiting for rank " + std::to_string(peer) + ": " +
                    plain_gloo_text(error.what()));
  }
}

// REQUIRES: the mesh was shut down. When this returns, nothing writes to the pair's inboxes.
void wait_until_closed(gloo::transport::Buffer* receive) {
  try {
    while (receive != nullptr) receive->waitRecv();
  } catch (const std::exception&) {
    // Thrown once the pair is closed.
  }
}

}  // namespace

GlooLinks::GlooLinks(const BackendContext& context) : members_(context.members) {}

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
    if (verdict.kind == Verdict::Kind::kGood) {
      bind_channels();
      verdict = agree(attempt, prove(attempt), number, begin);
    }
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

void GlooLinks::bind_channels() {
  const std::size_t head = sizeof(ControlWord) + kHeadBytes,
                    message = piece_bytes(mesh_->size) + sizeof(double);
  const std::size_t inbox[kKinds] = {head, message, message};
  hears_.assign(static_cast<std::size_t>(mesh_->size), false);
  for (auto& peers : heads_)
    peers.assign(static_cast<std::size_t>(mesh_->size), std::vector<char>(head));
  for (int kind = 0; kind < kKinds; ++kind) {
    for (unsigned slot = 0; slot < 2; ++slot) {
      std::vector<Channel>& channels = channels_[static_cast<std::size_t>(kind)][slot];
      channels.resize(static_cast<std::size_t>(mesh_->size));
      for (int peer = 0; peer < mesh_->size; ++peer) {
        if (peer == mesh_->rank) continue;
        Channel& w = channels[static_cast<std::size_t>(peer)];
        const int number = 2 * kind + static_cast<int>(slot);
        w.inbox.resize(inbox[kind]);
        w.receive = mesh_->getPair(peer)->createRecvBuffer(number, w.inbox.data(), w.inbox.size());
        // Bound to the whole address space: offsets are addresses, so that sending from any buffer
        // needs no new object.
        w.send = mesh_->getPair(peer)->createSendBuffer(number, nullptr,
                                                        std::numeric_limits<std::size_t>::max());
      }
    }
  }
}

// Sends a proof over every pair and checks the peers'. Returns what is wrong, "" if nothing is.
std::string GlooLinks::prove(const BackendContext& context) {
  const auto proof = [&](int from, int to) {
    return keyed_hash(context.secret, "engine gloo pair",
                      context.prefix + "/" + std::to_string(from) + "/" + std::to_string(to));
  };
  // Gloo's own wait would last for the timeout of a collective.
  const std::jthread limit([&](const std::stop_token& stop) {
    if (base::sleep_unless_stopped(stop, kProofTime)) mesh_->shut_down();
  });
  std::string trouble;
  for (int peer = 0; peer < mesh_->size; ++peer) {
    if (peer == mesh_->rank) continue;
    char* out = heads_[0][static_cast<std::size_t>(peer)].data();
    std::memcpy(out, proof(mesh_->rank, peer).data(), kMacBytes);
    try {
      send_from(peer, channel(kHead, 0, peer), out, kMacBytes);
      hears_[static_cast<std::size_t>(peer)] = true;
    } catch (const PeerError& error) {
      if (trouble.empty()) trouble = error.what();
    }
  }
  if (!trouble.empty()) return trouble;
  try {
    for (int peer = 0; peer < mesh_->size; ++peer) {
      if (peer == mesh_->rank) continue;
      Channel& w = channel(kHead, 0, peer);
      wait_for(peer, w);
      if (!equal_in_constant_time({w.inbox.data(), kMacBytes}, proof(peer, mesh_->rank)))
        return "the connection that should be of rank " +
               std::to_string(members_[static_cast<std::size_t>(peer)]) +
               " was made by a process that does not know this job's secret";
      finish(peer, w);
    }
  } catch (const PeerError& error) {
    return error.what();
  }
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
    const bool strange =
        number + 1 < kAttempts && std::chrono::steady_clock::now() - begin < kStrangersTime;
    verdict = {strange ? Verdict::Kind::kAgain : Verdict::Kind::kEnd,
               "rank " + std::to_string(context.group_rank(peer)) + ": " + text};
  }
  for (int peer = 1; peer < context.world_size; ++peer)
    context.store.set(key("verdict", peer), static_cast<char>(verdict.kind) + verdict.text);
  return verdict;
}

// When this returns, nothing writes to the inboxes any more.
void GlooLinks::disconnect() {
  if (!mesh_) return;
  mesh_->shut_down();
  for (std::size_t peer = 0; peer < hears_.size(); ++peer) {
    if (hears_[peer]) wait_until_closed(channels_[kHead][0][peer].receive.get());
  }
  for (auto& slots : channels_) {
    for (auto& channels : slots) channels.clear();
  }
  hears_.clear();
}

GlooLinks::~GlooLinks() { disconnect(); }

void GlooLinks::send_head(int peer, const ControlWord& word, const void* payload,
                          std::size_t bytes) {
  head_slot_ = word.sequence & 1u;
  Channel& w = channel(kHead, head_slot_, peer);
  finish(peer, w);  // of the call before last: completed, but Gloo requires the wait
  char* head = heads_[head_slot_][static_cast<std::size_t>(peer)].data();
  std::memcpy(head, &word, sizeof word);
  if (bytes > 0) std::memcpy(head + sizeof word, payload, bytes);
  send_from(peer, w, head, sizeof word + bytes);
}

Head GlooLinks::receive_head(int peer) {
  Channel& w = channel(kHead, head_slot_, peer);
  wait_for(peer, w);
  Head head{{}, w.inbox.data() + sizeof(ControlWord)};
  std::memcpy(&head.word, w.inbox.data(), sizeof head.word);
  return head;
}

void GlooLinks::send(int peer, Lane lane, unsigned slot, const void* data, std::size_t bytes) {
  send_from(peer, channel(lane, slot, peer), data, bytes);
}

const char* GlooLinks::receive(int peer, Lane lane, unsigned slot, std::size_t) {
  Channel& w = channel(lane, slot, peer);
  wait_for(peer, w);
  return w.inbox.data();
}

void GlooLinks::send_from(int peer, Channel& w, const void* data, std::size_t bytes) {
  translate(members_[static_cast<std::size_t>(peer)],
            [&] { w.send->send(reinterpret_cast<std::size_t>(data), bytes, 0); });
  ++w.unfinished;
}

void GlooLinks::wait_for(int peer, Channel& w) {
  translate(members_[static_cast<std::size_t>(peer)], [&] { w.receive->waitRecv(); });
}

void GlooLinks::finish(int peer, Channel& w) {
  for (; w.unfinished > 0; --w.unfinished)
    translate(members_[static_cast<std::size_t>(peer)], [&] { w.send->waitSend(); });
}

void GlooLinks::finish_sends() {
  for (const Kind kind : {kShare, kResult}) {
    for (unsigned slot = 0; slot < 2; ++slot) {
      for (int peer = 0; peer < mesh_->size; ++peer) finish(peer, channel(kind, slot, peer));
    }
  }
}

void GlooLinks::shut_down(bool drain) noexcept {
  if (!drain && mesh_) mesh_->shut_down();
  for (auto& slots : channels_) {
    for (auto& channels : slots) {
      for (Channel& w : channels) {
        try {
          for (; w.unfinished > 0; --w.unfinished) w.send->waitSend();
        } catch (const std::exception&) {
          // The pair is closed.
        }
      }
    }
  }
  if (drain) std::this_thread::sleep_for(kGlooDrainTime);
}

std::optional<ControlWord> GlooLinks::arrived_word(int peer, std::uint32_t sequence) noexcept {
  const Channel& w = channel(kHead, sequence & 1u, peer);
  ControlWord word;
  if (w.inbox.size() < sizeof word) return std::nullopt;
  wait_until_closed(w.receive.get());
  std::memcpy(&word, w.inbox.data(), sizeof word);
  if (word.sequence != sequence) return std::nullopt;
  return word;
}

std::string GlooLinks::waiting_text() const {
  const std::lock_guard lock(mutex_);
  return mesh_ ? mesh_->waiting_text(members_) : "";
}

void GlooLinks::abort(std::string_view) noexcept {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  if (mesh_) mesh_->shut_down();
}

}  // namespace backends
