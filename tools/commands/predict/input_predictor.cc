// Runs samples through an inference, and texts through a next-token model.
#include "tools/commands/predict/input_predictor.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "engine/graph/inference.h"
#include "engine/ops/embedding/token_error.h"
#include "engine/train/evaluator.h"
#include "engine/train/step/batch_views.h"
#include "io/base/files/io_error.h"
#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"
#include "io/data/dataset/sample_coding.h"
#include "io/data/files/data_file.h"
#include "io/data/sources/sample_inputs.h"
#include "io/data/tables/csv_text.h"
#include "models/next_token.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

// Finds a layer by its name, or by its index as "#7". The index without the # is a likely mistake;
// for another number, any layer would be a guess.
engine::NodeId layer_of(const engine::Graph& graph, const std::string& wanted) {
  std::vector<std::string> names, layers;
  std::string hint;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const engine::Graph::Node& node = graph.nodes()[i];
    if (!node.layer || node.dtype == engine::DType::kI32) continue;
    const std::string number = std::to_string(i), place = "#" + number;
    if (wanted == node.name || wanted == place) return static_cast<engine::NodeId>(i);
    if (wanted == number) hint = ": did you mean '" + place + "'?";
    if (!node.name.empty()) names.push_back(node.name);
    layers.push_back(place + " " +
                     (node.name.empty() ? std::string(node.layer->kind()) : node.name));
  }
  const bool is_number = wanted.find_first_not_of("0123456789#") == std::string::npos;
  if (!is_number) hint = base::did_you_mean(wanted, names);
  throw UsageError(
      "--embeddings: the model has no layer '" + wanted + "'" + hint +
      "; expected the name of a layer, or # and its number: " + base::join_text(layers));
}

// The ends of these files, one per block.
class Texts : public InputPredictor {
 public:
  Texts(const PredictorRequest& request, TrainedModel& model)
      : inputs_(request.inputs),
        vocabulary_(model.data().train.vocabulary()),
        next_(model.graph(), model.state(), model.pool(),
              {.dtype = model.compute().storage,
               .device = model.compute().device,
               .products = model.compute().products}) {}

  BlockSizes sizes() const override {
    return {.samples = 1, .logits = static_cast<std::size_t>(next_.vocabulary())};
  }

  PredictedBlock next(bool own) override {
    PredictedBlock block;
    if (done_ == inputs_.size()) return block;
    const std::string& path = inputs_[done_++];
    const std::vector<std::int32_t> tokens = end_of_text(path);
    if (own) {
      const auto logits = next_.logits_after(tokens);
      block.logits.assign(logits.begin(), logits.end());
    }
    block.origins.push_back({path, 1});
    return block;
  }

  std::vector<std::string> unknown() const override { return lines_; }

 private:
  // Returns the last tokens within the model's context. Unknown characters are omitted, as in a
  // text for evaluation.
  std::vector<std::int32_t> end_of_text(const std::string& path) {
    const auto most = static_cast<std::size_t>(next_.context());
    io::CsvText file(path, io::Pipes::kRead);
    io::UnknownNames unknown;
    std::vector<std::int32_t> tokens;
    std::int64_t read = 0;
    std::vector<std::uint8_t> bytes;
    for (bool more = true; more;) {
      bytes.clear();
      more = file.append(65536, bytes);
      for (const std::uint8_t found : bytes) {
        ++read;
        const char byte = static_cast<char>(found);
        const std::size_t id = vocabulary_.find(byte);
        if (id == std::string::npos)
          unknown.add(std::string(1, byte), [&] { return "byte " + std::to_string(read); });
        else
          tokens.push_back(static_cast<std::int32_t>(id));
      }
      if (tokens.size() > most)
        tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(most));
    }
    if (tokens.empty())
      throw io::DataError(path + ": found " +
                          (read == 0 ? "no text" : unknown.text("bytes are characters", read)) +
                          ", expected one character or more that the model was trained on");
    if (unknown.count() > 0)
      lines_.push_back(path + ": " + unknown.text("bytes are characters", read) +
                       "; they are left out");
    return tokens;
  }

  const std::vector<std::string> inputs_;
  const std::string& vocabulary_;
  models::NextToken next_;
  std::size_t done_ = 0;
  std::vector<std::string> lines_;
};

// Prepares samples for the model.
class PreparedBlock {
 public:
  explicit PreparedBlock(const TrainedModel& model)
      : set_(model.data().train.name), normalization_(model.normalization()) {}

  engine::BatchView operator()(const io::SampleBlock& block) {
    const auto count = static_cast<std::size_t>(block.count());
    const auto part = io::batch_part(
        block.samples, {.set = set_, .size = block.count(), .normalization = normalization_});
    part->reserve(memory_, count);
    memory_.ids.resize(count);
    std::iota(memory_.ids.begin(), memory_.ids.end(), std::int64_t{0});
    memory_.batch.sample_ids = memory_.ids;
    part->fill(memory_);
    return engine::view_of(memory_.batch, draws_);
  }

 private:
  const std::string set_;  // the model's training set
  const io::Normalization normalization_;
  io::BatchMemory memory_;
  std::vector<engine::ops::ImageDraw> draws_;
};

std::unique_ptr<io::SampleStream> open_inputs(const PredictorRequest& request,
                                              TrainedModel& model) {
  std::vector<std::string> left_out;
  auto stream = io::open_samples(request.inputs, model.data(), &left_out);
  if (model.control().rank() == 0)
    for (const std::string& line : left_out) print_notice(line);
  return stream;
}

// The samples of all inputs, as many per block as in an evaluation.
class Samples : public InputPredictor {
 public:
  Samples(const PredictorRequest& request, TrainedModel& model)
      : stream_(open_inputs(request, model)),
        prepared_(model),
        watches_(!request.layer.empty()),
        batch_(
            engine::evaluation_batch(model.data().train.classes(), model.data().train.positions())),
        inference_(model.graph(), model.state(), model.pool(),
                   {.batch = batch_,
                    .dtype = model.compute().storage,
                    .device = model.compute().device,
                    .products = model.compute().products,
                    .watched = watches_ ? layer_of(model.graph(), request.layer) : -1}) {
    logits_per_sample_ =
        static_cast<std::size_t>(inference_.classes() * model.data().train.positions());
    inference_.load();
  }

  BlockSizes sizes() const override {
    BlockSizes sizes{.samples = static_cast<std::size_t>(batch_), .logits = logits_per_sample_};
    if (!watches_) return sizes;
    sizes.watched = 1;
    for (const std::int64_t extent : watched_shape())
      sizes.watched *= static_cast<std::size_t>(extent);
    return sizes;
  }
  std::vector<std::int64_t> watched_shape() const override {
    std::vector<std::int64_t> extents;
    if (!watches_) return extents;
    const engine::Shape shape = inference_.watched_shape();
    for (int d = 0; d < shape.rank(); ++d) extents.push_back(shape[d]);
    return extents;
  }

  PredictedBlock next(bool own) override {
    io::SampleBlock samples;
    stream_->fill(batch_, own ? io::Wanted::kSamples : io::Wanted::kOrigins, samples);
    PredictedBlock block;
    if (own && samples.count() > 0) compute(samples, block);
    block.origins = std::move(samples.origins);
    return block;
  }

  std::vector<std::string> unknown() const override { return stream_->unknown(); }

 private:
  void compute(const io::SampleBlock& samples, PredictedBlock& block) {
    try {
      inference_.predict(prepared_(samples));
    } catch (const engine::ops::TokenError& error) {
      const auto& origin = samples.origins.at(static_cast<std::size_t>(error.token().row));
      throw io::DataError(origin.file + ": " +
                          error.token().text("sample " + std::to_string(origin.sample)));
    }
    block.logits = inference_.logits();
    if (!watches_) return;
    const std::vector<double>& values = inference_.watched();
    block.watched.resize(values.size());
    std::ranges::transform(values, block.watched.begin(),
                           [](double v) { return static_cast<float>(v); });
  }

  const std::unique_ptr<io::SampleStream> stream_;
  PreparedBlock prepared_;
  const bool watches_;
  const std::int64_t batch_;
  engine::Inference inference_;
  std::size_t logits_per_sample_ = 0;
};

void check_text_model(const PredictorRequest& request, const TrainedModel& model) {
  if (model.data().train.vocabulary().empty())
    throw io::DataError(request.checkpoint + ": a model of data set '" + model.data().train.name +
                        "' has no vocabulary of characters; engine predict needs one of text");
  if (!request.layer.empty())
    throw UsageError("--embeddings is for models of images and tables, not for one of text");
}

}  // namespace

std::unique_ptr<InputPredictor> make_predictor(const PredictorRequest& request,
                                               TrainedModel& model) {
  if (model.data().train.sample_traits().single) return std::make_unique<Samples>(request, model);
  check_text_model(request, model);
  return std::make_unique<Texts>(request, model);
}

}  // namespace tools
