// Folder, comparison, record.
#include "tools/session/training_run.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <utility>

#include "engine/train/replica_sync.h"
#include "io/base/io_error.h"
#include "io/base/text_parts.h"
#include "io/base/utc_time.h"
#include "tools/group/run_group.h"
#include "tools/machine/build_info.h"
#include "tools/report/console_observer.h"
#include "tools/report/exit_codes.h"
#include "tools/run/run_comparison.h"

namespace tools {
namespace {

// So that the run goes on from any working directory.
std::string absolute(const std::string& path) {
  if (path.empty()) return path;
  std::error_code unknown;
  const std::filesystem::path whole = std::filesystem::absolute(path, unknown);
  return unknown ? path : whole.lexically_normal().string();
}

// The options that a run keeps, with absolute places of the data, also of those that lie where no
// option says.
ConfigValues kept_options(const RunConfig& config) {
  ConfigValues kept = options_of_run(config.origin);
  const std::string folder = absolute(data_options(config).set.directory);
  std::error_code unknown;
  if (!config.annotations.empty())
    kept["annotations"].value = absolute(config.annotations);
  else if (!config.data_dir.empty() || std::filesystem::is_directory(folder, unknown))
    kept["data-dir"].value = folder;
  return kept;
}

}  // namespace

TrainingRun::TrainingRun(const RunConfig& config, std::string command, const backends::Group& group,
                         backends::Communicator& control)
    : config_(config), kept_(kept_options(config)), command_(std::move(command)), group_(group) {
  if (config.save_dir.empty()) {
    if (group.rank() == 0) id_ = new_run_id();
    engine::broadcast_text(control, id_);
    return;
  }
  engine::run_on_root(
      control,
      [&] {
        folder_ = std::make_unique<RunFolder>(RunFolderRequest{.folder = config.save_dir,
                                                               .resume = config.resume,
                                                               .overwrite = config.overwrite,
                                                               .restarted = was_restarted(),
                                                               .model = config.model,
                                                               .dataset = config.dataset});
        if (!folder_->notice().empty()) print_notice(folder_->notice());
        folder_path_ = folder_->path();
        id_ = folder_->id();
      },
      exit_code_of);
  engine::broadcast_text(control, folder_path_);
  engine::broadcast_text(control, id_);
}

SessionOptions TrainingRun::session_options() {
  SessionOptions options = tools::session_options(config_);
  options.keeping.directory = folder_path_;
  options.keeping.run_id = id_;
  options.keeping.configuration = to_toml(kept_);
  if (!folder_path_.empty() && was_restarted() && options.keeping.resume == "none")
    options.keeping.resume = "auto";
  options.keeping.admit = [this](const io::Checkpoint& snapshot, const std::string& path,
                                 const std::string& data_digest) {
    admit(snapshot, path, data_digest);
  };
  return options;
}

void TrainingRun::admit(const io::Checkpoint& snapshot, const std::string& path,
                        const std::string& data_digest) {
  ConfigValues saved;
  apply_config_text(snapshot.config, path, saved);
  const std::vector<OptionChange> changes = option_changes(saved, config_.origin);
  check_changes(changes, config_.allowed_changes, path);
  const auto allowed = [&](const char* name) {
    return std::ranges::count(config_.allowed_changes, name) > 0;
  };
  if (!snapshot.definition.empty() && snapshot.definition != config_.model_definition &&
      !allowed("model"))
    throw io::ConfigError(path + " was trained with other layers than " + config_.model +
                          " lists now: --resume its folder without --model to go on with its own, "
                          "or give --allow-change model");
  if (!snapshot.data_digest.empty() && snapshot.data_digest != data_digest && !allowed("data") &&
      !allowed("limit") && !allowed("dataset"))
    throw io::ConfigError(path + " was trained on other data (digest " + snapshot.data_digest +
                          ", now " + data_digest +
                          "): give the run's own --data-dir, or "
                          "--allow-change data");
  for (const OptionChange& change : changes) changed_.push_back(change_text(change));
  if (group_.rank() == 0 && !changed_.empty())
    print_notice("changed: " + base::join_text(changed_));
}

void TrainingRun::begin(const TrainSession& session, std::int64_t step) {
  if (group_.rank() != 0) return;
  const SessionData& data = session.data();
  const io::Dataset& train = data.train();
  RunRecord record{
      .id = id_,
      .model = config_.model,
      .definition = config_.model_definition,
      .data = {.name = train.name,
               .folder = absolute(data_options(config_).set.directory),
               .digest = session.data_digest(),
               .train = train.size(),
               .test = data.test().size(),
               .classes = train.classes,
               .shape = {train.shape.begin(), train.shape.end()},
               .normalization =
                   data.normalization() == io::Normalization::kUnit ? "unit" : "standard",
               .vocabulary = train.vocabulary},
      .options = kept_,
      .starts = {}};
  RunStart start{.time = base::utc_seconds_text(std::time(nullptr)),
                 .program = ENGINE_VERSION " " ENGINE_COMMIT,
                 .command = command_,
                 .hosts = {},
                 .step = step,
                 .changed = changed_};
  for (const backends::PeerInfo& peer : group_.peers()) start.hosts.push_back(peer.host);
  if (folder_) {
    folder_->begin(std::move(record), start);
    record_ = folder_->record();
  } else {
    record_ = std::move(record);
    record_.starts.push_back(start);
  }
}

}  // namespace tools
