// The server's end of one connection: buffered, non-blocking, with a stage of trust.
#pragma once

#include <chrono>
#include <string>

#include "backends/store/handshake.h"
#include "backends/store/tcp_socket.h"

namespace backends {

struct StoreConnection {
  enum class Stage { kHello, kProof, kSettings, kMember };

  Socket socket;
  Stage stage = Stage::kHello;
  Deadline hello_deadline{};  // before kMember: closed when it passes
  std::chrono::steady_clock::time_point last_heard{};
  FrameParser parser;
  std::string out;  // bytes not yet taken by the kernel
  std::string hello_payload, server_nonce;
  Hello hello;
  std::string activity;      // last one reported
  bool heard_start = false;  // of a started group: it will not come again
  bool leaving = false;      // said goodbye: its end is not a death
  bool close_after_flush = false;
  std::string end;  // why it is over; empty: it lives

  bool alive() const { return end.empty(); }
  bool is_member() const { return stage == Stage::kMember; }
  std::size_t longest_frame() const {
    return stage == Stage::kMember     ? kFrameBytes
           : stage == Stage::kSettings ? kSettingsBytes
                                       : kUnauthenticatedFrameBytes;
  }

  // Queues a frame and sends what the kernel takes at once.
  void send(const std::string& frame);
  void flush();
  // Reads what is there into the parser, at most 64 KiB a call. Sets `end` at end of file or error.
  void receive();
};

}  // namespace backends
