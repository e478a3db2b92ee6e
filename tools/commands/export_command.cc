// Implements `engine export`: writes the model of a checkpoint for other programs, its arrays as
// .safetensors, .npz or .pth, or the whole model as ONNX or as a folder of Hugging Face.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "engine/train/checks/finite_guard.h"
#include "engine/train/saving/weights.h"
#include "io/base/files/create_folder.h"
#include "io/base/formats/json_writer.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/atomic_file.h"
#include "io/checkpoint/byte_source.h"
#include "io/data/readers/tokens/text_files.h"
#include "io/interchange/array_files.h"
#include "io/interchange/onnx_writer.h"
#include "models/image_weights.h"
#include "models/model_catalog.h"
#include "models/onnx_export/onnx_export.h"
#include "models/publish.h"
#include "tools/commands/command.h"
#include "tools/commands/predict/published_companions.h"
#include "tools/commands/predict/saved_run.h"
#include "tools/folder/output_paths.h"
#include "tools/folder/run_record.h"
#include "tools/folder/run_reference.h"
#include "tools/options/input/command_line.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/report/text/progress_line.h"
#include "tools/run/data/saved_input.h"
#include "tools/run/data/saved_weights.h"
#include "tools/run/data/table_columns.h"

namespace tools {
namespace {

constexpr const char* kFormats[] = {"safetensors", "npz", "pth", "onnx", "hf"};

struct ExportOptions {
  std::string path, out, format, input = "prepared";
  engine::AverageKind weights = engine::AverageKind::kNone;
  bool half = false, brain = false;
  ConfigValues values;  // --model, --dataset and related options: only for ONNX; --model: for hf
};

// Returns true for options that do not change the samples.
bool leaves_data_alone(const std::string& name) {
  return name == "model" || name == "dtype" || name == "seed" || name == "data-dir" ||
         name == "annotations" || name == "image-cache-mb";
}

std::string format_of(const ExportOptions& o) {
  if (!o.format.empty()) return o.format;
  for (std::string format : kFormats)
    if (o.out.ends_with("." + format) && format != "hf") return format;
  if (o.out.ends_with(".pt")) return "pth";
  throw UsageError("-o '" + o.out +
                   "': expected a name that ends in .safetensors, .npz, .pth, .pt or .onnx, "
                   "or --format");
}

void check_format(const ExportOptions& o) {
  if (o.half && o.brain) throw UsageError("--half and --bf16 exclude each other");
  if (o.format == "onnx") {
    if (o.half || o.brain)
      throw UsageError(std::string(o.half ? "--half" : "--bf16") +
                       " is for files of arrays: the numbers of an ONNX file are f32");
    return;
  }
  std::string given = o.input == "prepared" ? "" : "input";
  for (const auto& [name, value] : o.values)
    if (o.format != "hf" || name != "model") given = name;
  if (!given.empty())
    throw UsageError("--" + given + " is for ONNX: " +
                     (o.format == "hf" ? "a model of Hugging Face reads token ids"
                                       : "a ." + o.format + " holds the arrays alone"));
}

std::vector<io::NamedArray> model_arrays(const ExportOptions& o,
                                         std::vector<io::UnreadArray>& unread,
                                         const ReadingModel& reader = {}) {
  std::vector<io::NamedArray> arrays = load_weights(o.weights, o.path, &unread, reader);
  std::erase_if(arrays, [](const io::NamedArray& a) {
    return a.section != io::Section::kParameter && a.section != io::Section::kBuffer;
  });
  return arrays;
}

// In the types that were asked for. `bytes` becomes their size.
std::vector<io::NamedArray> exported_arrays(const ExportOptions& o, std::int64_t& bytes) {
  std::vector<io::UnreadArray> unread;
  std::vector<io::NamedArray> arrays = model_arrays(o, unread);
  if (!unread.empty())
    throw io::DataError(o.path + ": '" + unread.front().name + "' has dtype " +
                        unread.front().type + ", which is not read and would be missing");
  for (io::NamedArray& array : arrays) {
    if (o.half || o.brain)
      array = io::to_half(array, o.half ? base::DType::kF16 : base::DType::kBF16, o.path);
    bytes += static_cast<std::int64_t>(array.data.size());
  }
  return arrays;
}

// An imported network's arrays are written as the program that it came from has them.
void export_arrays(const ExportOptions& o) {
  std::int64_t bytes = 0;
  std::vector<io::NamedArray> arrays = exported_arrays(o, bytes);
  if (!models::is_published_model(o.path) && io::is_checkpoint(*io::open_bytes(o.path))) {
    const io::Checkpoint saved = io::load_description(o.path);
    if (!saved.definition.empty())
      to_foreign_layout(models::file_layouts(saved.model, saved.definition), arrays);
  }
  io::save_arrays(arrays, o.out, *io::array_format(o.format));
  std::printf("Exported %zu tensors of %s, %s bytes: %s\n", arrays.size(),
              base::escape_text(o.path).c_str(), with_commas(bytes).c_str(),
              base::escape_text(o.out).c_str());
}

// A model's definition and its source.
struct SavedModel {
  std::optional<io::Checkpoint> checkpoint;  // its description; none: weights without a run
  std::string name, definition, tokenizer;
  SavedInput input;
};

// Finds everything but the input. `values` are completed by the checkpoint's.
SavedModel find_definition(const ExportOptions& o, ConfigValues& values) {
  SavedModel model;
  if (models::is_published_model(o.path)) {
    if (!values.contains("model")) model.definition = models::model_definition(o.path);
    values.try_emplace("model", ConfigValue{o.path, o.path});
    model.tokenizer = io::read_stored_tokenizer(o.path);
  } else if (io::is_checkpoint(*io::open_bytes(o.path))) {
    model.checkpoint = io::load_description(o.path);
    model.tokenizer = model.checkpoint->tokenizer;
    if (!values.contains("model")) model.definition = model.checkpoint->definition;
    take_saved_options(options_in(*model.checkpoint, o.path), values);
  }
  if (!values.contains("model"))
    throw UsageError("--model is required: " + o.path + " does not say which model it is of");
  model.name = values.at("model").value;
  return model;
}

SavedModel find_model(const ExportOptions& o) {
  ConfigValues values = o.values;
  const bool other_data = std::ranges::any_of(
      values, [](const auto& given) { return !leaves_data_alone(given.first); });
  SavedModel model = find_definition(o, values);
  model.input = saved_input(model.checkpoint ? &*model.checkpoint : nullptr, o.path, values,
                            other_data, o.input == "pixels");
  if (model.input.is_default) require_no_dataset(o.values);
  return model;
}

// Weights of an image model without data may have another number of classes than its default.
void take_classes(const std::vector<io::NamedArray>& arrays, SavedModel& model) {
  if (!model.input.is_default || !model.definition.empty()) return;
  if (const std::int64_t classes = models::classes_of_image_weights(model.name, arrays);
      classes > 0)
    model.input.classes = classes;
}

std::string list_json(const auto& list) {
  base::JsonWriter json;
  json.value(list);
  return json.text();
}

std::vector<std::pair<std::string, std::string>> metadata_of(const ExportOptions& o,
                                                             const SavedModel& model) {
  std::vector<std::pair<std::string, std::string>> entries{{"model", model.name}};
  if (model.checkpoint) {
    entries.emplace_back("run_id", model.checkpoint->run_id);
    entries.emplace_back("step", std::to_string(model.checkpoint->global_step));
    entries.emplace_back("dataset", model.checkpoint->dataset);
    entries.emplace_back("written_by", model.checkpoint->build);
  }
  entries.emplace_back("weights", weights_name(o.weights));
  if (const auto& target = model.input.target) {
    // The output is (number - mean) / deviation.
    entries.emplace_back("target", target->name);
    entries.emplace_back("target_mean", base::shortest_text(target->mean));
    entries.emplace_back("target_deviation", base::shortest_text(target->deviation));
  } else {
    entries.emplace_back("classes", std::to_string(model.input.classes));
  }
  if (model.input.multi_label) entries.emplace_back("task", "multi-label");
  if (!model.input.class_names.empty())
    entries.emplace_back("class_names", list_json(model.input.class_names));
  if (!model.input.vocabulary.empty()) {
    std::vector<int> bytes;
    for (const char c : model.input.vocabulary) bytes.push_back(static_cast<unsigned char>(c));
    entries.emplace_back("vocabulary", list_json(bytes));  // the byte of each token id
  }
  if (model.input.table)
    entries.emplace_back("columns",
                         "[" + base::join_text(column_descriptions(*model.input.table), ",") + "]");
  if (model.input.normalization) {
    entries.emplace_back("input", o.input);
    entries.emplace_back("normalization", to_string(*model.input.normalization));
    if (!model.input.mean.empty()) {
      entries.emplace_back("mean", list_json(model.input.mean));
      entries.emplace_back("deviation", list_json(model.input.deviation));
    }
  }
  std::erase_if(entries, [](const auto& entry) { return entry.second.empty(); });
  for (auto& [key, value] : entries) value = base::escape_text(value);
  return entries;
}

std::optional<models::PixelScaling> pixel_scaling(const ExportOptions& o, const SavedInput& input) {
  if (o.input == "prepared") return std::nullopt;
  const engine::Shape& sample = input.sample_shape;
  const bool images = sample.rank() == 3 && sample[0] * sample[1] > 1;
  if (!input.normalization && images)
    throw UsageError(
        "--input pixels: how the run has normalized its images is not known; name "
        "its data set with --dataset");
  if (input.normalization != io::Normalization::kStandard) return models::PixelScaling{};
  return models::PixelScaling{.mean = input.mean, .deviation = input.deviation};
}

std::string text_of_value(const io::OnnxValue& value) {
  std::string text;
  for (const io::OnnxDimension& dimension : value.shape) {
    const auto* extent = std::get_if<std::int64_t>(&dimension);
    text += (text.empty() ? "" : ", ") +
            (extent != nullptr ? std::to_string(*extent) : std::get<std::string>(dimension));
  }
  return value.name + " " + (value.type == io::DType::kI64 ? "int64" : "float32") + " [" + text +
         "]";
}

std::array<std::string, 2> published_paths(const ExportOptions& o) {
  return {o.out + "/config.json", o.out + "/model.safetensors"};
}

// Published weights cannot be made again.
void check_no_published_weights(const std::string& folder, const std::string& begun_from) {
  std::error_code unknown;
  if (std::filesystem::equivalent(folder, begun_from, unknown))
    throw io::CannotCreateError(folder +
                                ": has the weights that the run began with; expected another "
                                "folder");
  for (const char* name : {"model.safetensors.index.json", "pytorch_model.bin"})
    if (std::filesystem::exists(folder + "/" + name, unknown))
      throw io::CannotCreateError(folder + ": has other weights, " + name +
                                  "; expected another folder");
}

void export_published(const ExportOptions& o) {
  ConfigValues values = o.values;
  const SavedModel model = find_definition(o, values);
  check_no_published_weights(o.out, model.name);
  std::int64_t bytes = 0;
  const models::PublishedFiles files =
      models::publish(model.name, model.definition, exported_arrays(o, bytes));
  io::create_folder(o.out);
  const auto [config, weights] = published_paths(o);
  io::save_arrays(files.tensors, weights, io::ArrayFormat::kSafetensors);
  io::write_file_atomically(config, files.config);
  const std::string missing =
      write_companions(o.out, model.tokenizer, files, model.name,
                       models::is_of_published_model(model.name, model.definition));
  if (!missing.empty()) print_notice(missing);
  std::printf("Exported %s as %s, %zu tensors, %s bytes: %s\n", base::escape_text(o.path).c_str(),
              files.type.c_str(), files.tensors.size(), with_commas(bytes).c_str(),
              base::escape_text(o.out).c_str());
}

void export_onnx(const ExportOptions& o) {
  SavedModel model = find_model(o);
  std::vector<io::UnreadArray> unread;
  const std::vector<io::NamedArray> arrays =
      model_arrays(o, unread, {model.name, model.definition});
  take_classes(arrays, model);
  std::optional<engine::ops::RegressionLoss> regression;  // the loss is not exported: any of them
  if (model.input.target) regression = engine::ops::RegressionLoss::kSquared;
  const engine::Graph graph =
      models::build_model(model.name, {.sample_shape = model.input.sample_shape,
                                       .classes = model.input.classes,
                                       .regression = regression,
                                       .label_shape = model.input.label_shape,
                                       .definition = model.definition});
  engine::ModelState state = engine::ModelState::allocate(graph, engine::DType::kF32);
  state.initialize(graph, 0, engine::ModelState::nothing);
  engine::import_state(arrays, o.path, /*exact=*/false, state, {}, unread);
  if (const auto bad = engine::first_not_finite(state, /*statistics=*/true))
    throw io::DataError(o.path + ": '" + state.entries[*bad].name +
                        "' is not finite (NaN or infinity): the training that wrote it had "
                        "diverged; export an earlier checkpoint");
  io::OnnxModel onnx =
      models::onnx_model(graph, engine::export_state(state, {}), pixel_scaling(o, model.input));
  onnx.name = base::escape_text(model.name);
  onnx.producer = "engine";
  onnx.producer_version = ENGINE_VERSION " " ENGINE_COMMIT;
  onnx.metadata = metadata_of(o, model);
  const std::uint64_t bytes = io::save_onnx(onnx, o.out);
  std::printf("Exported %s of %s, %s parameters, %s bytes: %s\n%s%s -> %s\n", onnx.name.c_str(),
              base::escape_text(o.path).c_str(), with_commas(state.parameter_count()).c_str(),
              with_commas(static_cast<std::int64_t>(bytes)).c_str(),
              base::escape_text(o.out).c_str(), text_of_value(onnx.inputs.front()).c_str(),
              !model.input.normalization ? ""
              : o.input == "pixels"      ? " (pixels from 0 to 255)"
                                         : " (normalized as in training)",
              text_of_value(onnx.outputs.front()).c_str());
}

void export_model(const ExportOptions& o) {
  if (o.format != "hf") {
    check_new_file(o.out, {o.path});
  } else {
    if (has_run_record(o.out))
      throw io::CannotCreateError(o.out + ": is the folder of a run; expected another one");
    for (const std::string& path : published_paths(o)) check_new_file(path, {o.path});
  }
  if (o.format == "onnx")
    export_onnx(o);
  else if (o.format == "hf")
    export_published(o);
  else
    export_arrays(o);
}

}  // namespace

int export_command(const Arguments& arguments) {
  CLI::App app(
      "Writes a checkpoint's model for other programs: parameters and buffers, with PyTorch's "
      "names "
      "and layouts, an ONNX graph that computes its logits, or a text model's folder for "
      "Hugging Face's transformers.",
      "engine export");
  ExportOptions o;
  app.add_option("RUN|CKPT|DIR", o.path,
                 "run's folder (its best checkpoint, else the newest), .ckpt, .safetensors, .npz, "
                 ".pth, or a folder of Hugging Face")
      ->required();
  app.add_option("-o,--output", o.out,
                 "output file, whose extension is the format, or a folder for hf")
      ->required()
      ->type_name("FILE|DIR");
  app.add_option("--format", o.format, "format, whatever the extension; hf: a folder")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kFormats), std::end(kFormats))));
  add_weights_option(app, o.weights);
  app.add_flag("--half", o.half, "convert to f16; a number beyond its range is an error");
  app.add_flag("--bf16", o.brain, "convert to bf16 (not .npz)");
  app.add_option("--input", o.input,
                 "input of an ONNX image model: normalized as in training, or pixels (0 to 255)")
      ->check(CLI::IsMember({"prepared", "pixels"}))
      ->default_str("prepared");
  add_table_options(app, o.values, saved_options());
  app.footer(
      "Optimizer, averaging and random-number state is not exported: the file is for using the "
      "model, not for resuming the run.\n"
      "Integer buffers (num_batches_tracked) keep their type. An existing file is replaced "
      "atomically.\n"
      "ONNX (operator set 17, f32): images are [batch, channels, height, width], tokens int64 "
      "[batch, positions]; the result is `logits`. --model, --dataset and the options below "
      "are for ONNX, where a file does not say them.\n"
      "hf: config.json and model.safetensors of a model that was trained from such a folder, or of "
      "mingpt, gpt-nano, gpt-mini and gpt2.");
  if (!parse(app, arguments)) return kExitOk;
  o.format = format_of(o);
  check_format(o);
  const std::string given = o.path;
  const CheckpointChoice wanted = choice_for(o.weights);
  read_checkpoint(given, wanted, [&](const std::string& file) {
    o.path = file;
    export_model(o);
  });
  if (const std::string taken = checkpoint_choice_text(given, wanted, o.path); !taken.empty())
    std::fprintf(stderr, "export: %s\n", base::escape_text(taken).c_str());
  return kExitOk;
}

}  // namespace tools
