// What comes over the network or from a scheduler, before anybody has proved anything and after.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend_error.h"
#include "backends/control_word.h"
#include "backends/identity/hostlist.h"
#include "backends/identity/rendezvous_file.h"
#include "backends/membership/membership_machine.h"
#include "backends/store/protocol/handshake.h"
#include "backends/store/protocol/member_machine.h"
#include "backends/store/protocol/server_machine.h"
#include "backends/store/protocol/session_machine.h"
#include "backends/store/protocol/settings.h"
#include "backends/store/protocol/wire.h"
#include "tests/fuzz/targets.h"

namespace fuzz {
namespace {

constexpr int kHeartbeat = 1000;  // ms

// Takes bytes from the front; zeros behind the end.
class Bytes {
 public:
  explicit Bytes(Input input) : rest_(input) {}
  bool empty() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const std::uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }
  std::string text(std::size_t most) {
    const std::size_t count = std::min(most, rest_.size());
    std::string value(reinterpret_cast<const char*>(rest_.data()), count);
    rest_ = rest_.subspan(count);
    return value;
  }

 private:
  Input rest_;
};

// A server and the sessions of two ranks that have joined it.
struct SmallWorld {
  SmallWorld()
      : server({.secret = secret,
                .job = hello(0),
                .heartbeat_ms = kHeartbeat,
                .random = [this](std::size_t n) { return std::string(n, ++filler); }},
               now) {
    for (int rank = 0; rank < 2; ++rank) {
      backends::SessionMachine& session = sessions.emplace_back(
          secret, hello(rank), std::string(backends::kNonceBytes, ++filler), "the server");
      server.opened(link(rank), "a client", now);
      for (int turn = 0; turn < 2; ++turn) {
        server.received(link(rank), session.take_output(), now);
        server.tick(now);
        for (const auto& out : server.take_output())
          if (out.kind == backends::ServerMachine::Output::Kind::kSend && out.link == link(rank))
            session.received(out.text);
      }
      if (session.state() != backends::SessionMachine::State::kWelcome) std::abort();
    }
  }
  static backends::LinkId link(int rank) { return static_cast<backends::LinkId>(rank) + 1; }
  backends::Hello hello(int rank) {
    backends::Hello h;
    h.rank = rank;
    h.world_size = 2;
    h.pid = 10 + rank;
    h.process = std::string(backends::kNonceBytes, static_cast<char>('a' + rank));
    h.job = "fuzz";
    h.settings_digest = backends::settings_digest({});
    return h;
  }

  backends::Time now = backends::Time{} + std::chrono::hours(1);
  char filler = 0;
  const backends::Secret secret{"secret", "the fuzzer"};
  backends::ServerMachine server;
  std::vector<backends::SessionMachine> sessions;
};

struct OwnAcceptor final : backends::Acceptor {
  backends::AcceptorId id() const override { return {7, 1}; }
  bool update(const std::function<void(backends::AcceptorState&)>& change) override {
    change(state);
    return true;
  }
  void use_as(const backends::MemberId&) override {}
  bool is_used_by(const backends::MemberId&) override { return false; }
  backends::AcceptorState state;
};

}  // namespace

// Frames of members, sealed as they should be: each is a byte for the rank (and, now and then, time
// that passes), the type, the payload's length, and the payload.
void server_members(Input input) {
  SmallWorld world;
  Bytes bytes(input);
  while (!bytes.empty()) {
    const std::uint8_t control = bytes.byte();
    const int rank = control & 1;
    world.now += std::chrono::milliseconds((control >> 1) * 40);
    backends::FrameWriter frame(static_cast<backends::FrameType>(bytes.byte()));
    frame.bytes(bytes.text(bytes.byte()));
    const std::string sealed =
        world.sessions[static_cast<std::size_t>(rank)].seals().to_server.close(frame.finish());
    world.server.received(SmallWorld::link(rank), sealed, world.now);
    world.server.tick(world.now);
    world.server.take_output();
    world.server.statuses();
  }
}

// What rank 0 sends to a member, unsealed.
void member_frames(Input input) {
  const backends::Time now = backends::Time{} + std::chrono::hours(1);
  backends::MemberMachine member({}, {}, kHeartbeat, now);
  for (int i = 0; i < 3; ++i) (void)member.request(backends::FrameType::kGet, "key", [](auto&) {});
  member.received({reinterpret_cast<const char*>(input.data()), input.size()}, now);
  member.tick(now + std::chrono::milliseconds(kHeartbeat));
  member.heartbeat({}, now);
  member.leave();
  member.take_output();
  member.take_notices();
}

// What another agent of an elastic job sends to a member that is ready for the next generation,
// unsealed.
void membership_frames(Input input) {
  OwnAcceptor acceptor;
  backends::Member self, other;
  self.id = {1, 1};
  other.id = {2, 2};
  self.acceptor = acceptor.id();
  other.acceptor = {7, 2};
  auto roster = std::make_shared<backends::Roster>();
  roster->generation = 1;
  roster->members = {self, other};
  (void)acceptor.update([&](backends::AcceptorState& state) { state.learn(roster); });
  backends::Time now = backends::Time{} + std::chrono::hours(1);
  backends::MembershipMachine machine({.self = self,
                                       .max_ranks = 4,
                                       .acceptor = &acceptor,
                                       .random =
                                           [] {
                                             return backends::RandomId{3, 3};
                                           }},
                                      now);
  machine.want_view(now);
  machine.take_view();
  machine.want_view(now);
  backends::FrameParser parser;
  parser.append(reinterpret_cast<const char*>(input.data()), input.size());
  try {
    while (const std::optional<backends::Frame> frame = parser.next(backends::kFrameBytes)) {
      machine.received(backends::read_membership_frame(*frame), now);
      machine.tick(now += std::chrono::milliseconds(kHeartbeat / 2));
      machine.take_output();
      machine.join_wanted();
      machine.broken();
      machine.waiting_for();
    }
  } catch (const backends::MalformedFrame&) {
  }
}

// Words of two ranks' plans, as a peer may have sent them.
void control_words(Input input) {
  using backends::ControlWord;
  std::vector<ControlWord> words(input.size() / sizeof(ControlWord));
  if (words.empty()) return;
  std::memcpy(words.data(), input.data(), words.size() * sizeof(ControlWord));
  const std::size_t half = words.size() / 2;
  for (const ControlWord& word : words) backends::to_string(word);
  try {
    backends::expect_equal_plans(std::span(words).first(half), 0, std::span(words).subspan(half),
                                 1);
  } catch (const backends::MismatchError&) {
  }
}

void rendezvous_file(Input input) {
  char path[] = "/tmp/engine-fuzz-XXXXXX";
  const int fd = mkstemp(path);  // for its owner alone, as the reader demands
  if (fd < 0 || write(fd, input.data(), input.size()) != static_cast<ssize_t>(input.size()))
    std::abort();
  close(fd);
  try {
    std::string reason;
    if (const auto found = backends::read_rendezvous(path, reason))
      (void)backends::is_certainly_dead(*found);
  } catch (const backends::Error&) {
  }
  unlink(path);
}

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
