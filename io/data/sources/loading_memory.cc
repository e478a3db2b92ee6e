// Uses the sizes of files, and the content sizes in gzip files.
#include "io/data/sources/loading_memory.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/data/files/data_folder.h"
#include "io/data/readers/arrays/array_splits.h"
#include "io/data/readers/image_files/cifar10_files.h"
#include "io/data/readers/image_files/idx_files.h"
#include "io/data/readers/tokens/text_files.h"
#include "io/data/readers/tokens/token_file.h"

namespace io {
namespace {

struct FileSize {
  std::uint64_t packed = 0;  // 0: a plain file
  std::uint64_t content = 0;
};

// A gzip file ends with the length of its content (RFC 1952, 2.3.1), at least for the last member.
FileSize size_of_file(const std::string& path) {
  std::error_code failure;
  const std::uint64_t bytes = std::filesystem::file_size(path, failure);
  // Opening a pipe would block.
  if (failure || !std::filesystem::is_regular_file(path, failure)) return {};
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4> start{}, end{};
  if (!file.read(start.data(), 2)) return {};
  if (start[0] != '\x1F' || start[1] != '\x8B') return {.packed = 0, .content = bytes};
  if (!file.seekg(-4, std::ios::end) || !file.read(end.data(), 4)) return {};
  std::uint64_t content = 0;
  for (std::size_t i = end.size(); i-- > 0;)
    content = content << 8 | static_cast<std::uint8_t>(end[i]);
  return {.packed = bytes, .content = std::min(content, unpacked_limit(bytes))};
}

bool is_idx(const std::string& set) { return set == "mnist" || set == "fashion-mnist"; }
bool is_text(const std::string& set) { return set == "text" || set == "tinyshakespeare"; }

bool has_data(const std::string& name, const std::string& set) {
  if (is_text(set)) return is_text_name(name);
  if (set == "csv") return name.ends_with(".csv") || name.ends_with(".csv.gz");
  return is_cifar10_name(name);
}

// Returns the files that are read; none if loading will reject them.
std::vector<std::string> files_of(const DatasetOptions& options) {
  if (!options.csv.annotations.empty()) return {options.csv.annotations};
  if (std::error_code none; std::filesystem::is_regular_file(options.directory, none))
    return {options.directory};
  std::vector<std::string> paths;
  try {
    if (is_idx(options.name)) return find_idx_images(options.name, options.directory);
    for (FolderEntry& entry : list_folder(options.directory))
      if (has_data(entry.name, options.name)) paths.push_back(std::move(entry.path));
  } catch (const Error&) {
    return {};  // loading reports the reason
  }
  if (options.name == "csv" && paths.size() != 1) return {};
  return paths;
}

// Plain files are not loaded. The ids of others have 32 bits each, beside the unpacked file,
// which is released before the next one is read.
std::uint64_t token_bytes(const DatasetOptions& options) {
  std::uint64_t held = 0, most = 0;
  for (const std::string name : {"train", "val"}) {
    try {
      const TokenPlace place = find_token_file(options.directory, name, options.text.token_bits);
      if (place.packed_width == 0) continue;
      const std::uint64_t content = size_of_file(place.path).content;
      held += content / place.packed_width * sizeof(std::int32_t);
      most = std::max(most, held + content);
    } catch (const Error&) {
      continue;  // loading reports the reason
    }
  }
  return most;
}

// The bytes of all files, and a 32-bit id for each.
std::uint64_t text_bytes(const DatasetOptions& options) {
  std::uint64_t content = 0;
  for (const std::string& path : files_of(options)) content += size_of_file(path).content;
  return content + 4 * content;
}

}  // namespace

std::uint64_t loading_bytes(const DatasetOptions& options) {
  if (is_text(options.name)) return text_bytes(options);
  if (options.name == "tokens") return token_bytes(options);
  if (options.name == "arrays") return array_splits_bytes(options.directory);
  const bool records = options.name == "cifar10";
  if (!is_idx(options.name) && !records && options.name != "csv") return 0;
  std::uint64_t held = 0, beside = 0;
  for (const std::string& path : files_of(options)) {
    const FileSize size = size_of_file(path);
    held += size.content;
    beside = std::max(beside, records ? size.content : size.packed);
  }
  return held + beside;
}

}  // namespace io
