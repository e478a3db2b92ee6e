// Models from a file or a checkpoint: a definition made of the input's bytes becomes a graph and
// plans, and, if it is small, runs a step.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/graph/executor.h"
#include "io/base/files/io_error.h"
#include "models/layer_kinds.h"
#include "models/model_catalog.h"
#include "models/onnx_import/onnx_import.h"
#include "models/published/published_layers.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/targets.h"

namespace fuzz {
namespace {

// Ordinary values are as frequent as extreme ones, so that both kinds of layers follow each other.
constexpr std::array<std::int64_t, 48> kNumbers{0,
                                                1,
                                                2,
                                                3,
                                                4,
                                                5,
                                                6,
                                                7,
                                                8,
                                                9,
                                                12,
                                                15,
                                                16,
                                                24,
                                                31,
                                                32,
                                                1,
                                                2,
                                                3,
                                                4,
                                                1,
                                                2,
                                                3,
                                                4,
                                                -1,
                                                33,
                                                64,
                                                1000,
                                                1 << 15,
                                                1 << 16,
                                                1 << 20,
                                                (1 << 24) - 1,
                                                1 << 24,
                                                1 << 30,
                                                INT32_MAX,
                                                INT64_C(1) << 31,
                                                UINT32_MAX,
                                                INT64_C(1) << 32,
                                                INT64_C(1) << 40,
                                                INT64_C(1) << 58,
                                                INT64_C(1) << 61,
                                                (INT64_C(1) << 62) - 1,
                                                INT64_C(1) << 62,
                                                (INT64_C(1) << 62) + 1,
                                                INT64_MAX / 2,
                                                INT64_MAX - 1,
                                                INT64_MAX,
                                                INT64_MIN};
constexpr std::array<std::int64_t, 16> kExtents{1, 2, 3, 4, 5, 6, 7,  8,
                                                9, 1, 2, 3, 4, 5, 16, INT64_C(1) << 31};
const char* const kReals[] = {"0.5", "0.0", "1.0", "-1.0", "1e-5", "1e300", "inf", "nan"};

std::string layer_name(unsigned i) { return std::string("\"l") + std::to_string(i) + '"'; }

void add_option(const models::OptionDescription& option, Choices& choices, std::string& text) {
  const unsigned how = choices.next();
  if (how % 4 == 3 && !option.otherwise.empty()) return;
  text += option.key + " = ";
  if (option.type == "number")
    text += kReals[choices.next() % std::size(kReals)];
  else if (option.type == "true or false")
    text += choices.next() % 2 != 0 ? "true" : "false";
  else if (option.type == "text")
    text += choices.next() % 2 != 0 ? "\"tanh\"" : "\"none\"";
  else if (option.type != "integer" && how % 4 == 2)
    text += "\"classes\"";
  else
    text += std::to_string(choices.of(kNumbers));
  text += '\n';
}

void add_layer(const models::LayerKind& kind, unsigned i, Choices& choices, std::string& text) {
  text += "[[layer]]\nkind = \"" + kind.name + "\"\nname = " + layer_name(i) + '\n';
  const unsigned links = choices.next();
  if (i > 0 && (kind.name == "add" || links % 8 == 0)) {
    text += "inputs = [" + layer_name(choices.next() % i);
    if (kind.name == "add") text += ", " + layer_name(i - 1);
    text += "]\n";
  }
  if (i > 0 && links % 16 == 1) text += "tied = " + layer_name(choices.next() % i) + '\n';
  for (const models::OptionDescription& option : kind.options) add_option(option, choices, text);
}

std::string definition(Choices& choices) {
  static const std::vector<models::LayerKind> kinds = models::layer_kinds();
  constexpr unsigned kMaxLayers = 10;
  std::string text;
  const unsigned ending = choices.next();
  unsigned count = 0;
  for (; count < kMaxLayers && !choices.ended(); ++count)
    add_layer(kinds[choices.next() % kinds.size()], count, choices, text);
  if (ending % 4 == 1) text += "[[layer]]\nkind = \"flatten\"\n";
  if (ending % 4 == 2) text += "[[layer]]\nkind = \"global_average_pool\"\n";
  if (ending % 4 != 0 || text.empty())
    text += "[[layer]]\nkind = \"dense\"\nname = \"end\"\nout = \"classes\"\n";
  return text;
}

models::ModelOptions model_options(Choices& choices) {
  models::ModelOptions options;
  const unsigned kind = choices.next();
  if (kind % 4 == 0)
    options.sample_shape = {choices.of(kExtents)};
  else
    options.sample_shape = {choices.of(kExtents), choices.of(kExtents), choices.of(kExtents)};
  options.classes = 1 + choices.next() % 5;
  if (kind % 64 == 63) options.classes = choices.of(kNumbers);
  if (kind % 8 == 1) options.regression = engine::ops::RegressionLoss::kSquared;
  return options;
}

// Multiplications of a step, roughly, so that no input takes seconds.
double work(const engine::Graph& graph) {
  double all = 0;
  for (engine::NodeId id = 0; id < static_cast<engine::NodeId>(graph.nodes().size()); ++id) {
    double weights = 16;
    for (const engine::ParameterSpec& spec : graph.own_parameters(graph.parameter_node(id)))
      weights += static_cast<double>(spec.layout.file_shape.count());
    for (const engine::Shape& shape : graph.input_shapes(id))
      weights += shape.rank() == 2 ? static_cast<double>(shape.count()) : 0;
    all += weights * static_cast<double>(graph.nodes()[static_cast<std::size_t>(id)].shape.count());
  }
  return all;
}

}  // namespace

void run_step(const engine::Graph& graph, const engine::Plan& plan,
              const models::ModelOptions& options, engine::ThreadPool& threads) {
  constexpr std::size_t kMaxBytes = std::size_t{4} << 20;
  if (plan.arena_bytes > kMaxBytes || plan.scratch_bytes > kMaxBytes || work(graph) > 2e6) return;
  engine::ModelState state = engine::ModelState::allocate(graph, plan.options.dtype);
  state.initialize(graph, 1);
  engine::Executor executor(plan, state, threads, 1);
  const std::int64_t batch = plan.options.max_batch;
  const auto count = static_cast<std::size_t>(batch * options.sample_shape.count());
  const bool text = options.sample_shape.rank() == 1;
  const bool by_token = text && !options.label_shape;
  const std::size_t labels = static_cast<std::size_t>(batch) * (by_token ? count / batch : 1);
  const std::vector<float> samples(text ? 0 : count, 0.5F);
  const std::vector<std::int32_t> tokens(text ? count : 0, 0);
  const std::vector<std::int32_t> classes(options.regression ? 0 : labels, 0);
  const std::vector<float> targets(
      options.regression ? static_cast<std::size_t>(batch * options.classes) : 0, 1.0F);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(batch));
  executor.forward({.count = batch,
                    .samples = samples,
                    .tokens = tokens,
                    .labels = classes,
                    .targets = targets,
                    .sample_ids = ids},
                   plan.options.training);
  if (plan.options.training) executor.backward(1, engine::Write::kOverwrite, {});
}

void model_definition(Input input) {
  Choices choices(input);
  static constexpr std::array<std::int64_t, 8> kBatches{1, 2, 3,       5,
                                                        1, 2, 1 << 20, INT64_C(1) << 40};
  const unsigned how = choices.next();
  const std::int64_t batch = choices.of(kBatches);
  models::ModelOptions options = model_options(choices);
  options.definition = definition(choices);
  try {
    const engine::Graph graph = models::build_model("file.toml", options);
    static engine::ThreadPool one(1);
    const int threads = how % 8 < 4 ? 1 : 64;
    for (const engine::DType dtype : {engine::DType::kF32, engine::DType::kF64}) {
      const engine::Plan plan = engine::Plan::compile(
          graph, {.max_batch = batch,
                  .dtype = dtype,
                  .threads = threads,
                  .training = how % 2 != 0,
                  .fuse = how % 4 < 2,
                  .convolutions =
                      how % 16 < 8 ? engine::Convolutions::kAuto : engine::Convolutions::kDirect});
      if (threads == 1) run_step(graph, plan, options, one);
    }
  } catch (const engine::ModelError&) {
  } catch (const engine::ShapeError&) {
  } catch (const engine::MemoryError&) {
  } catch (const engine::InputError&) {  // a vocabulary without the token
  }
}

// From bytes to the graph of the translation, and the numbers of its parameters.
void onnx(Input input) {
  try {
    const io::OnnxReader reader(io::memory_bytes(std::as_bytes(input), "file.onnx"));
    for (const io::StoredTensor& tensor : reader.graph().constants)
      if (tensor.file.empty() && tensor.type) static_cast<void>(reader.load(tensor));
    const models::OnnxImport found = models::import_onnx(reader, models::OnnxArrays::kSkip);
    models::build_model("file.onnx",
                        {.sample_shape = {8, 8, 3}, .classes = 3, .definition = found.definition});
  } catch (const io::Error&) {
  } catch (const engine::ModelError&) {
  } catch (const engine::ShapeError&) {
  }
}

// From config.json to the graph of its layers.
void published_config(Input input) {
  try {
    const models::PublishedConfig config = models::parse_published_config(
        {reinterpret_cast<const char*>(input.data()), input.size()}, "config.json");
    models::build_model("folder", {.sample_shape = {4},
                                   .classes = config.vocabulary,
                                   .definition = models::published_layers(config).definition});
    static_cast<void>(models::published_config_text(config, "float32"));
  } catch (const engine::ModelError&) {
  } catch (const engine::ShapeError&) {
  }
}

}  // namespace fuzz
