// Implements `engine submit`.
#include <linux/magic.h>
#include <sys/vfs.h>

#include <filesystem>

#include "backends/identity/host_identity.h"
#include "io/base/files/create_folder.h"
#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "io/checkpoint/atomic_file.h"
#include "tools/commands/command.h"
#include "tools/commands/submit/sbatch_variables.h"
#include "tools/commands/submit/submit_options.h"
#include "tools/commands/submit/submitted_job.h"
#include "tools/launch/jobs/job_script.h"
#include "tools/launch/jobs/slurm_queue.h"
#include "tools/report/output/console_output.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/report/output/standard_output.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

// Flushes, so that a signal to this process does not lose the line.
void print_escaped_line(const std::string& line) {
  print_output(base::escape_text(line) + "\n");
  flush_standard_output();
}

// Returns the kind of a file system that only this host has; "" for others.
std::string local_file_system(const std::string& folder) {
  constexpr long kXfs = 0x58465342;
  struct statfs system {};
  if (statfs(folder.c_str(), &system) != 0) return "";
  switch (static_cast<long>(system.f_type)) {
    case TMPFS_MAGIC:
      return "tmpfs";
    case EXT4_SUPER_MAGIC:
      return "ext4";
    case BTRFS_SUPER_MAGIC:
      return "btrfs";
    case OVERLAYFS_SUPER_MAGIC:
      return "overlayfs";
    case kXfs:
      return "xfs";
    default:
      return "";
  }
}

// Throws io::CannotCreateError for a job.sh that submit has not written.
void check_script(const std::string& folder) {
  constexpr std::uint64_t kMaxScript = 16 << 20;
  const std::string path = folder + "/" + kJobScript;
  std::error_code missing;
  const fs::file_status status = fs::symlink_status(path, missing);
  if (!fs::exists(status)) return;
  if (!fs::is_regular_file(status) || !is_job_script(io::read_run_file(path, kMaxScript)))
    throw io::CannotCreateError(path +
                                " was not written by engine submit: rename it, or give "
                                "another --save-dir");
}

void write_script(const std::string& script, const std::string& folder) {
  io::create_folder(folder);
  io::write_file_atomically(folder + "/" + kJobScript, script);
}

int submit(const SubmitOptions& options) {
  const JobRequest& request = options.request;
  const std::string script = job_script(request);
  if (options.print) {
    print_output(script);
    return kExitOk;
  }
  check_sbatch();
  const std::vector<std::string> folders = job_folders(request);
  for (const std::string& folder : folders) {
    check_no_job_of(folder);
    check_script(folder);
  }
  for (const std::string& folder : folders) write_script(script, folder);
  if (const std::string kind = local_file_system(folders.front()); !kind.empty())
    print_notice("warning: " + folders.front() + " is on " + kind + " of " + backends::host_name() +
                 ": expected a file system that the nodes of the job share, unless they share "
                 "this one");
  if (const std::vector<std::string> removed = remove_sbatch_variables(script); !removed.empty())
    print_notice("not passed to sbatch, since submit's options decide: " +
                 base::join_text(removed, ", "));
  const SlurmJob job = submit_to_slurm(folders.front() + "/" + kJobScript);
  const bool array = !request.array.spec.empty();
  for (std::size_t i = 0; i < folders.size(); ++i) {
    const std::string task = array ? "_" + std::to_string(request.array.tasks[i]) : "";
    note_job({{job.id + task, job.cluster}, folders[i]});
  }
  print_escaped_line(
      "submitted job " + job.id + (job.cluster.empty() ? "" : " on cluster " + job.cluster) +
      "; its output: " + request.folder + "/" + job_log_name(job.id + (array ? "_%a" : "")));
  return array || !options.wait ? kExitOk : follow_job({job, request.folder});
}

}  // namespace

int submit_command(const Arguments& arguments) {
  const std::optional<SubmitOptions> options = parse_submit_options(arguments);
  if (!options) return kExitOk;
  if (!options->status.empty()) {
    for (const std::string& line : status_lines(find_job(options->status)))
      print_escaped_line(line);
    return kExitOk;
  }
  if (options->cancel.empty()) return submit(*options);
  print_escaped_line(cancel_job(find_job(options->cancel)));
  return kExitOk;
}

}  // namespace tools
