// Defines the frames of the store's protocol: u32 length (type and payload, little-endian), u8
// type, payload.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace backends {

inline constexpr std::uint32_t kProtocolMagic = 0x31524745;  // "EGR1"
inline constexpr int kProtocolVersion = 10;
inline constexpr std::size_t kUnauthenticatedFrameBytes = 1024;
inline constexpr std::size_t kFrameBytes = 16u << 20;

enum class FrameType : std::uint8_t {
  kHello = 1,  // handshake, see handshake.h
  kChallenge,
  kProof,
  kWelcome,    // i64 frames of an earlier connection that the server has received
  kRefuse,     // u8 RefusalKind, text; an observer also gets it later, when a newer one replaces it
  kProgress,   // ranks still missing, ranks that have joined and left
  kStart,      // all have joined: nonce of the group, peers
  kFatal,      // u8 RefusalKind, text: the group cannot form
  kSet,        // u32 request, key, value
  kGet,        // u32 request, key: answered when the key exists
  kAdd,        // u32 request, key, i64
  kRemove,     // u32 request, key
  kReply,      // u32 request, value
  kHeartbeat,  // activity of the sender's rank; of a member also its RankProgress; then i64
               // frames received
  kFailure,    // i32 rank, u8 1 if calls differ, text: a member failed
  kLeave,      // text: how many calls it has made; the sender leaves in order; answered by kLeft
  kLeft,       // all have left; to an observer: the job has ended in order
  kAbandon,    // u8 1 if calls differ, text: why the sender ends before the others
  kStartAcknowledged,  // acknowledges kStart; until then the sender may join again. i32 port where
                       // it answers probes, 0: none
  kAskSettings,        // after a proof with settings that are not rank 0's
  kSettings,           // reply to kAskSettings: u32 count, names and values
  kRootSilent,         // the sender considers rank 0 dead, and ends
  kNotice,             // text for the user of a rank that is part of a stall
  kStatus,             // text for an observer: the job's status
  kAsk,                // i32 rank, text: does it answer probes at this address?
  kAnswer,             // i32 rank, u8 1 if it does
  kReach,  // u32 request, text: a rank to which the sender has lost its link; replied to with what
           // is known of it, as text
  kDeparted,  // u32 count, i32 ranks that have left while others work, text of their kLeave each
};

enum class RefusalKind : std::uint8_t {
  kMismatch = 1,
  kAuthentication,
  kOtherJob,
  kPeer,
  kStarted
};

class FrameWriter {
 public:
  explicit FrameWriter(FrameType type);
  FrameWriter& u8(std::uint8_t v);
  FrameWriter& u32(std::uint32_t v);
  FrameWriter& i32(std::int32_t v) { return u32(static_cast<std::uint32_t>(v)); }
  FrameWriter& i64(std::int64_t v);
  FrameWriter& text(std::string_view v);   // u32 length, bytes
  FrameWriter& bytes(std::string_view v);  // unchanged
  std::string finish();                    // returns the whole frame with its length

 private:
  std::string out_;
};

// Reads a payload front to back. A read past the end throws MalformedFrame.
struct MalformedFrame {};
class FrameReader {
 public:
  explicit FrameReader(std::string_view payload) : rest_(payload) {}
  std::uint8_t u8();
  std::uint32_t u32();
  std::int32_t i32() { return static_cast<std::int32_t>(u32()); }
  std::int64_t i64();
  std::string text();
  std::string bytes(std::size_t count);
  std::size_t size() const { return rest_.size(); }  // bytes left

 private:
  std::string_view take(std::size_t count);
  std::string_view rest_;
};

struct Frame {
  FrameType type;
  std::string payload;
};

// Splits a byte stream into frames. next() throws MalformedFrame on a length outside 1..limit.
class FrameParser {
 public:
  void append(const char* data, std::size_t bytes) { buffer_.append(data, bytes); }
  [[nodiscard]] std::optional<Frame> next(std::size_t limit);
  std::size_t buffered() const { return buffer_.size() - at_; }

 private:
  std::string buffer_;
  std::size_t at_ = 0;
};

std::string progress_frame(const std::vector<int>& missing, const std::vector<int>& left);
std::vector<int> read_ranks(FrameReader& reader);

}  // namespace backends
