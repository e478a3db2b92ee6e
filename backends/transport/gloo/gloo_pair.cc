// Implements sending and receiving frames.
#include "backends/transport/gloo/gloo_pair.h"

#include <gloo/common/error.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "backends/store/tcp_socket.h"
#include "backends/transport/gloo/gloo_transport.h"
#include "io/base/files/transient_error.h"

namespace backends {
namespace {

// Limits the bytes per system call, so that all pairs are served.
constexpr std::size_t kMaxPerCall = 1 << 20;

[[noreturn]] void throw_unbound() {
  throw gloo::InvalidOperationException("this transport has bound buffers only");
}

}  // namespace

GlooBuffer::~GlooBuffer() { pair_.forget(*this); }

void GlooBuffer::send(std::size_t offset, std::size_t length, std::size_t roffset) {
  if (offset > size_ || length > size_ - offset)
    throw gloo::InvalidOperationException("more is to be sent than the buffer has");
  const char* from = ptr_ == nullptr ? reinterpret_cast<const char*>(offset)
                                     : static_cast<const char*>(ptr_) + offset;
  pair_.enqueue(*this, from, length, roffset);
}

void GlooBuffer::waitRecv() {
  pair_.transport_.wait(pair_, [&] { return received_ > 0; });
  --received_;
}

void GlooBuffer::waitSend() {
  pair_.transport_.wait(pair_, [&] { return sent_ > 0; });
  --sent_;
}

GlooPair::GlooPair(GlooTransport& transport, int peer, int fd, MeshLink& link)
    : transport_(transport),
      peer_(peer),
      fd_(fd),
      link_(link),
      address_(peer_text(fd)),
      staged_(kStagedBytes) {}

std::unique_ptr<GlooBuffer> GlooPair::bind_sender(int slot, void* memory, std::size_t bytes) {
  return std::make_unique<GlooBuffer>(*this, slot, memory, bytes);
}

std::unique_ptr<GlooBuffer> GlooPair::bind_receiver(int slot, void* memory, std::size_t bytes) {
  auto buffer = std::make_unique<GlooBuffer>(*this, slot, memory, bytes);
  if (!receivers_.emplace(static_cast<std::uint32_t>(slot), buffer.get()).second)
    throw gloo::InvalidOperationException("a slot has one buffer");
  return buffer;
}

std::unique_ptr<gloo::transport::Buffer> GlooPair::createSendBuffer(int slot, void* memory,
                                                                    std::size_t bytes) {
  return bind_sender(slot, memory, bytes);
}

std::unique_ptr<gloo::transport::Buffer> GlooPair::createRecvBuffer(int slot, void* memory,
                                                                    std::size_t bytes) {
  return bind_receiver(slot, memory, bytes);
}

void GlooPair::connect(const std::vector<char>&) {
  throw gloo::InvalidOperationException("the pair is connected");
}
void GlooPair::send(gloo::transport::UnboundBuffer*, std::uint64_t, std::size_t, std::size_t) {
  throw_unbound();
}
void GlooPair::recv(gloo::transport::UnboundBuffer*, std::uint64_t, std::size_t, std::size_t) {
  throw_unbound();
}

void GlooPair::forget(GlooBuffer& buffer) noexcept {
  for (std::uint32_t at = first_; at != end_; ++at) {
    Output& out = output_[at % kMaxQueued];
    if (out.buffer == &buffer) out.buffer = nullptr;
  }
  std::erase_if(receivers_, [&](const auto& entry) { return entry.second == &buffer; });
  if (receiver_ == &buffer) {
    receiver_ = nullptr;
    trouble_ = "the buffer of a message that arrives was released";
  }
}

void GlooPair::drop_output() noexcept {
  if (has_output() && trouble_.empty()) trouble_ = "a message was not sent to its end";
  first_ = end_;
}

void GlooPair::enqueue(GlooBuffer& buffer, const char* payload, std::size_t length,
                       std::size_t roffset) {
  transport_.wait(*this, [&] { return end_ - first_ < kMaxQueued; });
  output_[end_++ % kMaxQueued] = {
      make_gloo_frame(next_out_++, static_cast<std::uint32_t>(buffer.slot_), length, roffset),
      payload, &buffer};
  queued_bytes_ += sizeof(GlooFrame) + length;
  pump_out();
}

bool GlooPair::pump_out() {
  if (!trouble_.empty()) return false;
  std::array<iovec, 4> parts;
  std::size_t used = 0, bytes = 0, skip = sent_bytes_;
  const auto add = [&](const void* data, std::size_t size) {
    const std::size_t skipped = std::min(skip, size),
                      count = std::min(size - skipped, kMaxPerCall - bytes);
    skip -= skipped;
    if (count == 0) return;
    parts[used++] = {const_cast<char*>(static_cast<const char*>(data)) + skipped, count};
    bytes += count;
  };
  for (std::uint32_t at = first_; at != end_ && used + 2 <= parts.size(); ++at) {
    const Output& out = output_[at % kMaxQueued];
    add(&out.frame, sizeof out.frame);
    add(out.payload, out.frame.length);
  }
  const ssize_t n = link_.send({parts.data(), used});
  if (n < 0) {
    if (!base::is_transient(errno)) trouble_ = link_.error_text(errno);
    return false;
  }
  count_sent(static_cast<std::size_t>(n));
  return n > 0;
}

void GlooPair::count_sent(std::size_t bytes) {
  sent_bytes_ += bytes;
  while (has_output()) {
    const Output& out = output_[first_ % kMaxQueued];
    const std::size_t size = sizeof out.frame + out.frame.length;
    if (sent_bytes_ < size) return;
    sent_bytes_ -= size;
    if (out.buffer != nullptr) ++out.buffer->sent_;
    ++first_;
  }
}

// Makes one system call: the rest of the payload goes into its buffer, and later bytes into the
// stage. So a short message costs one call and a copy of at most the stage, and a long one no copy.
bool GlooPair::pump_in() {
  if (!trouble_.empty()) return false;
  std::array<iovec, 2> parts;
  std::size_t used = 0, direct = 0;
  bool to_the_end = true;
  if (receiver_ != nullptr) {
    const std::size_t left = frame_.length - receiver_->arrived_;
    direct = std::min(left, kMaxPerCall);
    to_the_end = direct == left;
    parts[used++] = {static_cast<char*>(receiver_->ptr_) + frame_.roffset + receiver_->arrived_,
                     direct};
  }
  if (to_the_end) parts[used++] = {staged_.data() + staged_end_, staged_.size() - staged_end_};
  const ssize_t n = link_.receive({parts.data(), used});
  if (n < 0) {
    if (!base::is_transient(errno)) trouble_ = link_.error_text(errno);
    return false;
  }
  if (n == 0) {
    trouble_ = "was closed by the peer";
    return false;
  }
  const auto count = static_cast<std::size_t>(n), stored = std::min(count, direct);
  if (receiver_ != nullptr) add_arrived(stored);
  staged_end_ += count - stored;
  take_staged();
  return true;
}

// Leaves at most part of a header in the stage.
void GlooPair::take_staged() {
  while (trouble_.empty()) {
    const std::size_t left = staged_end_ - staged_begin_;
    if (receiver_ != nullptr) {
      const std::size_t count = std::min(left, frame_.length - receiver_->arrived_);
      std::memcpy(static_cast<char*>(receiver_->ptr_) + frame_.roffset + receiver_->arrived_,
                  staged_.data() + staged_begin_, count);
      staged_begin_ += count;
      add_arrived(count);
      if (receiver_ != nullptr) break;  // the rest has not arrived yet
      continue;
    }
    if (left < sizeof(GlooFrame)) break;
    GlooFrame frame;
    std::memcpy(&frame, staged_.data() + staged_begin_, sizeof frame);
    staged_begin_ += sizeof frame;
    if (!begin_frame(frame)) return;
  }
  if (staged_begin_ > 0)
    std::memmove(staged_.data(), staged_.data() + staged_begin_, staged_end_ - staged_begin_);
  staged_end_ -= staged_begin_;
  staged_begin_ = 0;
}

bool GlooPair::begin_frame(const GlooFrame& frame) {
  const auto found = receivers_.find(frame.slot);
  std::string wrong = wrong_frame_text(frame, next_in_);
  if (wrong.empty() && found == receivers_.end())
    wrong = "a message came for buffer " + std::to_string(frame.slot) + ", which there is not";
  if (wrong.empty()) wrong = overflow_text(frame, found->second->size_);
  if (!wrong.empty()) {
    trouble_ = "carries wrong data: " + wrong;
    return false;
  }
  ++next_in_;
  frame_ = frame;
  receiver_ = found->second;
  receiver_->arrived_ = 0;
  add_arrived(0);
  return true;
}

void GlooPair::add_arrived(std::size_t bytes) {
  receiver_->arrived_ += bytes;
  if (receiver_->arrived_ < frame_.length) return;
  ++receiver_->received_;
  receiver_ = nullptr;
}

}  // namespace backends
