// Opens pipes and log files of workers.
#include "tools/launch/nodes/worker_logs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "backends/backend_error.h"
#include "io/base/files/io_error.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"
#include "tools/launch/nodes/launch_values.h"
#include "tools/report/text/progress_line.h"

namespace tools {

WorkerLogs::WorkerLogs(const LaunchOptions& options, const LaunchPlan& plan)
    : plan_(plan),
      redirected_(parse_streams(options.output.redirects, plan.nproc, "--redirects")),
      teed_(parse_streams(options.output.tee.empty() && options.output.redirects.empty() &&
                                  !options.output.log_dir.empty()
                              ? "3"
                              : options.output.tee,
                          plan.nproc, "--tee")),
      shown_(static_cast<std::size_t>(plan.nproc), false),
      color_{wants_colour(1), wants_colour(2)} {
  for (const int rank :
       parse_rank_list(options.output.local_ranks_filter, plan.nproc, "--local-ranks-filter"))
    shown_[static_cast<std::size_t>(rank)] = true;
  const auto any = [](const std::vector<unsigned>& masks) {
    return std::any_of(masks.begin(), masks.end(), [](unsigned m) { return m != 0; });
  };
  keeps_ = any(redirected_) || any(teed_);
  std::error_code error;
  base_ = std::filesystem::absolute(
              options.output.log_dir.empty() ? "launch-logs" : options.output.log_dir, error)
              .string() +
          "/" + plan.run_id;
}

std::string WorkerLogs::folder(int attempt, int rank) const {
  return base_ + "/" + std::to_string(attempt) + "/" + std::to_string(rank);
}

void WorkerLogs::make_folder(int attempt, int rank) const {
  std::error_code error;
  std::filesystem::create_directories(folder(attempt, rank), error);
  if (error)
    throw io::CannotCreateError("cannot make the log folder " + folder(attempt, rank) + ": " +
                                error.message());
}

WorkerLogs::Stream WorkerLogs::open(OutputRelay& relay, int attempt, int local_rank,
                                    int target) const {
  const auto index = static_cast<std::size_t>(local_rank);
  const unsigned bit = target == 1 ? kStreamOut : kStreamErr;
  const bool redirected = (redirected_[index] & bit) != 0, teed = (teed_[index] & bit) != 0;
  Stream stream;
  backends::Socket log;
  if (redirected || teed) {
    stream.file = folder(attempt, plan_.rank(local_rank)) + (target == 1 ? "/stdout" : "/stderr");
    // Append, so that a job of the same name in the same folder loses nothing.
    log = backends::Socket(base::retry_on_eintr([&] {
      return ::open(stream.file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    }));
    if (!log)
      throw io::CannotCreateError("cannot write " + stream.file + ": " +
                                  base::system_error_text(errno));
  }
  if (redirected && !teed) {
    stream.worker_end = std::move(log);
    return stream;
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw backends::Error("cannot make a pipe: " + base::system_error_text(errno));
  stream.worker_end = backends::Socket(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  RelayedStream relayed;
  relayed.source = backends::Socket(ends[0]);
  relayed.log = std::move(log);
  relayed.log_path = stream.file;
  relayed.prefix = line_prefix(plan_.host, plan_.rank(local_rank), color_[target - 1]);
  relayed.target = target;
  relayed.shown = shown_[index];
  stream.relayed = &relay.add(std::move(relayed));
  return stream;
}

}  // namespace tools
