// Finds the secret of a job, and reads and writes files that only this user may read.
#pragma once

#include <string>

#include "backends/secret.h"

namespace backends {

// Takes the secret from ENGINE_SECRET_FILE, else ENGINE_SECRET, else `from_rendezvous_file` (hex,
// may be empty), else ~/.config/engine/secret, which is created on first use. All are hexadecimal,
// 32 digits or more. Files must be owned by this user and not accessible to others. `explicit_hex`
// takes precedence. Throws AuthenticationError, and io::CannotCreateError if that
// file cannot be made.
Secret load_secret(const std::string& explicit_hex, const std::string& from_rendezvous_file);
// Does the same for an observer of a job, but creates nothing: a new secret could not be the job's.
Secret find_secret(const std::string& from_rendezvous_file);
bool secret_comes_from_environment();

// Returns $XDG_CONFIG_HOME/engine, or .config/engine in the home folder. Throws AuthenticationError
// without a home.
std::string user_config_folder();

// Reads a small file that only this user may read. Throws AuthenticationError on a wrong owner or
// mode; returns false if it does not exist.
[[nodiscard]] bool read_private_file(const std::string& path, std::string& text);
// Writes the file atomically, mode 0600. kCreate fails (returns false) if `path` exists.
enum class Publish { kCreate, kReplace };
[[nodiscard]] bool publish_private_file(const std::string& path, const std::string& text,
                                        Publish how);

}  // namespace backends
