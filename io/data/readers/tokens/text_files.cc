// Reads texts and token files, and divides them into training and test parts.
#include "io/data/readers/tokens/text_files.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/data/dataset/sample_coding.h"
#include "io/data/files/data_file.h"
#include "io/data/files/data_folder.h"
#include "io/data/readers/tokens/token_file.h"
#include "io/data/tables/csv_text.h"

namespace io {
namespace {

// The files found, and a line for the user, "" if no file is left out.
struct FoundTexts {
  std::vector<std::string> paths;
  std::string left_out;
};

// Searches the words of a name, in lower case: "Wiki.Valid-1.txt" has "wiki", "valid", "1" and
// "txt".
bool has_word(const std::string& path, const std::vector<std::string>& wanted) {
  std::string word;
  for (const char c : std::filesystem::path(path).filename().string() + ".") {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter) {
      word += c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
      continue;
    }
    if (std::ranges::find(wanted, word) != wanted.end()) return true;
    word.clear();
  }
  return false;
}

// Texts are one stream: a file whose name marks it as the test part must not be trained on.
void refuse_parts(const std::string& directory, const std::vector<std::string>& paths) {
  if (paths.size() < 2) return;
  const bool train = std::ranges::any_of(paths, [](const std::string& path) {
    return has_word(path, {"train", "training"});
  });
  for (const std::string& path : paths) {
    const bool test = has_word(path, {"test", "testing"});
    if (!test && !(train && has_word(path, {"val", "valid", "validation", "dev", "eval"})))
      continue;
    throw DataError(path + ": is named as a part for " + (test ? "testing" : "validation") +
                    ", but all " + std::to_string(paths.size()) + " texts of " + directory +
                    " would be one, cut at 90 %; give the file to train on, --data-dir FILE.txt, "
                    "and evaluate the model on this one with engine eval RUN --data-dir " +
                    std::filesystem::path(path).filename().string());
  }
}

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
  refuse_parts(directory, found);
  return {std::move(found), left_out.line(directory, "texts are *.txt and *.txt.gz")};
}

Samples make_part(const DatasetOptions& options, TokenStream tokens, std::int64_t stride,
                  const std::string& where) {
  TokenSamples part{.context = options.text.context, .stride = stride, .tokens = std::move(tokens)};
  if (part.windows() == 0) {
    throw DataError(where + ": found " + std::to_string(part.tokens.size()) +
                    " tokens, expected at least " + std::to_string(options.text.context + 1) +
                    ", one more than --context " + std::to_string(options.text.context));
  }
  return part;
}

// Returns both parts, whose windows may still be missing.
DatasetSplits empty_splits(const DatasetOptions& options, const NextTokens& labels) {
  const Dataset part{.name = options.name,
                     .samples = TokenSamples{.context = options.text.context},
                     .labels = labels};
  return {.train = part, .test = part};
}

void check_windows(const DatasetOptions& options) {
  if (options.text.context < 1 || options.text.stride < 0) {
    throw ConfigError("windows of " + std::to_string(options.text.context) + " tokens, one every " +
                      std::to_string(options.text.stride) + ": expected at least 1 and 0");
  }
}

std::int64_t train_stride(const DatasetOptions& options) {
  return options.text.stride > 0 ? options.text.stride : options.text.context;
}

// Returns the bytes that occur, ascending.
std::string bytes_of(const std::vector<std::uint8_t>& text) {
  std::array<bool, 256> found{};
  for (const std::uint8_t byte : text) found[byte] = true;
  std::string bytes;
  for (std::size_t byte = 0; byte < found.size(); ++byte)
    if (found[byte]) bytes.push_back(static_cast<char>(byte));
  return bytes;
}

// Returns the id of each byte; -1: it is not in the vocabulary.
std::array<std::int32_t, 256> ids_of(const std::string& vocabulary) {
  std::array<std::int32_t, 256> ids;
  ids.fill(-1);
  for (std::size_t id = 0; id < vocabulary.size(); ++id)
    ids[static_cast<unsigned char>(vocabulary[id])] = static_cast<std::int32_t>(id);
  return ids;
}

// Removes bytes that are not in the vocabulary. Returns a line about them, or "".
std::string leave_out_unknown(const std::array<std::int32_t, 256>& ids, const std::string& where,
                              std::vector<std::uint8_t>& text) {
  UnknownNames unknown;
  const std::size_t before = text.size();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < before; ++i) {
    if (ids[text[i]] < 0)
      unknown.add(std::string(1, static_cast<char>(text[i])),
                  [&] { return "byte " + std::to_string(i + 1); });
    else
      text[kept++] = text[i];
  }
  text.resize(kept);
  if (unknown.count() == 0) return "";
  return where + ": " + unknown.text("bytes are characters", static_cast<std::int64_t>(before)) +
         "; they are left out";
}

bool has_test_tokens(const std::string& directory) {
  return std::ranges::any_of(
      std::array{"test.bin", "test.npy", "test.bin.gz", "test.npy.gz"}, [&](const char* name) {
        std::error_code unknown;
        return std::filesystem::is_regular_file(std::filesystem::path(directory) / name, unknown);
      });
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
    std::vector<std::uint8_t> bytes = CsvText(path).rest();
    if (bytes.empty()) throw DataError(path + ": the file is empty, expected text");
    if (text.empty())
      text = std::move(bytes);
    else
      text.insert(text.end(), bytes.begin(), bytes.end());
  }
  const std::string where = options.name + " in " + options.directory;
  if (options.coding && options.coding->like.vocabulary().empty())
    throw DataError(where + ": a text, but the model of " + options.coding->source +
                    " has no vocabulary of characters");
  const std::string vocabulary =
      options.coding ? options.coding->like.vocabulary() : bytes_of(text);
  const std::array<std::int32_t, 256> ids = ids_of(vocabulary);
  const std::string line = leave_out_unknown(ids, where, text);
  const auto encode = [&ids](auto from, auto to) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(to - from));
    std::transform(from, to, tokens.begin(), [&ids](std::uint8_t byte) { return ids[byte]; });
    return tokens;
  };
  DatasetSplits splits = empty_splits(
      options, {.count = static_cast<std::int64_t>(vocabulary.size()), .vocabulary = vocabulary});
  if (options.parts == Parts::kHoldOut) {
    splits.test.samples =
        make_part(options, encode(text.begin(), text.end()), options.text.context, where);
  } else {
    const auto cut =
        text.begin() + static_cast<std::ptrdiff_t>(0.9 * static_cast<double>(text.size()));
    splits.train.samples = make_part(options, encode(text.begin(), cut), train_stride(options),
                                     where + ", the first 90 %");
    splits.test.samples = make_part(options, encode(cut, text.end()), options.text.context,
                                    where + ", the last 10 %");
  }
  if (!found.left_out.empty()) splits.warnings.push_back(std::move(found.left_out));
  if (!line.empty()) splits.unknown.push_back(line);
  return splits;
}

DatasetSplits read_token_splits(const DatasetOptions& options) {
  check_windows(options);
  if (options.coding && !options.coding->like.vocabulary().empty())
    throw DataError("tokens in " + options.directory + ": the model of " + options.coding->source +
                    " takes characters, not ids of tokens");
  const bool has_test = has_test_tokens(options.directory);
  const char* const part = has_test && options.test_part == "test" ? "test" : "val";
  const auto read = [&](const char* name, bool is_optional) {
    try {
      return read_token_file(options.directory, name, options.text.token_bits);
    } catch (const MissingFileError&) {
      if (!is_optional) throw;
    }
    return TokenFile{};
  };
  TokenFile test = read(part, options.test_is_optional),
            train = read("train", options.parts == Parts::kHoldOut && !test.path.empty());
  std::int64_t size =
      options.coding ? options.coding->like.classes() : options.text.vocabulary_size;
  const bool searched = size == 0;
  if (searched) size = std::max(train.tokens.highest(), test.tokens.highest()) + 1;
  for (TokenFile* file : {&train, &test}) {
    file->tokens.set_limit(size);
    if (!searched) file->tokens.check();
  }
  DatasetSplits splits = empty_splits(options, {.count = size});
  if (has_test && options.test_part.empty()) {
    splits.test_part = "val";
    splits.warnings.push_back(two_parts_line(options.directory));
  }
  if (searched && train.tokens.is_large())
    splits.warnings.push_back(train.path + ": read as a whole to find the highest id, " +
                              std::to_string(size - 1) + "; --vocabulary-size " +
                              std::to_string(size) + " or the tokenizer's size starts at once");
  if (!train.path.empty())
    splits.train.samples =
        make_part(options, std::move(train.tokens), train_stride(options), train.path);
  if (!test.path.empty())
    splits.test.samples =
        make_part(options, std::move(test.tokens), options.text.context, test.path);
  return splits;
}

std::string read_stored_tokenizer(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder) / "tokenizer.json";
  std::error_code unknown;
  return std::filesystem::exists(path, unknown)
             ? read_small_file(path.string(), kMaxStoredTokenizer)
             : "";
}

}  // namespace io
