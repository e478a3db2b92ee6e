// Messages between two ranks of a group, outside the order of its collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string_view>

#include "io/base/time/deadline.h"

namespace backends {

// One message to be sent or received.
struct Message {
  int peer = 0;  // the rank at the other end, among the members; kAnyPeer: any, to receive only
  std::uint64_t tag = 0;
  std::byte* data = nullptr;  // stays valid and is not written by others until `done` is called
  std::size_t bytes = 0;      // the received message must have exactly as many
  std::uint8_t kind = 0;      // of the contents: the received message must have the same
  base::Deadline deadline{};
  // Called once, by the thread of the exchange, when the memory is no longer used: with the failure
  // or nullptr, and the rank at the other end. Must not throw.
  std::function<void(const std::exception_ptr& failure, int peer)> done;
};

// All members may be called from any thread.
class Messages {
 public:
  static constexpr int kAnyPeer = -1;

  // Waits until messages that were passed to send() are sent, at most until their deadlines;
  // receptions that are still pending fail.
  virtual ~Messages() = default;
  // Return at once. Messages from one rank with the same tag are received in the order in which
  // they were sent, by the receptions in the order in which these were requested.
  virtual void send(Message message) = 0;
  virtual void receive(Message message) = 0;
  // Makes pending and future messages fail soon. Does not throw.
  virtual void abort(std::string_view reason) noexcept = 0;
};

}  // namespace backends
