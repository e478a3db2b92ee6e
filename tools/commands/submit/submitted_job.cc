// Reads the notes of job_body.sh: "start CHECKPOINT", "requeue CODE", "end CODE".
#include "tools/commands/submit/submitted_job.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <utility>

#include "backends/backend_error.h"
#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/text/text_parts.h"
#include "io/base/time/deadline.h"
#include "tools/launch/jobs/job_script.h"
#include "tools/launch/workers/signal_inbox.h"
#include "tools/options/table/value_text.h"
#include "tools/report/observers/run_status.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/report/output/shell_text.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxNotes = 1 << 20;
constexpr std::chrono::milliseconds kOutputPoll{200};
constexpr std::chrono::seconds kQueuePoll{5};
constexpr std::chrono::minutes kMaxSilence{10};  // while SLURM's controller does not answer

struct JobNotes {
  std::vector<std::string> starts = {};  // the newest checkpoints then
  std::optional<int> end = {};           // the exit code
  std::string cluster = {};
};

constexpr std::string_view kClusterNote = "cluster ";

JobNotes read_notes(const std::string& folder, const std::string& id) {
  JobNotes notes;
  std::string text;
  try {
    text = io::read_run_file(folder + "/" + job_notes_name(id), kMaxNotes);
  } catch (const io::MissingFileError&) {
    return notes;  // it has not started
  }
  for (const std::string& line : base::split_text(text, '\n')) {
    if (line.starts_with("start ")) {
      notes.starts.push_back(line.substr(6));
      notes.end.reset();  // it was put back into the queue by hand
    }
    if (line.starts_with(kClusterNote)) notes.cluster = line.substr(kClusterNote.size());
    if (line.starts_with("end "))
      notes.end = static_cast<int>(parse_integer(line.substr(4)).value_or(kExitInternal));
  }
  return notes;
}

// Orders "12_3" before "12_10".
std::pair<std::int64_t, std::int64_t> order_of(const std::string& id) {
  const std::vector<std::string> parts = base::split_text(id, '_');
  return {parse_integer(parts.front()).value_or(-1), parse_integer(parts.back()).value_or(-1)};
}

// Returns the newest job's id; "" if no job of the folder has been submitted.
std::string newest_job(const std::string& folder) {
  const auto [prefix, suffix] = std::pair{std::string("job-"), std::string(".txt")};
  std::string newest;
  std::error_code missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, missing)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(suffix)) continue;
    const std::string id = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
    if (order_of(id).first >= 0 && (newest.empty() || order_of(newest) < order_of(id))) newest = id;
  }
  return newest;
}

std::string history_text(const JobNotes& notes) {
  if (notes.starts.empty()) return "has not started yet";
  const std::size_t turns = notes.starts.size();
  const std::string text = std::to_string(turns) + (turns == 1 ? " start" : " starts") +
                           ", the last one from " +
                           (notes.starts.back() == "none" ? "step 0" : notes.starts.back());
  return notes.end ? text + "; ended with exit code " + std::to_string(*notes.end) : text;
}

std::string run_text(const std::string& folder) {
  try {
    const RunStatus status = read_run_status(folder);
    return "run " + folder + ": " + state_text(status) + ", step " +
           std::to_string(status.progress.step) + " of " + std::to_string(status.progress.steps) +
           " (engine top shows more)";
  } catch (const io::MissingFileError&) {
    return "run " + folder + ": has not begun to train";
  }
}

JobNotes read_notes(const SubmittedJob& job) { return read_notes(job.folder, job.id); }

std::string gone_text(const SubmittedJob& job, const std::optional<RememberedJob>& known) {
  const std::string how = known ? "SLURM says " + known->state + ", reason " + known->reason +
                                      ", exit code " + known->exit_code
                                : "SLURM has forgotten it";
  return "job " + job.id + " has left the queue, and its script has not noted an end in " +
         job.folder + ": " + how;
}

// Returns the exit code of a job whose script could not note it; nothing if SLURM does not know, or
// if the job was not at fault.
std::optional<int> exit_code_of(const RememberedJob& known) {
  constexpr int kTerminated = 128 + 15, kKilled = 128 + 9;
  if (known.state == "CANCELLED" || known.state == "TIMEOUT") return kTerminated;
  if (known.state == "OUT_OF_MEMORY") return kKilled;
  const std::vector<std::string> parts = base::split_text(known.exit_code, ':');  // "1:0", "0:9"
  const auto code = parse_integer(parts.front()), signal = parse_integer(parts.back());
  if (known.state != "FAILED" || parts.size() != 2 || !code || !signal) return std::nullopt;
  const std::int64_t whole = *signal > 0 ? 128 + *signal : *code;
  return whole > 0 && whole < 256 ? std::optional(static_cast<int>(whole)) : std::nullopt;
}

int end_without_note(const SubmittedJob& job) {
  const std::optional<RememberedJob> known = remembered_job(job);
  const std::optional<int> code = known ? exit_code_of(*known) : std::nullopt;
  if (!code) throw backends::Error(gone_text(job, known));
  print_notice(gone_text(job, known));
  return *code;
}

// Copies what is new in the job's output to stdout.
class Output {
 public:
  explicit Output(const SubmittedJob& job) : path_(job.folder + "/" + job_log_name(job.id)) {}
  void copy_new() {
    std::ifstream file(path_, std::ios::binary);
    file.seekg(position_);
    char buffer[65536];
    while (file.read(buffer, sizeof buffer), file.gcount() > 0) {
      std::fwrite(buffer, 1, static_cast<std::size_t>(file.gcount()), stdout);
      position_ += file.gcount();
    }
    std::fflush(stdout);
  }

 private:
  const std::string path_;
  std::streamoff position_ = 0;
};

// Asks SLURM every few seconds.
class QueueWatch {
 public:
  // `stops` returns true after a signal to this process, which ends a question at once.
  QueueWatch(const SubmittedJob& job, std::function<bool()> stops)
      : job_(job), stops_(std::move(stops)) {}

  // Prints changes. Returns true if the job has left the queue. Throws backends::Error if SLURM
  // has not answered for long.
  bool has_left() {
    if (!base::has_passed(next_)) return false;
    next_ = base::deadline_in(kQueuePoll);
    try {
      const std::vector<std::string> tasks = tasks_in_queue(job_, stops_);
      silent_since_.reset();
      times_absent_ = tasks.empty() ? times_absent_ + 1 : 0;
      if (!tasks.empty()) notify(tasks.front().substr(0, tasks.front().rfind(", ")));
    } catch (const backends::Error& error) {
      if (stops_()) return false;
      if (!silent_since_) print_notice(std::string(error.what()) + "; asking again");
      if (!silent_since_) silent_since_ = base::deadline_in(kMaxSilence);
      if (base::has_passed(*silent_since_)) throw;
    }
    return times_absent_ >= 2;  // a job that goes back may be absent for a moment
  }

 private:
  void notify(const std::string& state) {
    if (state != reported_) print_notice(state);
    reported_ = state;
  }

  const SubmittedJob& job_;
  const std::function<bool()> stops_;
  base::Deadline next_{};
  std::optional<base::Deadline> silent_since_;
  int times_absent_ = 0;
  std::string reported_;
};

}  // namespace

SubmittedJob find_job(const std::string& run_or_job) {
  if (fs::is_directory(run_or_job)) {
    const std::string folder = fs::absolute(run_or_job).lexically_normal().string();
    const std::string id = newest_job(folder);
    if (id.empty())
      throw io::MissingFileError(run_or_job + ": no job of this run was submitted (no job-N.txt)");
    return {{id, read_notes(folder, id).cluster}, folder};
  }
  if (order_of(run_or_job).first < 0)
    throw io::MissingFileError(run_or_job +
                               ": expected the folder of a run, or the number of a job");
  const std::optional<RememberedJob> known = remembered_job({run_or_job});
  if (known && known->is_array)
    throw io::MissingFileError("job " + run_or_job +
                               " is an array, whose script names the first run only: give the "
                               "folder of a run");
  const fs::path script = known ? known->script : "";
  if (script.filename() != kJobScript)
    throw io::MissingFileError("job " + run_or_job +
                               (known ? " was not submitted by engine submit"
                                      : " is unknown to SLURM, which forgets jobs "
                                        "some minutes after their end") +
                               ": give the run's folder");
  return {{run_or_job}, script.parent_path().string()};
}

std::vector<std::string> status_lines(const SubmittedJob& job) {
  std::vector<std::string> lines = tasks_in_queue(job);
  const JobNotes notes = read_notes(job);
  if (lines.empty() && !notes.end) lines.push_back(gone_text(job, remembered_job(job)));
  lines.push_back("job " + job.id + ": " + history_text(notes) + "; output: " + job.folder + "/" +
                  job_log_name(job.id));
  lines.push_back(run_text(job.folder));
  return lines;
}

void check_no_job_of(const std::string& folder) {
  const std::string id = newest_job(folder);
  if (id.empty()) return;
  const JobNotes notes = read_notes(folder, id);
  if (notes.end) return;
  if (const std::vector<std::string> tasks = tasks_in_queue({id, notes.cluster}); !tasks.empty())
    throw io::CannotCreateError(folder + " already has a job (" + tasks.front() +
                                "): wait for its end, or engine submit --cancel " +
                                shell_word(folder));
}

void note_job(const SubmittedJob& job) {
  const std::string path = job.folder + "/" + job_notes_name(job.id);
  std::ofstream notes(path, std::ios::app);
  notes << "submitted\n";
  if (!job.cluster.empty()) notes << kClusterNote << job.cluster << "\n";
  if (!notes.flush())
    throw io::CannotCreateError("cannot write " + path + "; job " + job.id + " is in the queue");
}

std::string cancel_job(const SubmittedJob& job) {
  const std::vector<std::string> tasks = tasks_in_queue(job);
  const auto waits = [](const std::string& task) {
    return task.find(": PENDING") != std::string::npos;
  };
  // A job that someone has put back into the queue waits there after its end.
  if (const std::optional<int> end = read_notes(job).end; end && std::ranges::none_of(tasks, waits))
    return "job " + job.id + " ended with exit code " + std::to_string(*end);
  if (tasks.empty()) return gone_text(job, remembered_job(job));
  cancel_in_slurm(job);
  return "cancelled job " + job.id +
         "; to continue from its newest checkpoint: engine submit ... train --resume " + job.folder;
}

int follow_job(const SubmittedJob& job) {
  SignalInbox signals;
  Output output(job);
  std::optional<int> signal;
  const auto is_stopped = [&] {
    if (!signal) signal = signals.take();
    return signal.has_value();
  };
  QueueWatch queue(job, is_stopped);
  for (;;) {
    const std::optional<int> end = read_notes(job).end;
    const bool left = !end && queue.has_left();
    output.copy_new();
    if (end) return *end;
    if (left) return end_without_note(job);
    pollfd ready{signals.fd(), POLLIN, 0};
    static_cast<void>(poll(&ready, 1, static_cast<int>(kOutputPoll.count())));
    if (is_stopped()) {
      const std::string name = job.cluster.empty() ? job.id : shell_word(job.folder);
      print_notice("job " + job.id + " continues; engine submit --status " + name +
                   " shows it, --cancel " + name + " ends it");
      return 128 + *signal;
    }
  }
}

}  // namespace tools
