// From a snapshot to a model that computes.
#include "tools/session/trained_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/train/checks/finite_guard.h"
#include "engine/train/saving/checkpoint_keeper.h"
#include "engine/train/saving/weights.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/byte_source.h"
#include "io/interchange/array_files.h"
#include "models/model_catalog.h"
#include "tools/options/command_line.h"
#include "tools/report/exit_codes.h"
#include "tools/run/run_reference.h"
#include "tools/session/sample_statement.h"
#include "tools/session/saved_run.h"
#include "tools/session/saved_weights.h"

namespace tools {
namespace {

// Throws what opening does where the file is nothing that has weights.
bool is_snapshot(const std::string& path) {
  std::unique_ptr<io::ByteSource> bytes = io::open_bytes(path);
  if (path.ends_with(".ckpt") || io::is_checkpoint(*bytes)) return true;
  static_cast<void>(io::open_arrays(std::move(bytes)));
  return false;
}

// Unless the command line asks for other samples than the run's.
bool same_data_expected(const ConfigValues& values) {
  const auto other = [](const std::string& name) {
    return name != "model" && name != "dtype" && name != "data-dir" && name != "annotations" &&
           name != "image-cache-mb";
  };
  return !values.contains("limit") &&
         std::ranges::none_of(saved_options(), [&](const std::string& name) {
           return other(name) && values.contains(name);
         });
}

std::shared_ptr<LoadedData> stated_data(const io::Checkpoint& snapshot, const std::string& path) {
  if (snapshot.samples.empty()) return nullptr;
  auto data = std::make_shared<LoadedData>();
  data->splits = read_sample_statement(snapshot.samples, path).splits;
  data->splits.train.vocabulary = snapshot.vocabulary;
  data->digest = snapshot.data_digest;
  return data;
}

engine::Graph graph_of(const RunConfig& config, const io::Dataset& set) {
  return models::build_model(config.model, {.sample_shape = sample_shape(set),
                                            .classes = set.classes,
                                            .regression = regression_of(config),
                                            .definition = config.model_definition});
}

}  // namespace

std::vector<std::string> judging_options() {
  std::vector<std::string> options{
      "limit",      "threads", "bind",        "device",      "devices",      "gpu-devices",
      "amp",        "backend", "local-stage", "init-method", "rank",         "world-size",
      "local-rank", "spawn",   "iface",       "port-rule",   "rdzv-timeout", "timeout"};
  options.insert(options.end(), saved_options().begin(), saved_options().end());
  return options;
}

RunConfig trained_config(ModelReference& reference, ConfigValues& values) {
  reference.given = reference.path;
  const auto describe = [&](const std::string& file) {
    reference.path = file;
    return is_snapshot(file) ? std::optional(io::load_description(file)) : std::nullopt;
  };
  const std::optional<io::Checkpoint> found =
      read_snapshot(reference.given, snapshot_with(reference.weights), describe);
  std::string definition;
  if (found) {
    const io::Checkpoint& snapshot = *found;
    if (same_data_expected(values)) {
      reference.data_digest = snapshot.data_digest;
      reference.stated = stated_data(snapshot, reference.path);
    }
    if (!values.contains("model")) definition = snapshot.definition;
    take_saved_options(snapshot, reference.path, values);
    ConfigValues saved;
    apply_config_text(snapshot.config, reference.path, saved);
    if (const auto limit = saved.find("limit"); limit != saved.end())
      values.try_emplace("limit", limit->second);
  }
  complete_values(values, "");
  RunConfig config = resolve_run_config(values);
  config.model_definition =
      definition.empty() ? models::model_definition(config.model) : definition;
  return config;
}

TrainedModel::TrainedModel(const RunConfig& config, const ModelReference& reference,
                           backends::Group& group, std::shared_ptr<LoadedData> given)
    : control_(host_communicator(group)),
      compute_(choose_compute(compute_options(config), group, *control_)),
      options_(data_options(config)),
      loaded_(given ? std::move(given) : load_together(options_, group, *control_)),
      digest_(reference.data_digest),
      path_(reference.path),
      graph_(graph_of(config, loaded_->splits.train)),
      state_(engine::ModelState::allocate(graph_, engine::state_dtype(compute_.storage))),
      pool_(compute_.make_pool()) {
  state_.initialize(graph_, 0);
  std::vector<io::UnreadArray> unread;
  const auto load = [&](const std::string& file) {
    path_ = file;
    return load_weights(reference.weights, file, &unread);
  };
  const auto read = [&](const std::string& path) {
    return read_snapshot(reference.given, snapshot_with(reference.weights), load, path);
  };
  engine::init_from(*control_, reference.path, read, exit_code_of, state_, {}, unread);
  if (const auto bad = engine::first_not_finite(state_, /*statistics=*/true))
    throw io::DataError(path_ + ": '" + state_.entries[*bad].name +
                        "' is not finite (NaN or infinity): the training that wrote it had "
                        "diverged; evaluate an earlier snapshot");
}

bool TrainedModel::other_data() const {
  if (digest_.empty()) return false;
  return digest_ != (loaded_->digest.empty() ? io::data_digest(data().train) : loaded_->digest);
}

}  // namespace tools
