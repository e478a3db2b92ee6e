// Implements records on a pipe.
#include "tools/launch/nodes/control_line.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "backends/backend_error.h"
#include "io/base/time/deadline.h"

namespace tools {
namespace {

constexpr std::size_t kMaxBytes = 1 << 20;

}  // namespace

std::string control_record(const std::string& kind, const std::string& text) {
  std::string record = text.empty() ? kind : kind + " " + text;
  record.push_back('\0');
  return record;
}

std::vector<std::string> variables_for_other_hosts() {
  constexpr std::string_view kPrefixes[] = {"ENGINE_", "NCCL_", "GLOO_", "OMP_", "LC_"};
  constexpr std::string_view kNames[] = {"LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NO_COLOR",
                                         "TZ", "LANG"};
  constexpr std::string_view kNever[] = {"ENGINE_SECRET", "ENGINE_SECRET_FILE", "ENGINE_LISTEN_FD"};
  std::vector<std::string> chosen;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    bool wanted = false;
    for (const std::string_view prefix : kPrefixes) wanted |= name.starts_with(prefix);
    for (const std::string_view known : kNames) wanted |= name == known;
    for (const std::string_view secret : kNever) wanted &= name != secret;
    if (wanted) chosen.emplace_back(text);
  }
  return chosen;
}

bool ControlLine::read_more() {
  char buffer[4096];
  const ssize_t n = read(fd_, buffer, sizeof buffer);
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0 || bytes_.size() > kMaxBytes) return false;
  bytes_.append(buffer, static_cast<std::size_t>(n));
  return true;
}

std::optional<std::string> ControlLine::next_record() {
  const std::size_t end = bytes_.find('\0');
  if (end == std::string::npos) return std::nullopt;
  std::string record = bytes_.substr(0, end);
  bytes_.erase(0, end + 1);
  return record;
}

void ControlLine::receive_setup() {
  const backends::Deadline deadline = base::deadline_in(std::chrono::seconds(60));
  for (;;) {
    while (const std::optional<std::string> record = next_record()) {
      if (*record == "go") return;
      const std::size_t equals = record->find('=');
      if (record->starts_with("secret ")) secret_ = record->substr(7);
      if (record->starts_with("env ") && equals != std::string::npos)
        setenv(record->substr(4, equals - 4).c_str(), record->c_str() + equals + 1, 1);
    }
    pollfd ready{fd_, POLLIN, 0};
    if (poll(&ready, 1, backends::milliseconds_left(deadline)) <= 0)
      throw backends::PeerError("the parent launcher has been silent for 60 s");
    if (!read_more()) throw backends::PeerError("the parent launcher is gone");
  }
}

void ControlLine::add_to(std::vector<pollfd>& polls) {
  polls.push_back({ended_ ? -1 : fd_, POLLIN, 0});
}

void ControlLine::handle(std::span<const pollfd> polls) {
  if (ended_ || polls[0].revents == 0) return;
  ended_ = !read_more();
  pass_signals();
  if (ended_ && end_kills_ && inbox_ != nullptr) inbox_->put(SIGKILL);
}

void ControlLine::report_to(SignalInbox& inbox, bool end_kills) {
  inbox_ = &inbox;
  end_kills_ = end_kills;
  pass_signals();  // a signal may have come in the same read as "go"
}

void ControlLine::pass_signals() {
  constexpr std::string_view kSignal = "signal ", kEnd = "end ";
  while (const std::optional<std::string> record = next_record()) {
    if (inbox_ == nullptr) continue;
    if (record->starts_with(kSignal)) inbox_->put(std::atoi(record->c_str() + kSignal.size()));
    if (!record->starts_with(kEnd)) continue;
    cause_of_end_ = record->substr(kEnd.size());
    inbox_->put(SIGTERM);
  }
}

}  // namespace tools
