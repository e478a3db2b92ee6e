// `engine eval`: loss and accuracy of a checkpoint's model.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>

#include "engine/train/checks/finite_guard.h"
#include "engine/train/evaluator.h"
#include "engine/train/saving/checkpoint_keeper.h"
#include "engine/train/saving/weights.h"
#include "io/base/json_writer.h"
#include "io/base/visible_text.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/byte_source.h"
#include "io/interchange/array_files.h"
#include "models/model_catalog.h"
#include "tools/commands/command.h"
#include "tools/group/run_group.h"
#include "tools/machine/thread_choice.h"
#include "tools/options/command_line.h"
#include "tools/report/console_observer.h"
#include "tools/report/exit_codes.h"
#include "tools/run/run_reference.h"
#include "tools/session/compute_choice.h"
#include "tools/session/saved_run.h"
#include "tools/session/saved_weights.h"
#include "tools/session/session_data.h"

namespace tools {
namespace {

struct EvalOptions {
  std::string path, weights = "model", split = "test", format = "text";
  std::string data_digest = {};  // of the run's training samples; "": not compared
};

void print(const engine::EvalReport& report, const EvalOptions& o, const std::string& set) {
  const bool model = o.weights == "model";
  if (o.format != "json") {
    std::printf("%s%s on %s (%s): %s\n", base::visible_text(o.path).c_str(),
                model ? "" : (" " + o.weights).c_str(), set.c_str(), o.split.c_str(),
                eval_text(report).c_str());
    return;
  }
  base::JsonWriter object;
  object.begin_object().member("schema", 1).member("event", "eval").member("split", o.split);
  if (!model) object.member("weights", o.weights);
  object.member("loss", report.loss).member("accuracy", report.accuracy());
  object.member("correct", report.correct).member("samples", report.samples);
  if (report.rows != report.samples) object.member("rows", report.rows);
  if (report.top5 >= 0) object.member("top5", report.top5_accuracy());
  if (report.text) object.member("perplexity", report.perplexity());
  std::printf("%s\n", object.end_object().text().c_str());
}

// Throws what opening does where the file is nothing that has weights.
bool is_snapshot(const std::string& path) {
  std::unique_ptr<io::ByteSource> bytes = io::open_bytes(path);
  if (path.ends_with(".ckpt") || io::is_checkpoint(*bytes)) return true;
  static_cast<void>(io::open_arrays(std::move(bytes)));
  return false;
}

// Unless the command line asks for other samples than the run's.
bool same_data_expected(const tools::ConfigValues& values) {
  const auto other = [](const std::string& name) {
    return name != "model" && name != "dtype" && name != "data-dir" && name != "annotations" &&
           name != "image-cache-mb";
  };
  return !values.contains("limit") &&
         std::ranges::none_of(saved_options(), [&](const std::string& name) {
           return other(name) && values.contains(name);
         });
}

int eval_rank(const tools::RunConfig& config, const EvalOptions& o, backends::Group& group) {
  const auto control = host_communicator(group);
  const Compute compute = choose_compute(compute_options(config), group, *control);
  const DataOptions options = data_options(config);
  const std::shared_ptr<LoadedData> own = load_together(options, group, *control);
  const LoadedData& loaded = *own;
  const io::DatasetSplits& data = loaded.splits;
  if (group.rank() == 0 && !o.data_digest.empty() &&
      o.data_digest != (loaded.digest.empty() ? io::data_digest(data.train) : loaded.digest))
    print_notice("warning: the data differ from those of the run: " + o.path +
                 " was trained on other samples of " + data.train.name);
  const io::Dataset& set = o.split == "train" ? data.train : data.test;
  const engine::Graph graph =
      models::build_model(config.model, {.sample_shape = sample_shape(set),
                                         .classes = set.classes,
                                         .definition = config.model_definition});
  engine::ModelState state =
      engine::ModelState::allocate(graph, engine::state_dtype(compute.storage));
  state.initialize(graph, 0);
  const auto read = [&](const std::string& path) { return load_weights(o.weights, path); };
  engine::init_from(*control, o.path, read, exit_code_of, state);
  if (const auto bad = engine::first_not_finite(state, /*statistics=*/true))
    throw io::DataError(o.path + ": '" + state.entries[*bad].name +
                        "' is not finite (NaN or infinity): the training that wrote it had "
                        "diverged; evaluate an earlier snapshot");
  engine::ThreadPool pool(config.threads > 0 ? config.threads : default_threads(group));
  engine::Evaluator evaluator(*control, graph, state, pool, set,
                              {.normalization = normalization(options, data.train),
                               .dtype = compute.storage,
                               .device = compute.device,
                               .products = compute.products});
  const engine::EvalReport report = evaluator.run();
  if (group.rank() != 0) return kExitOk;
  print(report, o, set.name);
  return kExitOk;
}

}  // namespace

int eval_command(const Arguments& arguments) {
  CLI::App app("Evaluates a checkpoint's model on every sample once, with any number of ranks.",
               "engine eval");
  tools::ConfigValues values;
  EvalOptions o;
  app.add_option("RUN|CKPT", o.path,
                 "a run's folder (its best snapshot, else the newest), a .ckpt, or a .safetensors "
                 "or .npz together with --model")
      ->required();
  add_weights_option(app, o.weights);
  app.add_option("--split", o.split, "which part of the data set")
      ->check(CLI::IsMember({"test", "val", "train"}))
      ->default_str("test");
  app.add_option("--format", o.format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->default_str("text");
  std::vector<std::string> options{
      "limit", "threads", "backend",      "init-method", "rank",   "world-size", "local-rank",
      "spawn", "iface",   "rdzv-timeout", "timeout",     "device", "amp"};
  options.insert(options.end(), saved_options().begin(), saved_options().end());
  add_table_options(app, values, options);
  if (!parse(app, arguments)) return kExitOk;
  o.path = snapshot_of(o.path, snapshot_with(o.weights));
  std::string definition;
  if (is_snapshot(o.path)) {
    const io::Checkpoint snapshot = io::load_description(o.path);
    o.data_digest = same_data_expected(values) ? snapshot.data_digest : "";
    if (!values.contains("model")) definition = snapshot.definition;
    take_saved_options(snapshot, o.path, values);
  }
  complete_values(values, "");
  tools::RunConfig config = tools::resolve_run_config(values);
  config.model_definition =
      definition.empty() ? models::model_definition(config.model) : definition;
  return run_group(config, [&](backends::Group& group) { return eval_rank(config, o, group); });
}

}  // namespace tools
