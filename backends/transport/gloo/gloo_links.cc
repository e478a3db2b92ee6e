// Links over Gloo: sending and receiving. gloo_connect.cc connects them.
#include "backends/transport/gloo/gloo_links.h"

#include <gloo/common/error.h>

#include <cstring>
#include <thread>

#include "backends/backend_error.h"

namespace backends {
namespace {

// After a failed write to a closed connection Gloo does not read what has arrived there, such as
// this rank's word. So a rank that has seen a mismatch keeps its connections open for the time that
// its peers may need to make their calls.
constexpr auto kGlooDrainTime = std::chrono::milliseconds(300);

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

// When this returns, nothing writes to the inboxes any more.
void GlooLinks::disconnect() {
  if (!mesh_) return;
  mesh_->shut_down();
  for (std::size_t at = 0; at < hears_.size(); ++at) {
    if (hears_[at]) wait_until_closed(proofs_[at].receive.get());
  }
  proofs_.clear();
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
