// If a write fails, its partial lines are removed, or, if that is not possible, they damage no
// further line.
#include "io/metrics/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "io/base/files/folder_guard.h"
#include "io/base/files/io_error.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"

namespace io {
namespace {

std::string missing_text(std::int64_t lines) {
  return std::to_string(lines) + (lines == 1 ? " line is missing" : " lines are missing");
}

// Returns true for a file left by a full disk. For a pipe it is unknown, and reading would block.
bool ends_within_a_line(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return false;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() <= 0) return false;
  in.seekg(-1, std::ios::end);
  return in.get() != '\n';
}

// The same for a file that is open for reading.
bool ends_within_a_line(int fd) {
  struct stat status {};
  char last = '\n';
  return fstat(fd, &status) == 0 && status.st_size > 0 &&
         base::retry_on_eintr([&] { return ::pread(fd, &last, 1, status.st_size - 1); }) == 1 &&
         last != '\n';
}

}  // namespace

LineFile::LineFile(const std::string& what, const std::string& path, NamedBy named_by)
    : what_(what), path_(path), named_by_(named_by) {
  if (named_by == NamedBy::kUser) {
    open_named_by_user();
    return;
  }
  try {
    file_ = open_own_file(path, O_RDWR | O_CREAT | O_APPEND);
  } catch (const CannotCreateError& error) {
    throw CannotCreateError(what + " " + error.what());
  }
  torn_ = ends_within_a_line(file_.fd());
}

void LineFile::open_named_by_user() {
  const bool console = path_ == "-";
  torn_ = !console && ends_within_a_line(path_);
  // Does not wait for a reader of a pipe.
  file_ = base::Descriptor(base::retry_on_eintr([&] {
    return console ? ::dup(STDOUT_FILENO)
                   : ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | O_NONBLOCK,
                            0666);
  }));
  if (!file_)
    throw CannotCreateError(
        what_ + " " + path_ + ": cannot create: " +
        (errno == ENXIO ? "nobody reads this pipe" : base::system_error_text(errno)));
  if (!console) ::fcntl(file_.fd(), F_SETFL, ::fcntl(file_.fd(), F_GETFL) & ~O_NONBLOCK);
}

std::string LineFile::write(const std::string& lines) {
  std::size_t left = 0;
  const std::string forbidden = folder_fault(path_);
  const int error = forbidden.empty() ? write_all(torn_ ? "\n" + lines : lines, left) : EACCES;
  if (error == 0)
    torn_ = false;
  else if (left > 0 && !cut(left))
    torn_ = true;
  const std::string name = what_ + " " + path_ + ": ",
                    fault = forbidden.empty() ? base::system_error_text(error) : forbidden;
  if (error != 0 && path_ == "-") throw Error(name + "cannot write: " + fault);
  if (error == 0 && lost_ == 0) return "";
  if (error == 0) {
    const std::int64_t missing = std::exchange(lost_, 0);
    return messages_++ == 1 ? name + "written again; " + missing_text(missing) : "";
  }
  const auto lost = std::ranges::count(lines, '\n');
  lost_ += lost;
  lost_in_all_ += lost;
  fault_ = fault;
  if (messages_ > 0) return "";
  ++messages_;
  return name + "cannot write: " + fault + "; training continues without it";
}

std::string LineFile::restore() {
  struct stat status {};
  if (named_by_ == NamedBy::kUser || fstat(file_.fd(), &status) != 0 || status.st_nlink > 0)
    return "";
  try {
    file_ = open_own_file(path_, O_RDWR | O_CREAT | O_EXCL | O_APPEND);
  } catch (const CannotCreateError&) {
    return "";  // e.g. another file has this name now
  }
  torn_ = false;
  return what_ + " " + path_ + ": was deleted; made again, without the earlier lines";
}

std::string LineFile::loss() const {
  if (lost_in_all_ == 0) return "";
  return what_ + " " + path_ + ": " + missing_text(lost_in_all_) + ": " + fault_;
}

// Returns 0 or errno. `done` is the number of bytes written.
int LineFile::write_all(const std::string& text, std::size_t& done) const {
  while (done < text.size()) {
    const ssize_t n = ::write(file_.fd(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    done += static_cast<std::size_t>(n);
  }
  return 0;
}

// Truncates the file by `bytes`. This is not possible for a pipe.
bool LineFile::cut(std::size_t bytes) const {
  struct stat status {};
  return fstat(file_.fd(), &status) == 0 && S_ISREG(status.st_mode) &&
         ftruncate(file_.fd(), status.st_size - static_cast<off_t>(bytes)) == 0;
}

}  // namespace io
