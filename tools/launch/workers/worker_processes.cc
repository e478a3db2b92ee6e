// Forks, watches and ends the ranks of --spawn.
#include "tools/launch/workers/worker_processes.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "backends/backend_error.h"
#include "backends/membership/acceptor_file.h"
#include "backends/secret.h"
#include "backends/store/tcp_socket.h"
#include "engine/train/replicas/replica_sync.h"
#include "tools/launch/machine/memory_info.h"
#include "tools/launch/workers/stop_signals.h"
#include "tools/launch/workers/worker_failure.h"
#include "tools/launch/workers/worker_group.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/lost_output.h"
#include "tools/report/output/run_log.h"
#include "tools/report/output/standard_output.h"

namespace tools {
namespace {

// A child's report of its failure, in memory shared with the parent.
struct Report {
  std::atomic<int> order;  // 1 = the first child that failed; 0 = no report
  int code;                // of the error; the child may be killed before it exits with it
  bool is_remote;  // received from another rank, which reports it itself unless it is ended before
  bool missed_another;  // which had failed before
  char message[2031];
};
struct Board {
  std::atomic<int> failures;
  Report reports[1];  // one per child
};

Board* make_board(int count) {
  const std::size_t bytes = sizeof(Board) + sizeof(Report) * static_cast<std::size_t>(count);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw std::system_error(errno, std::generic_category(),
                            "cannot map " + std::to_string(bytes) + " bytes of shared memory");
  return static_cast<Board*>(memory);  // zero-filled
}

int run_child(const WorkerPlace& place, Board* board,
              const std::function<int(const WorkerPlace&)>& body) {
  // A child in its own process group may be "in the background", but must still be able to print.
  signal(SIGTTOU, SIG_IGN);
  expect_end_by_parent();
  try {
    const int code = body(place);
    if (code == kExitOk) {
      check_standard_output();
      check_lost_outputs();
    }
    return code;
  } catch (const std::exception& error) {
    Report& report = board->reports[place.rank];
    report.is_remote = dynamic_cast<const engine::RemoteError*>(&error) != nullptr;
    report.missed_another = dynamic_cast<const backends::LostPeerError*>(&error) != nullptr;
    std::snprintf(report.message, sizeof report.message, "%s", text_of(error).c_str());
    report.code = exit_code_of(error);
    report.order.store(board->failures.fetch_add(1) + 1);
    return report.code;
  }
}

struct Line {
  int order;
  int code;
  bool missed_another;
  std::string who, what;
};

// Returns the lines with the cause first: a difference between ranks that has ended all, then those
// of children killed from outside, then in the order in which children reported. A reason that a
// child received from another one counts only if no child gives its own.
std::vector<Line> lines_of(const GroupOutcome& outcome, const Board* board,
                           const MemoryKills& kills) {
  const int count = static_cast<int>(outcome.ends.size());
  std::vector<Line> lines, remote;
  for (int r = 0; r < count; ++r) {
    const WorkerEnd& end = outcome.ends[static_cast<std::size_t>(r)];
    const Report& report = board->reports[r];
    const std::string who = "rank " + std::to_string(r) + ": ";
    if (report.order.load() > 0) {
      // A rank that fails closes its group before it reports, so others may detect that and report
      // first.
      const int later = report.missed_another             ? 2 * count
                        : report.code == kExitUnavailable ? count
                                                          : 0;
      const bool ends_all = report.code == kExitMismatch && !report.is_remote &&
                            outcome.culprit == static_cast<std::size_t>(r);
      if (report.is_remote)
        remote.push_back({report.order.load(), report.code, false, "", report.message});
      else
        lines.push_back({ends_all ? -1 : report.order.load() + later, report.code,
                         report.missed_another, who, report.message});
    } else if (end.signal != 0 && !end.by_us) {
      const std::string why = end.signal == SIGKILL ? kills.text() : "";
      lines.push_back({0, end.code, false, who, end_text(end.code, end.signal) + why});
    }
  }
  if (lines.empty()) lines = std::move(remote);
  std::sort(lines.begin(), lines.end(),
            [](const Line& a, const Line& b) { return a.order < b.order; });
  return lines;
}

// Prints the reasons, the cause first, and returns its code.
int print_failures(const GroupOutcome& outcome, const Board* board, const MemoryKills& kills) {
  const std::vector<Line> lines = lines_of(outcome, board, kills);
  if (lines.empty() || outcome.killed || !outcome.culprit) return outcome.code();
  const Line& cause = lines.front();
  for (const Line& line : lines) {
    const bool is_cause = &line == &cause;
    if (!is_cause && line.what == cause.what) continue;
    // That others miss a rank is printed only if the rank could not report itself.
    const bool misses =
        line.missed_another || (line.code == kExitUnavailable && cause.code != kExitUnavailable);
    if (!is_cause && misses && cause.order != 0) continue;
    std::fprintf(stderr, "engine: error: %s%s\n", line.who.c_str(), line.what.c_str());
  }
  return cause.code;
}

}  // namespace

int run_worker_processes(int count, const std::function<int(const WorkerPlace&)>& body,
                         std::optional<int> min_workers) {
  backends::Socket listener = backends::listen_on({"127.0.0.1", 0});
  const int port = backends::local_endpoint(listener.fd()).port;
  const std::string secret = backends::to_hex(backends::random_bytes(32));
  Board* board = make_board(count);
  const MemoryKills kills;
  SignalInbox inbox;
  GuardProcess guard(true);
  GroupRules rules;
  rules.ranks_of_one_run = true;
  if (!min_workers) rules.savers = kSavingRanks;
  rules.min_workers = min_workers;
  // Before the rendezvous is complete, no other process reports this.
  if (min_workers)
    rules.again = [](std::size_t rank, const WorkerEnd& end) -> std::function<int()> {
      print_notice("rank " + std::to_string(rank) + " (pid " + std::to_string(end.pid) +
                   "): " + end_text(end.code, end.signal) + "; the others continue if they can");
      return {};
    };
  WorkerGroup group(guard, inbox, rules);
  for (int r = 0; r < count; ++r)
    group.start([&] {
      const bool meets = r == 0 || min_workers;
      return run_child({r, meets ? listener.fd() : -1, port, secret}, board, body);
    });
  listener.close();
  const GroupOutcome outcome = group.wait({});
  if (min_workers) backends::AcceptorFile::remove_unused();
  const int code = print_failures(outcome, board, kills);
  if (!min_workers || !outcome.too_few_are_left()) return code;
  std::fprintf(stderr, "engine: error: %s\n", too_few_text(*min_workers, count).c_str());
  return kExitUnavailable;
}

}  // namespace tools
