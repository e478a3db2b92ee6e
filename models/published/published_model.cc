// Both directions follow the list of arrays that published_layers() makes of config.json.
#include "models/published/published_model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "engine/core/error.h"
#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "io/interchange/array_files.h"
#include "io/interchange/safetensors/tensor_folder.h"
#include "models/published/foreign_folder.h"
#include "models/published/published_layers.h"

namespace models {
namespace {

using Extents = std::vector<std::int64_t>;

// The prefix of all tensors but the output layer's. Files of the model without that layer lack it.
std::string_view prefix_of(const PublishedConfig& config) {
  return config.family == PublishedFamily::kGpt2 ? "transformer." : "model.";
}

constexpr const char* kHead = "lm_head.weight";

// Masks and tables that older versions have stored.
bool is_computed(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

class WeightReader {
 public:
  WeightReader(const std::string& folder, const PublishedConfig& config)
      : config_(config), files_(folder), folder_(folder) {}

  std::vector<io::NamedArray> read() {
    std::vector<io::NamedArray> arrays;
    for (const PublishedArray& wanted : published_layers(config_).arrays) {
      arrays.push_back(joined(wanted));
      if (wanted.transposed) arrays.back() = io::transposed(std::move(arrays.back()));
    }
    if (config_.tied) check_head(arrays.front());
    refuse_others();
    return arrays;
  }

 private:
  io::NamedArray joined(const PublishedArray& wanted) {
    io::NamedArray whole;
    for (const StoredTensor& tensor : wanted.stored) {
      io::NamedArray part = load(tensor);
      if (whole.name.empty()) {
        whole = std::move(part);
        whole.name = wanted.name;
        continue;
      }
      if (part.type != whole.type)
        throw engine::ModelError(folder_ + ": '" + tensor.name + "' has type " +
                                 std::string(to_string(part.type)) + "; expected " +
                                 std::string(to_string(whole.type)) + ", as '" +
                                 wanted.stored.front().name + "'");
      whole.shape[0] += part.shape[0];
      whole.data.insert(whole.data.end(), part.data.begin(), part.data.end());
    }
    return whole;
  }

  io::NamedArray load(const StoredTensor& tensor) {
    const auto& known = files_.tensors();
    auto found = known.find(tensor.name);
    if (found == known.end() && tensor.name.starts_with(prefix_of(config_)))
      found = known.find(tensor.name.substr(prefix_of(config_).size()));
    if (found == known.end()) {
      const auto unread = files_.unread().find(tensor.name);
      throw engine::ModelError(
          folder_ + ": " +
          (unread == files_.unread().end()
               ? "lacks '" + tensor.name + "', which config.json implies"
               : "'" + tensor.name + "' has type " + unread->second +
                     "; supported: f16, bf16, f32 and f64, without quantization"));
    }
    const io::ArrayEntry& entry = files_.entry(found->second);
    const std::string& file = files_.file_name(found->second);
    if (entry.shape != tensor.shape)
      throw engine::ModelError(file + ": '" + found->first + "' has shape " +
                               base::shape_text(entry.shape) + "; config.json implies " +
                               base::shape_text(tensor.shape));
    if (!base::is_floating(entry.type))
      throw engine::ModelError(file + ": '" + found->first + "' has type " +
                               std::string(to_string(entry.type)) +
                               "; supported: f16, bf16, f32 and f64, without quantization");
    used_.insert(found->first);
    return files_.load(found->second);
  }

  // The embedding may be stored a second time under the name of the output layer. Another matrix
  // there would be missing from the results: `transformers` uses it in spite of the setting.
  void check_head(const io::NamedArray& embedding) {
    const auto stored = files_.tensors().find(kHead);
    if (stored == files_.tensors().end()) return;
    used_.insert(kHead);
    const io::NamedArray head = files_.load(stored->second);
    if (head.type == embedding.type && head.shape == embedding.shape && head.data == embedding.data)
      return;
    throw engine::ModelError(
        folder_ + ": '" + kHead + "' differs from the embedding '" + embedding.name +
        "', but config.json ties them; set \"tie_word_embeddings\" to false to keep both, or "
        "remove '" +
        kHead + "'");
  }

  // A weight that no layer has would be missing from the results.
  void refuse_others() const {
    std::vector<std::string> others;
    for (const auto& [name, place] : files_.tensors())
      if (!used_.contains(name) && !is_computed(name)) others.push_back(name);
    for (const auto& [name, type] : files_.unread())
      if (!is_computed(name)) others.push_back(name);
    if (others.empty()) return;
    throw engine::ModelError(folder_ + ": has " + std::to_string(others.size()) +
                             " tensors that no layer of a " + config_.type +
                             " with this config.json has, such as '" +
                             base::escape_text(others.front()) + "'");
  }

  const PublishedConfig& config_;
  io::TensorFolder files_;
  const std::string& folder_;
  std::set<std::string> used_;
};

}  // namespace

PublishedConfig read_published_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  try {
    return parse_published_config(io::read_small_file(path, kMaxConfigBytes), path);
  } catch (const io::MissingFileError&) {
    const std::string what = foreign_folder_text(folder);
    throw engine::ModelError(folder + (what.empty() ? ": has no config.json; expected the folder "
                                                      "of a text model of Hugging Face"
                                                    : ": " + what));
  } catch (const io::Error& error) {
    throw engine::ModelError(error.what());
  }
}

std::vector<std::int64_t> read_generation_ends(const std::string& folder) {
  const std::string path = folder + "/generation_config.json";
  try {
    return parse_generation_ends(io::read_small_file(path, kMaxConfigBytes), path);
  } catch (const io::MissingFileError&) {
    return {};
  }
}

std::vector<io::NamedArray> read_published_weights(const std::string& folder) {
  const PublishedConfig config = read_published_config(folder);
  return WeightReader(folder, config).read();
}

std::vector<io::NamedArray> published_tensors(const PublishedConfig& config,
                                              std::vector<io::NamedArray> arrays,
                                              const std::string& source) {
  std::map<std::string, io::NamedArray*> by_name;
  for (io::NamedArray& array : arrays) by_name.emplace(array.name, &array);
  std::vector<io::NamedArray> tensors;
  for (const PublishedArray& wanted : published_layers(config).arrays) {
    const auto found = by_name.find(wanted.name);
    if (found == by_name.end())
      throw engine::ModelError(source + ": lacks '" + wanted.name + "' of a " + config.type);
    io::NamedArray array = std::move(*found->second);
    Extents expected = wanted.stored.front().shape;
    for (std::size_t i = 1; i < wanted.stored.size(); ++i) expected[0] += wanted.stored[i].shape[0];
    if (wanted.transposed) std::swap(expected[0], expected[1]);
    if (array.shape != expected)
      throw engine::ModelError(source + ": '" + array.name + "' has shape " +
                               base::shape_text(array.shape) + "; a " + config.type +
                               " of this config has " + base::shape_text(expected));
    if (wanted.transposed) array = io::transposed(std::move(array));
    if (wanted.stored.size() == 1) {
      array.name = wanted.stored.front().name;
      tensors.push_back(std::move(array));
      continue;
    }
    std::size_t at = 0;
    for (const StoredTensor& stored : wanted.stored) {
      const std::size_t bytes = array.data.size() * static_cast<std::size_t>(stored.shape[0]) /
                                static_cast<std::size_t>(array.shape[0]);
      const auto first = array.data.begin() + static_cast<std::ptrdiff_t>(at);
      tensors.push_back({.name = stored.name,
                         .type = array.type,
                         .shape = stored.shape,
                         .data = {first, first + static_cast<std::ptrdiff_t>(bytes)}});
      at += bytes;
    }
  }
  return tensors;
}

}  // namespace models
