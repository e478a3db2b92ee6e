// The server's end of one connection: buffered, non-blocking, with the stage of its handshake.
#pragma once

#include <chrono>
#include <string>

#include "backends/store/handshake.h"
#include "backends/store/seal.h"
#include "backends/store/stall_watch.h"
#include "backends/store/tcp_socket.h"

namespace backends {

struct StoreConnection {
  enum class Stage { kHello, kProof, kSettings, kMember };

  Socket socket;
  Stage stage = Stage::kHello;
  Deadline hello_deadline{};  // before kMember: closed when it passes
  std::chrono::steady_clock::time_point last_received{};
  FrameParser parser;
  Seals seals;      // from a right proof on
  std::string out;  // bytes not sent yet
  std::string hello_payload, server_nonce;
  Hello hello;
  std::string activity;             // last one reported
  RankProgress progress;            // likewise
  bool acknowledged_start = false;  // it has confirmed kStart, and may not reconnect any more
  bool leaving = false;             // it is leaving in order: its end is not a failure
  bool close_after_flush = false;
  std::string end;  // why the connection ended; "": it is alive

  bool alive() const { return end.empty(); }
  bool is_member() const { return stage == Stage::kMember; }
  std::size_t longest_frame() const {
    return stage == Stage::kMember     ? kFrameBytes + kSealBytes
           : stage == Stage::kSettings ? kSettingsBytes + kSealBytes
                                       : kUnauthenticatedFrameBytes;
  }

  // Seals and queues a frame and sends as much as the kernel accepts.
  void send(const std::string& frame);
  void flush();
  // Reads available bytes into the parser, at most 64 KiB per call. Sets `end` at end of file or
  // error.
  void receive();
};

}  // namespace backends
