// Links over Gloo.
#include "backends/transport/gloo/gloo_links.h"

#include <gloo/common/error.h>

#include <cstring>
#include <limits>
#include <thread>

#include "backends/backend_error.h"

namespace backends {
namespace {

// After a failed write to a closed connection Gloo does not read what has arrived there, such as
// this rank's word. So a rank that has seen a mismatch keeps its connections open for the time that
// its peers may need to make their calls.
constexpr auto kGlooDrainTime = std::chrono::milliseconds(300);

// Gloo's texts start with "[path/of/its/source:line] ".
std::string plain(const char* text) {
  const char* end = text[0] == '[' ? std::strstr(text, "] ") : nullptr;
  return end != nullptr ? end + 2 : text;
}

template <typename Call>
void translate(int peer, const Call& call) {
  try {
    call();
  } catch (const gloo::Exception& error) {
    throw PeerError("waiting for rank " + std::to_string(peer) + ": " + plain(error.what()));
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

GlooLinks::GlooLinks(const BackendContext& context)
    : members_(context.members), mesh_(std::make_shared<GlooMesh>(context)) {}

void GlooLinks::connect(const BackendContext& context) {
  try {
    mesh_->connect(context);
  } catch (const gloo::Exception& error) {
    throw PeerError(plain(error.what()));
  }
  const std::size_t head = sizeof(ControlWord) + kHeadBytes,
                    message = piece_bytes(mesh_->size) + sizeof(double);
  const std::size_t inbox[kKinds] = {head, message, message};
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

GlooLinks::~GlooLinks() {
  mesh_->shut_down();
  for (const Channel& w : channels_[kHead][0]) wait_until_closed(w.receive.get());
}

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
  if (!drain) mesh_->shut_down();
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

void GlooLinks::abort(std::string_view) noexcept { mesh_->shut_down(); }

}  // namespace backends
