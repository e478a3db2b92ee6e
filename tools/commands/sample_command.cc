// Implements `engine sample`: generates text with a trained text model.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

#include "engine/train/saving/weights.h"
#include "io/base/text/escape_text.h"
#include "models/model_catalog.h"
#include "models/next_token.h"
#include "tools/commands/command.h"
#include "tools/commands/predict/saved_run.h"
#include "tools/commands/predict/token_sampling.h"
#include "tools/launch/machine/device_choice.h"
#include "tools/launch/machine/thread_choice.h"
#include "tools/options/input/command_line.h"
#include "tools/options/table/run_config.h"
#include "tools/options/table/value_check.h"
#include "tools/options/table/value_text.h"
#include "tools/report/output/exit_codes.h"
#include "tools/run/data/saved_weights.h"
#include "tools/run/folder/run_reference.h"

namespace tools {
namespace {

struct SampleOptions {
  std::string path, prompt;
  engine::AverageKind weights = engine::AverageKind::kNone;
  std::int64_t count = 200, threads = 0;
  std::string device = "auto";
  SamplingOptions sampling;
};

// A prompt is free text: it may begin with a dash and contain typographic marks, which are rejected
// elsewhere as mistakes. So the parser does not see it.
std::string take_prompt(Arguments& arguments) {
  std::string prompt;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("--prompt=")) {
      prompt = arguments[i].substr(9);
      arguments[i] = "--prompt=x";
    } else if (arguments[i] == "--prompt" && i + 1 < arguments.size()) {
      prompt = arguments[++i];
      arguments[i] = "x";
    }
  }
  return prompt;
}

engine::Graph text_graph(const io::Checkpoint& checkpoint, const std::string& path,
                         engine::DType& dtype) {
  if (checkpoint.vocabulary.empty())
    throw io::DataError(
        path + ": model '" + checkpoint.model + "' of data set '" + checkpoint.dataset +
        "' has no vocabulary of characters; engine sample needs a model trained on text");
  tools::ConfigValues values;
  take_saved_options(checkpoint, path, values);
  const auto context = values.find("context");
  if (context == values.end())
    throw io::DataError(path + ": its configuration lacks the model's context");
  const auto saved_dtype = values.find("dtype");
  dtype = saved_dtype != values.end() && saved_dtype->second.value == "f64" ? engine::DType::kF64
                                                                            : engine::DType::kF32;
  std::int64_t positions = 0;
  const std::string& text = context->second.value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), positions);
  if (error != std::errc{} || end != text.data() + text.size() || positions < 1 ||
      positions > (1 << 24))
    throw io::DataError(path + ": its configuration has context '" + text + "'");
  return models::build_model(checkpoint.model,
                             {.sample_shape = engine::Shape{positions},
                              .classes = static_cast<std::int64_t>(checkpoint.vocabulary.size()),
                              .definition = checkpoint.definition});
}

void print(const SampleOptions& o, const io::Checkpoint& checkpoint, models::NextToken& next,
           std::vector<std::int32_t> tokens) {
  std::fwrite(o.prompt.data(), 1, o.prompt.size(), stdout);
  const auto context = static_cast<std::size_t>(next.context());
  for (std::int64_t i = 0; i < o.count; ++i) {
    const std::size_t window = std::min(tokens.size(), context);
    tokens.push_back(sample_token(next.logits_after(std::span(tokens).last(window)), o.sampling,
                                  static_cast<std::uint64_t>(i)));
    std::fputc(checkpoint.vocabulary[static_cast<std::size_t>(tokens.back())], stdout);
    std::fflush(stdout);
  }
  std::fputc('\n', stdout);
  if (std::fflush(stdout) != 0) throw io::Error("cannot write to the standard output");
}

void add_options(CLI::App& app, SampleOptions& o) {
  app.add_option("RUN|CKPT", o.path,
                 "run's folder (its best checkpoint, else the newest), or a text model's "
                 "checkpoint")
      ->required();
  app.add_option("--prompt", o.prompt,
                 "text to continue, of characters that occur in the training text")
      ->required()
      ->type_name("PROMPT");
  app.add_option("-n,--count", o.count, "number of characters to add")
      ->type_name("N")
      ->transform(whole_number(0, std::int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--temperature", o.sampling.temperature,
                 "below 1: more predictable; above 1: more random; 0: most likely character")
      ->type_name("F")
      ->transform(number_from(0))
      ->capture_default_str();
  app.add_option("--top-k", o.sampling.top_k, "sample from the K most likely characters; 0: all")
      ->type_name("K")
      ->transform(whole_number(0, kMaxCount))
      ->capture_default_str();
  app.add_option("--seed", o.sampling.seed, "random seed")
      ->type_name("S")
      ->transform(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  add_weights_option(app, o.weights);
  app.add_option("--threads", o.threads, "number of threads (0: one per core)")
      ->type_name("N")
      ->transform(whole_number(0, 1024))
      ->capture_default_str();
  app.add_option("--device", o.device, "cuda: a GPU; auto: cuda if there is a GPU, else cpu")
      ->type_name("auto|cpu|cuda|cuda:N")
      ->capture_default_str();
  app.footer(
      "Prints the prompt and its continuation. The model sees only the last characters that fit "
      "into its context.");
}

DeviceRequest device_request(const SampleOptions& o) {
  const std::optional<DeviceName> name = parse_device_name(o.device);
  if (!name)
    throw UsageError("--device '" + base::escape_text(o.device) +
                     "': expected one of auto, cpu, cuda, cuda:N");
  return {.device = *name};
}

void check_options(const SampleOptions& o) {
  if (o.prompt.empty()) throw UsageError("--prompt is empty: at least one character is needed");
  if (!std::isfinite(o.sampling.temperature))
    throw UsageError("--temperature must be a finite number, 0 or more");
}

}  // namespace

int sample_command(const Arguments& arguments) {
  CLI::App app("Continues a prompt with a model trained on text.", "engine sample");
  SampleOptions o;
  add_options(app, o);
  Arguments plain = arguments;
  std::string prompt = take_prompt(plain);
  if (!parse(app, plain)) return kExitOk;
  o.prompt = std::move(prompt);
  check_options(o);
  DeviceRequest request = device_request(o);

  const std::string given = o.path;
  io::Checkpoint checkpoint =
      read_snapshot(given, snapshot_with(o.weights), [&](const std::string& file) {
        o.path = file;
        return io::load_checkpoint(file);
      });
  engine::DType dtype = engine::DType::kF32;
  const engine::Graph graph = text_graph(checkpoint, o.path, dtype);
  std::vector<std::int32_t> tokens = token_ids(o.prompt, checkpoint.vocabulary);
  engine::ModelState state = engine::ModelState::allocate(graph, dtype);
  state.initialize(graph, 0);
  choose_weights(o.weights, o.path, checkpoint);
  engine::import_state(checkpoint.arrays, o.path, /*exact=*/false, state);
  check_threads(static_cast<int>(std::min<std::int64_t>(o.threads, 1 << 20)));
  engine::ThreadPool pool(o.threads > 0 ? static_cast<int>(o.threads) : default_threads(1));
  if (dtype == engine::DType::kF64) request.cpu_only = "a model in float64";
  const DeviceChoice choice = choose_device(request);
  models::NextToken next(graph, state, pool, {.device = choice.device});
  print(o, checkpoint, next, std::move(tokens));
  return kExitOk;
}

}  // namespace tools
