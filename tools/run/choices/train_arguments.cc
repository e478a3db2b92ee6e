// Implements the one reading of the options of `engine train`.
#include "tools/run/choices/train_arguments.h"

#include <utility>

#include "engine/core/error.h"
#include "io/base/files/io_error.h"
#include "io/tokenizer/tokenizer.h"
#include "models/model_catalog.h"
#include "tools/folder/run_reference.h"
#include "tools/launch/group/group_flags.h"
#include "tools/launch/group/joining_options.h"
#include "tools/launch/group/requeue.h"
#include "tools/options/table/option_rules.h"

namespace tools {
namespace {

constexpr const char* kFooter =
    "Every option can also be set as ENGINE_NAME in the environment; precedence: option, "
    "ENGINE_*, config "
    "file, default.\n"
    "Examples:\n"
    "  engine train --model convnet --dataset glyphs --spawn 2 --save-dir run\n"
    "  engine train --model convnet --dataset mnist --data-dir data/mnist --epochs 2 --save-dir "
    "run --resume auto\n"
    "  engine train --model mlp --dataset mnist --data-dir data/mnist --rank 0 --world-size 2 "
    "--init-method tcp://n1:29500";

// Throws if the tokenizer in `folder` makes ids that the model does not have. A tokenizer of a kind
// that is not read is no error, and neither is a folder without one: others have made the ids.
void check_tokenizer(const std::string& folder, const std::string& model, std::int64_t vocabulary) {
  const std::string path = folder + "/tokenizer.json";
  std::int64_t tokens = 0;
  try {
    tokens = io::Tokenizer::read(path).size();
  } catch (const io::Error&) {
    return;
  }
  if (tokens > vocabulary)
    throw engine::ModelError(path + ": has " + std::to_string(tokens) + " tokens; " + model +
                             "/config.json has a vocab_size of " + std::to_string(vocabulary));
}

}  // namespace

std::optional<TrainArguments> parse_train_arguments(
    const Arguments& arguments, const std::function<void(CLI::App&)>& add_more) {
  CLI::App app("Trains a model, on one rank or data-parallel on several.", "engine train");
  TrainArguments parsed;
  add_train_options(app, parsed.values, parsed.config_file);
  add_more(app);
  app.footer(kFooter);
  if (!parse(app, arguments)) return std::nullopt;
  if (app.count("--config") > 0 && parsed.config_file.empty())
    throw io::ConfigError("--config is empty");
  return parsed;
}

void take_vocabulary(ConfigValues& values) {
  const auto model = values.find("model"), dataset = values.find("dataset");
  if (model == values.end() || dataset == values.end() || dataset->second.value != "tokens") return;
  const std::string& folder = model->second.value;
  const std::optional<std::int64_t> tokens = models::model_vocabulary(folder);
  if (tokens && !is_one_of_many())
    for (const char* place : {"model", "data-dir"})
      if (const auto given = values.find(place); given != values.end())
        check_tokenizer(given->second.value, folder, *tokens);
  if (tokens)
    values.try_emplace("vocabulary-size",
                       ConfigValue{std::to_string(*tokens), folder + "/config.json"});
}

RunConfig read_train_config(const TrainArguments& arguments, std::vector<std::string>& notices) {
  ConfigValues values = arguments.values;
  apply_environment(values);
  if (!arguments.config_file.empty()) apply_config_file(arguments.config_file, values);
  const std::string definition = take_resumed_run(values);
  take_vocabulary(values);
  apply_defaults(values);
  if (std::string ranks = settle_spawn(values); !ranks.empty()) notices.push_back(std::move(ranks));
  RunConfig config = resolve_run_config(values);
  std::vector<std::string> notes;
  config.model.definition =
      definition.empty() ? models::model_definition(config.model.name, &notes) : definition;
  if (!is_one_of_many()) {
    for (std::string& line : variables_without_effect(values, config.origin))
      notices.push_back("warning: " + std::move(line));
    for (const std::string& note : notes) notices.push_back(config.model.name + ": " + note);
  }
  if (config.keeping.resume.is_automatic() && config.keeping.directory == "auto" &&
      !was_restarted())
    throw io::ConfigError(
        "--resume auto would find nothing, since --save-dir auto makes a new folder: name the "
        "folder, --save-dir DIR");
  if (config.requeue) check_requeue();
  return config;
}

}  // namespace tools
