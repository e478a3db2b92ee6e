// Names of files decide: their contents would take a reader for each format.
#include "models/published/foreign_folder.h"

#include <algorithm>
#include <filesystem>
#include <vector>

namespace models {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure))
    names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  return names;
}

bool is_weights(const std::string& name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") ||
         (name.starts_with("pytorch_model") && name.ends_with(".bin"));
}

}  // namespace

std::string foreign_folder_text(const std::string& folder) {
  const std::vector<std::string> names = names_in(folder);
  const auto has = [&](const char* name) { return std::ranges::count(names, name) > 0; };
  const auto any = [&](const auto& is) { return std::ranges::any_of(names, is); };
  if (has("config.json")) return "";
  if (has("adapter_config.json"))
    return "it has an adapter without its base model (adapter_config.json); expected the model "
           "with it, which merge_and_unload() of peft makes";
  if (has("snapshots") && (has("blobs") || has("refs")))
    return "it is a cache of the Hugging Face hub; expected one of the folders in " + folder +
           "/snapshots";
  if (any([](const std::string& name) { return name.starts_with("models--"); }))
    return "it is a cache of the Hugging Face hub; expected a folder models--*/snapshots/* in it";
  if (any([](const std::string& name) { return name.ends_with(".gguf"); }))
    return "it has GGUF weights; expected config.json and model.safetensors of transformers";
  if (any(is_weights))
    return "it has weights without config.json; expected the folder of a text model of Hugging "
           "Face";
  return "";
}

std::string foreign_file_text(const std::string& path) {
  std::error_code unknown;
  if (!fs::is_regular_file(path, unknown)) return "";
  const std::string name = fs::path(path).filename().string(),
                    folder = fs::path(path).parent_path().string();
  if (name == "config.json" || is_weights(name))
    return "a file of a published model; expected its folder, " + (folder.empty() ? "." : folder);
  return std::string(name.ends_with(".gguf") ? "GGUF weights" : "not a model") +
         "; expected FILE.toml, FILE.onnx, or a folder with config.json";
}

}  // namespace models
