// `engine predict`: what a trained model says of images, rows of tables, and text.
#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "engine/graph/inference.h"
#include "io/base/io_error.h"
#include "io/base/nearest.h"
#include "io/base/text_parts.h"
#include "io/base/visible_text.h"
#include "io/data/loader/image_preparer.h"
#include "io/data/sources/data_file.h"
#include "io/data/sources/inputs/sample_stream.h"
#include "io/interchange/npy_writer.h"
#include "models/next_token.h"
#include "tools/commands/command.h"
#include "tools/group/run_group.h"
#include "tools/options/command_line.h"
#include "tools/report/exit_codes.h"
#include "tools/report/prediction_writer.h"
#include "tools/report/standard_output.h"
#include "tools/session/saved_run.h"
#include "tools/session/saved_weights.h"
#include "tools/session/token_sampling.h"
#include "tools/session/trained_model.h"

namespace tools {
namespace {

struct PredictOptions {
  ModelReference model;
  std::vector<std::string> inputs;
  PredictionFormat format;
  bool top_given = false;
  std::string layer, layer_file = "embeddings.npy";
};

// By its name, or "#7" by its place.
engine::NodeId layer_of(const engine::Graph& graph, const std::string& wanted) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const engine::Graph::Node& node = graph.nodes()[i];
    if (!node.layer || node.dtype == engine::DType::kI32) continue;
    const std::string place = "#" + std::to_string(i);
    if (wanted == node.name || wanted == place) return static_cast<engine::NodeId>(i);
    names.push_back(node.name.empty() ? place : node.name);
  }
  throw UsageError("--embeddings: the model has no layer '" + wanted + "'" +
                   base::did_you_mean(wanted, names) + " (it has " + base::join_text(names) + ")");
}

// The last tokens of a file that the model can see.
std::string end_of_text(const std::string& path, std::size_t most) {
  io::DataFile file(path);
  std::string text;
  std::array<std::uint8_t, 65536> bytes;
  for (std::size_t got = file.read(bytes); got > 0; got = file.read(bytes)) {
    text.append(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(got));
    if (text.size() > most) text.erase(0, text.size() - most);
  }
  return text;
}

void predict_text(const PredictOptions& o, TrainedModel& model) {
  const std::string& vocabulary = model.data().train.vocabulary;
  if (vocabulary.empty())
    throw io::DataError(o.model.path + ": a model of data set '" + model.data().train.name +
                        "' has no vocabulary of characters; engine predict needs one of text");
  if (!o.layer.empty())
    throw UsageError("--embeddings is for models of images and tables, not for one of text");
  if (model.compute().cuda())
    throw io::ConfigError("engine predict with a model of text computes on --device cpu only");
  models::NextToken next(model.graph(), model.state(), model.pool());
  PredictionWriter writer(o.format, class_names(model.data().train));
  for (const std::string& path : o.inputs) {
    const std::string text = end_of_text(path, static_cast<std::size_t>(next.context()));
    if (text.empty()) throw io::DataError(path + ": found no text, expected one character or more");
    std::vector<std::int32_t> tokens;
    for (const char byte : text) {
      const std::size_t id = vocabulary.find(byte);
      if (id == std::string::npos)
        throw io::DataError(path + ": its end has the character '" + std::string(1, byte) +
                            "', which is not among the " + std::to_string(vocabulary.size()) +
                            " that the model was trained on");
      tokens.push_back(static_cast<std::int32_t>(id));
    }
    writer.print(path, 1, next.logits_after(tokens));
  }
}

// Samples as the model takes them.
class Preparation {
 public:
  explicit Preparation(const TrainedModel& model) {
    const io::Dataset& like = model.data().train;
    if (like.kind == io::SampleKind::kImages)
      preparer_.emplace(like, model.normalization(), io::Augmentation{});
  }

  std::span<const float> operator()(const io::SampleBlock& block) {
    if (!preparer_) return block.features;
    numbers_.resize(block.pixels.size());
    const std::size_t items = block.origins.empty() ? 0 : numbers_.size() / block.origins.size();
    for (std::size_t i = 0; i < block.origins.size(); ++i)
      preparer_->prepare(&block.pixels[i * items], io::SplitMix(0, 0, 0), &numbers_[i * items]);
    return numbers_;
  }

 private:
  std::optional<io::ImagePreparer> preparer_;
  std::vector<float> numbers_;
};

void predict_samples(const PredictOptions& o, TrainedModel& model) {
  constexpr std::int64_t kBatch = 64;  // as an evaluation
  const auto samples = io::open_samples(o.inputs, model.data());
  Preparation prepared(model);
  const engine::NodeId layer = o.layer.empty() ? -1 : layer_of(model.graph(), o.layer);
  engine::Inference inference(model.graph(), model.state(), model.pool(),
                              {.batch = kBatch,
                               .dtype = model.compute().storage,
                               .device = model.compute().device,
                               .products = model.compute().products,
                               .watched = layer});
  inference.load();
  std::optional<io::NpyWriter> embeddings;
  if (layer >= 0) {
    const engine::Shape shape = inference.watched_shape();
    std::vector<std::int64_t> extents;
    for (int d = 0; d < shape.rank(); ++d) extents.push_back(shape[d]);
    embeddings.emplace(o.layer_file, std::move(extents));
  }
  const std::optional<io::TargetScale>& target = model.data().train.target;
  PredictionWriter writer = target ? PredictionWriter(o.format, *target)
                                   : PredictionWriter(o.format, class_names(model.data().train));
  // The model has a loss, which nobody reads.
  const std::vector<std::int32_t> labels(target ? 0 : kBatch, 0);
  const std::vector<float> targets(target ? kBatch : 0, 0);
  std::vector<float> rows;
  for (io::SampleBlock block;;) {
    block = {};
    samples->fill(kBatch, block);
    if (block.count() == 0) break;
    const auto count = static_cast<std::size_t>(block.count());
    inference.forward({.count = block.count(),
                       .samples = prepared(block),
                       .labels = std::span(labels).first(target ? 0 : count),
                       .targets = std::span(targets).first(target ? count : 0),
                       .sample_ids = {}});
    const std::vector<double>& logits = inference.logits();
    const std::size_t classes = logits.size() / count;
    for (std::size_t i = 0; i < count; ++i)
      writer.print(block.origins[i].file, block.origins[i].sample,
                   std::span(logits).subspan(i * classes, classes));
    if (embeddings) {
      const std::vector<double>& values = inference.watched();
      rows.assign(values.size(), 0);
      std::ranges::transform(values, rows.begin(), [](double v) { return static_cast<float>(v); });
      embeddings->add(rows);
    }
    check_standard_output();
  }
  if (embeddings) embeddings->finish();
}

int predict_rank(const RunConfig& config, PredictOptions o, backends::Group& group) {
  if (group.world_size() > 1)
    throw io::ConfigError("engine predict runs on one rank, found " +
                          std::to_string(group.world_size()));
  TrainedModel model(config, o.model, group, o.model.stated);
  const io::Dataset& train = model.data().train;
  if (model.other_data())
    throw io::DataError("the data differ from those of the run: " + o.model.path +
                        " was trained on other samples of " + train.name +
                        ", so that neither its standardisation nor its classes are known");
  if (train.target && (o.top_given || o.format.all))
    throw UsageError(std::string(o.top_given ? "--top" : "--probabilities") +
                     " is for models of classes; this one predicts a number, " +
                     base::visible_text(train.target->name));
  o.format.top = std::min(o.format.top, train.classes);
  if (train.kind == io::SampleKind::kTokens)
    predict_text(o, model);
  else
    predict_samples(o, model);
  check_standard_output();
  return kExitOk;
}

}  // namespace

int predict_command(const Arguments& arguments) {
  CLI::App app("Prints what a trained model says of images, rows of tables, and text.",
               "engine predict");
  ConfigValues values;
  PredictOptions o;
  app.add_option("RUN|CKPT", o.model.path,
                 "a run's folder (its best snapshot, else the newest), a .ckpt, or a .safetensors "
                 "or .npz together with --model")
      ->required();
  app.add_option("INPUT", o.inputs,
                 "images (*.png, *.jpg, folders of them, IDX, CIFAR-10's *.bin), CSV files, or "
                 "text to be continued")
      ->required();
  app.add_option("--format", o.format.name, "csv, json (an object a line) or table")
      ->check(CLI::IsMember({"csv", "json", "table"}))
      ->capture_default_str();
  CLI::Option* top = app.add_option("--top", o.format.top, "tell the K most likely classes")
                         ->type_name("K")
                         ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
                         ->capture_default_str();
  app.add_flag("--probabilities", o.format.all, "tell the probability of every class");
  app.add_option("--embeddings", o.layer,
                 "also write the output of this layer for each sample, as float32")
      ->type_name("LAYER");
  app.add_option("--embeddings-file", o.layer_file, "where to")
      ->type_name("FILE.npy")
      ->capture_default_str();
  add_weights_option(app, o.model.weights);
  std::vector<std::string> options{"threads", "device", "amp", "limit"};
  options.insert(options.end(), saved_options().begin(), saved_options().end());
  add_table_options(app, values, options);
  app.footer(
      "The snapshot states how samples are prepared and what the classes are called. One that does "
      "not (of an earlier version) needs the run's data set to be there.");
  if (!parse(app, arguments)) return kExitOk;
  o.top_given = top->count() > 0;
  const RunConfig config = trained_config(o.model, values, /*with_limit=*/true);
  return run_group(config, [&](backends::Group& group) { return predict_rank(config, o, group); });
}

}  // namespace tools
