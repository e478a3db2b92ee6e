// Reads, publishes and removes the rendezvous file.
#include "backends/identity/rendezvous_file.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <sstream>
#include <thread>

#include "backends/backend_error.h"
#include "backends/identity/host_identity.h"
#include "backends/secret.h"
#include "backends/store/private_files.h"
#include "io/base/files/system_error_text.h"

namespace backends {
namespace {

constexpr const char* kFirstLine = "engine rendezvous 1";
constexpr const char* kNoSecret = "-";

std::string absent(const std::string& path) { return "no file " + path + " yet"; }

constexpr int kCreateAttempts = 100;
constexpr std::chrono::milliseconds kRemovalPause{10};  // while another process replaces the file

std::string claim_on(const std::string& path, const std::string& nonce) {
  return path + "." + nonce.substr(0, 16) + ".tmp";
}

enum class Removal {
  kDone,
  kNotOfThisRun,  // there is no file, or another run's
  kBusy,          // another process is about to remove it
};

// Removes the file of run `nonce`. A second link to it, whose name all processes derive from the
// run, admits one of them at a time: otherwise one could remove the file that another has
// published since it read the stale one.
Removal remove_file_of(const std::string& path, const std::string& nonce) {
  const std::string claim = claim_on(path, nonce);
  if (link(path.c_str(), claim.c_str()) != 0) {
    if (errno == ENOENT) return Removal::kNotOfThisRun;
    if (errno == EEXIST) return Removal::kBusy;
    throw ConfigurationError("cannot replace the rendezvous file " + path + ": " +
                             base::system_error_text(errno));
  }
  std::string reason;
  const std::optional<Rendezvous> linked = read_rendezvous(claim, reason);
  const bool is_of_run = linked && linked->nonce == nonce;
  if (is_of_run) unlink(path.c_str());
  unlink(claim.c_str());
  return is_of_run ? Removal::kDone : Removal::kNotOfThisRun;
}

[[noreturn]] void throw_not_written(const std::string& path) {
  throw ConfigurationError("cannot write the rendezvous file " + path + ": " +
                           base::system_error_text(errno));
}

}  // namespace

std::string rendezvous_text(const Rendezvous& m) {
  std::ostringstream out;
  out << kFirstLine << "\nat " << to_string(m.endpoint) << "\nnonce " << m.nonce << "\nsecret "
      << (m.secret_hex.empty() ? kNoSecret : m.secret_hex) << "\npid " << m.pid << ' '
      << m.start_time << "\nhost " << m.host << ' ' << m.host_id << "\nend\n";
  return out.str();
}

std::optional<Rendezvous> read_rendezvous(const std::string& path, std::string& reason) {
  std::string text;
  if (!read_private_file(path, text)) {
    reason = absent(path);
    return std::nullopt;
  }
  reason = path + " is not a rendezvous file of this program";
  std::istringstream in(text);
  std::string line, word, at, end;
  Rendezvous m;
  if (!std::getline(in, line) || line != kFirstLine) return std::nullopt;
  in >> word >> at >> word >> m.nonce >> word >> m.secret_hex >> word >> m.pid >> m.start_time >>
      word >> m.host >> m.host_id >> end;
  if (!in || end != "end") return std::nullopt;
  if (m.secret_hex == kNoSecret) m.secret_hex.clear();
  try {
    m.endpoint = parse_endpoint(at, path);
  } catch (const ConfigurationError&) {
    return std::nullopt;
  }
  return m;
}

std::string absent_secret_text(const std::string& path) {
  return "the job of " + path +
         " was started with a secret that is not in the file: set the same ENGINE_SECRET_FILE or "
         "ENGINE_SECRET";
}

bool is_certainly_dead(const Rendezvous& rendezvous) {
  // Another network namespace may be another container, with its own pids.
  return rendezvous.host_id == host_id() &&
         process_start_time(rendezvous.pid) != rendezvous.start_time;
}

RendezvousFile::RendezvousFile(std::string path, const Rendezvous& rendezvous,
                               const std::function<bool(const Rendezvous&)>& is_running,
                               const std::function<void(const std::string&)>& notice)
    : path_(std::move(path)),
      nonce_(rendezvous.nonce),
      text_(rendezvous_text(rendezvous)),
      owner_pid_(getpid()) {
  std::string ended;  // the nonce of the run that is not running
  for (int attempt = 0; attempt < kCreateAttempts; ++attempt) {
    if (publish_private_file(path_, text_, Publish::kCreate)) return;
    if (errno != EEXIST) throw_not_written(path_);
    std::string reason;
    const std::optional<Rendezvous> old = read_rendezvous(path_, reason);
    if (!old) {
      if (reason == absent(path_)) continue;  // that run has just ended
      throw ConfigurationError(reason + ": not replacing it; remove it or name another file");
    }
    if (old->nonce != ended && !is_certainly_dead(*old) && is_running(*old)) {
      throw PeerError("rendezvous file " + path_ + " is used by a running job (host " + old->host +
                      ", pid " + std::to_string(old->pid) + "); use a different file for each job");
    }
    ended = old->nonce;
    const Removal removal = remove_file_of(path_, ended);
    if (removal == Removal::kBusy) std::this_thread::sleep_for(kRemovalPause);
    if (removal == Removal::kDone && notice)
      notice("replacing rendezvous file " + path_ + ": its run (host " + old->host + ", pid " +
             std::to_string(old->pid) + ") is gone");
  }
  throw PeerError(
      "rendezvous file " + path_ +
      " is used by several jobs at once; use a different file for each job, or, if no other "
      "job is being started, remove it and " +
      path_ + ".*.tmp");
}

void RendezvousFile::ensure_published(const std::function<void(const std::string&)>& notice) const {
  std::string reason;
  std::optional<Rendezvous> found;
  try {
    found = read_rendezvous(path_, reason);
  } catch (const PeerError&) {
    return;  // its file system does not answer now
  }
  if (found && found->nonce != nonce_)
    throw PeerError("rendezvous file " + path_ + " was replaced by another job (host " +
                    found->host + ", pid " + std::to_string(found->pid) +
                    "); use a different file for each job");
  if (found || reason != absent(path_)) return;
  if (publish_private_file(path_, text_, Publish::kCreate)) {
    if (notice) notice("rendezvous file " + path_ + " was removed: it is written again");
  } else if (errno != EEXIST) {
    throw_not_written(path_);
  }
}

RendezvousFile::~RendezvousFile() {
  if (getpid() != owner_pid_) return;  // a forked child
  try {
    (void)remove_file_of(path_, nonce_);
  } catch (const Error&) {
    // The file now belongs to another run, or another process removes it.
  }
}

}  // namespace backends
