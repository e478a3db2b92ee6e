// The secret that proves membership of a job, and the keyed hash made with it.
#pragma once

#include <string>
#include <string_view>

namespace backends {

// At least 16 bytes; never printed.
struct Secret {
  std::string key;
  std::string origin;  // "ENGINE_SECRET", a path; for messages
};

inline constexpr std::size_t kMacBytes = 32;
inline constexpr std::size_t kNonceBytes = 32;

// ENGINE_SECRET_FILE, else ENGINE_SECRET, else `from_rendezvous_file` (hex, may be empty), else
// ~/.config/engine/secret, which is created on first use. All are hexadecimal, 32 digits or more.
// Files must be owned by this user and not accessible to others. `explicit_hex` takes precedence.
// Throws AuthenticationError.
Secret load_secret(const std::string& explicit_hex, const std::string& from_rendezvous_file);
// The same for who only follows a job: nothing is created, for a new secret could not be the job's.
Secret find_secret(const std::string& from_rendezvous_file);
bool secret_comes_from_environment();

std::string random_bytes(std::size_t count);
std::string to_hex(std::string_view bytes);
// HMAC-SHA-256 (RFC 2104, FIPS 180-4) over label, a zero byte and message.
std::string keyed_hash(const Secret& secret, std::string_view label, std::string_view message);
[[nodiscard]] bool equal_in_constant_time(std::string_view a, std::string_view b);

// $XDG_CONFIG_HOME/engine, or .config/engine in the home folder. Throws AuthenticationError without
// a home.
std::string user_config_folder();

// Reads a small file that only this user may read. Throws AuthenticationError on a wrong owner or
// mode; returns false when it does not exist.
[[nodiscard]] bool read_private_file(const std::string& path, std::string& text);
// Writes the file atomically, mode 0600. kCreate fails (returns false) if `path` exists.
enum class Publish { kCreate, kReplace };
[[nodiscard]] bool publish_private_file(const std::string& path, const std::string& text,
                                        Publish how);

}  // namespace backends
