// Reads a folder's status.json, or the feed of a job.
#include "tools/commands/top/status_source.h"

#include <chrono>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "backends/backend_error.h"
#include "backends/identity/rendezvous_file.h"
#include "backends/store/private_files.h"
#include "backends/store/protocol/stall_detector.h"
#include "io/base/files/io_error.h"
#include "io/base/time/deadline.h"
#include "tools/folder/output_paths.h"
#include "tools/folder/run_record.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

constexpr auto kSilence = std::chrono::seconds(10);  // limit for a new connection
constexpr const char* kOwnSecrets =
    "; a job of --spawn, or of engine launch without either, has a secret that nobody else knows: "
    "follow it by its folder, engine top DIR";
constexpr auto kLook = std::chrono::milliseconds(200);

RunStatus status_in(const std::string& folder) {
  try {
    return read_run_status(folder);
  } catch (const io::MissingFileError&) {
    if (const std::string unstarted = unstarted_run_text(folder); !unstarted.empty())
      throw io::MissingFileError(unstarted);
    throw io::MissingFileError(folder +
                               (has_run_record(folder)
                                    ? ": its run has not said yet what it is doing (no status.json)"
                                    : ": is neither the folder of a run, as --save-dir named it, "
                                      "nor a rendezvous, HOST:PORT or file://PATH"));
  }
}

backends::Secret secret_of(const backends::Rendezvous& rendezvous, const std::string& path) {
  if (rendezvous.secret_hex.empty() && !backends::secret_comes_from_environment())
    throw backends::AuthenticationError(backends::absent_secret_text(path) + kOwnSecrets);
  return backends::find_secret(rendezvous.secret_hex);
}

backends::StatusFeed follow(const backends::Endpoint& job, const backends::Secret& secret,
                            base::Deadline deadline) {
  try {
    return {job, secret, deadline};
  } catch (const backends::AuthenticationError&) {
    throw backends::AuthenticationError(
        "rank 0 at " + to_string(job) +
        " has not proved that it has the secret of this command (from " + secret.origin +
        "): set the job's ENGINE_SECRET_FILE or ENGINE_SECRET" + kOwnSecrets);
  }
}

// Returns nullopt for a folder.
std::optional<backends::StatusFeed> feed_of(const std::string& place, base::Deadline deadline) {
  constexpr std::string_view kFile = "file://", kTcp = "tcp://";
  if (place.empty())
    throw UsageError("the name of the run's folder, or the job's address, is empty");
  if (place.starts_with(kFile)) {
    const std::string path = place.substr(kFile.size());
    if (path.empty()) throw UsageError("file:// names no file: expected file://PATH");
    std::string reason;
    const auto found = backends::read_rendezvous(path, reason);
    if (!found) throw io::MissingFileError(reason);
    return follow(found->endpoint, secret_of(*found, path), deadline);
  }
  std::error_code unknown;
  if (std::filesystem::exists(place, unknown) || place.find(':') == std::string::npos)
    return std::nullopt;
  const std::string address = place.starts_with(kTcp) ? place.substr(kTcp.size()) : place;
  if (address.find("://") != std::string::npos)
    throw UsageError(place +
                     ": expected a run's folder, HOST:PORT, tcp://HOST:PORT or file://PATH");
  return follow(backends::parse_endpoint(address, "the job's address"), backends::find_secret(""),
                deadline);
}

std::string waiting_text(const std::vector<int>& missing) {
  return missing.empty()
             ? "all ranks have joined; the training has not begun yet"
             : "waiting for " + backends::short_ranks_text(missing) + " to join the job";
}

}  // namespace

StatusSource::StatusSource(const std::string& place)
    : place_(place), feed_(feed_of(place, base::deadline_in(kSilence))) {}

RunStatus StatusSource::status() {
  if (!feed_) return status_in(place_);
  if (!last_) {
    await_first();
    return *last_;
  }
  if (const std::optional<std::string> text =
          feed_->next(base::deadline_in(std::chrono::seconds(0))))
    last_ = parse_run_status(*text, place_);
  else if (feed_->has_ended() && !last_->end)
    last_->end = "ended";
  return *last_;
}

// A group may take minutes to form, and data may take minutes to load.
void StatusSource::await_first() {
  const base::Deadline silence = base::deadline_in(kSilence);
  std::string reported;
  for (;;) {
    if (const std::optional<std::string> text = feed_->next(base::deadline_in(kLook))) {
      last_ = parse_run_status(*text, place_);
      return;
    }
    if (feed_->has_ended())
      throw backends::PeerError("the job at " + place_ + " ended before it began to train");
    if (!feed_->missing() && base::has_passed(silence))
      throw backends::PeerError("rank 0 at " + place_ + " has said nothing about its job in time");
    const std::string now = feed_->missing() ? waiting_text(*feed_->missing()) : reported;
    if (now != reported) print_notice(now);
    reported = now;
  }
}

}  // namespace tools
