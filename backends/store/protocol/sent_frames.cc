// Implements the queue of frames that are not acknowledged.
#include "backends/store/protocol/sent_frames.h"

#include <utility>

namespace backends {

void SentFrames::add(Shared frame) {
  ++count_;
  if (!keeps_) return;
  bytes_ += frame->size();
  kept_.push_back(std::move(frame));
  if (bytes_ <= kMaxUnacknowledgedBytes) return;
  keeps_ = false;
  kept_.clear();
}

void SentFrames::acknowledge(std::uint64_t received) {
  if (received > count_) throw MalformedFrame();
  for (; acknowledged_ < received; ++acknowledged_) {
    if (!keeps_) continue;
    bytes_ -= kept_.front()->size();
    kept_.pop_front();
  }
}

}  // namespace backends
