// Reads and writes `latest` and `best`, and keeps files that a checkpoint would replace.
#include "io/checkpoint/checkpoint_names.h"

#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/files/system_error_text.h"
#include "io/checkpoint/atomic_file.h"
#include "io/checkpoint/checkpoint.h"

namespace io {
namespace {

std::string name_path(const std::string& directory, const char* which) {
  return (std::filesystem::path(directory) / which).string();
}

void write_name(const std::string& directory, const char* which, std::int64_t step) {
  write_file_atomically(name_path(directory, which), checkpoint_file_name(step) + "\n");
}

void remove_name(const std::string& directory, const char* which) {
  const std::string path = name_path(directory, which);
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error)
    throw CannotCreateError("cannot remove " + path + ": " +
                            base::system_error_text(error.value()));
}

bool has_checkpoint(const std::string& directory, std::int64_t step) {
  return is_regular_file(checkpoint_path(directory, step));
}

// Returns true if `latest` or `best` names a checkpoint of a later step.
bool names_later(const std::string& directory, const char* which, std::int64_t step) {
  const std::optional<std::int64_t> named = named_step(directory, which);
  return named && *named > step;
}

// Returns why the run must not replace the file; "" if it is an intact checkpoint of this run.
std::string reason_to_keep(const std::string& path, std::int64_t step, const std::string& run_id) {
  try {
    const Checkpoint description = load_description(path);
    // Earlier versions stated no run.
    if (!description.run_id.empty() && description.run_id != run_id)
      return path + ": written by another run, " + description.run_id;
    if (description.global_step != step)
      return path + ": renamed: it states step " + std::to_string(description.global_step);
    check_checkpoint(path);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

std::optional<std::int64_t> step_of_name(const std::string& name) {
  constexpr std::string_view kHead = "step-", kTail = ".ckpt";
  if (!name.starts_with(kHead) || !name.ends_with(kTail)) return std::nullopt;
  const std::string digits = name.substr(kHead.size(), name.size() - kHead.size() - kTail.size());
  if (digits.empty() || digits.size() > 18 ||
      digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  const std::int64_t step = std::stoll(digits);
  return checkpoint_file_name(step) == name ? std::optional(step) : std::nullopt;
}

std::string checkpoint_path(const std::string& directory, std::int64_t step) {
  return (std::filesystem::path(directory) / checkpoint_file_name(step)).string();
}

std::optional<std::int64_t> named_step(const std::string& directory, const char* which) {
  constexpr std::uint64_t kLongest = 64;
  const std::string path = name_path(directory, which);
  if (!is_regular_file(path)) return std::nullopt;
  std::string name;
  try {
    name = read_run_file(path, kLongest);
  } catch (const MissingFileError& refused) {
    throw Error(refused.what());
  } catch (const DataError&) {
    return std::nullopt;  // not a regular file with a name
  }
  if (name.ends_with('\n')) name.pop_back();
  return step_of_name(name);
}

std::string checkpoint_file_name(std::int64_t global_step) {
  char name[48];
  std::snprintf(name, sizeof name, "step-%08lld.ckpt", static_cast<long long>(global_step));
  return name;
}

std::string find_best_checkpoint(const std::string& directory) {
  const std::optional<std::int64_t> step = named_step(directory, kBest);
  return step && has_checkpoint(directory, *step) ? checkpoint_path(directory, *step) : "";
}

std::string missing_best_checkpoint(const std::string& directory) {
  const std::optional<std::int64_t> step = named_step(directory, kBest);
  return step && !has_checkpoint(directory, *step) ? checkpoint_file_name(*step) : "";
}

std::string missing_latest_checkpoint(const std::string& directory) {
  const std::optional<std::int64_t> step = named_step(directory, kLatest);
  return step && !has_checkpoint(directory, *step) ? checkpoint_file_name(*step) : "";
}

void name_best(const std::string& directory, std::int64_t step) {
  if (named_step(directory, kBest) != step) write_name(directory, kBest, step);
}

std::string name_earlier_checkpoints(const std::string& directory, std::int64_t step,
                                     std::optional<std::int64_t> best) {
  if (names_later(directory, kLatest, step)) {
    if (has_checkpoint(directory, step))
      write_name(directory, kLatest, step);
    else
      remove_name(directory, kLatest);
  }
  if (!names_later(directory, kBest, step)) return "";
  if (best && has_checkpoint(directory, *best)) {
    write_name(directory, kBest, *best);
    return "`best` names " + checkpoint_file_name(*best) + " again";
  }
  remove_name(directory, kBest);
  return !best
             ? "`best` is removed: no checkpoint had been evaluated at step " + std::to_string(step)
             : "`best` is removed: it would name " + checkpoint_file_name(*best) +
                   ", which is not in " + directory;
}

std::string keep_replaced_file(const std::string& directory, std::int64_t step,
                               const std::string& run_id) {
  namespace fs = std::filesystem;
  const std::string path = checkpoint_path(directory, step);
  std::error_code error;
  if (fs::symlink_status(path, error).type() != fs::file_type::regular) return "";
  const std::string reason = reason_to_keep(path, step, run_id);
  if (reason.empty()) return "";
  std::string kept;
  int number = 0;
  do {
    kept = path + ".kept-" + std::to_string(++number);
  } while (fs::exists(fs::symlink_status(kept, error)));
  fs::rename(path, kept, error);
  if (error)
    throw CannotCreateError("cannot move " + path + " to " + kept + ": " +
                            base::system_error_text(error.value()));
  return reason + "; kept as " + fs::path(kept).filename().string();
}

}  // namespace io
