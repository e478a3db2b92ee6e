// Implements the store's client: requests of waiting threads, and the thread that sends and
// receives.
#include "backends/store/store_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "backends/backend_error.h"
#include "backends/store/member_probes.h"
#include "backends/store/protocol/handshake.h"
#include "io/base/files/system_error_text.h"
#include "io/base/time/deadline.h"

namespace backends {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kRequestTime = std::chrono::seconds(30);  // for requests answered at once
// Interval between calls of cancelled().
constexpr auto kCancelInterval = std::chrono::milliseconds(100);
constexpr auto kReachTime = std::chrono::seconds(2);
constexpr auto kLastWords = std::chrono::seconds(5);

// Returns an empty socket on rank 0, without patience, or if there is no port for it.
Socket listen_for_probes(const StoreClientOptions& options, const Socket& connection) {
  if (options.rank == 0 || options.link_patience.count() == 0) return {};
  try {
    return listen_on({local_endpoint(connection.fd()).host, 0});
  } catch (const PeerError&) {
    if (options.notice)
      options.notice(
          "the rendezvous connection will not be restored after a break: no port is "
          "left for probes (" +
          base::system_error_text(errno) + ")");
    return {};
  }
}

}  // namespace

TcpStore::TcpStore(StoreSession session, StoreClientOptions options)
    : options_(std::move(options)),
      local_address_(options_.rank == 0 ? "" : local_endpoint(session.socket.fd()).host),
      connection_{.socket = std::move(session.socket)},
      listener_(listen_for_probes(options_, connection_.socket)),
      questions_([this](LinkId rank, ServerMachine::Probe result) {
        answer(static_cast<int>(rank), result);
      }),
      machine_(std::move(session.parser), std::move(session.seals), options_.heartbeat_ms,
               Clock::now(),
               {options_.link_patience, listener_ ? local_endpoint(listener_.fd()).port : 0}),
      reconnect_(peer_endpoint(connection_.socket.fd()), options_.secret,
                 std::move(session.hello)) {
  thread_ = std::thread([this] { run(); });
}

TcpStore::~TcpStore() {
  {
    Lock lock(mutex_);
    machine_.end();
    stopping_ = true;
  }
  wake_.wake();
  thread_.join();
}

void TcpStore::run() {
  {
    Lock lock(mutex_);
    machine_.received({}, Clock::now());  // frames that came after the welcome
    react(std::move(lock));
  }
  while (poll_once()) {
  }
  finish();
}

bool TcpStore::poll_once() {
  send_heartbeat();
  auto wait = member_tick_interval(options_.heartbeat_ms);
  start_questions();
  constexpr std::size_t kOwn = 4;
  std::vector<pollfd> polled{{-1, POLLIN, 0},
                             {wake_.fd(), POLLIN, 0},
                             {acceptor_.polled_fd(listener_.fd()), POLLIN, 0},
                             {}};
  {
    const Lock lock(mutex_);
    if (stopping_ || machine_.state().lost) return false;
    reconnect_.update(machine_);
    if (machine_.is_broken()) connection_.socket.close();
    polled[0].fd = connection_.socket.fd();
    if (!connection_.out.empty()) polled[0].events |= POLLOUT;
    polled[3] = reconnect_.polled();
    if (machine_.state().lost) wait = std::chrono::milliseconds(0);  // a refused attempt
  }
  questions_.add_to(polled);
  poll(polled.data(), polled.size(), static_cast<int>(wait.count()));
  if (polled[1].revents != 0) wake_.clear();
  if (polled[2].revents != 0) answer_probes(acceptor_, listener_.fd());
  questions_.serve(polled, kOwn);
  if ((polled[0].revents & ~POLLOUT) != 0) receive();
  reconnect(polled[3].revents);
  return true;
}

void TcpStore::start_questions() {
  std::vector<MemberMachine::Question> asked;
  {
    const Lock lock(mutex_);
    asked = machine_.take_questions();
  }
  for (const auto& [rank, address] : asked) {
    try {
      questions_.start(static_cast<LinkId>(rank), address);
    } catch (const Error&) {  // not an address here
      answer(rank, ServerMachine::Probe::kFailed);
    }
  }
}

void TcpStore::answer(int rank, ServerMachine::Probe result) {
  if (result == ServerMachine::Probe::kAccepted) return;  // it may answer yet
  Lock lock(mutex_);
  machine_.answer(rank, result == ServerMachine::Probe::kAnswered);
  react(std::move(lock));
}

void TcpStore::reconnect(short revents) {
  Lock lock(mutex_);
  if (Socket socket = reconnect_.serve(revents, machine_)) {
    connection_.socket = std::move(socket);
    connection_.out.clear();
    machine_.received({}, Clock::now());  // frames that came after the welcome
  }
  machine_.tick(Clock::now());
  react(std::move(lock));
}

void TcpStore::send_heartbeat() {
  {
    const Lock lock(mutex_);
    if (!machine_.heartbeat_due(Clock::now())) return;
  }
  RankProgress progress;
  {
    const std::lock_guard lock(progress_mutex_);
    if (progress_source_) progress = progress_source_();
  }
  Lock lock(mutex_);
  machine_.heartbeat(progress, Clock::now());
  react(std::move(lock));
}

void TcpStore::receive() {
  std::string bytes;
  const std::string end = connection_.receive(bytes);
  Lock lock(mutex_);
  if (!bytes.empty()) machine_.received(bytes, Clock::now());
  if (!end.empty()) machine_.closed(end);
  react(std::move(lock));
}

void TcpStore::flush(const Lock&) {
  connection_.out += machine_.take_output();
  if (const std::string end = connection_.flush(); !end.empty()) {
    machine_.closed(end);
    connection_.out.clear();
    if (machine_.is_broken()) wake_.wake();
  }
  if (connection_.out.empty()) machine_.sent();
}

void TcpStore::react(Lock lock) {
  flush(lock);
  const std::vector<std::string> notices = machine_.take_notices();
  std::function<void(const std::string&)> callback;
  std::string failure;
  if (machine_.state().failure) {
    callback.swap(callback_);
    failure = machine_.state().failure->what.text;
  }
  changed_.notify_all();
  std::vector<MemberMachine::Departure> departures;
  const OnDeparture on_departure = on_departure_;
  if (on_departure) departures = machine_.take_departures();
  lock.unlock();
  for (const auto& [rank, calls] : departures) on_departure(rank, calls);
  if (options_.notice) {
    for (const std::string& text : notices) options_.notice(text);
  }
  if (callback) callback(failure);
}

void TcpStore::finish() {
  std::string rest;
  bool lost = false;
  {
    Lock lock(mutex_);
    react(std::move(lock));
  }
  {
    const Lock lock(mutex_);
    rest.swap(connection_.out);
    lost = machine_.state().lost.has_value();
  }
  (void)write_by(connection_.socket.fd(), rest, base::deadline_in(kLastWords));
  if (lost) shutdown(connection_.socket.fd(), SHUT_RDWR);  // without leaving: rank 0 detects it
}

std::string TcpStore::request(FrameType type, std::string_view key,
                              const std::function<void(FrameWriter&)>& rest,
                              std::chrono::milliseconds timeout) {
  const Deadline deadline = base::deadline_in(timeout);
  // Not for failures of other ranks, which are no matter of a key.
  const std::string what = "store key \"" + std::string(key) + "\": ";
  Lock lock(mutex_);
  const std::optional<std::uint32_t> id = machine_.request(type, key, rest);
  if (!id) throw PeerError(what + "too large to be sent to rank 0 at " + options_.server);
  flush(lock);
  if (!connection_.out.empty() || machine_.state().lost) wake_.wake();
  std::optional<std::string>& reply = machine_.replies().at(*id);
  changed_.wait_until(lock, deadline, [&] {
    return reply || machine_.state().failure || machine_.state().lost || machine_.state().left;
  });
  const std::optional<std::string> answer = std::move(reply);
  machine_.replies().erase(*id);
  if (answer) return *answer;
  if (machine_.state().failure) machine_.state().failure->what.raise();
  if (machine_.state().left) throw PeerError("rank 0 has left the group");
  if (machine_.state().lost)
    throw PeerError("no connection to rank 0 at " + options_.server + ": " +
                    *machine_.state().lost);
  throw PeerError(what + "not set after " + std::to_string(timeout.count()) + " ms");
}

void TcpStore::set(std::string_view key, std::string_view value) {
  request(
      FrameType::kSet, key, [&](FrameWriter& w) { w.text(value); }, kRequestTime);
}

std::string TcpStore::get(std::string_view key, std::chrono::milliseconds timeout) {
  return request(
      FrameType::kGet, key, [](FrameWriter&) {}, timeout);
}

std::int64_t TcpStore::add(std::string_view key, std::int64_t amount) {
  return std::strtoll(
      request(
          FrameType::kAdd, key, [&](FrameWriter& w) { w.i64(amount); }, kRequestTime)
          .c_str(),
      nullptr, 10);
}

void TcpStore::remove(std::string_view key) {
  request(
      FrameType::kRemove, key, [](FrameWriter&) {}, kRequestTime);
}

std::string TcpStore::reach_text(int rank) noexcept {
  try {
    return request(
        FrameType::kReach, std::to_string(rank), [](FrameWriter&) {}, kReachTime);
  } catch (const std::exception&) {
    return {};  // the connection to rank 0 is broken as well, or the group has failed
  }
}

TcpStore::StartState TcpStore::wait_for_start(Deadline until) {
  Lock lock(mutex_);
  changed_.wait_until(lock, until, [&] {
    return machine_.state().started || machine_.state().fatal || machine_.state().lost;
  });
  if (machine_.state().fatal)
    throw_refusal(machine_.state().fatal->first, machine_.state().fatal->second);
  return machine_.state().started ? StartState::kStarted
         : machine_.state().lost  ? StartState::kDisconnected
                                  : StartState::kWaiting;
}

MemberMachine::State TcpStore::state() const {
  const Lock lock(mutex_);
  return machine_.state();
}

void TcpStore::set_activity(std::string_view activity) noexcept {
  try {
    const Lock lock(mutex_);
    machine_.set_activity(activity);
  } catch (const std::exception&) {
    // Out of memory: keep the older activity.
  }
}

void TcpStore::set_progress_source(std::function<RankProgress()> source) {
  const std::lock_guard lock(progress_mutex_);
  progress_source_ = std::move(source);
}

std::optional<GroupFailure> TcpStore::failure() const { return wait_for_failure({}); }

std::optional<GroupFailure> TcpStore::wait_for_failure(std::chrono::milliseconds timeout) const {
  Lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return machine_.state().failure.has_value(); });
  return machine_.state().failure ? std::optional(machine_.state().failure->what) : std::nullopt;
}

void TcpStore::on_failure(const std::function<void(const std::string&)>& callback,
                          OnDeparture on_departure) {
  std::optional<std::string> happened;
  {
    const Lock lock(mutex_);
    if (machine_.state().failure) {
      happened = machine_.state().failure->what.text;
    } else {
      callback_ = callback;
    }
  }
  if (happened) callback(*happened);
  Lock lock(mutex_);
  on_departure_ = std::move(on_departure);
  react(std::move(lock));
}

void TcpStore::abandon(const GroupFailure& why) {
  Lock lock(mutex_);
  machine_.abandon(why, options_.rank);
  flush(lock);
  if (!connection_.out.empty() || machine_.state().lost) wake_.wake();
}

void TcpStore::leave(std::chrono::milliseconds timeout, const std::function<bool()>& cancelled,
                     const std::string& calls) {
  const Deadline deadline = base::deadline_in(timeout);
  Lock lock(mutex_);
  if (machine_.state().leaving || machine_.state().failure) return;
  machine_.leave(calls);
  flush(lock);
  if (!connection_.out.empty() || machine_.state().lost) wake_.wake();
  const auto over = [&] {
    return machine_.state().left || machine_.state().lost || machine_.state().failure;
  };
  while (!changed_.wait_until(lock, std::min(deadline, base::deadline_in(kCancelInterval)), over)) {
    if (base::has_passed(deadline) || (cancelled && cancelled())) return;
  }
}

}  // namespace backends
