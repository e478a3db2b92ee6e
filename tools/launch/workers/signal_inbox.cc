// Reads signals from signalfd(2).
#include "tools/launch/workers/signal_inbox.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace tools {
namespace {

constexpr std::chrono::milliseconds kOneRequest{200};

}  // namespace

SignalInbox::SignalInbox(const base::Clock& clock) : clock_(clock) {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int s : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGCHLD}) sigaddset(&wanted, s);
  struct sigaction hang_up {};
  sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler != SIG_IGN) sigaddset(&wanted, SIGHUP);
  sigprocmask(SIG_BLOCK, &wanted, &old_mask_);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &old_pipe_);
  fd_ = backends::Socket(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw std::system_error(errno, std::generic_category(), "cannot make a signalfd");
}

SignalInbox::~SignalInbox() { restore(); }

void SignalInbox::restore() const {
  sigaction(SIGPIPE, &old_pipe_, nullptr);
  sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

std::optional<int> SignalInbox::take() {
  if (!put_.empty()) {
    const int signal = put_.front();
    put_.pop_front();
    return signal;
  }
  signalfd_siginfo info{};
  while (read(fd_.fd(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGCHLD) continue;
    if (info.ssi_code != SI_USER) return static_cast<int>(info.ssi_signo);  // the terminal
    const bool repeated = last_ && last_->signal == info.ssi_signo &&
                          last_->sender == info.ssi_pid && clock_.now() - last_->at < kOneRequest;
    last_ = {info.ssi_signo, info.ssi_pid, clock_.now()};
    if (!repeated) return static_cast<int>(info.ssi_signo);
  }
  return std::nullopt;
}

}  // namespace tools
