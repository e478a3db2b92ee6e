// Opening files for reading that somebody else may have prepared: no device that never ends, no
// pipe that never answers, no text without a limit.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace io {

struct OpenedFile {
  int descriptor = -1;  // the caller closes it
  std::uint64_t bytes = 0;
};

// What to do about a name that is a symbolic link.
enum class Links { kFollow, kReject };

// Opens a regular file; does not wait for the other side of a pipe. Throws MissingFileError (there
// is none, or it may not be read), Error when the system cannot open it now, and DataError for
// anything else that has a name: a folder, a device, a pipe, a link that is rejected.
OpenedFile open_regular_file(const std::string& path, Links links = Links::kFollow);

// False where there is nothing, or something else. Throws Error where nobody can say.
bool is_regular_file(const std::string& path);

// How long a pipe's writer may take.
inline constexpr std::chrono::seconds kPipeTime{60};
// The content of a file that the user has named: a regular one, /dev/null, or a pipe that a shell
// has made, such as <(COMMAND) or /dev/stdin, whose writer has to end within `pipe_time`. Throws
// MissingFileError; DataError once there are more than `max_bytes`, and for anything else, a pipe
// with a name in a folder included, whose writer may never come; Error when opening or reading
// fails otherwise.
std::string read_small_file(const std::string& path, std::uint64_t max_bytes,
                            std::chrono::milliseconds pipe_time = kPipeTime);
// The content of a file of a run's folder, which may have come from elsewhere: a regular file that
// is no link. Throws as read_small_file(), and DataError for anything else, without waiting for it.
std::string read_run_file(const std::string& path, std::uint64_t max_bytes);

// Calls line(text) for each line of a file of a run's folder, without its end. Holds one line at a
// time, cut off at `max_line_bytes`. Throws as read_run_file().
void for_each_run_line(const std::string& path, std::size_t max_line_bytes, std::uint64_t max_bytes,
                       const std::function<void(const std::string&)>& line);

// The most that a compressed file of so many bytes may unpack to where the content has to be held
// in memory. Real data compress less; what has to go beyond it can be unpacked beforehand.
constexpr std::uint64_t unpacked_limit(std::uint64_t file_bytes) {
  return 2 * file_bytes + (std::uint64_t{48} << 20);
}

}  // namespace io
