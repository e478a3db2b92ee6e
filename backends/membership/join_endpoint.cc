// Serves, finds and rewrites the join endpoint.
#include "backends/membership/join_endpoint.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "backends/backend_error.h"
#include "backends/identity/host_identity.h"
#include "backends/identity/name_lookup.h"

namespace backends {

JoinEndpoint::JoinEndpoint(const GroupOptions& options)
    : explicit_secret_(options.job.secret),
      host_id_(options.host_id.empty() ? host_id() : options.host_id),
      nonce_(to_hex(random_bytes(8))) {
  const std::string& method = options.init_method;
  if (method.starts_with("file://")) {
    path_ = method.substr(7);
    const bool one_host = options.local_world_size == options.world_size;
    own_address_ = one_host ? "127.0.0.1" : default_address();
  } else if (method.starts_with("tcp://")) {
    endpoint_ = parse_endpoint(std::string_view(method).substr(6), "init method");
    window_ = std::clamp(options.listen.port_window, 1, 65536 - endpoint_.port);
    resolve_name(options);
  } else {
    throw ConfigurationError("init method \"" + method +
                             "\" of an elastic job: expected tcp://HOST:PORT or file:///PATH");
  }
  if (!options.listen.interface.empty()) own_address_ = interface_address(options.listen.interface);
}

// Called once, before this process has deadlines to meet, because name servers may be slow.
void JoinEndpoint::resolve_name(const GroupOptions& options) {
  const Deadline deadline =
      base::deadline_in(std::chrono::milliseconds(options.rendezvous_timeout_ms));
  const std::string name = endpoint_.host;
  std::string reason;
  for (;;) {
    const std::vector<std::string> found =
        look_up_host(name, std::min(deadline, base::deadline_in(std::chrono::seconds(5))), reason);
    if (!found.empty()) {
      endpoint_.host = found.front();
      break;
    }
    if (base::has_passed(deadline)) throw PeerError(reason);
    if (options.cancelled && options.cancelled())
      throw CancelledError("stopped while looking for " + name);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  // Many systems resolve their own name to loopback, which other hosts cannot reach.
  if (is_loopback(endpoint_.host) && !is_address(name) && name != "localhost")
    endpoint_.host = options.listen.interface.empty() ? default_address()
                                                      : interface_address(options.listen.interface);
  own_address_ = address_towards(endpoint_.host);
  if (own_address_.empty() && is_loopback(endpoint_.host))
    throw ConfigurationError(no_loopback_text(endpoint_.host));
  if (own_address_.empty()) own_address_ = default_address();
}

std::optional<Endpoint> JoinEndpoint::find() const {
  if (!is_file()) return current();
  std::string reason;
  const std::optional<Rendezvous> file = read_rendezvous(path_, reason);
  if (!file) return std::nullopt;
  return file->endpoint;
}

Secret JoinEndpoint::secret(const Endpoint& agent) {
  if (!is_file()) return load_secret(explicit_secret_, "");
  std::string reason;
  for (int attempt = 0; attempt < 10; ++attempt) {  // others may create and remove it
    if (const std::optional<Rendezvous> file = read_rendezvous(path_, reason)) {
      secret_hex_ = file->secret_hex;
      return load_secret(explicit_secret_, secret_hex_);
    }
    secret_hex_ = to_hex(random_bytes(32));
    if (!publish(agent, Publish::kCreate) && errno != EEXIST)
      throw ConfigurationError("cannot write the rendezvous file " + path_);
  }
  throw ConfigurationError(reason + ": remove it, or name another file");
}

bool JoinEndpoint::pass_by(const Endpoint& at) {
  if (is_file() || window_ == 1 || to_string(at) != to_string(current())) return false;
  offset_ = (offset_ + 1) % window_;
  return true;
}

Socket JoinEndpoint::listen_beside() const {
  std::vector<Socket> tried;  // kept open, so that the kernel chooses another port
  int port = 0;
  do {
    tried.push_back(listen_on({own_address_, 0}));
    port = local_endpoint(tried.back().fd()).port;
  } while (port >= endpoint_.port && port < endpoint_.port + window_);
  return std::move(tried.back());
}

Socket JoinEndpoint::serve() {
  if (is_file() || is_of_other_host_) return {};
  try {
    return listen_on(current(), std::chrono::milliseconds(0));
  } catch (const ConfigurationError&) {
    is_of_other_host_ = true;
  } catch (const PeerError&) {
    // Another process listens there.
  }
  return {};
}

bool JoinEndpoint::take(const Endpoint& agent) {
  std::string reason;
  const std::optional<Rendezvous> file = read_rendezvous(path_, reason);
  if (file && file->nonce == nonce_) return true;
  if (!file) return publish(agent, Publish::kCreate);
  // Only this host's acceptor shows if that process has bootstrapped the job. For a process of
  // another host this is unknown.
  return is_certainly_dead(*file) && publish(agent, Publish::kReplace);
}

void JoinEndpoint::show(const Endpoint& agent) { (void)publish(agent, Publish::kReplace); }

bool JoinEndpoint::publish(const Endpoint& agent, Publish how) {
  Rendezvous entry;
  entry.endpoint = agent;
  entry.nonce = nonce_;
  entry.secret_hex = secret_hex_;
  entry.pid = getpid();
  entry.start_time = process_start_time(entry.pid);
  entry.host = host_name();
  entry.host_id = host_id_;
  return publish_private_file(path_, rendezvous_text(entry), how);
}

void JoinEndpoint::remove() {
  if (!is_file()) return;
  std::string reason;
  const std::optional<Rendezvous> file = read_rendezvous(path_, reason);
  if (file && file->nonce == nonce_) unlink(path_.c_str());
}

}  // namespace backends
