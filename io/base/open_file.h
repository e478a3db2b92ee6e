// Opening files for reading that somebody else may have prepared: no device that never ends, no
// pipe that never answers, no text without a limit.
#pragma once

#include <cstdint>
#include <string>

namespace io {

struct OpenedFile {
  int descriptor = -1;  // the caller closes it
  std::uint64_t bytes = 0;
};

// Opens a regular file; does not wait for the other side of a pipe. Throws MissingFileError (there
// is none, or it may not be read), Error when the system cannot open it now, and DataError for
// anything else that has a name: a folder, a device, a pipe.
OpenedFile open_regular_file(const std::string& path);

// False where there is nothing, or something else. Throws Error where nobody can say.
bool is_regular_file(const std::string& path);

// The content of a file or a pipe. Throws MissingFileError, DataError once there are more than
// `most_bytes`, Error when opening or reading fails otherwise.
std::string read_small_file(const std::string& path, std::uint64_t most_bytes);
// The same of a regular file; throws DataError for anything else, without waiting for it. For files
// of a run's folder, which nobody gives as a pipe on purpose.
std::string read_small_regular_file(const std::string& path, std::uint64_t most_bytes);

// The most that a compressed file of so many bytes may unpack to where the content has to be held
// in memory. Real data compress less; what has to go beyond it can be unpacked beforehand.
constexpr std::uint64_t unpacked_limit(std::uint64_t file_bytes) {
  return 2 * file_bytes + (std::uint64_t{48} << 20);
}

}  // namespace io
