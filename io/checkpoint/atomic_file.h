// A file that appears under its name complete and durable, or not at all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/base/files/descriptor.h"
#include "io/base/files/io_error.h"

namespace io {

// The file system or the quota is full: deleting files helps.
class NoSpaceError : public CannotCreateError {
 public:
  using CannotCreateError::CannotCreateError;
};

// Writes go to a temporary file in the same folder: created with O_EXCL | O_NOFOLLOW and mode 0600,
// locked during the writer's lifetime, named ".NAME.tmp-PID-N". commit() sets the mode according to
// the umask, makes the file durable (fsync), renames it to `path`, and makes the name durable
// (fsync of the folder). Without commit() the destructor removes it. For one thread at a time.
class AtomicFile {
 public:
  // Reserves `bytes` immediately, so that a full disk is detected before anything is written.
  // Throws NoSpaceError, or another CannotCreateError: the folder does not exist, no permission, a
  // limit of the process, or `path` is not a regular file (but a device, a pipe, a folder), which a
  // rename would replace.
  AtomicFile(const std::string& path, std::uint64_t bytes);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Append, or write at any offset; gaps before the end are zeros. Writeback to the disk starts
  // during the writes. Throws Error, or NoSpaceError if the disk becomes full after all.
  void write(std::span<const std::byte> bytes) { write_at(end_, bytes); }
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  // Starts writeback of everything written so far; does not wait for it.
  void start_writeback() noexcept;
  // Throws Error or CannotCreateError, also if a FolderGuard forbids the name. Only if the last
  // fsync, of the folder, fails, `path` is already the new file. Without `durable` a power failure
  // may leave an older file.
  void commit(bool durable = true);

 private:
  void require_plain_name() const;
  void create();
  void reserve(std::uint64_t bytes);

  std::string path_, folder_, temporary_;
  base::Descriptor file_;
  std::uint64_t end_ = 0;
  std::uint64_t waiting_ = 0;  // bytes written since the last start of writeback
};

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes);
void write_file_atomically(const std::string& path, std::string_view text);

// Not durable: for files that are soon rewritten.
void replace_file(const std::string& path, std::string_view text);

// Deletes temporary files in `folder` whose writers no longer exist (killed in the middle); best
// effort, does not throw.
void remove_abandoned_temporaries(const std::string& folder) noexcept;

}  // namespace io
