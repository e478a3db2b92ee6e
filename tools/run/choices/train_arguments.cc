// Implements the one reading of the options of `engine train`.
#include "tools/run/choices/train_arguments.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "engine/core/error.h"
#include "io/base/files/io_error.h"
#include "io/data/readers/tokens/text_files.h"
#include "io/tokenizer/tokenizer.h"
#include "models/model_catalog.h"
#include "tools/folder/resume_source.h"
#include "tools/folder/run_reference.h"
#include "tools/launch/group/group_flags.h"
#include "tools/launch/group/joining_options.h"
#include "tools/launch/group/requeue.h"
#include "tools/options/input/config_sources.h"
#include "tools/options/table/option_rules.h"
#include "tools/run/choices/tokenizer_check.h"

namespace tools {
namespace {

constexpr const char* kFooter =
    "Every setting of a run can also be set as ENGINE_NAME in the environment; precedence: option, "
    "ENGINE_*, config file, default. Not --config and what is done instead of training.\n"
    "Examples:\n"
    "  engine train --model convnet --dataset glyphs --spawn 2 --save-dir run\n"
    "  engine train --model convnet --dataset mnist --data-dir data/mnist --epochs 2 --save-dir "
    "run --resume auto\n"
    "  engine train --model mlp --dataset mnist --data-dir data/mnist --rank 0 --world-size 2 "
    "--init-method tcp://n1:29500";

// The tokenizer in `folder`. Others may have made the ids: a folder without one is not an error,
// and one that is not read is a notice.
void check_tokenizer(const std::string& folder, const RunConfig& config,
                     std::vector<std::string>& notices) {
  const std::string path = folder + "/tokenizer.json";
  try {
    const std::int64_t tokens = io::Tokenizer::read(path).size();
    if (const std::int64_t known = config.data.set.text.vocabulary_size;
        known > 0 && tokens > known)
      throw engine::ModelError(path + ": has " + std::to_string(tokens) +
                               " tokens; the model's vocabulary has " + std::to_string(known));
  } catch (const io::MissingFileError&) {
    return;
  } catch (const io::Error& error) {
    notices.push_back("warning: " + std::string(error.what()) +
                      "; engine sample will need another one (--tokenizer)");
  }
}

// Returns the tokenizer of the checkpoint with which a run continues, "" if there is none. A file
// that is not read is an error soon.
std::string resumed_tokenizer(const KeepingOptions& keeping, std::string& path) {
  try {
    const auto source = resume_source(keeping.resume, keeping.directory);
    if (!source) return "";
    path = source->path;
    return source->description.tokenizer;
  } catch (const io::Error&) {
    return "";
  }
}

// Data whose ids are another tokenizer's train a model of other texts.
void compare_tokenizers(const RunConfig& config, std::vector<std::string>& notices) {
  std::string of = config.model.name, text;
  if (config.keeping.resume.is_wanted())
    text = resumed_tokenizer(config.keeping, of);
  else if (models::is_published_model(of))
    text = io::read_stored_tokenizer(of);
  const std::string found = tokenizer_difference(config.data.set.directory, text, of);
  if (!found.empty()) notices.push_back("warning: " + found);
}

void check_tokenizers(const RunConfig& config, std::vector<std::string>& notices) {
  if (config.data.set.name != "tokens") return;
  const std::string &data = config.data.set.directory, &model = config.model.name;
  check_tokenizer(data, config, notices);
  if (models::is_published_model(model) && model != data) check_tokenizer(model, config, notices);
  compare_tokenizers(config, notices);
}

void note_shadowed_folder(const std::string& model, std::vector<std::string>& notices) {
  if (models::is_published_model(model) && models::token_counts(model) == std::nullopt)
    notices.push_back(model + ": the built-in model, not the folder ./" + model);
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
  if (model == values.end() || dataset == values.end()) return;
  const std::string& name = model->second.value;
  const bool has_ids = dataset->second.value == "tokens",
             has_text = dataset->second.value == "text";
  if ((!has_ids && !has_text) || (values.contains("vocabulary-size") && values.contains("context")))
    return;
  const auto tokens = models::token_counts(name);
  if (!tokens) return;
  const std::string source = tokens->is_fixed ? name : name + "/config.json";
  if (has_ids && tokens->vocabulary > 0)
    values.try_emplace("vocabulary-size", ConfigValue{std::to_string(tokens->vocabulary), source});
  if (tokens->is_fixed)
    values.try_emplace("context", ConfigValue{std::to_string(tokens->context), source});
}

RunConfig read_train_config(const TrainArguments& arguments, std::vector<std::string>& notices) {
  ConfigValues values = arguments.values;
  apply_environment(values);
  if (!arguments.config_file.empty()) apply_config_file(arguments.config_file, values);
  const std::string definition = take_resumed_run(values);
  take_vocabulary(values);
  apply_defaults(values);
  if (std::string ranks = resolve_spawn(values); !ranks.empty())
    notices.push_back(std::move(ranks));
  RunConfig config = resolve_run_config(values);
  models::DefinitionNotes notes;
  config.model.definition =
      definition.empty() ? models::model_definition(config.model.name, &notes) : definition;
  if (notes.leaves_out_softmax && config.model.task != io::Task::kClassification)
    throw io::ConfigError(config.model.name +
                          ": it ends in a softmax, which only the loss of classes contains, and "
                          "--task is " +
                          values.at("task").value + "; save the network without it");
  if (!is_one_of_many()) {
    for (std::string& line : variables_without_effect(values, config.origin))
      notices.push_back("warning: " + std::move(line));
    if (!notes.probabilities.empty() && config.model.task != io::Task::kRegression)
      notes.lines.push_back(notes.probabilities);
    for (const std::string& note : notes.lines) notices.push_back(config.model.name + ": " + note);
    note_shadowed_folder(config.model.name, notices);
    check_tokenizers(config, notices);
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
