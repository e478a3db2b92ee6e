// Reads, publishes and removes the rendezvous file.
#include "backends/identity/rendezvous_file.h"

#include <unistd.h>

#include <cerrno>
#include <sstream>

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

// Removes the stale file of run `nonce`. Another process may do the same and have created its own
// file since; that file is put back.
void remove_stale(const std::string& path, const std::string& nonce) {
  const std::string aside = path + "." + to_hex(random_bytes(8)) + ".tmp";
  if (rename(path.c_str(), aside.c_str()) != 0) {
    if (errno == ENOENT) return;
    throw ConfigurationError("cannot replace the rendezvous file " + path + ": " +
                             base::system_error_text(errno));
  }
  std::string reason;
  const std::optional<Rendezvous> taken = read_rendezvous(aside, reason);
  if (!taken || taken->nonce != nonce) (void)!link(aside.c_str(), path.c_str());
  unlink(aside.c_str());
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
    : path_(std::move(path)), nonce_(rendezvous.nonce), owner_pid_(getpid()) {
  const std::string text = rendezvous_text(rendezvous);
  for (int attempt = 0; attempt < 10; ++attempt) {
    if (publish_private_file(path_, text, Publish::kCreate)) return;
    if (errno != EEXIST)
      throw ConfigurationError("cannot write the rendezvous file " + path_ + ": " +
                               base::system_error_text(errno));
    std::string reason;
    const std::optional<Rendezvous> old = read_rendezvous(path_, reason);
    if (!old) {
      if (reason == absent(path_)) continue;  // that run has just ended
      throw ConfigurationError(reason + ": not replacing it; remove it or name another file");
    }
    if (!is_certainly_dead(*old) && is_running(*old)) {
      throw PeerError("rendezvous file " + path_ + " is used by a running job (host " + old->host +
                      ", pid " + std::to_string(old->pid) + "); use a different file for each job");
    }
    if (notice)
      notice("replacing rendezvous file " + path_ + ": its run (host " + old->host + ", pid " +
             std::to_string(old->pid) + ") is gone");
    remove_stale(path_, old->nonce);
  }
  throw PeerError("rendezvous file " + path_ +
                  " is used by several jobs at once; use a different file for each job");
}

RendezvousFile::~RendezvousFile() {
  if (getpid() != owner_pid_) return;  // a forked child
  try {
    std::string reason;
    const std::optional<Rendezvous> now = read_rendezvous(path_, reason);
    if (now && now->nonce == nonce_) unlink(path_.c_str());
  } catch (const Error&) {
    // The file now belongs to another run.
  }
}

}  // namespace backends
