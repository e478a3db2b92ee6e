// Opens each file once; the index only says which files there are and what they must hold.
#include "io/interchange/safetensors/tensor_folder.h"

#include <nlohmann/json.hpp>
#include <set>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/formats/nesting.h"
#include "io/base/text/escape_text.h"
#include "io/interchange/safetensors/safetensors.h"

namespace io {
namespace {

constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{16} << 20;
constexpr std::size_t kMaxShards = 1000;

// The names of tensors with the names of their files.
std::map<std::string, std::string> read_index(const std::string& path) {
  const std::string text = read_small_file(path, kMaxIndexBytes);
  nlohmann::json index;
  if (json_nests_within_limit(text)) index = nlohmann::json::parse(text, nullptr, false);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    throw DataError(path + ": expected a JSON object with 'weight_map', the files of the tensors");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : file.dump();
    if (!file.is_string() || !name.ends_with(".safetensors") ||
        name.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
      throw DataError(path + ": the file of '" + base::escape_text(tensor) + "' is '" +
                      base::escape_text(name) +
                      "'; expected a name of the same folder that ends in .safetensors");
    files.emplace(tensor, name);
  }
  return files;
}

}  // namespace

TensorFolder::TensorFolder(const std::string& folder) {
  const std::string whole = folder + "/model.safetensors",
                    index = folder + "/model.safetensors.index.json";
  if (is_regular_file(whole))
    open(whole);
  else if (is_regular_file(index))
    open_shards(folder, index);
  else
    throw MissingFileError(
        folder +
        ": has no weights; expected model.safetensors, or model.safetensors.index.json with its "
        "shards" +
        (is_regular_file(folder + "/pytorch_model.bin")
             ? "; from pytorch_model.bin save_pretrained() of transformers writes it"
             : ""));
}

void TensorFolder::open(const std::string& path) {
  files_.push_back(open_safetensors(open_bytes(path)));
  const ArraySource& file = *files_.back();
  for (std::size_t i = 0; i < file.entries().size(); ++i)
    if (!tensors_.try_emplace(file.entries()[i].name, Place{files_.size() - 1, i}).second)
      throw DataError(path + ": '" + base::escape_text(file.entries()[i].name) +
                      "' is also in another shard");
  for (const UnreadArray& array : file.unread()) unread_.emplace(array.name, array.type);
}

void TensorFolder::open_shards(const std::string& folder, const std::string& index) {
  const std::map<std::string, std::string> promised = read_index(index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : promised) names.insert(file);
  if (names.empty() || names.size() > kMaxShards)
    throw DataError(index + ": lists " + std::to_string(names.size()) + " files; expected 1.." +
                    std::to_string(kMaxShards));
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    if (!is_regular_file(path))
      throw MissingFileError(path + ": missing; " + index + " lists it as one of " +
                             std::to_string(names.size()) + " shards");
    open(path);
  }
  for (const auto& [tensor, place] : tensors_)
    if (!promised.contains(tensor))
      throw DataError(file_name(place) + ": has '" + base::escape_text(tensor) + "', which " +
                      index + " does not list");
  for (const auto& [tensor, file] : promised) {
    const auto found = tensors_.find(tensor);
    const bool is_there = found != tensors_.end() ? file_name(found->second) == folder + "/" + file
                                                  : unread_.contains(tensor);
    if (!is_there)
      throw DataError(folder + "/" + file + ": lacks '" + base::escape_text(tensor) + "', which " +
                      index + " expects there");
  }
}

NamedArray TensorFolder::load(Place place) {
  const ArrayEntry& from = entry(place);
  NamedArray array{.name = from.name, .type = from.type, .shape = from.shape};
  array.data.resize(from.bytes);
  files_[place.file]->read(place.index, 0, array.data);
  return array;
}

}  // namespace io
