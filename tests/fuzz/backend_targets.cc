// What comes over the network or from a scheduler, before anybody has proved anything.
#include <string>

#include "backends/backend_error.h"
#include "backends/identity/hostlist.h"
#include "backends/store/protocol/handshake.h"
#include "backends/store/protocol/settings.h"
#include "backends/store/protocol/wire.h"
#include "tests/fuzz/targets.h"

namespace fuzz {

void hostlist(Input input) {
  try {
    backends::expand_hostlist({reinterpret_cast<const char*>(input.data()), input.size()}, "list");
  } catch (const backends::Error&) {
  }
}

void store_frames(Input input) {
  using namespace backends;
  FrameParser parser;
  parser.append(reinterpret_cast<const char*>(input.data()), input.size());
  try {
    while (const std::optional<Frame> frame = parser.next(kUnauthenticatedFrameBytes)) {
      const auto attempt = [&](auto read) {
        try {
          read();
        } catch (const MalformedFrame&) {
        }
      };
      attempt([&] { read_hello(frame->payload); });
      attempt([&] { read_settings(frame->payload); });
      attempt([&] {
        FrameReader reader(frame->payload);
        read_ranks(reader);
      });
      attempt([&] {
        FrameReader reader(frame->payload);
        const auto kind = static_cast<RefusalKind>(reader.u8());
        const std::string text = reader.text();
        try {
          throw_refusal(kind, text);
        } catch (const Error&) {
        }
      });
    }
  } catch (const MalformedFrame&) {
  }
}

}  // namespace fuzz
