// Checks paths in the file system.
#include "tools/folder/output_paths.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/files/own_file.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "models/model_catalog.h"
#include "tools/folder/run_record.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& cause) {
  throw io::CannotCreateError(path + ": cannot create: " + cause);
}

fs::path folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

fs::path normal(const fs::path& p) { return (p / "").lexically_normal(); }

// Files that a run, or the job that started it, writes in its folder.
bool is_name_of_run(const std::string& name) {
  for (const char* own :
       {"run.lock", "latest", "best", "status.json", "metrics.jsonl", "log.txt", "job.sh"})
    if (name == own) return true;
  for (const char* own : {"run.json", "step-", "final_model_rank_", "flight_rank_"})
    if (name.starts_with(own)) return true;
  return false;
}

// A run without run.json can also continue.
bool holds_run(const fs::path& folder) {
  std::error_code unknown;
  return has_run_record(folder.string()) || fs::is_regular_file(folder / "latest", unknown);
}

void check_is_not_of_run(const std::string& what, const std::string& path,
                         const std::string& save_dir) {
  const fs::path folder = folder_of(path);
  const bool in_run =
      (!save_dir.empty() && normal(folder) == normal(save_dir)) || holds_run(folder);
  if (in_run && is_name_of_run(fs::path(path).filename().string()))
    fail(what, "it is a file of the run in " + folder.string() + "; give another name");
}

// The run's own metrics may be named: they are appended to once.
bool are_own_metrics(const std::string& what, const std::string& path,
                     const std::string& save_dir) {
  return what == "metrics" && !save_dir.empty() && normal(folder_of(path)) == normal(save_dir) &&
         fs::path(path).filename() == "metrics.jsonl";
}

// The name and the beginning of a file of a run.
struct OwnFile {
  const char* name;
  const char* beginning;
  bool precedes_training = false;
};
constexpr OwnFile kOwnFiles[] = {
    {"latest", "step-[0-9]{8,}\\.ckpt\n"},
    {"best", "step-[0-9]{8,}\\.ckpt\n"},
    {"run.lock", "[^ ]+ [0-9]+\n", true},
    {"status.json", "\\{\"schema\":"},
    {"metrics.jsonl", "\\{\"schema\":"},
    {"log.txt", "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z ", true},
};

// Special files are reported when they are opened.
bool is_foreign(const fs::path& path, const OwnFile& own) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  char head[256];
  std::ifstream file(path, std::ios::binary);
  file.read(head, sizeof head);
  const std::string text(head, static_cast<std::size_t>(file.gcount()));
  return !text.empty() && !std::regex_search(text, std::regex(own.beginning),
                                             std::regex_constants::match_continuous);
}

}  // namespace

void check_own_names(const std::string& folder) {
  for (const char* name : {"run.lock", "log.txt", "metrics.jsonl", "tensorboard"})
    io::check_own_name((fs::path(folder) / name).string());
  // The first save would find it, or the run would lack its metrics. `latest` and run.lock are
  // tried anyway, and RunFolder decides by what run.json is.
  for (const char* name : {"best", "status.json", "metrics.jsonl", "log.txt"}) {
    const fs::path path = fs::path(folder) / name;
    if (std::error_code unknown; fs::is_directory(path, unknown))
      fail(path.string(),
           "it is a folder; expected a file of the run; remove it, or give another --save-dir");
  }
}

void check_folder_is_free(const std::string& folder) {
  if (models::is_published_model(folder))
    throw io::CannotCreateError(folder + ": is a published model; give another --save-dir");
  for (const OwnFile& own : kOwnFiles) {
    const fs::path path = fs::path(folder) / own.name;
    if (is_foreign(path, own))
      throw io::CannotCreateError(
          path.string() +
          ": no training has written it, and it is not overwritten; give another --save-dir, or "
          "remove it");
  }
}

std::string unstarted_run_text(const std::string& folder) {
  const bool taken = std::ranges::any_of(kOwnFiles, [&](const OwnFile& own) {
    const fs::path path = fs::path(folder) / own.name;
    return own.precedes_training && io::is_regular_file(path.string()) && !is_foreign(path, own);
  });
  if (!taken || has_run_record(folder) || !io::newest_checkpoint_name(folder).empty()) return "";
  return folder +
         ": its job has not begun to train (run.lock or log.txt, but no run.json and no "
         "checkpoint)";
}

void check_output_path(const std::string& what, const std::string& path,
                       const std::string& save_dir) {
  if (path.empty() || path == "-") return;
  const std::string named = what + " " + path;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) fail(named, "it is a folder; expected the name of a file");
  if (!are_own_metrics(what, path, save_dir)) {
    check_is_not_of_run(named, path, save_dir);
    if (fs::is_symlink(path, ignored))  // the target is written
      check_is_not_of_run(named, fs::weakly_canonical(path, ignored).string(), save_dir);
  }
  if (fs::exists(path, ignored)) {
    if (access(path.c_str(), W_OK) != 0) fail(named, std::strerror(errno));
    return;
  }
  const fs::path folder = folder_of(path);
  if (!save_dir.empty() && normal(folder) == normal(save_dir)) return;
  if (!fs::exists(folder, ignored)) fail(named, "there is no folder " + folder.string());
  if (!fs::is_directory(folder, ignored)) fail(named, folder.string() + " is no folder");
  if (access(folder.c_str(), W_OK | X_OK) != 0) fail(named, std::strerror(errno));
}

void check_new_file(const std::string& path, const std::vector<std::string>& read) {
  if (path == "-") throw UsageError("'-' is standard output; expected the name of a file");
  std::error_code ignored;
  if (fs::is_symlink(path, ignored))
    fail(path, "it is a link to " + fs::read_symlink(path, ignored).string() +
                   "; expected the name of a file");
  for (const std::string& source : read)
    if (fs::equivalent(path, source, ignored)) fail(path, "it is the file that is read");
  check_is_not_of_run(path, path, "");
}

}  // namespace tools
