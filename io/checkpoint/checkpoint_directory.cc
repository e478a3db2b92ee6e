// Manages a save folder: names, `latest`, pruning, and the search for the newest checkpoint that
// loads.
#include "io/checkpoint/checkpoint_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "io/base/files/create_folder.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"
#include "io/checkpoint/atomic_file.h"
#include "io/checkpoint/checkpoint_names.h"
#include "io/checkpoint/late_arrays.h"

namespace io {
namespace {

namespace fs = std::filesystem;

// Returns the steps of a folder's checkpoints, best first: from `current` downwards, then those
// beyond it.
std::vector<std::int64_t> steps_by_rank(const std::string& directory, std::int64_t current) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error))
    if (const auto step = step_of_name(entry->path().filename().string())) steps.push_back(*step);
  if (error) {
    const std::string text =
        "cannot list folder " + directory + ": " + base::system_error_text(error.value());
    if (base::is_lack_of_resources(error.value())) throw LimitError(text);
    if (error == std::errc::io_error) throw Error(text);
    throw MissingFileError(text);
  }
  std::sort(steps.begin(), steps.end(), [&](std::int64_t a, std::int64_t b) {
    const bool a_beyond = a > current, b_beyond = b > current;
    return a_beyond != b_beyond ? b_beyond : a > b;
  });
  return steps;
}

// Returns the head of a checkpoint; nothing if it cannot be read.
std::optional<Checkpoint> description_of(const std::string& path) {
  try {
    return load_description(path);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Returns the id of the run that wrote the checkpoint; nothing if it cannot be read.
std::optional<std::string> run_of(const std::string& path) {
  const std::optional<Checkpoint> description = description_of(path);
  return description ? std::optional(description->run_id) : std::nullopt;
}

// Returns true for a file that was copied or renamed: runs name each by its step.
bool is_renamed(const Checkpoint& description, std::int64_t step_of_name) {
  return description.global_step != step_of_name;
}

// Returns true if the run may delete the checkpoint. The owner of an unreadable one is unknown, and
// that of a copy is the user.
bool may_delete(const std::string& directory, std::int64_t step, const std::string& run_id) {
  const std::optional<Checkpoint> description = description_of(checkpoint_path(directory, step));
  return description && description->run_id == run_id && !is_renamed(*description, step);
}

// Returns the steps in the order in which to try them. Checkpoints of the same run beyond `latest`
// come first (`latest` is old: a run that goes back moves newer checkpoints aside), those of other
// runs beyond it come last.
std::vector<std::int64_t> steps_to_try(const std::string& directory,
                                       std::optional<std::int64_t> latest,
                                       std::optional<std::string> run_id) {
  std::vector<std::int64_t> steps =
      steps_by_rank(directory, latest.value_or(std::numeric_limits<std::int64_t>::max()));
  const auto beyond = std::ranges::find_if(steps, [&](std::int64_t s) { return latest < s; });
  if (!latest || beyond == steps.end()) return steps;
  const auto owner = [&](std::int64_t step) { return run_of(checkpoint_path(directory, step)); };
  if (run_id->empty()) run_id.reset();
  for (auto step = steps.begin(); !run_id && step != steps.end(); ++step) run_id = owner(*step);
  if (!run_id || run_id->empty()) return steps;
  const auto others = std::stable_partition(
      beyond, steps.end(), [&](std::int64_t s) { return owner(s).value_or(*run_id) == *run_id; });
  std::rotate(steps.begin(), beyond, others);
  return steps;
}

struct Search {
  std::string path, first_fault;
  Checkpoint description;     // of `path`
  std::exception_ptr unread;  // the error of one that may be intact, and is tried before `path`
  std::vector<std::string> skipped;
  bool pruned = false;  // a checkpoint was deleted meanwhile: there may be a newer one
};

// Returns true if the error does not say that the checkpoint is damaged: it cannot be read now, or
// a later version of the program has written it.
bool may_be_intact(const Error& error, const std::string& path) {
  if (dynamic_cast<const MissingFileError*>(&error) != nullptr)
    return access(path.c_str(), F_OK) == 0;
  return dynamic_cast<const DataError*>(&error) == nullptr ||
         dynamic_cast<const LaterFormatError*>(&error) != nullptr;
}

// Adds the checkpoint that `latest` names to those skipped, if it is not the one that was found.
// `latest` may have been written since the search began.
void compare_with_latest(const std::string& directory, std::int64_t step, Search& found) {
  const std::optional<std::int64_t> now = named_step(directory, kLatest);
  if (!now || *now == step) return;
  const std::string newest = checkpoint_file_name(step), latest = checkpoint_path(directory, *now);
  std::error_code unknown;
  if (*now < step)
    found.skipped.push_back(latest + ": `latest` names it, but " + newest + " is newer");
  else if (!fs::exists(latest, unknown) && named_step(directory, kLatest) != now)
    found.pruned = true;
  else if (!fs::exists(latest, unknown))
    found.skipped.push_back(latest + ": `latest` names it, but it does not exist; the newest is " +
                            newest);
}

enum class Reads { kDescriptions, kData };

Search search(const std::string& directory, const std::string& run_id, Reads reads) {
  Search found;
  const std::optional<std::int64_t> latest = named_step(directory, kLatest);
  const std::vector<std::int64_t> steps = steps_to_try(directory, latest, run_id);
  found.pruned = latest && steps.empty();
  for (const std::int64_t step : steps) {
    found.path = checkpoint_path(directory, step);
    try {
      Checkpoint description = load_description(found.path);
      const std::string& owner = description.run_id;
      if (is_renamed(description, step)) {
        found.skipped.push_back(
            found.path + ": renamed: it states step " + std::to_string(description.global_step) +
            ", and its name would be " + checkpoint_file_name(description.global_step));
      } else if (!run_id.empty() && !owner.empty() && owner != run_id) {
        found.skipped.push_back(found.path + ": written by another run, " + owner);
      } else {
        if (reads == Reads::kData) check_checkpoint(found.path);
        compare_with_latest(directory, step, found);
        found.description = std::move(description);
        return found;
      }
    } catch (const Error& error) {
      found.pruned |= access(found.path.c_str(), F_OK) != 0;
      found.skipped.emplace_back(error.what());
      if (!found.unread && may_be_intact(error, found.path))
        found.unread = std::current_exception();
      if (found.first_fault.empty()) found.first_fault = error.what();
    }
  }
  found.path.clear();
  return found;
}

// The name is removed immediately, and the space is freed in a separate thread: the system takes 30
// ms to free 89 MB, and an open file keeps its space. A file that cannot be deleted takes space,
// but its replacement is safe.
void delete_file(const std::string& path) {
  base::Descriptor file(base::retry_on_eintr(
      [&] { return open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); }));
  unlink(path.c_str());
  if (!file) return;
  try {
    std::thread([owned = std::move(file)]() mutable { owned.close(); }).detach();
  } catch (const std::system_error&) {
    // Without a thread it is closed here.
  }
}

void prune(const std::string& directory, const Checkpoint& newest, int keep_last) {
  std::optional<std::int64_t> best;
  try {
    best = named_step(directory, kBest);
  } catch (const Error&) {
    return;  // the next save prunes
  }
  int kept = 0;
  for (const std::int64_t step : steps_by_rank(directory, newest.global_step)) {
    if (step != newest.global_step && !may_delete(directory, step, newest.run_id)) continue;
    if (++kept <= keep_last || step == best) continue;
    delete_file(checkpoint_path(directory, step));
  }
}

// The file `latest` or `best`, written but not yet renamed.
class NameFile {
 public:
  NameFile(const std::string& directory, const char* which, const std::string& name)
      : file_((fs::path(directory) / which).string(), name.size() + 1) {
    const std::string line = name + "\n";
    file_.write(std::as_bytes(std::span(line.data(), line.size())));
  }
  void commit() { file_.commit(); }

 private:
  AtomicFile file_;
};

}  // namespace

std::string save_to_directory(const Checkpoint& checkpoint, const std::string& directory,
                              int keep_last, bool best) {
  return save_to_directory(checkpoint, directory, keep_last, best, [](std::size_t) {});
}

std::string save_to_directory(const Checkpoint& checkpoint, const std::string& directory,
                              int keep_last, bool best, const CompleteArray& complete) {
  remove_abandoned_temporaries(directory);
  const std::string name = checkpoint_file_name(checkpoint.global_step);
  std::string path = (fs::path(directory) / name).string();
  // The names get their space before the checkpoint uses the rest; otherwise `latest` could not be
  // updated.
  NameFile latest(directory, kLatest, name);
  std::optional<NameFile> of_best;
  if (best) of_best.emplace(directory, kBest, name);
  save_checkpoint(checkpoint, path, complete);
  latest.commit();
  if (of_best) of_best->commit();
  try {
    if (keep_last > 0) prune(directory, checkpoint, keep_last);
  } catch (const MissingFileError& gone) {  // the folder was removed meanwhile, and the checkpoint
                                            // with it
    throw CannotCreateError(gone.what());
  }
  return path;
}

namespace {

std::string result_of(Search found, const std::string& directory,
                      std::vector<std::string>* skipped) {
  if (skipped != nullptr) *skipped = std::move(found.skipped);
  if (found.path.empty() && !found.first_fault.empty())
    throw DataError("no checkpoint in " + directory +
                    " can be loaded; the newest: " + found.first_fault);
  return found.path;
}

// A run may delete checkpoints meanwhile.
Search repeated_search(const std::string& directory, const std::string& run_id,
                       Reads reads = Reads::kData) {
  std::error_code unknown;
  if (fs::status(directory, unknown).type() == fs::file_type::not_found) return {};
  Search found = search(directory, run_id, reads);
  for (int left = 9; found.pruned && left > 0; --left) found = search(directory, run_id, reads);
  return found;
}

}  // namespace

std::string find_newest_checkpoint(const std::string& directory, std::vector<std::string>* skipped,
                                   const std::string& run_id) {
  return result_of(repeated_search(directory, run_id), directory, skipped);
}

std::optional<DescribedCheckpoint> find_newest_description(const std::string& directory,
                                                           const std::string& run_id) {
  Search found = repeated_search(directory, run_id, Reads::kDescriptions);
  Checkpoint description = std::move(found.description);
  std::string path = result_of(std::move(found), directory, nullptr);
  if (path.empty()) return std::nullopt;
  return DescribedCheckpoint{std::move(path), std::move(description)};
}

std::string find_checkpoint_to_continue(const std::string& directory,
                                        std::vector<std::string>* skipped,
                                        const std::string& run_id) {
  Search found = repeated_search(directory, run_id);
  if (!found.unread || found.path.empty()) return result_of(std::move(found), directory, skipped);
  const std::string left = "; the run does not go back to " + found.path +
                           " by itself: restore the newer checkpoint or move it away, or resume "
                           "the older one by its path";
  try {
    std::rethrow_exception(found.unread);
  } catch (const MissingFileError& error) {
    throw MissingFileError(error.what() + left);
  } catch (const DataError& error) {
    throw DataError(error.what() + left);
  } catch (const Error& error) {
    throw Error(error.what() + left);
  }
}

std::string newest_checkpoint_name(const std::string& directory) {
  std::error_code unknown;
  if (fs::status(directory, unknown).type() == fs::file_type::not_found) return "";
  const std::vector<std::int64_t> steps =
      steps_by_rank(directory, std::numeric_limits<std::int64_t>::max());
  if (steps.empty()) return "";
  const auto newest = std::ranges::find_if(steps, [&](std::int64_t step) {
    const std::optional<Checkpoint> description = description_of(checkpoint_path(directory, step));
    return !description || !is_renamed(*description, step);
  });
  return checkpoint_file_name(newest == steps.end() ? steps.front() : *newest);
}

std::vector<std::string> checkpoint_names_after(const std::string& directory, std::int64_t step) {
  std::vector<std::string> names;
  for (const std::int64_t other : steps_by_rank(directory, step))
    if (other > step) names.push_back(checkpoint_file_name(other));
  return names;
}

int delete_older_checkpoints(const std::string& directory, const std::string& run_id) {
  const std::string newest = find_newest_checkpoint(directory, nullptr, run_id);
  const std::optional<std::int64_t> best = named_step(directory, kBest);
  int deleted = 0;
  for (const std::int64_t step : steps_by_rank(directory, 0)) {
    const std::string path = checkpoint_path(directory, step);
    std::error_code refused;
    if (path == newest || step == best || !may_delete(directory, step, run_id)) continue;
    if (fs::remove(path, refused)) ++deleted;
  }
  return deleted;
}

void ensure_writable_directory(const std::string& directory) {
  create_folder(directory);
  try {
    const AtomicFile probe((fs::path(directory) / kLatest).string(), 0);
  } catch (const CannotCreateError& refused) {
    throw CannotCreateError("cannot save in folder " + directory + ": " + refused.what());
  }
}

}  // namespace io
