// Sizes of files, and what gzip says of its content.
#include "io/data/sources/loading_memory.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "io/base/open_file.h"
#include "io/data/sources/data_file.h"

namespace io {
namespace {

struct FileSize {
  std::uint64_t packed = 0;  // 0: a plain file
  std::uint64_t content = 0;
};

// A gzip file ends with the length of its content (RFC 1952, 2.3.1), of the last member at least.
FileSize size_of_file(const std::string& path) {
  std::error_code failure;
  const std::uint64_t bytes = std::filesystem::file_size(path, failure);
  if (failure || !std::filesystem::is_regular_file(path, failure)) return {};  // a pipe: waits
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

bool is_text(const std::string& set) { return set == "text" || set == "tinyshakespeare"; }

bool has_data(const std::string& name, const std::string& set) {
  if (is_text(set)) return name.ends_with(".txt") || name.ends_with(".txt.gz");
  if (set == "csv") return name.ends_with(".csv") || name.ends_with(".csv.gz");
  if (set == "cifar10")
    return name.ends_with(".bin") &&
           (name.starts_with("data_batch_") || name.starts_with("test_batch"));
  return (name.starts_with("train-images") || name.starts_with("t10k-images")) &&
         (name.ends_with("idx3-ubyte") || name.ends_with("idx3-ubyte.gz"));
}

// Where the same file is there plain and as .gz, the plain one is read.
std::vector<std::string> files_of(const DatasetOptions& options) {
  if (!options.annotations.empty()) return {options.annotations};
  if (std::error_code none; std::filesystem::is_regular_file(options.directory, none))
    return {options.directory};
  std::vector<std::string> paths;
  std::error_code failure;
  for (std::filesystem::directory_iterator it(options.directory, failure), end;
       !failure && it != end; it.increment(failure))
    if (has_data(it->path().filename().string(), options.name))
      paths.push_back(it->path().string());
  std::sort(paths.begin(), paths.end());
  const auto same = [](const std::string& a, const std::string& b) { return b == a + ".gz"; };
  if (options.name == "csv" && paths.size() != 1) return {};
  if (is_text(options.name)) return paths;  // all are read
  paths.erase(std::unique(paths.begin(), paths.end(), same), paths.end());
  return paths;
}

// Of 16-bit ids in a file and 32-bit ones in memory. A file is let go before the next one is read.
std::uint64_t token_bytes(const std::string& directory) {
  std::uint64_t held = 0, most = 0;
  for (const std::string name : {"train.bin", "val.bin"}) {
    const std::array<std::string, 2> names{name, name + ".gz"};
    const std::uint64_t content = size_of_file(find_data_file(directory, names)).content;
    held += 2 * content;
    most = std::max(most, held + content);
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
  if (options.name == "tokens") return token_bytes(options.directory);
  const bool idx = options.name == "mnist" || options.name == "fashion-mnist",
             records = options.name == "cifar10";
  if (!idx && !records && options.name != "csv") return 0;
  std::uint64_t held = 0, beside = 0;
  for (const std::string& path : files_of(options)) {
    const FileSize size = size_of_file(path);
    held += size.content;
    beside = std::max(beside, records ? size.content : size.packed);
  }
  return held + beside;
}

}  // namespace io
