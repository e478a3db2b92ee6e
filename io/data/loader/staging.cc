// Mirrors files in a folder.
#include "io/data/loader/staging.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "io/base/digests/digest.h"
#include "io/base/files/io_error.h"
#include "io/base/numbers/split_mix.h"
#include "io/data/files/data_folder.h"

namespace io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUnfinished = ".staging-";

fs::path stage_folder(const std::string& source, const std::string& stage) {
  fs::path whole = fs::absolute(source).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // "dir/"
  std::uint64_t hash = 0;
  for (const char c : whole.string()) hash = mix_bits(hash + static_cast<unsigned char>(c) + 1);
  return fs::path(stage) / (whole.filename().string() + "-" + base::hex_text(hash));
}

// A signal may interrupt any call of the library's copy, which does not try again.
void copy_over(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  do {
    failure.clear();
    fs::copy_file(from, to, fs::copy_options::overwrite_existing, failure);
  } while (failure == std::errc::interrupted);
  if (failure) throw fs::filesystem_error("copy_file", from, to, failure);
}

void copy_whole(const fs::path& from, const fs::path& to) {
  const fs::path unfinished =
      to.parent_path() / (kUnfinished + std::to_string(getpid()) + "-" + to.filename().string());
  try {
    fs::create_directories(to.parent_path());
    copy_over(from, unfinished);
    fs::last_write_time(unfinished, fs::last_write_time(from));
    fs::rename(unfinished, to);
  } catch (const fs::filesystem_error& error) {
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    throw CannotCreateError(to.string() + ": cannot be copied from " + from.string() + ": " +
                            error.code().message());
  }
}

bool is_same(const fs::path& from, const fs::path& to) {
  std::error_code failure;  // a copy that cannot be inspected is copied again
  return fs::is_regular_file(to, failure) && fs::file_size(to, failure) == fs::file_size(from) &&
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
  for (const fs::path& file : files) {
    const fs::path source = one_file ? from : from / file;
    if (!is_same(source, to / file)) copy_whole(source, to / file);
  }
  for (const fs::path& file : files_below(to)) {
    const bool unfinished =
        file.filename().string().starts_with(kUnfinished);  // another job may be writing it
    if (!unfinished && !std::binary_search(files.begin(), files.end(), file)) fs::remove(to / file);
  }
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
