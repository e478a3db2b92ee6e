// Implements `engine predict`: runs a trained model on images, rows of tables, and text.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/machine/cpu_affinity.h"
#include "io/base/text/escape_text.h"
#include "io/interchange/numpy/npy_writer.h"
#include "tools/commands/command.h"
#include "tools/commands/predict/distributed_prediction.h"
#include "tools/commands/predict/input_predictor.h"
#include "tools/commands/predict/map_writer.h"
#include "tools/commands/predict/trained_model.h"
#include "tools/folder/output_paths.h"
#include "tools/launch/group/run_group.h"
#include "tools/options/input/command_line.h"
#include "tools/options/table/value_check.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/report/output/standard_output.h"
#include "tools/report/text/prediction_writer.h"
#include "tools/run/choices/agreement.h"
#include "tools/run/data/saved_weights.h"

namespace tools {
namespace {

struct PredictOptions {
  ModelReference model;
  std::vector<std::string> inputs;
  PredictionFormat format;
  bool top_given = false;
  std::string layer, layer_file = "embeddings.npy", maps_file = "class_maps.npz";
};

// The files that rank 0 writes.
struct Outputs {
  std::optional<PredictionWriter> lines;
  std::optional<MapWriter> maps;  // in place of lines, for a class at each position
  std::optional<io::NpyWriter> embeddings;

  void add(const PredictedBlock& block, std::size_t logits) {
    for (std::size_t i = 0; i < block.origins.size(); ++i) {
      const auto& [file, sample] = block.origins[i];
      const std::span own = std::span(block.logits).subspan(i * logits, logits);
      maps ? maps->add(file, sample, own) : lines->print(file, sample, own);
    }
    if (embeddings) embeddings->add(block.watched);
    check_standard_output();
  }
  void finish() {
    if (embeddings) embeddings->finish();
    if (maps) print_output(maps->finish() + "\n");
    check_standard_output();
  }
};

// Prints a notice once a wait for the data of a pipe has lasted 3 s, since the command would look
// as if it hung. A thread watches the time, because opening and reading a pipe block.
class PipeNotice {
 public:
  // Without a pipe among the inputs there is no notice.
  explicit PipeNotice(const std::vector<std::string>& inputs) {
    std::error_code unknown;
    const auto pipe = std::ranges::find_if(
        inputs, [&](const std::string& input) { return std::filesystem::is_fifo(input, unknown); });
    if (pipe == inputs.end()) return;
    thread_ = std::jthread([this, name = *pipe](const std::stop_token& stop) { run(stop, name); });
  }

  class Wait {
   public:
    explicit Wait(PipeNotice& notice) : notice_(notice) { notice_.set_waiting(true); }
    ~Wait() { notice_.set_waiting(false); }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    PipeNotice& notice_;
  };

 private:
  void set_waiting(bool waiting) {
    {
      const std::lock_guard lock(mutex_);
      waiting_ = waiting;
      ++changes_;
    }
    changed_.notify_all();
  }

  void run(const std::stop_token& stop, const std::string& pipe) {
    constexpr std::chrono::seconds kPatience{3};
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [&] { return waiting_; })) {
      const std::int64_t now = changes_;
      if (changed_.wait_for(lock, stop, kPatience, [&] { return changes_ != now; })) continue;
      if (!stop.stop_requested())
        print_notice("waiting for data: nothing has been written to the pipe " + pipe + " for " +
                     std::to_string(kPatience.count()) + " s");
      return;
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool waiting_ = false;
  std::int64_t changes_ = 0;
  std::jthread thread_;  // last member, because it uses the others
};

void begin_predictions(const PredictOptions& o, const io::Dataset& train, Outputs& outputs) {
  if (!train.label_shape().empty())
    outputs.maps.emplace(o.maps_file, train.label_shape(), train.classes());
  else if (train.target() != nullptr)
    outputs.lines.emplace(o.format, *train.target());
  else if (train.find<io::MultiLabels>() != nullptr)
    outputs.lines.emplace(o.format, *train.find<io::MultiLabels>());
  else
    outputs.lines.emplace(o.format, class_names(train));
}

// Each rank reads all inputs, so they must be the same on all ranks, and readable more than once.
void check_inputs(const PredictOptions& o, TrainedModel& model, const backends::Group& group) {
  namespace fs = std::filesystem;
  if (group.world_size() == 1) return;
  backends::Settings inputs;
  run_on_all_ranks(group, model.control(), [&] {
    for (std::size_t i = 0; i < o.inputs.size(); ++i) {
      const fs::path path = o.inputs[i];
      const bool file = fs::is_regular_file(path);
      if (!file && fs::exists(path) && !fs::is_directory(path))
        throw io::ConfigError(path.string() +
                              " can be read only once, by one rank; expected a file or folder, or "
                              "leave the " +
                              std::to_string(group.world_size()) + " ranks out");
      const std::string size = file ? " (" + std::to_string(fs::file_size(path)) + " bytes)" : "";
      inputs.emplace_back("input " + std::to_string(i + 1),
                          base::escape_text(path.string()) + size);
    }
  });
  require_equal(group, model.control(), inputs, "the ranks were given different inputs");
}

void check_options(const PredictOptions& o, const TrainedModel& model, bool root) {
  const io::Dataset& train = model.data().train;
  if (root && model.other_data())
    throw io::DataError("the data differ from those of the run: " + o.model.path +
                        " was trained on other samples of " + train.name +
                        ", so that neither its standardization nor its classes are known");
  if (train.target() != nullptr && (o.top_given || o.format.all))
    throw UsageError(std::string(o.top_given ? "--top" : "--probabilities") +
                     " is for models of classes; this one predicts a number, " +
                     base::escape_text(train.target()->name));
  if (train.find<io::MultiLabels>() != nullptr && (o.top_given || o.format.all))
    throw UsageError(std::string(o.top_given ? "--top" : "--probabilities") +
                     " is for models of classes; of several labels all probabilities are printed");
  if (!train.label_shape().empty() && (o.top_given || o.format.all))
    throw UsageError(std::string(o.top_given ? "--top" : "--probabilities") +
                     " is for one class per sample; of a class at each position " + o.maps_file +
                     " has the most likely one");
}

int predict_rank(const RunConfig& config, PredictOptions o, backends::Group& group) {
  TrainedModel model(config, o.model, group, DataUse::kCoding);
  o.model.path = model.path();
  const io::Dataset& train = model.data().train;
  const bool root = group.rank() == 0;
  std::unique_ptr<InputPredictor> predictor;
  Outputs outputs;
  run_on_all_ranks(group, model.control(), [&] {
    check_options(o, model, root);
    predictor = make_predictor({o.inputs, o.layer, o.model.path}, model);
    std::vector<std::string> read = o.inputs;
    read.push_back(o.model.path);
    if (root && !o.layer.empty()) check_new_file(o.layer_file, read);
    if (root && !train.label_shape().empty()) check_new_file(o.maps_file, read);
    if (root && !o.layer.empty())
      outputs.embeddings.emplace(o.layer_file, predictor->watched_shape());
  });
  check_inputs(o, model, group);
  if (root)
    for (const std::string& line : model.data_notices()) print_notice("warning: " + line);
  const base::BoundThread bound(model.compute().own_cpus());
  o.format.top = std::min(o.format.top, train.classes());
  if (root) begin_predictions(o, train, outputs);
  const BlockSizes sizes = predictor->sizes();
  PipeNotice notice(o.inputs);
  predict_distributed(
      group, model.control(), sizes,
      [&](bool own) {
        const PipeNotice::Wait wait(notice);
        return predictor->next(own);
      },
      [&](const PredictedBlock& block) { outputs.add(block, sizes.logits); });
  run_on_all_ranks(group, model.control(), [&] {
    if (!root) return;
    outputs.finish();
    const CheckpointChoice wanted = choice_for(o.model.weights);
    if (const std::string taken = checkpoint_choice_text(o.model.given, wanted, o.model.path);
        !taken.empty())
      print_notice(taken);
    for (const std::string& line : predictor->unknown()) print_notice("warning: " + line);
  });
  return kExitOk;
}

}  // namespace

int predict_command(const Arguments& arguments) {
  CLI::App app("Prints a trained model's predictions for images, rows of tables, and text.",
               "engine predict");
  ConfigValues values;
  PredictOptions o;
  app.add_option("RUN|CKPT", o.model.path,
                 "run's folder (its best checkpoint, else the newest), .ckpt, or .safetensors, "
                 ".npz or .pth with --model")
      ->required();
  app.add_option("INPUT", o.inputs,
                 "images (*.png, *.jpg, folders, IDX, CIFAR-10's *.bin), CSV, text or .npz files")
      ->required();
  app.add_option("--format", o.format.name, "csv, json (an object per line) or table")
      ->check(CLI::IsMember({"csv", "json", "table"}))
      ->capture_default_str();
  CLI::Option* top = app.add_option("--top", o.format.top, "print the K most likely classes")
                         ->type_name("K")
                         ->transform(whole_number(1, 1 << 20))
                         ->capture_default_str();
  app.add_flag("--probabilities", o.format.all, "print the probability of every class");
  app.add_option("--embeddings", o.layer,
                 "also write this layer's output for each sample, as float32")
      ->type_name("LAYER");
  app.add_option("--embeddings-file", o.layer_file, "file of --embeddings")
      ->type_name("FILE.npy")
      ->capture_default_str();
  app.add_option("--maps-file", o.maps_file,
                 "file of the classes at each position, for models that predict them")
      ->type_name("FILE.npz")
      ->capture_default_str();
  add_weights_option(app, o.model.weights);
  add_table_options(app, values, trained_model_options());
  app.footer(
      "The checkpoint states how samples are prepared and the names of classes. One of an "
      "earlier version needs the run's data set.");
  if (!parse(app, arguments)) return kExitOk;
  o.top_given = top->count() > 0;
  const RunConfig config = trained_config(o.model, values, DataUse::kCoding);
  return run_group(config, [&](backends::Group& group) { return predict_rank(config, o, group); });
}

}  // namespace tools
