// Relays lines from pipes to stdout and stderr.
#include "tools/launch/workers/output_relay.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "io/base/files/system_error_text.h"
#include "io/base/time/deadline.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/lost_output.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

constexpr std::size_t kMaxPending = 1 << 20;  // then the workers wait for the reader
constexpr std::chrono::seconds kDrainTimeout{10};
constexpr std::size_t kLongestTail = 4096;

std::string tail_of(std::string_view line) {
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
  return std::string(line.substr(0, kLongestTail));
}

}  // namespace

RelayedStream& OutputRelay::add(RelayedStream stream) {
  streams_.push_back(std::move(stream));
  return streams_.back();
}

bool OutputRelay::congested() const {
  return std::any_of(std::begin(outputs_), std::end(outputs_),
                     [](const Output& o) { return o.pending.size() > kMaxPending; });
}

void OutputRelay::add_to(std::vector<pollfd>& polls) {
  polled_.clear();
  for (const Output& output : outputs_)
    polls.push_back({output.pending.empty() ? -1 : output.fd, POLLOUT, 0});
  if (congested()) return;
  for (RelayedStream& stream : streams_) {
    if (!stream.source) continue;
    polls.push_back({stream.source.fd(), POLLIN, 0});
    polled_.push_back(&stream);
  }
}

void OutputRelay::handle(std::span<const pollfd> polls) {
  for (std::size_t i = 0; i < polled_.size(); ++i)
    if (polls[2 + i].revents != 0) read_from(*polled_[i]);
  for (Output& output : outputs_) {
    pollfd now{output.fd, POLLOUT, 0};
    while (!output.pending.empty() && poll(&now, 1, 0) > 0) write_some(output);
  }
}

void OutputRelay::drain() {
  const auto deadline = base::deadline_in(kDrainTimeout);
  for (RelayedStream& stream : streams_) {
    while (stream.source && (!congested() || flush(deadline)))
      if (!read_from(stream)) break;
    stream.lines.finish([&](std::string_view line) { take_line(stream, line); });
    stream.source.close();  // later output of a process that was left alive on purpose is lost
  }
  flush(deadline);
  for (Output& output : outputs_) output.pending.clear();
}

bool OutputRelay::flush(backends::Deadline deadline) {
  for (Output& output : outputs_) {
    while (!output.pending.empty()) {
      pollfd now{output.fd, POLLOUT, 0};
      if (poll(&now, 1, backends::milliseconds_left(deadline)) <= 0) return false;
      write_some(output);
    }
  }
  return true;
}

bool OutputRelay::read_from(RelayedStream& stream) {
  char buffer[65536];
  const ssize_t n = read(stream.source.fd(), buffer, sizeof buffer);
  if (n < 0) return errno == EINTR;
  const auto sink = [&](std::string_view line) { take_line(stream, line); };
  if (n == 0) {
    stream.lines.finish(sink);
    stream.source.close();
    stream.log.close();
    return false;
  }
  const std::string_view bytes(buffer, static_cast<std::size_t>(n));
  write_log(stream, bytes);
  stream.lines.feed(bytes, LineSplitter::Clock::now(), sink);
  return true;
}

void OutputRelay::take_line(RelayedStream& stream, std::string_view line) {
  if (std::string tail = tail_of(line); !tail.empty()) stream.last_line = std::move(tail);
  Output& output = outputs_[stream.target - 1];
  if (!stream.shown || output.broken) return;
  output.pending.append(stream.prefix).append(line).append("\n");
}

void OutputRelay::write_log(RelayedStream& stream, std::string_view bytes) {
  while (stream.log && !bytes.empty()) {
    const ssize_t n = write(stream.log.fd(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const std::string loss =
          "cannot write " + stream.log_path + ": " + base::system_error_text(errno);
      print_notice(loss + "; this log ends here");
      note_lost_output(loss, kExitIo);
      stream.log.close();
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

// After POLLOUT a pipe accepts PIPE_BUF bytes at once, so nothing here waits for the reader, and
// signals are handled meanwhile. The descriptor itself may not be made non-blocking, because it is
// shared with other processes.
void OutputRelay::write_some(Output& output) {
  std::size_t size = std::min<std::size_t>(output.pending.size(), PIPE_BUF);
  // Write whole lines if possible: other processes also write to this descriptor.
  if (const std::size_t end = output.pending.rfind('\n', size - 1); end != std::string::npos)
    size = end + 1;
  const ssize_t n = write(output.fd, output.pending.data(), size);
  if (n >= 0) {
    output.pending.erase(0, static_cast<std::size_t>(n));
    return;
  }
  if (errno == EINTR || errno == EAGAIN) return;
  const int cause = errno;
  output.broken = true;
  output.pending.clear();
  if (output.fd != 1) return;
  const std::string loss = "cannot write stdout: " + base::system_error_text(cause);
  print_notice(loss + "; output of the workers is no longer shown");
  note_lost_output(loss, kExitIo);
}

std::string line_prefix(const std::string& host, int rank, bool color) {
  const std::string text = host.substr(0, host.find('.')) + ":" + std::to_string(rank) + ": ";
  if (!color) return text;
  static constexpr const char* kColours[] = {"36", "33", "35", "32", "34", "31"};
  return std::string("\033[") + kColours[static_cast<std::size_t>(rank) % std::size(kColours)] +
         "m" + text + "\033[0m";
}

std::string last_line_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : 0;
  file.seekg(std::max<std::streamoff>(0, size - static_cast<std::streamoff>(kLongestTail)));
  std::string last;
  for (std::string line; std::getline(file, line);)
    if (std::string tail = tail_of(line); !tail.empty()) last = std::move(tail);
  return last;
}

}  // namespace tools
