// Opens files for reading that may come from someone else, and protects against devices that never
// end, pipes that block, and unbounded text.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "io/base/files/descriptor.h"

namespace io {

struct OpenedFile {
  base::Descriptor descriptor;
  std::uint64_t bytes = 0;
};

// The treatment of a name that is a symbolic link.
enum class Links { kFollow, kReject };

// Opens a regular file; does not wait for the other end of a pipe. Throws MissingFileError (it does
// not exist or may not be read), LimitError or Error if the system cannot open it now, and
// DataError for any other kind of file: a folder, a device, a pipe, a link that is rejected.
OpenedFile open_regular_file(const std::string& path, Links links = Links::kFollow);

// The same for a file that is read once, from its beginning to its end: a pipe is opened as well,
// which waits for its writer. Its `bytes` are 0.
OpenedFile open_file_or_pipe(const std::string& path);

// Returns false if the file does not exist or is of another kind. Throws Error if that cannot be
// determined.
bool is_regular_file(const std::string& path);

// The time that a pipe's writer may take.
inline constexpr std::chrono::seconds kPipeTime{60};
// Returns the contents of a file that the user has named: a regular one, /dev/null, or a pipe that
// a shell has made, such as <(COMMAND) or /dev/stdin, whose writer must end within `pipe_time`.
// Throws MissingFileError; DataError if there are more than `max_bytes`, and for any other kind of
// file, also for a FIFO in a folder, whose writer may never come; Error if opening or reading fails
// otherwise.
std::string read_small_file(const std::string& path, std::uint64_t max_bytes,
                            std::chrono::milliseconds pipe_time = kPipeTime);
// Returns the contents of a file in a run's folder, which may come from elsewhere: a regular file
// that is not a link. Throws as read_small_file(), and DataError for any other kind of file,
// without blocking.
std::string read_run_file(const std::string& path, std::uint64_t max_bytes);

// Calls line(text) for each line of a file in a run's folder, without its end. Holds one line at a
// time, truncated to `max_line_bytes`. Throws as read_run_file().
void for_each_run_line(const std::string& path, std::size_t max_line_bytes, std::uint64_t max_bytes,
                       const std::function<void(const std::string&)>& line);

// The maximum unpacked size of a compressed file of this size whose contents have to be held in
// memory. Real data compress less; larger files can be unpacked beforehand.
constexpr std::uint64_t unpacked_limit(std::uint64_t file_bytes) {
  return 2 * file_bytes + (std::uint64_t{48} << 20);
}

}  // namespace io
