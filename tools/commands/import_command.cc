// Implements `engine import`: converts weights of other programs to a checkpoint with the names and
// the data description of a run.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <map>

#include "engine/train/saving/weights.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "io/data/readers/tokens/text_files.h"
#include "io/interchange/array_files.h"
#include "models/image_weights.h"
#include "models/model_catalog.h"
#include "tools/commands/command.h"
#include "tools/commands/predict/saved_run.h"
#include "tools/folder/output_paths.h"
#include "tools/options/input/command_line.h"
#include "tools/options/table/run_config.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/exit_codes.h"
#include "tools/run/choices/train_arguments.h"
#include "tools/run/data/saved_input.h"
#include "tools/run/data/saved_weights.h"
#include "tools/run/data/session_data.h"

namespace tools {
namespace {

// Removes prefixes from the names: the requested ones, and those of PyTorch's wrappers. Prints a
// notice. Throws io::DataError if two names become equal.
void strip(std::vector<io::NamedArray>& arrays, const std::string& path,
           const std::vector<std::string>& prefixes) {
  std::size_t asked = 0, wrapped = 0;
  std::map<std::string, std::string> whole;  // by the name without prefixes
  for (io::NamedArray& array : arrays) {
    const std::string before = array.name;
    for (const std::string& prefix : prefixes)
      if (array.name.starts_with(prefix) && array.name.size() > prefix.size())
        array.name.erase(0, prefix.size()), ++asked;
    if (std::string plain = engine::plain_name(array.name); plain != array.name && !plain.empty())
      array.name = std::move(plain), ++wrapped;
    array.section = io::section_of_name(array.name);
    array.device = "cpu:0";
    const auto [other, is_new] = whole.emplace(array.name, before);
    if (!is_new)
      throw io::DataError(path + ": '" + other->second + "' and '" + before + "' are both '" +
                          array.name + "' without their prefixes; expected one of them");
  }
  if (!prefixes.empty() && asked == 0)
    throw io::DataError("no name begins with '" + prefixes.front() + "'");
  if (wrapped > 0)
    std::fprintf(stderr,
                 "import: removed the prefixes module. and _orig_mod. from %zu of %zu names\n",
                 wrapped, arrays.size());
}

// Returns the parameters and buffers of a file, without prefixes.
std::vector<io::NamedArray> read_arrays(const std::string& path,
                                        const std::vector<std::string>& prefixes,
                                        std::vector<io::UnreadArray>& unread) {
  std::vector<io::NamedArray> arrays = io::load_arrays(path, &unread);
  std::erase_if(arrays, [](const io::NamedArray& a) {
    return a.section != io::Section::kParameter && a.section != io::Section::kBuffer;
  });
  strip(arrays, path, prefixes);
  return arrays;
}

struct Target {  // the model that the arrays must fit
  engine::Graph graph;
  std::string definition, config, vocabulary, tokenizer, described;
  engine::DType dtype;
};

// The tokenizer of token files, or else of a published model. "": there is none.
std::string tokenizer_of(const std::string& model, const io::DatasetOptions* data) {
  if (data != nullptr && data->name != "tokens") return "";
  std::string text = data != nullptr ? io::read_stored_tokenizer(data->directory) : "";
  if (text.empty() && models::is_published_model(model)) text = io::read_stored_tokenizer(model);
  return text;
}

// Returns the options of the data that the checkpoint keeps, with the size of the vocabulary of
// token files, which only the ids state.
ConfigValues kept_values(const RunConfig& config, const io::Dataset& set) {
  ConfigValues kept;
  for (const std::string& name : saved_options())
    if (const auto found = config.origin.find(name); found != config.origin.end())
      kept[name] = found->second;
  if (config.data.set.name == "tokens")
    kept["vocabulary-size"].value = std::to_string(set.classes());
  return kept;
}

// Returns the model that the arrays belong to, for files that need no --model.
models::ImageWeights recognized(const std::string& path,
                                const std::vector<io::NamedArray>& arrays) {
  if (const auto weights = models::recognize_image_weights(arrays)) return *weights;
  throw UsageError(path + ": found " + std::to_string(arrays.size()) + " arrays" +
                   (arrays.empty() ? "" : ", the first is '" + arrays.front().name + "'") +
                   "; expected those of a built-in image model, e.g. torchvision's or timm's "
                   "resnet18, 34, 50, 101 or 152; name another model with --model");
}

// The model with the sizes that it was made for. `classes`: 0: its default. Throws UsageError for
// options that say more of the model than its type.
Target default_target(const std::string& model, std::string definition, std::int64_t classes,
                      const ConfigValues& values) {
  require_no_dataset(values);
  RunConfig run;
  if (const auto dtype = values.find("dtype"); dtype != values.end())
    static_cast<void>(find_option("dtype")->field.store(run, dtype->second.value));
  models::ModelOptions options = models::default_options(model);
  if (classes > 0) options.classes = classes;
  options.definition = definition;
  engine::Graph graph = models::build_model(model, options);
  return {std::move(graph),
          std::move(definition),
          to_toml(values),
          "",
          tokenizer_of(model, nullptr),
          "with its default input size (--dataset selects another)",
          run.compute.dtype};
}

// `classes`: of a model without a data set; 0: its default.
Target target_of(const std::string& model, std::int64_t classes, ConfigValues& values) {
  std::string definition = models::model_definition(model);
  if (!values.contains("dataset"))
    return default_target(model, std::move(definition), classes, values);
  take_vocabulary(values);
  complete_values(values, "");
  const RunConfig config = resolve_run_config(values);
  const io::DatasetSplits data = io::load_dataset(config.data.set);
  engine::Graph graph = models::build_model(model, {.sample_shape = sample_shape(data.train),
                                                    .classes = data.train.classes(),
                                                    .regression = config.model.regression_loss(),
                                                    .label_shape = label_shape(data.train),
                                                    .definition = definition});
  return {std::move(graph),
          std::move(definition),
          to_toml(kept_values(config, data.train)),
          data.train.vocabulary(),
          tokenizer_of(model, &config.data.set),
          "for data set '" + data.train.name + "'",
          config.compute.dtype};
}

// Everything but the names of model and data, and the arrays.
io::Checkpoint description(const Target& target) {
  io::Checkpoint checkpoint;
  checkpoint.definition = target.definition;
  checkpoint.config = target.config;
  checkpoint.vocabulary = target.vocabulary;
  checkpoint.tokenizer = target.tokenizer;
  checkpoint.build = std::string(ENGINE_VERSION) + " " + ENGINE_COMMIT;
  checkpoint.history = {{0, static_cast<std::int64_t>(std::time(nullptr)), 1, checkpoint.build}};
  return checkpoint;
}

}  // namespace

int import_command(const Arguments& arguments) {
  CLI::App app(
      "Makes a checkpoint at step 0 from another program's weights, for train --init-from, eval, "
      "sample and verify.",
      "engine import");
  ConfigValues values;
  std::string path, out;
  std::vector<std::string> prefixes;
  app.add_option("FILE", path, ".safetensors, .npz, .pth or .ckpt, detected by content")
      ->required();
  app.add_option("-o,--output", out, "output file")->required()->type_name("CKPT");
  app.add_option("--strip-prefix", prefixes, "also remove this prefix from names; may be repeated")
      ->type_name("P")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  add_table_options(app, values, saved_options());
  app.footer(
      "Without --model, the file must have the parameters of a built-in image model, e.g. of "
      "torchvision's resnet18, and of any number of classes. Names, shapes and number of the "
      "arrays must match the model, with its "
      "default input size or, with --dataset, that of the data set. Buffers may be missing; f16, "
      "bf16, f32 and f64 are converted.");
  if (!parse(app, arguments)) return kExitOk;
  check_new_file(out, {path});

  std::vector<io::UnreadArray> unread;
  std::vector<io::NamedArray> arrays = read_arrays(path, prefixes, unread);
  std::int64_t classes = 0;
  if (!values.contains("model")) {
    refuse_transposed_gpt2(arrays, path);
    const models::ImageWeights weights = recognized(path, arrays);
    values["model"] = {.value = weights.model, .source = path};
    classes = weights.classes;
  }
  const std::string model_name = values.at("model").value;
  const Target target = target_of(model_name, classes, values);
  engine::ModelState state = engine::ModelState::allocate(target.graph, target.dtype);
  state.initialize(target.graph, 0, engine::ModelState::nothing);
  from_foreign_layout({model_name, target.definition}, path, arrays);
  refuse_transposed_gpt2(arrays, path);
  refuse_separate_queries(arrays, path, state);
  const std::vector<std::string> left_out =
      engine::import_state(arrays, path, /*exact=*/false, state, {}, unread);
  if (!left_out.empty())
    std::fprintf(stderr, "import: left out %s\n",
                 base::escape_text(base::join_text(left_out)).c_str());

  io::Checkpoint checkpoint = description(target);
  checkpoint.model = model_name;
  if (const auto dataset = values.find("dataset"); dataset != values.end())
    checkpoint.dataset = dataset->second.value;
  checkpoint.arrays = engine::export_state(state, {});
  io::save_checkpoint(checkpoint, out);
  std::printf("Imported %zu of %zu tensors of %s, %s: %s\n", arrays.size(),
              checkpoint.arrays.size(), base::escape_text(model_name).c_str(),
              base::escape_text(target.described).c_str(), base::escape_text(out).c_str());
  return kExitOk;
}

}  // namespace tools
