// Implements folder, comparison and record.
#include "tools/run/session/training_run.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <utility>

#include "backends/identity/host_layout.h"
#include "engine/averaging/policies/policy_checkpoint.h"
#include "engine/train/best_model.h"
#include "engine/train/replicas/replica_sync.h"
#include "io/base/files/io_error.h"
#include "io/base/text/text_parts.h"
#include "io/base/time/utc_time.h"
#include "tools/folder/resume_source.h"
#include "tools/folder/run_comparison.h"
#include "tools/folder/run_reference.h"
#include "tools/launch/group/joining_options.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

// Absolute paths allow the run to continue from any working directory.
std::string absolute(const std::string& path) {
  if (path.empty()) return path;
  std::error_code unknown;
  const std::filesystem::path whole = std::filesystem::absolute(path, unknown);
  return unknown ? path : whole.lexically_normal().string();
}

// Returns the options that a run stores, with absolute locations of the data, including default
// locations.
ConfigValues kept_options(const RunConfig& config) {
  ConfigValues kept = options_of_run(config.origin);
  const std::string folder = absolute(config.data.set.directory);
  std::error_code unknown;
  const auto named = config.origin.find("data-dir");
  if (!config.data.set.csv.annotations.empty())
    kept["annotations"].value = absolute(config.data.set.csv.annotations);
  else if ((named != config.origin.end() && !named->second.value.empty()) ||
           std::filesystem::is_directory(folder, unknown))
    kept["data-dir"].value = folder;
  return kept;
}

std::string check(RunFolder& folder) {
  const std::string why = folder.check([&folder](const std::string& text) {
    keep_log(folder.path() + "/log.txt");  // in the new folder, if there is one
    print_notice(text);
  });
  if (!why.empty()) return why;
  restore_log();
  if (const std::string made = folder.restore_record(); !made.empty()) print_notice(made);
  return "";
}

}  // namespace

TrainingRun::TrainingRun(const RunConfig& config, std::string command, const backends::Group& group,
                         backends::Communicator& control, KeptRun* kept)
    : config_(config),
      kept_(kept_options(config)),
      command_(std::move(command)),
      group_(group),
      kept_run_(kept),
      resume_(config.keeping.resume) {
  engine::run_on_root(
      control, [&] { take_folder(); }, exit_code_of);
  engine::broadcast_text(control, folder_path_);
  engine::broadcast_text(control, id_);
  std::string resume = resume_.text();
  engine::broadcast_text(control, resume);
  resume_ = Resume::parse(resume);
  if (kept_run_ == nullptr) return;
  kept_run_->under_way = true;
  kept_run_->path = folder_path_;
  kept_run_->id = id_;
}

TrainingRun::~TrainingRun() {
  if (kept_run_ != nullptr) kept_run_->folder = std::move(folder_);
}

void TrainingRun::take_folder() {
  const bool goes_on = kept_run_ != nullptr && kept_run_->under_way;
  if (config_.keeping.directory.empty()) {
    id_ = goes_on ? kept_run_->id : new_run_id();
    return check_checkpoint();
  }
  if (goes_on) folder_ = std::move(kept_run_->folder);
  recorded_ = folder_ != nullptr;
  if (!folder_) {
    folder_ = std::make_shared<RunFolder>(
        RunFolderRequest{.folder = goes_on ? kept_run_->path : config_.keeping.directory,
                         .resume = config_.keeping.resume,
                         .overwrite = config_.overwrite,
                         .restarted = was_restarted(),
                         .launch = launch_id(),
                         .take_over = goes_on,
                         .model = config_.model.name,
                         .dataset = config_.data.set.name});
    if (!folder_->notice().empty()) print_notice(folder_->notice());
  }
  folder_path_ = folder_->path();
  id_ = folder_->id();
  if (folder_->is_of_this_job() && folder_->continued()) resume_ = {Resume::From::kOwnFolder};
  check_checkpoint();
  if (!folder_->begun() || goes_on) return;
  print_notice("the run in " + folder_path_ + " has no checkpoint yet: it begins from step 0");
  report_changes(option_changes(folder_->record().options, config_.origin));
}

SessionOptions TrainingRun::session_options() {
  SessionOptions options = config_;
  options.keeping.directory = folder_path_;
  options.keeping.run_id = id_;
  options.keeping.configuration = to_toml(kept_);
  options.keeping.resume = resume_;
  options.keeping.admit = [this](const io::Checkpoint& checkpoint, const std::string& path,
                                 const DataSummary& data) { admit(checkpoint, path, data); };
  if (folder_)
    options.keeping.before_write = [folder = folder_] { return check(*folder); };
  else if (kept_run_ == nullptr && !folder_path_.empty()) {
    options.keeping.take_folder = [this] { return take_lost_folder(); };
    options.keeping.before_write = [this] { return check(*folder_); };
  }
  return options;
}

// Rank 0 has it until it ends or is stopped. If it is continued, its lock shows that it has lost
// the folder, so that it writes nothing more.
bool TrainingRun::take_lost_folder() {
  try {
    folder_ = std::make_shared<RunFolder>(RunFolderRequest{
        .folder = folder_path_, .resume = resume_, .restarted = true, .from_stopped = true});
    return folder_->id() == id_;
  } catch (const StoppedError&) {
    // Its launcher ends this rank: rank 0 may be alive, and saving.
    if (!backends::are_on_one_host(group_, 0, group_.rank()))
      print_notice("a rank was lost, and rank " + std::to_string(group_.rank()) +
                   " was ended before rank 0 on host " + group_.peers().front().host +
                   " had given the folder free: it has saved nothing");
    return false;
  } catch (const std::exception& error) {  // the run ends by the loss, whatever the reason is
    print_notice("a rank was lost, and rank " + std::to_string(group_.rank()) +
                 " cannot save the run: " + error.what());
    return false;
  }
}

bool TrainingRun::allows(const char* change) const {
  return std::ranges::count(config_.allowed_changes, change) > 0;
}

// Checks the checkpoint to be resumed before anything is created that would not fit it.
void TrainingRun::check_checkpoint() const {
  try {
    if (const auto source = resume_source(resume_, folder_path_, id_))
      static_cast<void>(checked_changes(source->description, source->path));
  } catch (const io::DataError&) {
    return;  // the code that loads it reports the problem, or uses another one
  }
}

std::vector<OptionChange> TrainingRun::checked_changes(const io::Checkpoint& checkpoint,
                                                       const std::string& path) const {
  refuse_import(checkpoint, path);
  std::vector<OptionChange> changes = option_changes(options_in(checkpoint, path), config_.origin);
  check_changes(changes, config_.allowed_changes, path);
  if (!checkpoint.definition.empty() && checkpoint.definition != config_.model.definition &&
      !allows("model"))
    throw io::ConfigError(
        path + " was trained with other layers than " + config_.model.name +
        " lists now: --resume its folder without --model to continue with its own, "
        "or give --allow-change model if its arrays keep their names and shapes");
  return changes;
}

// Returns e.g. "120 training samples then, 90 now; annotations a.csv -> b.csv (--annotations)": the
// known differences in the data.
std::string TrainingRun::data_difference(const io::Checkpoint& checkpoint,
                                         const ConfigValues& saved, std::int64_t samples) const {
  const std::int64_t before = engine::find_counter(checkpoint.counters, "trainer.dataset_size", -1);
  std::string text =
      before < 0 ? ""
      : before == samples
          ? "also " + std::to_string(samples) + " training samples, with other content"
          : std::to_string(before) + " training samples then, " + std::to_string(samples) + " now";
  std::vector<std::string> changed;
  for (const OptionChange& change : place_changes(saved, kept_))
    changed.push_back(change_text(change));
  for (const OptionChange& change : option_changes(saved, config_.origin))
    if (change.experiment) changed.push_back(change_text(change));
  if (!changed.empty()) return text + (text.empty() ? "" : "; ") + base::join_text(changed);
  const auto place =
      kept_.find(config_.data.set.csv.annotations.empty() ? "data-dir" : "annotations");
  if (place != kept_.end() && !place->second.value.empty())
    text += (text.empty() ? "" : "; ") + place->second.value + " has changed since";
  return text;
}

void TrainingRun::admit(const io::Checkpoint& checkpoint, const std::string& path,
                        const DataSummary& data) {
  const std::vector<OptionChange> changes = checked_changes(checkpoint, path);
  if (!checkpoint.data_digest.empty() && !data.digest.is(checkpoint.data_digest)) {
    const ConfigValues saved = options_in(checkpoint, path);
    if (!allows("data") && !allows("limit") && !allows("dataset"))
      throw io::ConfigError(path + " was trained on other data (" +
                            data_difference(checkpoint, saved, data.train) +
                            "): give the data that it had, or --allow-change data");
    changed_.push_back(data_change(saved, checkpoint.data_digest, data));
  } else if (!checkpoint.test_digest.empty() && checkpoint.test_digest != data.test_digest) {
    changed_.push_back(test_data_change(data.test));
  }
  report_changes(changes);
}

void TrainingRun::report_changes(const std::vector<OptionChange>& changes) {
  for (const OptionChange& change : changes) changed_.push_back(change_text(change));
  if (group_.rank() == 0 && !changed_.empty())
    print_notice("changed: " + base::join_text(changed_));
}

// Returns e.g. "data /d/a.csv (120 train, 30 test) -> /d/b.csv (80 train, 20 test)".
std::string TrainingRun::data_change(const ConfigValues& saved, const std::string& digest,
                                     const DataSummary& data) const {
  const auto counted = [](const ConfigValues& options, std::int64_t train, std::int64_t test) {
    std::string text;
    for (const char* place : {"data-dir", "annotations"})
      if (const auto found = options.find(place); found != options.end() && text.empty())
        text = found->second.value;
    return text + (text.empty() ? "" : " ") + "(" + std::to_string(train) + " train, " +
           std::to_string(test) + " test)";
  };
  const RunData* before = folder_ ? &folder_->record().data : nullptr;
  const bool known = before != nullptr && before->digest == digest;
  return "data " + (known ? counted(saved, before->train, before->test) : "of digest " + digest) +
         " -> " + counted(kept_, data.train, data.test);
}

// Returns e.g. "test data (5 samples -> 20 samples)". The training is the same, so this is allowed.
std::string TrainingRun::test_data_change(std::int64_t samples) const {
  const std::int64_t before = folder_ ? folder_->record().data.test : 0;
  const std::string now = std::to_string(samples) + " samples";
  if (before == samples) return "test data (also " + now + ", with other content)";
  return "test data (" + (before > 0 ? std::to_string(before) + " samples -> " : "") + now + ")";
}

void TrainingRun::take_back() noexcept {
  try {
    if (folder_) folder_->take_back();
  } catch (const std::exception&) {
    return;  // the reason of the run's end matters more
  }
}

// If the checkpoint was requested by name, later ones are discarded. The names change first, so
// that they name existing files whenever the job ends.
void TrainingRun::leave_later_steps(const std::string& resumed_from, std::int64_t step) {
  const auto print = [](const std::string& notice) {
    if (!notice.empty()) print_notice(notice);
  };
  if (!resumed_from.empty())
    print(folder_->name_earlier(step, engine::best_step_of(io::load_description(resumed_from))));
  std::error_code unknown;
  if (resume_.from == Resume::From::kPath && !std::filesystem::is_directory(resume_.path, unknown))
    print(folder_->give_up_newer(step));
}

void TrainingRun::begin(const TrainSession& session, std::int64_t step) {
  if (group_.rank() != 0) return;
  if (recorded_) {
    record_ = folder_->record();
    return;
  }
  const SessionData& data = session.data();
  const io::Dataset& train = data.train();
  const std::array<std::int64_t, 3> shape = train.shape();
  RunRecord record{.id = id_,
                   .model = config_.model.name,
                   .definition = config_.model.definition,
                   .data = {.name = train.name,
                            .folder = absolute(config_.data.set.directory),
                            .digest = session.facts().data.digest,
                            .train = train.size(),
                            .test = data.test().size(),
                            .classes = train.classes(),
                            .shape = {shape.begin(), shape.end()},
                            .normalization = data.normalization(),
                            .vocabulary = train.vocabulary()},
                   .options = kept_,
                   .starts = {}};
  RunStart start{.time = base::utc_seconds_text(std::time(nullptr)),
                 .program = ENGINE_VERSION " " ENGINE_COMMIT,
                 .command = command_,
                 .hosts = {},
                 .backend = group_.backend(),
                 .machines = session.machines(),
                 .step = step,
                 .changed = changed_,
                 .launch = launch_id()};
  for (const backends::PeerInfo& peer : group_.peers()) start.hosts.push_back(peer.host);
  if (folder_) {
    if (folder_->continued() && step > 0) leave_later_steps(session.facts().start.path, step);
    folder_->begin(std::move(record), start);
    record_ = folder_->record();
  } else {
    record_ = std::move(record);
    record_.starts.push_back(start);
  }
}

}  // namespace tools
