// Runs one node of a job.
#include "tools/launch/nodes/local_node.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "backends/membership/acceptor_file.h"
#include "backends/store/private_files.h"
#include "io/base/machine/environment.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"
#include "tools/launch/nodes/control_line.h"
#include "tools/launch/nodes/own_program.h"
#include "tools/options/table/option_table.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

bool is_program(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// `elsewhere`: the failure of another node that was the reason; "" if there was none.
std::string stop_text(const GroupOutcome& outcome, const std::string& elsewhere) {
  const std::string what = outcome.killed ? "killed all workers" : "stopped all workers";
  if (!elsewhere.empty()) return what + ": " + base::escape_text(elsewhere);
  return what + " after signal " + std::to_string(*outcome.stop_signal) + " (" +
         strsignal(*outcome.stop_signal) + ")";
}

}  // namespace

std::string find_program(const std::string& name, const std::vector<std::string>& own_commands) {
  const std::string near = base::did_you_mean(name, own_commands);
  const std::string advice = name.ends_with(".py") ? ": write python " + name
                             : !near.empty()       ? near
                                             : ": expected train ... or a program that can be run";
  if (name.find('/') != std::string::npos) {
    if (is_program(name)) return name;
    throw UsageError("cannot run '" + name + "' (" +
                     (access(name.c_str(), F_OK) == 0 ? "not an executable file" : "no such file") +
                     ")" + advice);
  }
  std::string path = base::environment("PATH");
  if (path.empty()) path = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& folder : base::split_text(path, ':'))
    if (const std::string file = (folder.empty() ? "." : folder) + "/" + name; is_program(file))
      return file;
  throw UsageError("no program '" + name + "' in PATH" + advice);
}

LocalNode::LocalNode(const LaunchOptions& options, LaunchPlan plan, GuardProcess& guard,
                     SignalInbox& inbox, const std::string& secret_hex)
    : options_(options),
      plan_(std::move(plan)),
      guard_(guard),
      inbox_(inbox),
      logs_(options_, plan_) {
  program_ = plan_.own_command ? own_program()
                               : find_program(options_.command.front(), options_.own_commands);
  prepare_meeting();
  // A job of one node needs no shared key; several nodes share a file, or the user's own key.
  const bool given = backends::secret_comes_from_environment();
  if (!secret_hex.empty() || (plan_.nnodes == 1 && !given && plan_.init_method.empty()))
    secret_ = std::make_unique<SecretFile>(guard_, secret_hex);
  if (plan_.threads_chosen)
    print_notice("OMP_NUM_THREADS=" + std::to_string(plan_.threads) + " for each of " +
                 std::to_string(plan_.nproc) + (plan_.nproc == 1 ? " worker" : " workers") +
                 " on " + plan_.host + "; set it to choose another number");
  if (logs_.keeps_files())
    print_notice("logs in " + logs_.folder(0, plan_.rank(0)) +
                 (plan_.nproc > 1 ? " and its siblings" : ""));
}

void LocalNode::prepare_meeting() {
  if (plan_.node_rank != 0 || !plan_.init_method.empty()) return;
  const backends::Endpoint wanted{plan_.master_addr, plan_.master_port};
  if (plan_.own_command)
    listener_ = listen_for_workers(wanted);
  else if (plan_.nnodes == 1)
    listener_ = reserve_port(wanted);
  if (listener_) plan_.master_port = backends::local_endpoint(listener_.fd()).port;
}

// Returns an empty socket if another process listens there; it is taken for the job, which the
// workers then join. While this node was lost, a rank of another node on the same host may have
// started to serve the job's address.
backends::Socket LocalNode::listen_for_workers(const backends::Endpoint& wanted) {
  try {
    return backends::listen_on(wanted, std::chrono::seconds(2), backends::kRankZeroListens);
  } catch (const backends::PortTaken&) {
    if (plan_.elastic.empty() || plan_.nnodes == 1) throw;
  }
  print_notice("port " + std::to_string(wanted.port) + " of " + wanted.host +
               " is taken: the workers join the job at that port");
  return {};
}

int LocalNode::run(ControlLine* control) {
  for (;; ++attempt_) {
    const GroupOutcome outcome = run_attempt(control);
    if (!plan_.elastic.empty()) backends::AcceptorFile::remove_unused();
    const int code = outcome.code();
    const std::string elsewhere = control != nullptr ? control->cause_of_end() : "";
    if (outcome.stop_signal) print_notice(stop_text(outcome, elsewhere));
    if (!failure_ || outcome.killed) return code;
    if (!elsewhere.empty()) {
      failure_->decided = false;
      print_notice(base::escape_text(failure_line(*failure_)));
      return code;
    }
    if (!outcome.stop_signal && attempt_ < plan_.max_restarts && is_worth_restarting(code)) {
      print_notice("restart " + std::to_string(attempt_ + 1) + " of " +
                   std::to_string(plan_.max_restarts) + " after: " + failure_line(*failure_));
      failure_.reset();
      continue;
    }
    std::string tries;
    if (attempt_ > 0)
      tries = " (after " + std::to_string(attempt_) + (attempt_ == 1 ? " restart)" : " restarts)");
    if (attempt_ < plan_.max_restarts && !outcome.stop_signal)
      tries += " (not restarted: a restart cannot fix it)";
    const bool too_few = all_are_here() && outcome.too_few_are_left();
    const std::string what =
        too_few ? too_few_text(*rules().min_workers, plan_.nproc) : failure_line(*failure_);
    std::fprintf(stderr, "engine: error: %s%s\n", base::escape_text(what).c_str(), tries.c_str());
    return too_few ? kExitUnavailable : code;
  }
}

// Returns true for an elastic job whose ranks are all on this node and never restarted. Otherwise
// ranks on other nodes may be left, or may return, so the ranks themselves wait for others.
bool LocalNode::all_are_here() const {
  return !plan_.elastic.empty() && plan_.nnodes == 1 && !options_.restarts.respawn;
}

GroupRules LocalNode::rules() const {
  GroupRules rules;
  rules.kill_orphans = options_.kill_orphans;
  rules.ranks_of_one_run = plan_.own_command;
  const bool elastic = !plan_.elastic.empty();
  if (plan_.own_command && !elastic)
    rules.savers = static_cast<std::size_t>(std::max(0, kSavingRanks - plan_.rank(0)));
  if (elastic) rules.min_workers = all_are_here() ? std::atoi(plan_.elastic.c_str()) : 1;
  rules.longest_wait = std::chrono::milliseconds(options_.monitor_interval_ms);
  return rules;
}

std::function<int()> LocalNode::prepare_worker(OutputRelay& relay, int local_rank, int attempt,
                                               WorkerLogs::Stream& err) {
  std::vector<std::string> extra;
  if (logs_.keeps_files()) {
    logs_.make_folder(attempt, plan_.rank(local_rank));
    extra.push_back("TORCHELASTIC_ERROR_FILE=" + logs_.folder(attempt, plan_.rank(local_rank)) +
                    "/error.json");
  }
  if (secret_) extra.push_back("ENGINE_SECRET_FILE=" + secret_->path());
  if (hands_over(local_rank))
    extra.push_back(kListenFdVariable + ("=" + std::to_string(listener_.fd())));
  const auto out = std::make_shared<WorkerLogs::Stream>(logs_.open(relay, attempt, local_rank, 1)),
             errors =
                 std::make_shared<WorkerLogs::Stream>(logs_.open(relay, attempt, local_rank, 2));
  err.relayed = errors->relayed;
  err.file = errors->file;
  return [this, local_rank, attempt, extra, out, errors] {
    return exec_worker(local_rank, attempt, extra, out->worker_end.fd(), errors->worker_end.fd());
  };
}

// Returns true if the worker inherits the rendezvous socket: rank 0 or, in an elastic job, each
// worker of this node.
bool LocalNode::hands_over(int local_rank) const {
  return listener_ && plan_.own_command && (local_rank == 0 || !plan_.elastic.empty());
}

GroupOutcome LocalNode::run_attempt(EventSource* control) {
  OutputRelay relay;
  std::vector<WorkerLogs::Stream> errors(static_cast<std::size_t>(plan_.nproc));
  respawned_.assign(errors.size(), 0);
  GroupRules group_rules = rules();
  if (options_.restarts.longest_pause_ms)
    group_rules.longest_pause = std::chrono::milliseconds(*options_.restarts.longest_pause_ms);
  if (!plan_.elastic.empty())
    group_rules.again = [&](std::size_t index, const WorkerEnd& end) {
      return respawn(relay, static_cast<int>(index), end, errors[index]);
    };
  GroupOutcome outcome;
  {
    WorkerGroup group(guard_, inbox_, group_rules);
    for (int local_rank = 0; local_rank < plan_.nproc; ++local_rank)
      group.start(prepare_worker(relay, local_rank, attempt_,
                                 errors[static_cast<std::size_t>(local_rank)]));
    std::vector<EventSource*> sources{&relay};
    if (control != nullptr) sources.push_back(control);
    outcome = group.wait(sources);
  }
  relay.drain();
  note_failure(outcome, errors);
  return outcome;
}

std::function<int()> LocalNode::respawn(OutputRelay& relay, int local_rank, const WorkerEnd& end,
                                        WorkerLogs::Stream& err) {
  // A rank whose data or build have changed since the job began would differ each time.
  const bool again = options_.restarts.respawn && is_worth_restarting(end.code) &&
                     (end.signal != 0 || end.code != kExitMismatch);
  int& times = respawned_[static_cast<std::size_t>(local_rank)];
  WorkerFailure failure = failure_of(local_rank, end, err);
  failure.attempt = times;
  failure.decided = false;
  print_notice(base::escape_text(failure_line(failure)) +
               (again ? "; it is started again" : "; the others continue if they can"));
  if (!again) return {};
  return prepare_worker(relay, local_rank, ++times, err);
}

// Runs in the forked worker.
int LocalNode::exec_worker(int local_rank, int attempt, const std::vector<std::string>& extra,
                           int out, int err) const {
  // Replace the terminal as stdin: a question that four workers ask cannot be answered, and a
  // background group that reads the terminal is stopped.
  std::signal(SIGXFSZ, SIG_DFL);  // the default for programs; this one ignores it
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, 0);
  dup2(out, 1);
  dup2(err, 2);
  if (nothing > 2) close(nothing);
  if (hands_over(local_rank)) fcntl(listener_.fd(), F_SETFD, 0);
  std::vector<std::string> arguments = options_.command;
  if (plan_.own_command) arguments.insert(arguments.begin(), "engine");
  const std::vector<std::string> environment =
      worker_environment(plan_, local_rank, attempt, extra, options_.environment);
  execve(program_.c_str(), pointers(arguments).data(), pointers(environment).data());
  const int cause = errno;
  std::fprintf(stderr, "engine: error: cannot run '%s': %s\n",
               base::escape_text(options_.command.front()).c_str(), std::strerror(cause));
  return cause == ENOENT ? 127 : 126;
}

WorkerFailure LocalNode::failure_of(int local_rank, const WorkerEnd& end,
                                    const WorkerLogs::Stream& err) const {
  WorkerFailure failure;
  failure.host = plan_.host;
  failure.rank = plan_.rank(local_rank);
  failure.local_rank = local_rank;
  failure.pid = end.pid;
  failure.code = end.code;
  failure.signal = end.signal;
  if (end.signal == SIGKILL) failure.why = kills_.text();
  failure.attempt = attempt_;
  failure.last_line = err.relayed != nullptr ? err.relayed->last_line : last_line_of_file(err.file);
  failure.log = err.file;
  return failure;
}

void LocalNode::note_failure(const GroupOutcome& outcome,
                             const std::vector<WorkerLogs::Stream>& errors) {
  for (std::size_t i = 0; i < outcome.ends.size(); ++i) {
    const WorkerEnd& end = outcome.ends[i];
    if (end.code == 0 || end.code == kExitLeft || (end.by_us && i != outcome.culprit)) continue;
    const WorkerFailure failure = failure_of(static_cast<int>(i), end, errors[i]);
    if (logs_.keeps_files()) {
      const std::string path = logs_.folder(attempt_, failure.rank) + "/error.json";
      const bool own = access(path.c_str(), F_OK) == 0;  // file of the worker
      if (!own && !(std::ofstream(path) << failure_json(failure)).flush())
        print_notice("cannot write " + path);
    }
    if (i == outcome.culprit) failure_ = failure;
  }
}

}  // namespace tools
