// Mirrors files in a folder.
#include "io/data/loader/staging.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <vector>

#include "io/base/digests/digest.h"
#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"
#include "io/base/numbers/split_mix.h"
#include "io/checkpoint/atomic_file.h"
#include "io/data/files/data_folder.h"

namespace io {
namespace {

namespace fs = std::filesystem;

fs::path stage_folder(const std::string& source, const std::string& stage) {
  fs::path whole = fs::absolute(source).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // "dir/"
  std::uint64_t hash = 0;
  for (const char c : whole.string()) hash = mix_bits(hash + static_cast<unsigned char>(c) + 1);
  return fs::path(stage) / (whole.filename().string() + "-" + base::hex_text(hash));
}

[[noreturn]] void refuse(const fs::path& folder, const std::string& found) {
  throw CannotCreateError("cannot stage in " + folder.string() + ": " + found +
                          "; expected a folder of this user (" + std::to_string(geteuid()) +
                          ") or of root that no other user may write; remove it, or give another "
                          "--stage");
}

// The name can be computed by everyone, and many users may make folders in a place for temporary
// files: data of another user must not be trained on, nor the user's own be copied to a folder of
// another user. Only this user may enter a folder of this user, whatever the modes of the files
// are.
void take_folder(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder.parent_path(), failure);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw CannotCreateError("cannot create folder " + folder.string() + ": " +
                            base::system_error_text(errno));
  const base::Descriptor opened(base::retry_on_eintr(
      [&] { return open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
  if (!opened) {
    const int error = errno;
    refuse(folder,
           fs::is_symlink(folder, failure) ? "it is a link" : base::system_error_text(error));
  }
  struct stat found {};
  if (fstat(opened.fd(), &found) != 0) refuse(folder, base::system_error_text(errno));
  const bool own = found.st_uid == geteuid();
  if (!own && found.st_uid != 0)
    refuse(folder, "it belongs to user " + std::to_string(found.st_uid));
  char mode[16];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(found.st_mode & 07777));
  if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    refuse(folder, std::string("its mode is ") + mode);
  if (own && (found.st_mode & 077) != 0 && fchmod(opened.fd(), 0700) != 0)
    refuse(folder, std::string("its mode is ") + mode + " and cannot be changed");
}

void copy_bytes(const fs::path& from, const fs::path& to) {
  const OpenedFile source = open_regular_file(from.string());
  AtomicFile copy(to.string(), source.bytes);
  std::vector<std::byte> block(1 << 20);
  for (;;) {
    const ssize_t got = base::retry_on_eintr(
        [&] { return read(source.descriptor.fd(), block.data(), block.size()); });
    if (got < 0)
      throw MissingFileError("cannot read " + from.string() + ": " +
                             base::system_error_text(errno));
    if (got == 0) break;
    copy.write(std::span(block).first(static_cast<std::size_t>(got)));
  }
  copy.commit(/*durable=*/false);
}

// The copy gets the time last, so that one that was interrupted before is made again.
void copy_whole(const fs::path& from, const fs::path& to) {
  try {
    fs::create_directories(to.parent_path());
    remove_abandoned_temporaries(to.parent_path().string());
    copy_bytes(from, to);
    fs::last_write_time(to, fs::last_write_time(from));
  } catch (const fs::filesystem_error& error) {
    throw CannotCreateError(to.string() + ": cannot be copied from " + from.string() + ": " +
                            error.code().message());
  }
}

bool is_same(const fs::path& from, const fs::path& to) {
  std::error_code failure;  // a copy that cannot be inspected is copied again
  return fs::is_regular_file(fs::symlink_status(to, failure)) &&
         fs::file_size(to, failure) == fs::file_size(from) &&
         fs::last_write_time(to, failure) == fs::last_write_time(from);
}

// Returns the files below `folder`, as paths relative to it.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::path path : all_files_below(folder.string()))
    files.push_back(path.lexically_relative(folder));
  std::sort(files.begin(), files.end());
  return files;
}

void mirror(const fs::path& from, const fs::path& to) {
  const bool one_file = fs::is_regular_file(from);
  const std::vector<fs::path> files = one_file ? std::vector{from.filename()} : files_below(from);
  if (files.empty())
    throw MissingFileError("cannot stage " + from.string() + ": there is no file in it");
  take_folder(to);
  for (const fs::path& file : files) {
    const fs::path source = one_file ? from : from / file;
    if (!is_same(source, to / file)) copy_whole(source, to / file);
  }
  for (const fs::path& file : files_below(to))
    if (!std::binary_search(files.begin(), files.end(), file)) fs::remove(to / file);
}

}  // namespace

std::string staged_path(const std::string& source, const std::string& stage) {
  const fs::path folder = stage_folder(source, stage);
  return (fs::is_regular_file(source) ? folder / fs::path(source).filename() : folder).string();
}

void stage_files(const std::string& source, const std::string& stage) {
  try {
    mirror(source, stage_folder(source, stage));
  } catch (const fs::filesystem_error& error) {
    throw MissingFileError("cannot stage " + source + ": " + error.path1().string() + ": " +
                           error.code().message());
  }
}

}  // namespace io
