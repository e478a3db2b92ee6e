// Reads texts and token files and cuts them into a training and a test part.
#include "io/data/sources/text_files.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

#include "io/base/io_error.h"
#include "io/data/sources/data_file.h"
#include "io/data/sources/data_folder.h"
#include "io/data/sources/token_file.h"

namespace io {
namespace {

constexpr std::uint64_t kWholeFile = std::numeric_limits<std::uint64_t>::max();

// With a line for the user, "" if no file is left out.
struct FoundTexts {
  std::vector<std::string> paths;
  std::string left_out;
};

FoundTexts find_texts(const std::string& name, const std::string& directory) {
  std::error_code failure;
  if (std::filesystem::is_regular_file(directory, failure)) return {{directory}, ""};
  if (name == "tinyshakespeare" && !std::filesystem::exists(directory, failure))
    throw_missing("text", directory, "*.txt", name);
  LeftOut left_out;
  std::vector<std::string> found = pick_files(directory, is_text_name, left_out);
  if (found.empty() && name == "tinyshakespeare") throw_missing("text", directory, "*.txt", name);
  if (found.empty())
    throw MissingFileError("no text in " + directory +
                           ": looked for *.txt and *.txt.gz; name the folder with --data-dir");
  return {std::move(found), left_out.line(directory, "texts are *.txt and *.txt.gz")};
}

Dataset make_part(const DatasetOptions& options, std::vector<std::int32_t> tokens,
                  std::int64_t stride, const std::string& where) {
  Dataset part;
  part.name = options.name;
  part.kind = SampleKind::kTokens;
  part.shape = {options.context, 1, 1};
  part.stride = stride;
  part.tokens = std::move(tokens);
  if (part.size() == 0) {
    throw DataError(where + ": found " + std::to_string(part.tokens.size()) +
                    " tokens, expected at least " + std::to_string(options.context + 1) +
                    ", one more than --context " + std::to_string(options.context));
  }
  return part;
}

void check_windows(const DatasetOptions& options) {
  if (options.context < 1 || options.text_stride < 0) {
    throw ConfigError("windows of " + std::to_string(options.context) + " tokens, one every " +
                      std::to_string(options.text_stride) + ": expected at least 1 and 0");
  }
}

std::int64_t train_stride(const DatasetOptions& options) {
  return options.text_stride > 0 ? options.text_stride : options.context;
}

void check_ids(const TokenFile& stream, std::int64_t vocabulary_size) {
  const auto beyond = std::find_if(stream.tokens.begin(), stream.tokens.end(),
                                   [&](std::int32_t t) { return t >= vocabulary_size; });
  if (beyond == stream.tokens.end()) return;
  throw DataError(stream.path + ": token out of range at position " +
                  std::to_string(beyond - stream.tokens.begin()) + ": found " +
                  std::to_string(*beyond) + ", expected 0.." + std::to_string(vocabulary_size - 1));
}

}  // namespace

bool is_text_name(const std::string& name) {
  return name.ends_with(".txt") || name.ends_with(".txt.gz");
}

DatasetSplits read_text_splits(const DatasetOptions& options) {
  check_windows(options);
  std::vector<std::uint8_t> text;
  FoundTexts found = find_texts(options.name, options.directory);
  for (const std::string& path : found.paths) {
    std::vector<std::uint8_t> bytes = DataFile(path).read_up_to(kWholeFile);
    if (bytes.empty()) throw DataError(path + ": the file is empty, expected text");
    if (text.empty())
      text = std::move(bytes);
    else
      text.insert(text.end(), bytes.begin(), bytes.end());
  }
  std::array<std::int32_t, 256> ids{};
  for (const std::uint8_t byte : text) ids[byte] = 1;
  std::string vocabulary;
  for (std::size_t byte = 0; byte < ids.size(); ++byte) {
    if (ids[byte] == 0) continue;
    ids[byte] = static_cast<std::int32_t>(vocabulary.size());
    vocabulary.push_back(static_cast<char>(byte));
  }
  const auto cut =
      text.begin() + static_cast<std::ptrdiff_t>(0.9 * static_cast<double>(text.size()));
  const auto encode = [&ids](auto from, auto to) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(to - from));
    std::transform(from, to, tokens.begin(), [&ids](std::uint8_t byte) { return ids[byte]; });
    return tokens;
  };
  const std::string where = options.name + " in " + options.directory;
  DatasetSplits splits{
      make_part(options, encode(text.begin(), cut), train_stride(options),
                where + ", the first 90 %"),
      make_part(options, encode(cut, text.end()), options.context, where + ", the last 10 %")};
  for (Dataset* part : {&splits.train, &splits.test}) {
    part->classes = static_cast<std::int64_t>(vocabulary.size());
    part->vocabulary = vocabulary;
  }
  if (!found.left_out.empty()) splits.warnings.push_back(std::move(found.left_out));
  return splits;
}

DatasetSplits read_token_splits(const DatasetOptions& options) {
  check_windows(options);
  TokenFile train = read_token_file(options.directory, "train", options.token_bits),
            test = read_token_file(options.directory, "val", options.token_bits);
  std::int64_t size = options.vocabulary_size;
  if (size == 0) {
    for (const TokenFile* stream : {&train, &test})
      for (const std::int32_t token : stream->tokens)
        size = std::max<std::int64_t>(size, token + 1);
  }
  check_ids(train, size);
  check_ids(test, size);
  DatasetSplits splits{
      make_part(options, std::move(train.tokens), train_stride(options), train.path),
      make_part(options, std::move(test.tokens), options.context, test.path)};
  splits.train.classes = splits.test.classes = size;
  return splits;
}

}  // namespace io
