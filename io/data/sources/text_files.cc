// Reads texts and token files and cuts them into a training and a test part.
#include "io/data/sources/text_files.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <vector>

#include "io/base/io_error.h"
#include "io/data/sources/data_file.h"

namespace io {
namespace {

constexpr std::uint64_t kWholeFile = std::numeric_limits<std::uint64_t>::max();

std::vector<std::string> find_texts(const std::string& name, const std::string& directory) {
  std::error_code failure;
  if (std::filesystem::is_regular_file(directory, failure)) return {directory};
  std::vector<std::string> found;
  for (const auto& entry : entries_of(directory)) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with(".txt") || file.ends_with(".txt.gz")) found.push_back(entry.path().string());
  }
  if (found.empty() && name == "tinyshakespeare") throw_missing("text", directory, "*.txt", name);
  if (found.empty())
    throw MissingFileError("no text in " + directory +
                           ": looked for *.txt and *.txt.gz; name the folder with --data-dir");
  std::sort(found.begin(), found.end());
  return found;
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

struct TokenStream {
  std::string path;
  std::vector<std::int32_t> tokens;
};

TokenStream read_tokens(const std::string& directory, const std::string& name) {
  const std::array<std::string, 2> names = {name, name + ".gz"};
  TokenStream stream{find_data_file(directory, names), {}};
  if (stream.path.empty())
    throw MissingFileError("no " + name + " in " + directory + ": looked for " + name + " and " +
                           name + ".gz, 16-bit token ids; name the folder with --data-dir");
  const std::vector<std::uint8_t> bytes = DataFile(stream.path).read_up_to(kWholeFile);
  const auto word = [&bytes](std::size_t i) {  // of llm.c's header
    std::uint32_t value = 0;
    for (std::size_t k = 4; k-- > 0;) value = value << 8 | bytes[4 * i + k];
    return value;
  };
  std::size_t first = 0;
  constexpr std::size_t kHeaderBytes = 1024;
  if (bytes.size() >= kHeaderBytes && word(0) == 20240520 && word(1) == 1) {
    first = kHeaderBytes;
    if ((bytes.size() - first) / 2 != word(2)) {
      throw DataError(stream.path + ": found " + std::to_string((bytes.size() - first) / 2) +
                      " tokens after the header, which announces " + std::to_string(word(2)));
    }
  }
  if (bytes.size() % 2 != 0) {
    throw DataError(stream.path + ": truncated or not a token file: found " +
                    std::to_string(bytes.size()) +
                    " bytes, expected a whole number of 16-bit tokens");
  }
  stream.tokens.reserve((bytes.size() - first) / 2);
  for (std::size_t i = first; i < bytes.size(); i += 2)
    stream.tokens.push_back(bytes[i] | bytes[i + 1] << 8);
  return stream;
}

void check_ids(const TokenStream& stream, std::int64_t vocabulary_size) {
  const auto beyond = std::find_if(stream.tokens.begin(), stream.tokens.end(),
                                   [&](std::int32_t t) { return t >= vocabulary_size; });
  if (beyond == stream.tokens.end()) return;
  throw DataError(stream.path + ": token out of range at position " +
                  std::to_string(beyond - stream.tokens.begin()) + ": found " +
                  std::to_string(*beyond) + ", expected 0.." + std::to_string(vocabulary_size - 1));
}

}  // namespace

DatasetSplits read_text_splits(const DatasetOptions& options) {
  check_windows(options);
  std::vector<std::uint8_t> text;
  for (const std::string& path : find_texts(options.name, options.directory)) {
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
  return splits;
}

DatasetSplits read_token_splits(const DatasetOptions& options) {
  check_windows(options);
  TokenStream train = read_tokens(options.directory, "train.bin"),
              test = read_tokens(options.directory, "val.bin");
  std::int64_t size = options.vocabulary_size;
  if (size == 0) {
    for (const TokenStream* stream : {&train, &test})
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
