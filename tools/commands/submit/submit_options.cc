// The job's own options come first; what train resolves to decides about folder and resuming.
#include "tools/commands/submit/submit_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "io/base/files/io_error.h"
#include "io/base/text/text_parts.h"
#include "tools/commands/submit/submit_checks.h"
#include "tools/commands/train_instead.h"
#include "tools/folder/run_folder.h"
#include "tools/launch/nodes/own_program.h"
#include "tools/options/input/config_sources.h"
#include "tools/options/input/own_arguments.h"
#include "tools/options/table/value_check.h"
#include "tools/options/table/value_text.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/shell_text.h"
#include "tools/run/choices/train_arguments.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSubmitFooter =
    "The script, the job's output and the checkpoints are in the folder of train's --save-dir. "
    "docs/slurm.md has more.\n"
    "Examples:\n"
    "  engine submit --nodes 2 --gpus-per-node 4 --time 4:00:00 train --model resnet50 --dataset "
    "images --data-dir /shared/images --save-dir runs/a\n"
    "  engine submit --print --time 20 train --model convnet --dataset glyphs --save-dir runs/b\n"
    "  engine submit --array 0-4 train --model mlp --dataset mnist --seed %a --save-dir runs/s%a\n"
    "  engine submit --status runs/a";

struct RawJob {
  std::string scheduler = "slurm", nodes = "1", time, array;
  std::string gpus;
  int tasks = 0, cpus = 0, signal_before = 120;
  std::vector<std::string> sbatch, srun, setup;
  std::string program;
};

void add_resource_options(CLI::App& app, RawJob& raw, JobRequest& request) {
  app.add_option("--nodes", raw.nodes, "number of nodes; MIN-MAX with train --elastic")
      ->type_name("N|MIN-MAX")
      ->default_str("1")
      ->group("Resources");
  const auto number = [&](const char* name, int& value, const char* help, const char* metavar) {
    return app.add_option(name, value, help)
        ->type_name(metavar)
        ->transform(whole_number(1, 65536))
        ->group("Resources");
  };
  app.add_option("--gpus-per-node", raw.gpus, "GPUs of each node, e.g. 4 or a100:4")
      ->type_name("[TYPE:]G")
      ->group("Resources");
  number("--ntasks-per-node", raw.tasks, "ranks on each node (default: one per GPU, else 1)", "T");
  number("--cpus-per-task", raw.cpus, "cores of each rank", "C");
  const auto text = [&](const char* name, std::string& value, const char* help,
                        const char* metavar) {
    app.add_option(name, value, help)->type_name(metavar)->group("Resources");
  };
  text("--mem", request.resources.memory, "memory of each node, e.g. 16G", "M");
  text("--time", raw.time, "time limit of each turn, e.g. 20 (minutes), 2:00:00, 1-12", "T");
  text("--partition", request.place.partition, "partition or queue", "P");
  text("--account", request.place.account, "account or project", "A");
  text("--qos", request.place.qos, "quality of service", "Q");
  text("--name", request.place.name, "name of the job (default: that of the folder)", "N");
  text("--array", raw.array, "independent runs: %a in train's options is the number, e.g. 0-4",
       "LIST");
  number("--signal-before", raw.signal_before, "seconds before the time limit at which to save",
         "S")
      ->default_str("120");
}

void add_script_options(CLI::App& app, RawJob& raw, SubmitOptions& options) {
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* help,
                        const char* metavar) {
    app.add_option_function<std::string>(
           name, [&values](const std::string& value) { values.push_back(value); }, help)
        ->type_name(metavar)
        ->group("Script")
        ->trigger_on_parse();
  };
  list("--sbatch", raw.sbatch, "another option of sbatch, e.g. mail-type=END; may be repeated",
       "NAME[=VALUE]");
  list("--srun", raw.srun, "another option of srun, e.g. cpu-bind=cores; may be repeated",
       "NAME[=VALUE]");
  list("--setup", raw.setup, "line of shell before training, e.g. 'module load cuda'", "LINE");
  app.add_option("--program", raw.program,
                 "shell words that start this program on the nodes (default: its path)")
      ->type_name("WORDS")
      ->group("Script");
  app.add_option("--scheduler", raw.scheduler, "scheduler; others than slurm need --print")
      ->check(CLI::IsMember({"slurm", "pbs", "lsf", "sge"}))
      ->type_name("slurm|pbs|lsf|sge")
      ->default_str("slurm")
      ->group("Script");
  app.add_flag("--print", options.print, "print the script and submit nothing")
      ->group("Submitting");
  app.add_flag_callback(
         "--no-wait", [&options] { options.wait = false; },
         "return at once instead of following the job's output")
      ->group("Submitting");
  app.add_option("--status", options.status, "show what a submitted job is doing")
      ->type_name("RUN|JOBID")
      ->group("Submitting");
  app.add_option("--cancel", options.cancel, "cancel a submitted job")
      ->type_name("RUN|JOBID")
      ->group("Submitting");
}

Scheduler scheduler_of(const std::string& name) {
  if (name == "pbs") return Scheduler::kPbs;
  if (name == "lsf") return Scheduler::kLsf;
  return name == "sge" ? Scheduler::kSge : Scheduler::kSlurm;
}

void take_nodes(const std::string& text, JobResources& resources) {
  constexpr int kMaxNodes = 65536;
  const std::vector<std::string> ends = base::split_text(text, '-');
  const auto least = parse_integer(ends.front()), most = parse_integer(ends.back());
  if (ends.size() > 2 || !least || !most || *least < 1 || *most < *least || *most > kMaxNodes)
    throw io::ConfigError("--nodes '" + text + "': expected a number from 1, or MIN-MAX");
  resources.nodes = static_cast<int>(*least);
  resources.max_nodes = static_cast<int>(*most);
}

void take_gpus(const std::string& text, JobResources& resources) {
  constexpr int kMaxGpus = 65536;
  const std::size_t colon = text.rfind(':');
  const bool has_type = colon != std::string::npos;
  const std::string type = has_type ? text.substr(0, colon) : "";
  const auto number = parse_integer(has_type ? text.substr(colon + 1) : text);
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
  };
  if (!number || *number < 1 || *number > kMaxGpus || (has_type && type.empty()) ||
      !std::ranges::all_of(type, is_plain))
    throw io::ConfigError("--gpus-per-node '" + text +
                          "': expected a number from 1, or TYPE:NUMBER");
  resources.gpus_per_node = static_cast<int>(*number);
  resources.gpu_type = type;
}

// Other schedulers have no word for these.
void check_for_slurm(const RawJob& raw, const JobRequest& request) {
  const JobResources& resources = request.resources;
  if (request.scheduler == Scheduler::kSlurm) return;
  if (!request.array.spec.empty() || !request.sbatch.empty() || !request.srun.empty() ||
      !request.place.qos.empty())
    throw UsageError(
        "--array, --qos, --sbatch and --srun are for slurm: leave them out with --scheduler " +
        raw.scheduler + ", or add to the printed script");
  const auto reject = [&](const std::string& option) {
    throw UsageError(option + " is for slurm: give another value with --scheduler " +
                     raw.scheduler + ", or leave it out");
  };
  if (resources.is_unlimited) reject("--time " + raw.time);
  if (!resources.gpu_type.empty()) reject("--gpus-per-node " + raw.gpus);
  if (!resources.memory.empty() && parse_memory(resources.memory) == 0)
    reject("--mem " + resources.memory);
}

// Fills in what the options of the job say.
void take_job(const CLI::App& app, const RawJob& raw, JobRequest& request) {
  request.scheduler = scheduler_of(raw.scheduler);
  JobResources& resources = request.resources;
  take_nodes(raw.nodes, resources);
  if (!raw.gpus.empty()) take_gpus(raw.gpus, resources);
  resources.tasks_per_node = raw.tasks > 0 ? raw.tasks : std::max(1, resources.gpus_per_node);
  resources.cpus_per_task = raw.cpus;
  if (!resources.memory.empty()) static_cast<void>(parse_memory(resources.memory));
  if (!raw.time.empty()) resources.seconds = parse_time_limit(raw.time);
  resources.is_unlimited = !raw.time.empty() && resources.seconds == 0;
  request.signal_before = raw.signal_before;
  if (resources.seconds > 0 && resources.seconds <= raw.signal_before)
    throw io::ConfigError("--time " + raw.time + " is " + std::to_string(resources.seconds) +
                          " s, and --signal-before " + std::to_string(raw.signal_before) +
                          " s leaves no time to train: expected a longer time limit");
  if (!raw.array.empty()) request.array = parse_job_array(raw.array);
  request.sbatch = plain_options(raw.sbatch, "--sbatch");
  request.srun = plain_options(raw.srun, "--srun");
  check_sbatch_options(app, request.sbatch);
  for (const std::string& line : raw.setup) check_setup(line);
  request.setup = raw.setup;
  const bool has_program = app.get_option("--program")->count() > 0;
  if (has_program) check_program(raw.program);
  request.program = has_program ? raw.program : shell_word(own_path());
  check_for_slurm(raw, request);
}

// Rejects options that would start over, or start ranks twice, in each turn of the job.
void check_train(const ConfigValues& values, const Instead& instead) {
  const auto given = [&](const char* name) {
    const auto value = values.find(name);
    return value != values.end() && !value->second.value.empty() && value->second.value != "false";
  };
  if (instead.dry_run || instead.print_config || instead.lr_find)
    throw UsageError(
        "submit is for training: run --dry-run, --print-config and --lr-find of train "
        "without submit");
  if (given("requeue")) throw UsageError("submit puts the job back itself: leave --requeue out");
  if (given("spawn") && values.at("spawn").value != "0")  // as --print-config writes it
    throw UsageError(
        "submit starts a rank per task: leave --spawn out, and give submit "
        "--ntasks-per-node N");
  for (const char* name : {"rank", "world-size", "local-rank"})
    if (given(name))
      throw UsageError("submit starts a rank per task: leave --" + std::string(name) +
                       " out, and give submit --nodes and --ntasks-per-node");
  if (given("overwrite"))
    throw UsageError(
        "--overwrite would start over after each turn of the job: leave it out, and "
        "name a new --save-dir");
}

void check_resuming(const KeepingOptions& keeping) {
  if (keeping.directory.empty())
    throw io::ConfigError(
        "train has no --save-dir: expected a folder for the script, the output "
        "and the checkpoints, from which the job continues");
  if (keeping.directory == "auto")
    throw io::ConfigError(
        "--save-dir auto makes another folder in each turn of the job: name the "
        "folder, --save-dir DIR");
  if (keeping.resume.from == Resume::From::kPath)
    throw io::ConfigError("--resume " + keeping.resume.path +
                          " would go back to it in each turn of the job: expected the run's own "
                          "folder, --resume DIR, or --init-from");
}

// Each run of an array has a folder of its own.
void check_folders(const JobRequest& request, bool resumes) {
  if (!request.array.spec.empty() && request.folder.find("%a") == std::string::npos)
    throw io::ConfigError("--array with the folder " + request.folder +
                          ": expected one for each run, --save-dir with %a for the number");
  if (resumes) return;
  for (const std::string& folder : job_folders(request))
    if (const std::string run = run_in_folder(folder); !run.empty())
      throw io::CannotCreateError(folder + " holds a run (" + run + "): give train --resume " +
                                  folder + " to continue it, or another --save-dir");
}

void take_name(JobPlace& place, const std::string& folder) {
  if (place.name.empty())
    place.name = base::join_text(split_at_task(fs::path(folder).filename().string()), "");
  for (char& c : place.name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_') c = '-';
}

// `folder`: --save-dir, with %a for the number of an array's run.
void take_train(const RunConfig& config, const std::string& folder, JobRequest& request) {
  check_resuming(config.keeping);
  request.folder = fs::absolute(folder).lexically_normal().string();
  if (request.folder.ends_with('/')) request.folder.pop_back();
  check_folders(request, config.keeping.resume.is_wanted());
  request.directory = fs::current_path().string();
  take_name(request.place, request.folder);
  request.elastic = config.is_elastic();
  if (!request.elastic && request.resources.max_nodes > request.resources.nodes)
    throw io::ConfigError(
        "--nodes MIN-MAX needs ranks that may come and go: give train --elastic "
        "MIN:MAX, or submit one number");
  if (!config.keeping.resume.is_wanted())
    request.train.insert(request.train.end(), {"--resume", "auto"});
  const ConfigValue& signals = config.origin.at("preempt-signal");
  request.signal = base::split_text(signals.value, ',').front();
  if (request.signal.starts_with("SIG")) request.signal.erase(0, 3);
  if (request.scheduler != Scheduler::kSlurm && is_default(signals))
    request.train.insert(request.train.end(), {"--preempt-signal", "USR1,USR2,XCPU"});
}

// Checks the options of train, and makes those of an array the first run's. Returns --save-dir,
// with %a for the number of an array's run. A folder from the environment or a file becomes an
// option of the job, so that each turn has the same.
std::string take_folder(TrainArguments& parsed, const Instead& instead, JobRequest& request) {
  ConfigValues all = parsed.values;
  apply_environment(all);
  if (!parsed.config_file.empty()) apply_config_file(parsed.config_file, all);
  check_train(all, instead);
  const auto folder = all.find("save-dir");
  const std::string numbered = folder == all.end() ? "" : folder->second.value;
  if (!numbered.empty() && parsed.values.emplace(*folder).second)
    request.train.insert(request.train.end(), {"--save-dir", numbered});
  if (!request.array.spec.empty())
    for (auto& [name, value] : parsed.values)
      value.value = of_task(value.value, request.array.tasks.front());
  return numbered;
}

}  // namespace

std::optional<SubmitOptions> parse_submit_options(const Arguments& arguments) {
  CLI::App app(
      "engine submit [OPTIONS] train ...: submits a training run as a job that saves before its "
      "time limit, goes back into the queue, and continues until the run is complete.",
      "engine submit");
  app.footer(kSubmitFooter);
  RawJob raw;
  SubmitOptions options;
  add_resource_options(app, raw, options.request);
  add_script_options(app, raw, options);
  auto train = arguments.begin() + static_cast<std::ptrdiff_t>(count_own_arguments(app, arguments));
  if (!parse(app, Arguments(arguments.begin(), train))) return std::nullopt;
  if (train != arguments.end() && *train == "--") ++train;
  const bool asks = !options.status.empty() || !options.cancel.empty();
  if (asks && (train != arguments.end() || (!options.status.empty() && !options.cancel.empty())))
    throw UsageError("--status and --cancel stand alone: give one of them, without train ...");
  if (asks) return options;
  if (train == arguments.end() || *train != "train")
    throw UsageError(
        (train == arguments.end() ? "nothing to submit" : "cannot submit '" + *train + "'") +
        std::string(": expected train and its options (engine submit --help)"));
  take_job(app, raw, options.request);
  if (options.request.scheduler != Scheduler::kSlurm && !options.print)
    throw UsageError("--scheduler " + raw.scheduler +
                     " needs --print: only SLURM's jobs are submitted");
  options.request.train.assign(train + 1, arguments.end());
  Instead instead;
  std::optional<TrainArguments> parsed = parse_train_arguments(
      options.request.train, [&](CLI::App& of_train) { add_instead(of_train, instead); });
  if (!parsed) return std::nullopt;
  const std::string numbered = take_folder(*parsed, instead, options.request);
  std::vector<std::string> ignored;
  const RunConfig config = read_train_config(*parsed, ignored);
  take_train(config, options.request.array.spec.empty() ? config.keeping.directory : numbered,
             options.request);
  return options;
}

}  // namespace tools
