// Private files are published by link or rename, which NFS keeps atomic without locks.
#include "backends/store/private_files.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "backends/backend_error.h"
#include "backends/store/tcp_socket.h"
#include "io/base/files/io_error.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"
#include "io/base/machine/environment.h"

namespace backends {
namespace {

std::string user_secret_path() { return user_config_folder() + "/secret"; }

Secret made_user_secret() {
  const std::string path = user_secret_path();
  std::string text;
  if (read_private_file(path, text)) return secret_from_hex(text, path);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error)
    throw io::CannotCreateError("cannot make the folder of " + path + ": " + error.message() +
                                "; set ENGINE_SECRET_FILE");
  // If another rank was first, all ranks read its file.
  if (!publish_private_file(path, to_hex(random_bytes(32)) + "\n", Publish::kCreate) &&
      errno != EEXIST) {
    throw io::CannotCreateError("cannot write " + path + ": " + base::system_error_text(errno) +
                                "; set ENGINE_SECRET_FILE");
  }
  if (!read_private_file(path, text))
    throw AuthenticationError("the key file " + path + " vanished");
  return secret_from_hex(text, path);
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return base::retry_on_eintr([&] { return fsync(fd); }) == 0;
}

// Returns nullopt if none was given.
std::optional<Secret> given_secret(const std::string& explicit_hex,
                                   const std::string& from_rendezvous_file) {
  if (!explicit_hex.empty()) return secret_from_hex(explicit_hex, "this process");
  if (const std::string path = base::environment("ENGINE_SECRET_FILE"); !path.empty()) {
    std::string text;
    if (!read_private_file(path, text))
      throw AuthenticationError("ENGINE_SECRET_FILE names " + path + ", which does not exist");
    return secret_from_hex(text, path);
  }
  if (const std::string hex = base::environment("ENGINE_SECRET"); !hex.empty())
    return secret_from_hex(hex, "ENGINE_SECRET");
  if (!from_rendezvous_file.empty())
    return secret_from_hex(from_rendezvous_file, "the rendezvous file");
  return std::nullopt;
}

}  // namespace

std::string user_config_folder() {
  std::string base = base::environment("XDG_CONFIG_HOME");
  if (base.empty()) {
    std::string home = base::environment("HOME");
    if (home.empty()) {
      const passwd* user = getpwuid(geteuid());
      if (user != nullptr) home = user->pw_dir;
    }
    if (home.empty())
      throw AuthenticationError(
          "no home directory for the files of this user; set HOME or XDG_CONFIG_HOME, or for the "
          "key ENGINE_SECRET_FILE");
    base = home + "/.config";
  }
  return base + "/engine";
}

Secret load_secret(const std::string& explicit_hex, const std::string& from_rendezvous_file) {
  std::optional<Secret> given = given_secret(explicit_hex, from_rendezvous_file);
  return given ? std::move(*given) : made_user_secret();
}

Secret find_secret(const std::string& from_rendezvous_file) {
  if (std::optional<Secret> given = given_secret("", from_rendezvous_file))
    return std::move(*given);
  const std::string path = user_secret_path();
  std::string text;
  if (read_private_file(path, text)) return secret_from_hex(text, path);
  throw AuthenticationError(
      "no secret found: neither ENGINE_SECRET_FILE nor ENGINE_SECRET is set, "
      "and there is no " +
      path + "; give the secret of the job");
}

bool secret_comes_from_environment() {
  return !base::environment("ENGINE_SECRET_FILE").empty() ||
         !base::environment("ENGINE_SECRET").empty();
}

bool read_private_file(const std::string& path, std::string& text) {
  const auto fail = [&] {
    throw PeerError("cannot read " + path + ": " + base::system_error_text(errno));
  };
  const base::Descriptor file(base::retry_on_eintr(
      [&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); }));
  if (!file) {
    if (errno == ENOENT || errno == ESTALE) return false;
    if (errno == ELOOP)
      throw AuthenticationError(path +
                                " is a symbolic link, which may be another user's: expected " +
                                "a file of this user that nobody else may read; remove it or "
                                "name another one");
    if (errno != EACCES && errno != EPERM) fail();
    throw AuthenticationError("cannot read " + path + ": " + base::system_error_text(errno));
  }
  struct stat status {};
  if (fstat(file.fd(), &status) != 0) fail();
  if (!S_ISREG(status.st_mode))
    throw ConfigurationError(path +
                             (S_ISDIR(status.st_mode) ? " is a folder" : " is a device or a pipe") +
                             ", expected the name of a file");
  if (status.st_uid != geteuid())
    throw AuthenticationError(path + " belongs to user " + std::to_string(status.st_uid) +
                              ", expected a file of this user (" + std::to_string(geteuid()) +
                              ") that nobody else may read: name another one");
  if ((status.st_mode & 077) != 0)
    throw AuthenticationError(path +
                              " must be a file of this user that nobody else may read (chmod 600)");
  char buffer[8192];
  const ssize_t n = base::retry_on_eintr([&] { return read(file.fd(), buffer, sizeof buffer); });
  if (n < 0 && errno == ESTALE) return false;
  if (n < 0) fail();
  text.assign(buffer, static_cast<std::size_t>(n));
  return true;
}

bool publish_private_file(const std::string& path, const std::string& text, Publish how) {
  const std::string temporary = path + "." + to_hex(random_bytes(8)) + ".tmp";
  {
    const base::Descriptor file(base::retry_on_eintr(
        [&] { return open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600); }));
    if (!file) return false;
    if (!write_all(file.fd(), text)) {
      const int error = errno;
      unlink(temporary.c_str());
      errno = error;
      return false;
    }
  }
  const int rc = how == Publish::kCreate ? link(temporary.c_str(), path.c_str())
                                         : rename(temporary.c_str(), path.c_str());
  const int error = errno;
  if (how == Publish::kCreate || rc != 0) unlink(temporary.c_str());
  errno = error;
  return rc == 0;
}

}  // namespace backends
