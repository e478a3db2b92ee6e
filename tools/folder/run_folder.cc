// Implements taking a folder, and moving an older run aside.
#include "tools/folder/run_folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "io/base/files/create_folder.h"
#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"
#include "io/base/text/text_parts.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "io/checkpoint/checkpoint_names.h"
#include "tools/folder/output_paths.h"
#include "tools/folder/resume_source.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

// Converts "models/my net.toml" to "my-net", also of an .onnx file, and "models/gpt/" to "gpt".
std::string short_name(const std::string& model) {
  const fs::path path(model);
  std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  if (name.ends_with(".toml") || name.ends_with(".onnx")) name.resize(name.size() - 5);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.') c = '-';
  return name;
}

// Uses the first free number; mkdir() decides between jobs that start at the same time.
std::string new_folder(const RunFolderRequest& request) {
  constexpr int kMost = 9999;
  try {
    io::create_folder("runs");
  } catch (const io::CannotCreateError& error) {
    throw io::CannotCreateError(error.what() +
                                std::string("; give --save-dir DIR, or start in another folder"));
  }
  for (int number = 1; number <= kMost; ++number) {
    char digits[16];
    std::snprintf(digits, sizeof digits, "-%03d", number);
    std::string folder = "runs/" + short_name(request.model) + "-" + request.dataset + digits;
    if (mkdir(folder.c_str(), 0777) == 0) return folder;
    if (errno != EEXIST)
      throw io::CannotCreateError("cannot create folder " + folder + ": " +
                                  base::system_error_text(errno));
  }
  throw io::CannotCreateError("runs/ has " + std::to_string(kMost) + " runs of " + request.model +
                              " on " + request.dataset + "; give --save-dir DIR");
}

std::string without_slashes(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

[[noreturn]] void cannot_move(const std::string& folder, const std::string& to,
                              const std::string& cause) {
  throw io::CannotCreateError("cannot move " + folder + to + ": " + cause);
}

// Returns the folder itself if `folder` is a link to it, or ends in "." or "..", names that cannot
// change. Relative paths would move with the working folder.
std::string real_folder(const std::string& folder) {
  std::error_code error;
  const std::string name = fs::path(folder).filename().string();
  if (name != "." && name != ".." && !fs::is_symlink(folder, error)) return folder;
  const fs::path real = fs::canonical(folder, error);
  if (error) cannot_move(folder, " aside", error.message());
  const std::string beside = fs::current_path(error).lexically_relative(real).string();
  if (!error && !beside.empty() && !beside.starts_with(".."))
    cannot_move(folder, " aside", "it is the working folder or holds it; start from another one");
  return real.string();
}

// Moves the whole folder, so that nothing in it is overwritten: DIR becomes DIR.old-1, or the next
// free number. Returns the new name.
std::string move_aside(const std::string& folder) {
  const std::string stem = folder + ".old-";
  for (int number = 1;; ++number) {
    std::string aside = stem + std::to_string(number);
    std::error_code error;
    const fs::file_type found = fs::symlink_status(aside, error).type();
    if (found == fs::file_type::not_found) {
      fs::rename(folder, aside, error);
      if (!error) return aside;
    }
    if (error) cannot_move(folder, " to " + aside, error.message());
  }
}

// Returns the run of a checkpoint outside or inside the folder; "" if it states none.
std::string run_of_checkpoint(const std::string& path) {
  try {
    return io::load_description(path).run_id;
  } catch (const io::Error&) {
    return "";  // the code that loads it reports the problem
  }
}

// Returns the run that continues in a folder without run.json: its checkpoint states it.
std::string run_of_source(const Resume& resume, const std::string& folder) {
  try {
    const auto source = resume_source(resume, folder);
    return source ? source->description.run_id : "";
  } catch (const io::Error&) {
    return "";  // the code that loads it reports the problem
  }
}

bool same_folder(const std::string& a, const std::string& b) {
  std::error_code unknown;
  return fs::equivalent(a, b, unknown) && !unknown;
}

// Whether `resume` names the run that the folder holds.
bool resumes_this(const Resume& resume, const std::string& folder, const std::string& id) {
  if (!resume.is_wanted()) return false;
  const std::string& path = resume.path;
  if (resume.is_automatic() || same_folder(path, folder)) return true;
  std::error_code unknown;
  if (fs::is_directory(path, unknown)) return false;
  const std::string parent = fs::path(path).parent_path().string();
  return same_folder(parent.empty() ? "." : parent, folder) ||
         (!id.empty() && run_of_checkpoint(path) == id);
}

}  // namespace

std::string run_in_folder(const std::string& folder) {
  const std::string newest = io::newest_checkpoint_name(folder);
  if (newest.empty()) return "";
  std::string text = "a run without run.json";
  std::string fault;
  if (const std::optional<RunRecord> record = find_run_record(folder, fault)) {
    text = record->model + " on " + record->data.name;
    if (!record->starts.empty()) text += ", started " + record->starts.front().time;
  } else if (!fault.empty()) {
    text = "a run whose run.json cannot be read";
  }
  return text + ", newest checkpoint " + newest;
}

RunFolder::RunFolder(const RunFolderRequest& request)
    : path_(request.folder == "auto" ? new_folder(request) : without_slashes(request.folder)) {
  std::error_code unknown;
  made_ = request.folder == "auto" || !fs::exists(path_, unknown);
  io::ensure_writable_directory(path_);
  check_own_names(path_);
  if (!has_run_record(path_) && io::newest_checkpoint_name(path_).empty())
    check_folder_is_free(path_);
  try {
    lock_ = std::make_unique<RunLock>(
        path_, LockClaim{.take_over = request.take_over,
                         .from_stopped = request.from_stopped,
                         .waits = request.restarted || request.resume.is_wanted(),
                         .stale = request.stale});
    take(request);
    guard_folder();
  } catch (...) {
    remove_if_made();
    throw;
  }
}

// The last lines of a process that has lost the folder come after this, without the guard.
RunFolder::~RunFolder() {
  try {
    check_lock();
  } catch (const io::CannotCreateError&) {
    keep_log("");
  }
  if (!started_) remove_if_made();
}

// A process that was stopped may be in the middle of a write when it is continued, long after
// another one has taken the folder.
void RunFolder::guard_folder() {
  guard_ = std::make_unique<io::FolderGuard>(path_, [this]() -> std::string {
    try {
      lock_->look();
      lock_->check();
      return "";
    } catch (const io::CannotCreateError& lost) {
      return lost.what();
    }
  });
}

void RunFolder::remove_if_made() {
  guard_.reset();
  if (!made_) return;
  std::error_code ignored;
  if (lock_) {  // otherwise another job may have the folder
    lock_.reset();
    for (const char* name : {"run.lock", "log.txt"}) fs::remove(fs::path(path_) / name, ignored);
  }
  fs::remove(path_, ignored);  // only if it is empty
}

void RunFolder::read_record(bool has_checkpoints) {
  std::string fault;
  if (std::optional<RunRecord> record = find_run_record(path_, fault)) {
    record_ = std::move(*record);
    if (!record_.unknown.empty())
      notice_ = run_record_path(path_) + ": ignored options that this version does not know: " +
                base::join_text(record_.unknown);
    return;
  }
  if (fault.empty()) return;
  if (!has_checkpoints)
    throw io::CannotCreateError(fault + ": it is not overwritten; give another --save-dir, or " +
                                "remove it");
  const std::string stem = run_record_path(path_) + ".damaged-";
  std::error_code unknown;
  int number = 1;
  while (fs::exists(fs::symlink_status(stem + std::to_string(number), unknown))) ++number;
  damaged_ = stem + std::to_string(number);
  notice_ = fault + "; the run continues from its newest checkpoint, which has its options; the " +
            "file is kept as " + fs::path(damaged_).filename().string();
}

void RunFolder::note_missing_checkpoint() {
  const std::string missing = io::missing_latest_checkpoint(path_);
  if (!missing.empty())
    notice_ += (notice_.empty() ? "" : "; ") + path_ + ": `latest` names " + missing +
               ", which does not exist, and there is no other checkpoint";
}

void RunFolder::keep_damaged_record() const {
  if (damaged_.empty()) return;
  std::error_code error;
  fs::rename(run_record_path(path_), damaged_, error);
  if (error && error != std::errc::no_such_file_or_directory)
    throw io::CannotCreateError("cannot move " + run_record_path(path_) + " to " + damaged_ + ": " +
                                error.message());
}

void RunFolder::take(const RunFolderRequest& request) {
  const std::string held = run_in_folder(path_);
  read_record(/*has_checkpoints=*/!held.empty());
  // Before the run has begun, a restart must do what the command line asks, e.g. move an older run
  // aside.
  of_this_job_ = request.take_over || (request.restarted && has_start_of(record_, request.launch));
  const Resume resume = of_this_job_ ? Resume{Resume::From::kOwnFolder} : request.resume;
  begun_ = held.empty() && !record_.id.empty() && resumes_this(resume, path_, record_.id);
  if (!held.empty()) {
    if (resumes_this(resume, path_, record_.id)) {
      continued_ = true;
    } else if (request.overwrite) {
      lock_.reset();  // its file moves with the folder, and so does run.json
      damaged_.clear();
      const std::string folder = real_folder(path_);
      const std::string aside = move_aside(folder);
      notice_ = "moved the run in " + path_ + " (" + held + ") to " + aside;
      io::ensure_writable_directory(folder);  // at the target of the link, if it is one
      lock_ = std::make_unique<RunLock>(path_);
    } else {
      throw io::CannotCreateError(
          path_ + " holds " + (resume.is_wanted() ? "another run" : "a run") + " (" + held +
          "): --resume " + path_ + " continues it, --overwrite moves it aside, --save-dir auto " +
          "makes a new folder");
    }
  }
  if (begun_) note_missing_checkpoint();
  if (!continued_ && !begun_) record_ = {};
  if (record_.id.empty() && continued_) record_.id = run_of_source(resume, path_);
  if (record_.id.empty()) record_.id = new_run_id();
}

void RunFolder::begin(RunRecord record, const RunStart& start) {
  if ((continued_ || begun_) && !record_.options.empty()) before_ = record_;
  record.id = record_.id;
  record.starts = std::move(record_.starts);
  record.starts.push_back(start);
  record_ = std::move(record);
  keep_damaged_record();
  damaged_.clear();
  write_run_record(record_, path_);
  started_ = true;
}

void RunFolder::take_back() {
  if (!before_) return;
  before_->starts = record_.starts;
  write_run_record(*before_, path_);
}

std::string RunFolder::give_up_newer(std::int64_t step) {
  const std::vector<std::string> newer = io::checkpoint_names_after(path_, step);
  if (newer.empty()) return "";
  std::string aside;
  for (int number = 1;; ++number) {
    aside = (fs::path(path_) / ("given-up-" + std::to_string(number))).string();
    if (mkdir(aside.c_str(), 0777) == 0) break;
    if (errno != EEXIST)
      throw io::CannotCreateError("cannot create folder " + aside + ": " +
                                  base::system_error_text(errno));
  }
  for (const std::string& name : newer) {
    std::error_code error;
    fs::rename(fs::path(path_) / name, fs::path(aside) / name, error);
    if (error)
      throw io::CannotCreateError("cannot move " + name + " from " + path_ + " to " + aside + ": " +
                                  error.message());
  }
  return std::to_string(newer.size()) + (newer.size() == 1 ? " checkpoint" : " checkpoints") +
         " newer than step " + std::to_string(step) + " moved to " + aside;
}

// Without it, the options of the run and its earlier starts would be lost.
std::string RunFolder::restore_record() const {
  const std::string path = run_record_path(path_);
  std::error_code unknown;
  if (!started_ || fs::symlink_status(path, unknown).type() != fs::file_type::not_found) return "";
  try {
    write_run_record(record_, path_);
    return path + ": was deleted; made again";
  } catch (const io::Error& error) {
    return error.what();  // the checkpoints contain what is needed
  }
}

std::string RunFolder::check(const std::function<void(const std::string&)>& notice) {
  lock_->look();
  lock_->check();
  if (lock_->is_in_place()) return "";
  std::error_code unknown;
  const bool gone = fs::status(path_, unknown).type() == fs::file_type::not_found;
  if (!lock_->take_place()) {
    if (gone)
      return "the folder " + path_ +
             " is gone, and cannot be made again (its file system is not mounted, or another job "
             "made it)";
    if (fs::exists(path_, unknown) && !fs::is_directory(path_, unknown))
      return path_ + " is a file now, expected the folder of the run";
    return "the folder " + path_ +
           " is on another file system than when this job began; what was mounted there is missing";
  }
  try {
    if (!record_.starts.empty()) write_run_record(record_, path_);
  } catch (const io::Error& error) {
    notice(error.what());  // the checkpoints contain what is needed
  }
  notice(
      "the folder " + path_ +
      (gone ? " is gone (removed or renamed): made it again, with run.json; "
            : " is another one than when this job began, an empty one: took it, with run.json; ") +
      "earlier checkpoints are not in it");
  return "";
}

}  // namespace tools
