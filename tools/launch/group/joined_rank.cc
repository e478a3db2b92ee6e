// Implements flight records, the watchdog of a stop, and orderly ends.
#include "tools/launch/group/joined_rank.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>

#include "backends/backend_error.h"
#include "backends/compose/table/backend_table.h"
#include "io/base/files/create_folder.h"
#include "io/base/files/io_error.h"
#include "io/base/threads/stoppable_sleep.h"
#include "io/checkpoint/atomic_file.h"
#include "tools/launch/group/flight_folder.h"
#include "tools/launch/workers/stop_signals.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

// Returns the chosen folder, else one below the temporary folder for each job of this user.
std::string flight_folder(const std::string& chosen, const std::vector<backends::PeerInfo>& peers) {
  if (!chosen.empty()) {
    io::create_folder(chosen);
    return chosen;
  }
  const backends::PeerInfo& first = peers.front();
  std::string job = first.host + "-" + std::to_string(first.pid);
  std::ranges::replace(job, '/', '_');
  return own_flight_folder(
      std::filesystem::temp_directory_path() / ("engine-flight-" + std::to_string(geteuid())), job);
}

}  // namespace

std::string chosen_folder(const RunConfig& config) {
  if (!config.flight_dir.empty() || config.keeping.directory == "auto") return config.flight_dir;
  return config.keeping.directory;
}

std::string write_flight_record(int rank, const std::vector<backends::PeerInfo>& peers,
                                const std::string& record,
                                const std::string& chosen_folder) noexcept {
  try {
    try {
      const std::string path =
          flight_folder(chosen_folder, peers) + "/flight_rank_" + std::to_string(rank) + ".json";
      io::write_file_atomically(path, record);
      return " (last collectives: " + path + ")";
    } catch (const std::exception& error) {
      return std::string(" (last collectives not written: ") + error.what() + ")";
    }
  } catch (const std::exception&) {
    return "";  // out of memory: the error itself describes what happened
  }
}

namespace {

std::string write_record(const backends::Group& group, const std::string& chosen_folder,
                         const char* reason) {
  return write_flight_record(group.rank(), group.peers(), group.flight_record(reason),
                             chosen_folder);
}

}  // namespace

StopWatchdog::StopWatchdog(backends::Group& group) {
  if (group.rank() != 0 || group.world_size() == 1) return;
  thread_ = std::jthread([this, &group](const std::stop_token& stop) { watch(group, stop); });
}

void StopWatchdog::watch(backends::Group& group, const std::stop_token& stop) {
  constexpr auto kTime = std::chrono::seconds(2);
  std::optional<std::chrono::steady_clock::time_point> since;
  while (base::sleep_unless_stopped(stop, std::chrono::milliseconds(50))) {
    const auto now = std::chrono::steady_clock::now();
    if (stop_signal_flag().load() == 0) continue;
    if (!since) since = now;
    if (now - *since < kTime) continue;
    if (group.interrupt(kTime, "stopped by signal " + std::to_string(stop_signal_flag().load()))) {
      interrupted_ = true;
      return;
    }
  }
}

int run_joined(backends::Group& group, const std::string& flight_dir,
               const std::function<int(backends::Group&)>& body) {
  try {
    const StopWatchdog watchdog(group);
    const int code = body(group);
    if (!watchdog.has_interrupted()) group.leave([] { return stop_signal_flag().load() != 0; });
    return code;
  } catch (const backends::InterruptedError& error) {
    print_notice(error.what());
    return 128 + stop_signal_flag().load();
  } catch (const backends::LostPeerError& error) {
    group.abandon(error.what());
    throw backends::LostPeerError(error.what() + write_record(group, flight_dir, error.what()));
  } catch (const backends::PeerError& error) {
    group.abandon(error.what());
    throw backends::PeerError(error.what() + write_record(group, flight_dir, error.what()));
  } catch (const backends::MismatchError& error) {
    group.abandon(error.what());
    throw backends::MismatchError(error.what() + write_record(group, flight_dir, error.what()));
  } catch (const std::exception& error) {
    group.abandon(text_of(error));
    throw;
  }
}

int run_member(const backends::GroupOptions& options, const std::string& flight_dir,
               const std::function<int(backends::Group&)>& body) {
  std::unique_ptr<backends::Group> group;
  try {
    group = backends::join_group(options);
    return run_joined(*group, flight_dir, body);
  } catch (const backends::CancelledError& error) {
    print_notice(error.what());
    return 128 + stop_signal_flag().load();
  }
}

}  // namespace tools
