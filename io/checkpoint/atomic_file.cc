// Creates a temporary file, reserves space, writes, calls fsync, renames, and calls fsync for the
// folder.
//
// rename() replaces a name atomically: a reader sees the old file or the new one, never a part. The
// order matters after a power failure. Without the fsync before the rename, the new name could
// reach the disk before the data and refer to an empty file. Without the fsync of the folder, the
// rename itself could be lost although the call has reported success.
#include "io/checkpoint/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "io/base/files/folder_guard.h"
#include "io/base/files/io_error.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"

namespace io {
namespace {

constexpr std::string_view kTemporaryMark = ".tmp-";

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Writeback to the disk is started after this many bytes.
constexpr std::uint64_t kWritebackBytes = 4 << 20;

bool is_no_space(int error) { return error == ENOSPC || error == EDQUOT; }

// Errors of the medium are I/O errors; errors that the user can fix mean that output cannot be
// created.
[[noreturn]] void fail(const std::string& action, const std::string& path, int error) {
  const std::string text = "cannot " + action + " " + path + ": " + base::system_error_text(error);
  if (error == EIO) throw Error(text);
  if (is_no_space(error)) throw NoSpaceError(text);
  throw CannotCreateError(text);
}

// Recognizes the names ".NAME.tmp-PID-N" of AtomicFile.
bool is_temporary(std::string_view name) {
  const std::size_t mark = name.rfind(kTemporaryMark);
  if (!name.starts_with('.') || mark == std::string_view::npos) return false;
  const std::string_view number = name.substr(mark + kTemporaryMark.size());
  return !number.empty() && number.find_first_not_of("0123456789-") == std::string_view::npos;
}

// Returns the mode that a plain open() would set. Reading the umask through umask() would
// temporarily change it for other threads.
mode_t plain_mode(const std::string& path) {
  std::ifstream status("/proc/self/status");
  if (!status && errno == EMFILE) fail("set the mode of", path, errno);
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Umask:"))
      return 0666 & ~static_cast<mode_t>(std::stoul(line.substr(6), nullptr, 8));
  return 0600;
}

// Returns true if the file of `fd` is still in a folder, and is now locked by us. File systems
// without locks count as locked.
bool hold(int fd) {
  struct stat status {};
  if (base::retry_on_eintr([&] { return flock(fd, LOCK_EX | LOCK_NB); }) != 0 &&
      errno == EWOULDBLOCK)
    return false;
  return fstat(fd, &status) == 0 && status.st_nlink > 0;
}

void sync_folder(const std::string& folder) {
  const base::Descriptor opened(base::retry_on_eintr(
      [&] { return open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!opened) fail("open folder", folder, errno);
  const int error = base::retry_on_eintr([&] { return fsync(opened.fd()); }) == 0 ? 0 : errno;
  if (error != 0 && error != EINVAL)
    // EINVAL: does not support fsync of folders
    fail("make durable the names in folder", folder, error);
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path, std::uint64_t bytes)
    : path_(path), folder_(folder_of(path)) {
  create();
  try {
    reserve(bytes);
  } catch (...) {
    unlink(temporary_.c_str());
    throw;
  }
}

// rename() would replace a device that was given as output by a plain file.
void AtomicFile::require_plain_name() const {
  struct stat status {};
  if (stat(path_.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return;
  const char* kind = S_ISDIR(status.st_mode)                              ? "a folder"
                     : S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode) ? "a device"
                     : S_ISFIFO(status.st_mode)                           ? "a pipe"
                                                                          : "no plain file";
  throw CannotCreateError(path_ + ": is " + kind + "; expected the name of a file");
}

void AtomicFile::create() {
  static std::atomic<unsigned> counter{0};
  const std::string name = std::filesystem::path(path_).filename().string();
  if (name.empty()) throw CannotCreateError("cannot create '" + path_ + "': it names no file");
  require_plain_name();
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const std::string number =
        std::to_string(getpid()) + "-" + std::to_string(counter.fetch_add(1));
    temporary_ = folder_ + "/." + name + std::string(kTemporaryMark) + number;
    file_ = base::Descriptor(base::retry_on_eintr([&] {
      return open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    }));
    if (!file_ && errno != EEXIST) fail("create", path_, errno);
    if (!file_) continue;
    if (hold(file_.fd())) return;
    unlink(temporary_.c_str());  // a cleaner took it for abandoned, or it cannot be looked at
    file_.close();
  }
  throw CannotCreateError("cannot create " + path_ +
                          ": too many abandoned temporary files beside it");
}

void AtomicFile::reserve(std::uint64_t bytes) {
  if (bytes == 0) return;
  int error = EINTR;
  while (error == EINTR) error = posix_fallocate(file_.fd(), 0, static_cast<off_t>(bytes));
  const std::string text = "cannot create " + path_ + ": " + base::system_error_text(error) +
                           ": it takes " + std::to_string(bytes) + " bytes";
  if (error == EFBIG) throw CannotCreateError(text);
  if (!is_no_space(error))
    return;  // file systems that cannot reserve report errors when written to
  std::error_code unknown;
  const auto space = std::filesystem::space(folder_, unknown);
  throw NoSpaceError(text + (unknown ? "" : ", " + std::to_string(space.available) + " are free"));
}

AtomicFile::~AtomicFile() {
  if (file_) unlink(temporary_.c_str());
}

void AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t part = std::min<std::size_t>(bytes.size(), kWritebackBytes);
    const ssize_t count = pwrite(file_.fd(), bytes.data(), part, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("write", path_, errno);
    const auto done = static_cast<std::size_t>(count);
    bytes = bytes.subspan(done);
    offset += done;
    end_ = std::max(end_, offset);
    if ((waiting_ += done) >= kWritebackBytes) start_writeback();
  }
}

// Otherwise nothing would be written to the disk before the fsync, which also reports failures.
void AtomicFile::start_writeback() noexcept {
  static_cast<void>(sync_file_range(file_.fd(), 0, 0, SYNC_FILE_RANGE_WRITE));
  waiting_ = 0;
}

void AtomicFile::commit(bool durable) {
  if (base::retry_on_eintr([&] { return fchmod(file_.fd(), plain_mode(path_)); }) != 0)
    fail("set the mode of", path_, errno);
  if (base::retry_on_eintr([&] { return ftruncate(file_.fd(), static_cast<off_t>(end_)); }) != 0)
    fail("set the length of", path_, errno);
  if (durable && base::retry_on_eintr([&] { return fsync(file_.fd()); }) != 0)
    fail("make durable", path_, errno);
  if (const std::string fault = folder_fault(path_); !fault.empty())
    throw CannotCreateError("cannot create " + path_ + ": " + fault);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("create", path_, errno);
  file_.close();
  if (durable) sync_folder(folder_);
}

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes) {
  AtomicFile file(path, bytes.size());
  file.write(bytes);
  file.commit();
}

void write_file_atomically(const std::string& path, std::string_view text) {
  write_file_atomically(path, std::as_bytes(std::span(text.data(), text.size())));
}

void replace_file(const std::string& path, std::string_view text) {
  AtomicFile file(path, text.size());
  file.write(std::as_bytes(std::span(text.data(), text.size())));
  file.commit(/*durable=*/false);
}

void remove_abandoned_temporaries(const std::string& folder) noexcept {
  try {
    std::error_code ignored;  // files that cannot be listed or removed stay; the next save tries
                              // again
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename().string();
      if (!is_temporary(name)) continue;
      const base::Descriptor file(
          open(entry.path().c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
      if (file && flock(file.fd(), LOCK_EX | LOCK_NB) == 0) unlink(entry.path().c_str());
    }
  } catch (const std::exception&) {
    return;  // no memory or no folder: nothing to clean
  }
}

}  // namespace io
