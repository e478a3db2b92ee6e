// Lets the parent launcher control the launchers on other hosts with records on their standard
// input.
#pragma once

#include <optional>
#include <string>

#include "backends/store/tcp_socket.h"
#include "tools/launch/workers/worker_group.h"

namespace tools {

// ssh forwards neither signals nor the end of its caller, and others may read its arguments and
// environment. So all this goes through the pipe: NUL-terminated records "env K=V", "secret HEX",
// "go", then "signal N", or "end CAUSE" after the failure of another node; the end of the pipe
// means that the parent launcher is gone, and ends everything at once.
class ControlLine : public EventSource {
 public:
  explicit ControlLine(int fd) : fd_(fd) {}

  // Reads up to "go" and sets the variables in this process. Throws backends::PeerError after 60 s
  // or at an invalid record.
  void receive_setup();
  const std::string& secret() const { return secret_; }  // "" if none was sent
  // From now on puts signals there, SIGTERM for "end CAUSE", and SIGKILL when the pipe ends if
  // `end_kills`. The inbox must outlive this.
  void report_to(SignalInbox& inbox, bool end_kills);
  // Returns the failure of another node that ends this one, e.g. "launch on n7: exit code 65"; ""
  // if there was none.
  const std::string& cause_of_end() const { return cause_of_end_; }

  void add_to(std::vector<pollfd>& polls) override;
  void handle(std::span<const pollfd> polls) override;

 private:
  void pass_signals();
  bool read_more();  // returns false at the end
  std::optional<std::string> next_record();

  int fd_;
  bool ended_ = false, end_kills_ = true;
  std::string bytes_, secret_, cause_of_end_;
  SignalInbox* inbox_ = nullptr;
};

// Returns a record, for the sender.
std::string control_record(const std::string& kind, const std::string& text = "");

// Returns the variables of this process that workers on other hosts get: those that control
// threads, devices and connections. Secrets and descriptions of this host are not sent.
std::vector<std::string> variables_for_other_hosts();

}  // namespace tools
