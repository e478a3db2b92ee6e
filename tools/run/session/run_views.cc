// Makes observers from options.
#include "tools/run/session/run_views.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/train/replicas/replica_sync.h"
#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"
#include "io/base/text/text_parts.h"
#include "tools/options/table/value_text.h"
#include "tools/report/observers/tensorboard_observer.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/run/data/shown_samples.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

// Checks that the folder, or its nearest existing parent, can be written.
void check_folder_to_make(const std::string& folder) {
  const auto fail = [&](const std::string& cause) {
    throw io::CannotCreateError("tensorboard " + folder + ": cannot create: " + cause);
  };
  std::error_code unknown;
  fs::path nearest = fs::absolute(folder, unknown).lexically_normal();
  while (!fs::exists(nearest, unknown) && nearest.has_relative_path())
    nearest = nearest.parent_path();
  if (!fs::is_directory(nearest, unknown)) fail(nearest.string() + " is no folder");
  if (access(nearest.c_str(), W_OK | X_OK) != 0)
    fail(nearest.string() + ": " + base::system_error_text(errno));
}

std::string tensorboard_folder(const RunConfig& config, const TrainingRun& run) {
  if (!config.tensorboard.folder.empty()) return config.tensorboard.folder;
  return config.tensorboard.in_run_folder && !run.folder().empty() ? run.folder() + "/tensorboard"
                                                                   : "";
}

// Returns the options that have an effect in this run, as numbers if they are numbers.
std::vector<io::Hyperparameter> hyperparameters(const RunConfig& config) {
  std::vector<io::Hyperparameter> all;
  for (const auto& [name, value] : options_of_run(config.origin)) {
    const OptionSpec* option = find_option(name);
    if (option == nullptr || value.value.empty()) continue;
    const std::optional<double> number = parse_real(value.value);
    const std::optional<bool> flag = parse_flag(value.value);
    using Type = OptionSpec::Type;
    if ((option->type() == Type::kReal || option->type() == Type::kInteger) && number)
      all.push_back({name, *number});
    else if (option->type() == Type::kFlag && flag)
      all.push_back({name, *flag});
    else
      all.push_back({name, value.value});
  }
  return all;
}

// Indents the text, which Markdown shows as code.
std::string indented(const std::string& text) {
  std::string out;
  for (const std::string& line : base::split_text(text, '\n')) out += "    " + line + "\n";
  return out;
}

// REQUIRES: a server is requested.
PrometheusServer server_of(const RunConfig& config, bool patient) {
  return {.address = config.prometheus->address,
          .port = config.prometheus->port,
          .version = ENGINE_VERSION,
          .commit = ENGINE_COMMIT,
          .patient = patient};
}

void add_tensorboard(const ViewedRun& viewed, const std::string& folder, TrainSession& session) {
  const RunRecord& record = viewed.run.record();
  std::string text = "**" + record.model + "** on **" + record.data.name + "**, run " + record.id;
  if (!record.starts.empty())
    text += "\n\n" + indented(record.starts.back().program + ": " + record.starts.back().command);
  // The observer is not copied, but the function that it calls is.
  const std::shared_ptr<ShownSamples> samples =
      session.show_samples(viewed.config.tensorboard.samples);
  std::function<void(std::int64_t, io::EventFile&)> show;
  if (samples)
    show = [samples](std::int64_t step, io::EventFile& file) { samples->show(step, file); };
  session.add_observer(make_tensorboard_observer(
      {.folder = folder,
       .folder_named_by =
           viewed.config.tensorboard.folder.empty() ? io::NamedBy::kRun : io::NamedBy::kUser,
       .run = record.id,
       .step = session.state().progress.global_step,
       .hyperparameters = hyperparameters(viewed.config),
       .configuration = text + "\n\n" + indented(to_toml(viewed.config.origin)),
       .ranks = viewed.group.world_size(),
       .text = session.data().train().label_traits().perplexity,
       .top5 = record.data.classes > 5,
       .regression = session.data().train().target() != nullptr,
       .labels = session.data().train().find<io::MultiLabels>() != nullptr,
       .positions = !session.data().train().label_shape().empty(),
       .gpu_every = viewed.config.log_gpu,
       .histogram_every = viewed.config.tensorboard.histogram_every,
       .model = &session.state().model,
       .home = &session.state().home,
       .gradients = !viewed.config.averaging.shard_optimizer,
       .elastic = viewed.elastic,
       .show_samples = std::move(show)}));
}

}  // namespace

void check_views(const RunConfig& config, bool joins) {
  if (!config.tensorboard.folder.empty()) check_folder_to_make(config.tensorboard.folder);
  if (config.prometheus && !joins) check_prometheus_address(server_of(config, false));
}

void open_page(const RunConfig& config, const backends::Group& group,
               backends::Communicator& control, bool goes_on,
               std::unique_ptr<PrometheusPage>& page) {
  if (!config.prometheus) return;
  if (group.rank() != 0) page.reset();
  const auto open = [&] {
    if (page) return;
    page = std::make_unique<PrometheusPage>(server_of(config, /*patient=*/goes_on));
    log_info("Metrics for Prometheus: " + page->url());
  };
  engine::run_on_root(control, open, exit_code_of);
}

void add_exporters(const ViewedRun& viewed, TrainSession& session, PrometheusPage* page) {
  if (const std::string folder = tensorboard_folder(viewed.config, viewed.run); !folder.empty())
    add_tensorboard(viewed, folder, session);
  if (page == nullptr) return;
  const engine::TrainProgress& progress = session.state().progress;
  page->begin({.run = viewed.run.record().id,
               .model = viewed.run.record().model,
               .dataset = viewed.run.record().data.name,
               .backend = viewed.group.backend(),
               .ranks = viewed.group.world_size(),
               .step = progress.global_step,
               .epoch = progress.epoch_of_step(),
               .samples = progress.samples_seen,
               .steps = session.facts().length.total_steps,
               .epochs = session.facts().length.epochs});
  session.add_observer(page->make_observer());
}

}  // namespace tools
