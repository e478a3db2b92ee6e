// Implements the encoding of the handshake's messages.
#include "backends/store/protocol/handshake.h"

#include "backends/backend_error.h"
#include "io/base/text/escape_text.h"

namespace backends {
namespace {

constexpr std::int64_t kNewSession = -1;  // in the place of Hello::received

}  // namespace

bool is_same_process(const Hello& a, const Hello& b) {
  return !a.process.empty() && a.process == b.process;
}

std::string hello_frame(const Hello& h) {
  FrameWriter w(FrameType::kHello);
  w.u32(h.magic)
      .u32(h.version)
      .bytes(h.nonce)
      .i32(h.rank)
      .i32(h.world_size)
      .i32(h.pid)
      .i32(h.port)
      .u32(h.attempt)
      .i64(h.received ? static_cast<std::int64_t>(*h.received) : kNewSession);
  w.text(h.job).text(h.build).text(h.settings_digest).text(h.host).text(h.host_id);
  return w.text(h.process).finish();
}

Hello read_hello(const std::string& payload) {
  FrameReader in(payload);
  Hello h;
  h.magic = in.u32();
  h.version = in.u32();
  if (h.magic != kProtocolMagic) throw MalformedFrame();
  if (h.version != kProtocolVersion) return h;
  h.nonce = in.bytes(kNonceBytes);
  h.rank = in.i32();
  h.world_size = in.i32();
  h.pid = in.i32();
  h.port = in.i32();
  h.attempt = in.u32();
  const std::int64_t received = in.i64();
  if (received < kNewSession) throw MalformedFrame();
  if (received != kNewSession) h.received = static_cast<std::uint64_t>(received);
  for (std::string* text : {&h.job, &h.build, &h.settings_digest, &h.host, &h.host_id, &h.process})
    *text = in.text();
  return h;
}

std::string welcome_frame(std::uint64_t received) {
  return FrameWriter(FrameType::kWelcome).i64(static_cast<std::int64_t>(received)).finish();
}

std::string server_proof(const Secret& secret, const std::string& hello_payload,
                         const std::string& server_nonce) {
  return keyed_hash(secret, "engine store server", hello_payload + server_nonce);
}

std::string client_proof(const Secret& secret, const std::string& hello_payload,
                         const std::string& server_nonce) {
  return keyed_hash(secret, "engine store client", hello_payload + server_nonce);
}

std::string refusal_frame(FrameType type, RefusalKind kind, const std::string& text) {
  return FrameWriter(type).u8(static_cast<std::uint8_t>(kind)).text(text).finish();
}

void throw_refusal(RefusalKind kind, const std::string& reason) {
  const std::string text = base::escape_text(reason);
  switch (kind) {
    case RefusalKind::kMismatch:
    case RefusalKind::kOtherJob:
    case RefusalKind::kStarted:
      throw MismatchError(text);
    case RefusalKind::kAuthentication:
      throw AuthenticationError(text);
    case RefusalKind::kPeer:
      break;
  }
  throw PeerError(text);
}

std::string member_text(int rank, const std::string& host, int pid) {
  return "rank " + std::to_string(rank) + " (host " + base::escape_text(host) + ", pid " +
         std::to_string(pid) + ")";
}

}  // namespace backends
