// Passes sockets and secrets from launcher to worker.
#include "tools/launch/workers/handover.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "backends/backend_error.h"
#include "backends/secret.h"
#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"

namespace tools {
namespace {

std::string private_folder() {
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    const char* folder = std::getenv(name);
    if (folder != nullptr && *folder == '/' && access(folder, W_OK | X_OK) == 0) return folder;
  }
  return "/tmp";
}

}  // namespace

int take_listen_fd(int port) {
  const char* variable = std::getenv(kListenFdVariable);
  if (variable == nullptr || *variable == '\0') return -1;
  const std::string text = variable;
  unsetenv(kListenFdVariable);
  int fd = -1, listens = 0;
  socklen_t length = sizeof listens;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fd);
  const bool number = error == std::errc() && end == text.data() + text.size() && fd > 2;
  if (!number || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens != 1)
    throw backends::ConfigurationError(
        std::string(kListenFdVariable) + "=" + text +
        ": expected the number of a listening socket, as engine launch hands it over");
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  const backends::Endpoint at = backends::local_endpoint(fd);
  if (port != 0 && at.port != port)
    throw backends::ConfigurationError(std::string(kListenFdVariable) + "=" + text +
                                       " listens on " + backends::to_string(at) +
                                       ", but the ranks meet on port " + std::to_string(port));
  return fd;
}

backends::Socket reserve_port(const backends::Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int rc =
      getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (rc != 0)
    throw backends::PeerError("cannot resolve " + endpoint.host + ": " + gai_strerror(rc));
  backends::Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  const bool good = socket &&
                    setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                    bind(socket.fd(), found->ai_addr, found->ai_addrlen) == 0;
  const int cause = errno;
  freeaddrinfo(found);
  if (!good)
    throw backends::PeerError("cannot reserve " + backends::to_string(endpoint) + ": " +
                              base::system_error_text(cause));
  return socket;
}

SecretFile::SecretFile(GuardProcess& guard, const std::string& hex) {
  const std::string path =
      private_folder() + "/engine-secret-" + backends::to_hex(backends::random_bytes(8));
  guard.remove_if_killed(path);
  const std::string text = hex.empty() ? backends::to_hex(backends::random_bytes(32)) : hex;
  // No process knows the path before the file is complete, so a temporary file, which could be left
  // over, is not needed.
  const backends::Socket file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file || ::write(file.fd(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw io::CannotCreateError("cannot write the secret of this job to " + path + ": " +
                                base::system_error_text(errno) +
                                "; set TMPDIR, or ENGINE_SECRET_FILE");
  path_ = path;
}

SecretFile::~SecretFile() { unlink(path_.c_str()); }

}  // namespace tools
