// Implements both ends of a probe.
#include "backends/store/member_probes.h"
#include "io/base/files/transient_error.h"

#include <sys/socket.h>

#include <cerrno>

namespace backends {
namespace {

constexpr auto kMaxProbeTime = std::chrono::seconds(10);
constexpr int kMaxAnswers = 16;  // at a time

bool is_refusal(int error) { return error == ECONNREFUSED; }

}  // namespace

void MemberProbes::start(LinkId link, const std::string& address) {
  Probe& probe = probes_[link] = {};
  probe.socket = start_connecting(parse_endpoint(address, "a member's address"));
  probe.until = base::deadline_in(kMaxProbeTime);
  if (probe.socket) return;
  const int error = errno;
  probes_.erase(link);
  report_(link, is_refusal(error) ? ServerMachine::Probe::kRefused : ServerMachine::Probe::kFailed);
}

void MemberProbes::add_to(std::vector<pollfd>& polled) const {
  for (const auto& [link, probe] : probes_)
    polled.push_back(
        {probe.socket.fd(), static_cast<short>(probe.connected ? POLLIN : POLLOUT), 0});
}

void MemberProbes::serve(const std::vector<pollfd>& polled, std::size_t from) {
  for (auto it = probes_.begin(); it != probes_.end();)
    it = serve_one(it->first, it->second, polled[from++].revents != 0) ? probes_.erase(it)
                                                                       : std::next(it);
}

bool MemberProbes::serve_one(LinkId link, Probe& probe, bool ready) {
  using enum ServerMachine::Probe;
  if (!ready && !base::has_passed(probe.until)) return false;
  if (!ready) {
    report_(link, kFailed);
    return true;
  }
  if (!probe.connected) {
    const int error = take_connect_error(probe.socket.fd());
    probe.connected = error == 0;
    report_(link, probe.connected ? kAccepted : is_refusal(error) ? kRefused : kFailed);
    return !probe.connected;
  }
  char answer = 0;
  const ssize_t n = recv(probe.socket.fd(), &answer, 1, MSG_DONTWAIT);
  if (n < 0 && base::is_transient(errno)) return false;
  report_(link, n == 1 && answer == kProbeAnswer ? kAnswered : kFailed);
  return true;
}

void answer_probes(ConnectionAcceptor& acceptor, int listener) {
  for (int i = 0; i < kMaxAnswers; ++i) {
    const Socket probe = acceptor.accept(listener);
    if (!probe) return;
    [[maybe_unused]] const ssize_t n = send(probe.fd(), &kProbeAnswer, 1, MSG_NOSIGNAL);
  }
}

}  // namespace backends
