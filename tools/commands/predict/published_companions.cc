// Files of the first folder are copied as they are; without them, the tokenizer's are made.
#include "tools/commands/predict/published_companions.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/checkpoint/atomic_file.h"
#include "io/tokenizer/tokenizer.h"
#include "models/model_catalog.h"
#include "models/published/published_tokenizer.h"

namespace tools {
namespace {

constexpr std::uint64_t kMaxCompanionBytes = std::uint64_t{16} << 20;

// Returns the text of the token that ends a text: the one of config.json, else the tokenizer's. ""
// for a tokenizer that is not read, which is exported all the same.
std::string end_token(const std::string& tokenizer_json, const std::vector<std::int64_t>& ends) {
  try {
    const io::Tokenizer tokenizer = io::Tokenizer::parse(tokenizer_json, "tokenizer.json");
    std::optional<std::int32_t> end = tokenizer.end_of_text();
    if (!ends.empty() && ends.front() < tokenizer.size())
      end = static_cast<std::int32_t>(ends.front());
    const std::string text = end ? tokenizer.decode({&*end, 1}) : "";
    return tokenizer.id_of(text) == end ? text : "";
  } catch (const io::DataError&) {
    return "";
  }
}

// Copies a file of the folder `from`; returns false if there is none.
bool copy_file(const std::string& from, const std::string& to, const char* name) {
  std::error_code unknown;
  if (!std::filesystem::exists(from + "/" + name, unknown)) return false;
  io::write_file_atomically(to + "/" + name,
                            io::read_small_file(from + "/" + name, kMaxCompanionBytes));
  return true;
}

// The settings of another tokenizer do not fit.
bool has_tokenizer(const std::string& folder, const std::string& tokenizer_json) {
  std::error_code unknown;
  const std::string path = folder + "/tokenizer.json";
  return std::filesystem::exists(path, unknown) &&
         io::read_small_file(path, io::kMaxTokenizerBytes) == tokenizer_json;
}

}  // namespace

std::string write_companions(const std::string& folder, const std::string& tokenizer_json,
                             const models::PublishedFiles& files, const std::string& begun_from,
                             bool of_published) {
  const bool is_there = of_published && models::is_published_model(begun_from);
  if (is_there)
    for (const char* name : {"generation_config.json", "chat_template.jinja"})
      copy_file(begun_from, folder, name);
  if (!tokenizer_json.empty()) {
    const models::PublishedTokenizer made =
        models::published_tokenizer(end_token(tokenizer_json, files.ends), files.context);
    const bool same = is_there && has_tokenizer(begun_from, tokenizer_json);
    io::write_file_atomically(folder + "/tokenizer.json", tokenizer_json);
    if (!same || !copy_file(begun_from, folder, "tokenizer_config.json"))
      io::write_file_atomically(folder + "/tokenizer_config.json", made.config);
    if (!same || !copy_file(begun_from, folder, "special_tokens_map.json"))
      io::write_file_atomically(folder + "/special_tokens_map.json", made.special_tokens);
  }
  if (!of_published || is_there) return "";
  return begun_from +
         ": the folder that the training began with is not there; generation_config.json, "
         "chat_template.jinja and tokenizer_config.json are not copied from it";
}

}  // namespace tools
