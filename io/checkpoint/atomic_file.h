// A file that appears under its name complete and durable, or not at all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/base/files/descriptor.h"

namespace io {

// Writes go to a temporary file in the same folder: made with O_EXCL | O_NOFOLLOW and mode 0600,
// locked while its writer lives, named ".NAME.tmp-PID-N". commit() gives it the mode of the umask,
// makes it durable (fsync), renames it to `path`, and makes the name durable (fsync of the folder).
// Without commit() the destructor removes it. One thread at a time.
class AtomicFile {
 public:
  // Reserves `bytes` at once, so that a full disk is found before anything is written.
  // Throws CannotCreateError: no such folder, no permission, no space, or `path` is something
  // other than a regular file (a device, a pipe, a folder), which a rename would replace.
  AtomicFile(const std::string& path, std::uint64_t bytes);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends; or writes anywhere, and what is left out before the end is zeros. The disk begins
  // while more is being written. Throws Error, or CannotCreateError when the disk is full after
  // all.
  void write(std::span<const std::byte> bytes) { write_at(end_, bytes); }
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  // Has the disk begin with everything that was written; does not wait for it.
  void start_writeback() noexcept;
  // Throws Error or CannotCreateError. Only when the very last fsync, of the folder, fails is
  // `path` the new file by then. Without `durable` a power failure may leave an older file.
  void commit(bool durable = true);

 private:
  void require_plain_name() const;
  void create();
  void reserve(std::uint64_t bytes);

  std::string path_, folder_, temporary_;
  base::Descriptor file_;
  std::uint64_t end_ = 0;
  std::uint64_t waiting_ = 0;  // bytes written since the disk was told last
};

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes);
void write_file_atomically(const std::string& path, std::string_view text);

// Not durable: for what is soon written again.
void replace_file(const std::string& path, std::string_view text);

// Deletes temporary files in `folder` whose writers are gone (killed in the middle); best effort,
// throws nothing.
void remove_abandoned_temporaries(const std::string& folder) noexcept;

}  // namespace io
