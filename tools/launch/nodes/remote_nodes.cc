// Implements ssh, quoting, and supervision of the launchers on other hosts.
#include "tools/launch/nodes/remote_nodes.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <system_error>

#include "backends/backend_error.h"
#include "backends/identity/host_identity.h"
#include "backends/secret.h"
#include "backends/store/tcp_socket.h"
#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"
#include "io/base/text/escape_text.h"
#include "tools/launch/nodes/control_line.h"
#include "tools/launch/nodes/local_node.h"
#include "tools/launch/nodes/own_program.h"
#include "tools/launch/workers/output_relay.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/report/output/shell_text.h"

namespace tools {
namespace {

std::string without_user(const std::string& host) { return host.substr(host.find('@') + 1); }

bool is_loopback(const std::string& host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1";
}

// One node's launch: a child process, its standard input and its streams.
struct Node {
  backends::Socket control;
  RelayedStream* err = nullptr;
};

std::pair<backends::Socket, backends::Socket> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw backends::Error("cannot make a pipe: " + base::system_error_text(errno));
  return {backends::Socket(ends[0]), backends::Socket(ends[1])};
}

void write_record(const backends::Socket& to, const std::string& record) {
  std::string_view left = record;
  while (to && !left.empty()) {
    const ssize_t n = write(to.fd(), left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // the node has ended, which is detected elsewhere
    left.remove_prefix(static_cast<std::size_t>(n));
  }
}

RelayedStream& relay_stream(OutputRelay& relay, backends::Socket source, int target) {
  fcntl(source.fd(), F_SETFL, O_NONBLOCK);
  RelayedStream stream;
  stream.source = std::move(source);
  stream.target = target;
  return relay.add(std::move(stream));
}

int exec_node(const std::vector<std::string>& command, const backends::Socket& in,
              const backends::Socket& out, const backends::Socket& err) {
  dup2(in.fd(), 0);
  dup2(out.fd(), 1);
  dup2(err.fd(), 2);
  std::vector<char*> arguments;
  for (const std::string& a : command) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int cause = errno;
  std::fprintf(stderr, "engine: error: cannot run '%s': %s\n",
               base::escape_text(command.front()).c_str(), std::strerror(cause));
  return 127;
}

Node start_node(WorkerGroup& group, OutputRelay& relay, const std::vector<std::string>& command,
                const std::string& setup) {
  auto [in_read, in_write] = make_pipe();
  auto [out_read, out_write] = make_pipe();
  auto [err_read, err_write] = make_pipe();
  group.start([&, &in = in_read, &out = out_write, &err = err_write] {
    return exec_node(command, in, out, err);
  });
  Node node;
  node.control = std::move(in_write);
  relay_stream(relay, std::move(out_read), 1);
  node.err = &relay_stream(relay, std::move(err_read), 2);
  write_record(node.control, setup);
  return node;
}

std::string setup_records() {
  std::string records;
  for (const std::string& variable : variables_for_other_hosts())
    records += control_record("env", variable);
  records += control_record("secret", backends::to_hex(backends::random_bytes(32)));
  return records + control_record("go");
}

std::string own_directory() {
  char path[PATH_MAX];
  if (getcwd(path, sizeof path) == nullptr)
    throw std::system_error(errno, std::generic_category(), "no working folder");
  return path;
}

std::string node_end_text(const std::string& host, const WorkerEnd& end) {
  return "launch on " + host + ": " +
         (end.code == 255 ? "ssh failed" : end_text(end.code, end.signal));
}

// The last line of a node's launch already names host and rank, and whether it restarted them. A
// launch that ends without one restarts nothing.
std::string node_failure(const std::string& host, const WorkerEnd& end, std::string last,
                         int max_restarts) {
  constexpr std::string_view kMark = "engine: error: ";
  if (last.starts_with(kMark) && end.signal == 0) return last.substr(kMark.size());
  return node_end_text(host, end) + (last.empty() ? "" : "; its last line: " + last) +
         (max_restarts > 0 ? " (not restarted: --max-restarts restarts workers, not the launch of "
                             "a host)"
                           : "");
}

}  // namespace

void check_hosts(const LaunchOptions& options, const LaunchPlan& plan) {
  std::set<std::string> seen;
  for (const std::string& host : options.nodes.hosts) {
    if (host.front() == '-' || host.find_first_of(" \t'\"\\") != std::string::npos)
      throw UsageError("--hosts: '" + host + "' is not a host name");
    if (std::count(host.begin(), host.end(), ':') == 1)
      throw UsageError(
          "--hosts: '" + host +
          "' has a number of slots: give only the name, and --nproc-per-node or a --hostfile");
    if (!seen.insert(host).second)
      throw UsageError("--hosts: '" + host +
                       "' is named twice; give --nproc-per-node for several workers on it");
    if (is_loopback(plan.master_addr) && !is_loopback(without_user(host)))
      throw io::ConfigError("the ranks would meet at " + plan.master_addr + ", which " + host +
                            " resolves to itself: use a name of the first host that the others can "
                            "reach, or --master-addr");
  }
}

bool is_this_host(const std::string& host) {
  const std::string name = without_user(host), own = backends::host_name();
  if (host != name) return false;  // another user
  return name == "localhost" || name == "127.0.0.1" || name == "::1" || name == own ||
         name == own.substr(0, own.find('.'));
}

std::vector<std::string> node_command(const LaunchOptions& o, const LaunchPlan& plan, int node_rank,
                                      const std::string& program, const std::string& directory) {
  std::vector<std::string> words{program, "launch", "--controlled-by-stdin", "--directory",
                                 directory};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  add("--nnodes", (o.nodes.min_count ? std::to_string(*o.nodes.min_count) + ":" : "") +
                      std::to_string(plan.nnodes));
  if (o.restarts.respawn) words.emplace_back("--respawn");
  if (o.restarts.longest_pause_ms)
    add("--respawn-pause", std::to_string(*o.restarts.longest_pause_ms * 1e-3));
  add("--node-rank", std::to_string(node_rank));
  add("--nproc-per-node", o.nproc_per_node);
  if (plan.init_method.empty()) {
    add("--master-addr", plan.master_addr);
    add("--master-port", std::to_string(plan.master_port));
  } else {
    add("--rdzv-endpoint", plan.init_method);
  }
  add("--rdzv-id", plan.run_id);
  add("--max-restarts", std::to_string(o.restarts.max));
  add("--monitor-interval", std::to_string(o.monitor_interval_ms / 1000.0));
  add("--redirects", o.output.redirects);
  add("--tee", o.output.tee);
  add("--log-dir", o.output.log_dir);
  add("--local-ranks-filter", o.output.local_ranks_filter);
  for (const std::string& variable : o.environment) add("--env", variable);
  if (!o.kill_orphans) words.emplace_back("--no-kill-orphans");
  words.emplace_back("--");
  words.insert(words.end(), o.command.begin(), o.command.end());
  const std::string& host = o.nodes.hosts[static_cast<std::size_t>(node_rank)];
  if (is_this_host(host)) return words;
  // ssh passes one line to the remote shell, so every word is quoted.
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_quoted(word);
  return {
      "ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=10",
      "--",  host, line};
}

int run_remote_nodes(const LaunchOptions& options, const LaunchPlan& plan, GuardProcess& guard,
                     SignalInbox& inbox) {
  std::vector<Node> nodes;
  GroupRules rules;
  // A launch needs up to 8 s to evaluate and end its own workers; only then does it know if it is
  // the cause.
  rules.culprit_wait = std::chrono::seconds(9);
  rules.grace = std::chrono::seconds(14);
  rules.ranks_of_one_run = plan.own_command;
  // Nodes of rank 0, and of rank 1, which saves if rank 0 is lost.
  if (plan.own_command && plan.elastic.empty()) rules.savers = plan.nproc > 1 ? 1 : 2;
  if (!plan.elastic.empty()) rules.min_workers = 1;
  rules.longest_wait = std::chrono::milliseconds(options.monitor_interval_ms);
  std::string cause;  // of the end of all
  rules.decided = [&](std::size_t index, const WorkerEnd& end) {
    cause = node_end_text(options.nodes.hosts[index], end);
  };
  rules.deliver = [&nodes, &cause](std::size_t index, pid_t pid, int signal) {
    Node& node = nodes[index];
    if (signal == SIGTERM && !cause.empty())
      return write_record(node.control, control_record("end", cause));
    if (signal != SIGKILL)
      return write_record(node.control, control_record("signal", std::to_string(signal)));
    node.control.close();  // the remote launch ends its workers at once
    kill(-pid, SIGKILL);
  };
  OutputRelay relay;
  GroupOutcome outcome;
  {
    WorkerGroup group(guard, inbox, rules);
    const std::string setup = setup_records(), program = own_path(), directory = own_directory();
    nodes.reserve(options.nodes.hosts.size());
    for (int r = 0; r < plan.nnodes; ++r)
      nodes.push_back(
          start_node(group, relay, node_command(options, plan, r, program, directory), setup));
    EventSource* const sources[] = {&relay};
    outcome = group.wait(sources);
  }
  relay.drain();
  if (outcome.stop_signal)
    print_notice("stopped all nodes after signal " + std::to_string(*outcome.stop_signal));
  if (outcome.culprit && !outcome.killed) {
    const std::size_t index = *outcome.culprit;
    const std::string failure = node_failure(options.nodes.hosts[index], outcome.ends[index],
                                             nodes[index].err->last_line, options.restarts.max);
    std::fprintf(stderr, "engine: error: %s\n", base::escape_text(failure).c_str());
  }
  // 255 is ssh's own code for a host that it cannot reach; this program does not use it.
  return outcome.code() == 255 ? kExitUnavailable : outcome.code();
}

}  // namespace tools
