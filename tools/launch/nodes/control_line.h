// How the parent launcher controls the launchers on other hosts: records on their standard input.
#pragma once

#include <optional>
#include <string>

#include "backends/store/tcp_socket.h"
#include "tools/launch/workers/worker_group.h"

namespace tools {

// ssh passes on neither signals nor the end of the one who called it, and what it carries as
// arguments or environment others may read. So all this goes through the pipe: NUL-terminated
// records "env K=V", "secret HEX", "go", then "signal N"; the end of the pipe means that the other
// launch is gone, and ends all at once.
class ControlLine : public EventSource {
 public:
  explicit ControlLine(int fd) : fd_(fd) {}

  // Reads up to "go" and sets the variables in this process. Throws backends::PeerError after 60 s
  // or at a broken line.
  void receive_setup();
  const std::string& secret() const { return secret_; }  // "" when none was sent
  // Puts signals there from now on, and SIGKILL when the line ends and `end_kills`. The inbox must
  // outlive this.
  void report_to(SignalInbox& inbox, bool end_kills);

  void add_to(std::vector<pollfd>& polls) override;
  void handle(std::span<const pollfd> polls) override;

 private:
  void pass_signals();
  bool read_more();  // false at the end
  std::optional<std::string> next_record();

  int fd_;
  bool ended_ = false, end_kills_ = true;
  std::string bytes_, secret_;
  SignalInbox* inbox_ = nullptr;
};

// The records, for the sender.
std::string control_record(const std::string& kind, const std::string& text = "");

// The variables of this process that workers on other hosts get: what steers threads, devices and
// wires. Secrets and what describes this host stay here.
std::vector<std::string> variables_for_other_hosts();

}  // namespace tools
