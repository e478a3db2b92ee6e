// Implements `engine tokenize`: texts to token files, on several threads.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>
#include <thread>

#include "io/base/files/create_folder.h"
#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "io/base/threads/parallel_for.h"
#include "io/checkpoint/atomic_file.h"
#include "io/tokenizer/tokenizer.h"
#include "tools/commands/command.h"
#include "tools/commands/tokenize/text_chunks.h"
#include "tools/commands/tokenize/token_writer.h"
#include "tools/folder/output_paths.h"
#include "tools/launch/machine/thread_choice.h"
#include "tools/options/input/command_line.h"
#include "tools/options/table/value_check.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/report/text/progress_line.h"

namespace tools {
namespace {

constexpr std::size_t kMaxChunkBytes = std::size_t{1} << 22, kMinChunkBytes = 256;

struct TokenizeOptions {
  std::vector<std::string> train, validation;
  std::string directory, tokenizer, separator;
  double fraction = 0.1;  // part of the texts for validation
  int threads = 0;        // 0: all cores
  bool overwrite = false;
};

void declare(CLI::App& app, TokenizeOptions& o) {
  app.add_option("FILE", o.train, "texts in UTF-8, plain or .gz, each a document")
      ->required()
      ->expected(1, 1'000'000);
  app.add_option("-o,--output", o.directory, "folder for train.npy, val.npy and tokenizer.json")
      ->required()
      ->type_name("DIR");
  app.add_option("--tokenizer", o.tokenizer,
                 "tokenizer.json of Hugging Face, or a folder with it: a byte-level one, as those "
                 "of GPT-2, Llama 3 and Qwen")
      ->required()
      ->type_name("PATH");
  CLI::Option* validation =
      app.add_option("--val", o.validation, "texts for val.npy; may be repeated")
          ->type_name("FILE")
          ->expected(1)
          ->take_all()
          ->allow_extra_args(false);
  app.add_option("--val-fraction", o.fraction,
                 "without --val: the last part of all texts, up to a line end")
      ->type_name("F")
      ->transform(number_from(0, 0.9))
      ->default_str("0.1")
      ->excludes(validation);
  app.add_option("--separator", o.separator,
                 "token after each document, none: nothing (default: <|endoftext|>, "
                 "<|end_of_text|> or </s>, whichever the tokenizer has)")
      ->type_name("TOKEN");
  app.add_option("--threads", o.threads, "threads (default: all cores)")
      ->type_name("N")
      ->transform(whole_number(1, 1024));
  app.add_flag("--overwrite", o.overwrite, "replace existing files");
  app.footer(
      "The ids are those of the library tokenizers without special tokens around a text. Files "
      "have 16 bits per id if all ids of the tokenizer fit, otherwise 32.");
}

std::string own_tokenizer(const TokenizeOptions& options) {
  return (std::filesystem::path(options.directory) / "tokenizer.json").string();
}

std::optional<std::int32_t> separator_of(const TokenizeOptions& options,
                                         const io::Tokenizer& tokenizer) {
  if (options.separator == "none") return std::nullopt;
  if (!options.separator.empty()) {
    if (const auto id = tokenizer.id_of(options.separator)) return id;
    throw io::ConfigError("--separator '" + options.separator + "' is no token of " +
                          options.tokenizer + "; expected one, or none");
  }
  return tokenizer.end_of_text();
}

std::uint64_t bytes_of(const std::vector<std::string>& paths) {
  std::uint64_t bytes = 0;
  for (const std::string& path : paths) bytes += io::open_regular_file(path).bytes;
  return bytes;
}

// Encodes texts, and distributes them over two files.
class Tokenization {
 public:
  Tokenization(const TokenizeOptions& options, const io::Tokenizer& tokenizer)
      : options_(options),
        ends_(tokenizer.cuts_at_lines() ? ChunkEnds::kLines : ChunkEnds::kNone),
        separator_(separator_of(options, tokenizer)),
        threads_(options.threads > 0 ? options.threads : default_threads(1)),
        train_bytes_(bytes_of(options.train)),
        train_(file("train.npy"), bits_of(tokenizer)),
        validation_(file("val.npy"), bits_of(tokenizer)) {
    for (int i = 0; i < threads_; ++i) encoders_.emplace_back(tokenizer);
    results_.resize(2 * static_cast<std::size_t>(threads_));
    chunks_.resize(results_.size());
  }

  static int bits_of(const io::Tokenizer& tokenizer) { return tokenizer.size() > 65536 ? 32 : 16; }
  std::string file(const char* name) const {
    return (std::filesystem::path(options_.directory) / name).string();
  }

  void run() {
    // Texts that are not divided may be packed.
    const bool divided = options_.validation.empty() && options_.fraction > 0;
    const auto limit = divided ? static_cast<std::uint64_t>((1 - options_.fraction) *
                                                            static_cast<double>(train_bytes_))
                               : std::numeric_limits<std::uint64_t>::max();
    for (const std::string& path : options_.train) encode(path, limit);
    for (const std::string& path : options_.validation) encode(path, 0);
    check_texts(divided);
    train_.finish();
    validation_.finish();
  }

  std::uint64_t train_count() const { return train_.count(); }
  std::uint64_t validation_count() const { return validation_.count(); }
  std::uint64_t bytes() const { return read_bytes_; }
  bool separates() const { return separator_.has_value(); }

 private:
  // `divided`: the texts for validation are the end of those for training.
  void check_texts(bool divided) const {
    if (train_text_ == 0)
      throw io::DataError(options_.train.front() + ": found no text, expected one to train on");
    if (validation_text_ > 0 || options_.fraction == 0) return;
    throw io::DataError(
        divided ? options_.train.back() + ": the last " + base::shortest_text(options_.fraction) +
                      " of all texts, for validation, has no line at which they can be divided; "
                      "name texts with --val"
                : options_.validation.front() + ": found no text, expected one for validation");
  }

  // Chunks that begin before `limit` bytes of all texts are for training.
  void encode(const std::string& path, std::uint64_t limit) {
    TextChunks text(path, chunk_bytes(), ends_);
    for (std::size_t count = chunks_.size(); count == chunks_.size();) {
      count = 0;
      while (count < chunks_.size() && text.next(chunks_[count])) ++count;
      base::parallel_for(count, encoders_.size(), count + 1,
                         [this](std::size_t worker, std::size_t job) {
                           results_[job].clear();
                           encoders_[worker].encode(chunks_[job], results_[job]);
                         });
      for (std::size_t i = 0; i < count; ++i) {
        (read_bytes_ < limit ? train_text_ : validation_text_) += results_[i].size();
        out(limit).write(results_[i]);
        read_bytes_ += chunks_[i].size();
      }
    }
    if (separator_) out(limit).write(std::span(&*separator_, 1));
  }
  TokenWriter& out(std::uint64_t limit) { return read_bytes_ < limit ? train_ : validation_; }

  // Small texts have several chunks, so that one of them is for validation.
  std::size_t chunk_bytes() const {
    const auto part =
        static_cast<std::size_t>(options_.fraction * static_cast<double>(train_bytes_) / 4);
    return std::clamp(part, kMinChunkBytes, kMaxChunkBytes);
  }

  const TokenizeOptions& options_;
  const ChunkEnds ends_;
  const std::optional<std::int32_t> separator_;
  const int threads_;
  const std::uint64_t train_bytes_;
  std::uint64_t read_bytes_ = 0;
  std::uint64_t train_text_ = 0, validation_text_ = 0;  // tokens without separators
  TokenWriter train_, validation_;
  std::vector<io::TokenEncoder> encoders_;
  std::vector<std::string> chunks_;
  std::vector<std::vector<std::int32_t>> results_;
};

// Models of the tokens are sampled with the copy.
void copy_tokenizer(const TokenizeOptions& options, const std::string& text) {
  const std::string path = own_tokenizer(options);
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown) || options.overwrite) io::replace_file(path, text);
}

void check_tokenizer(const TokenizeOptions& options, const std::string& text) {
  const std::string path = own_tokenizer(options);
  std::error_code unknown;
  if (options.overwrite || !std::filesystem::exists(path, unknown)) return;
  if (io::read_small_file(path, io::kMaxTokenizerBytes) != text)
    throw io::CannotCreateError(path + " exists and differs from " +
                                io::Tokenizer::file_of(options.tokenizer) +
                                "; --overwrite replaces it");
}

void note_length_settings(const io::Tokenizer& tokenizer, const std::string& file) {
  if (!tokenizer.length_settings().empty())
    print_notice(file + ": '" + base::join_text(tokenizer.length_settings(), "' and '") +
                 "' not applied: token files have whole texts");
}

void check_files(const TokenizeOptions& options) {
  std::vector<std::string> texts = options.train;
  texts.insert(texts.end(), options.validation.begin(), options.validation.end());
  for (const char* name : {"train.npy", "val.npy", "train.bin", "val.bin", "train.npy.gz",
                           "val.npy.gz", "train.bin.gz", "val.bin.gz"}) {
    const std::string path = (std::filesystem::path(options.directory) / name).string();
    std::error_code unknown;
    const bool own = std::string_view(name).ends_with(".npy");
    if (std::filesystem::exists(path, unknown) && !(own && options.overwrite))
      throw io::CannotCreateError(path + " exists; " +
                                  (own ? "--overwrite replaces it" : "choose another folder"));
    if (own) check_new_file(path, texts);
  }
  if (!options.validation.empty() || options.fraction == 0) return;
  for (const std::string& path : options.train)
    if (io::DataFile(path).is_packed())
      throw io::ConfigError(path +
                            ": the length of a packed text is unknown before the end; name the "
                            "texts for validation with --val");
}

}  // namespace

int tokenize_command(const Arguments& arguments) {
  CLI::App app("Writes the token ids of texts, for train --dataset tokens.", "engine tokenize");
  TokenizeOptions options;
  declare(app, options);
  if (!parse(app, arguments)) return kExitOk;
  io::create_folder(options.directory);
  check_files(options);
  const auto begin = std::chrono::steady_clock::now();
  const std::string file = io::Tokenizer::file_of(options.tokenizer),
                    text = io::read_small_file(file, io::kMaxTokenizerBytes);
  const io::Tokenizer tokenizer = io::Tokenizer::parse(text, file);
  check_tokenizer(options, text);
  note_length_settings(tokenizer, file);
  Tokenization tokenization(options, tokenizer);
  tokenization.run();
  copy_tokenizer(options, text);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  const auto counted = [](std::uint64_t count) {
    return with_commas(static_cast<std::int64_t>(count));
  };
  std::printf(
      "%s: %s tokens for training, %s for validation, %d bits each, of %s bytes in %.1f s\n",
      base::escape_text(options.directory).c_str(), counted(tokenization.train_count()).c_str(),
      counted(tokenization.validation_count()).c_str(), Tokenization::bits_of(tokenizer),
      counted(tokenization.bytes()).c_str(), time.count());
  if (!tokenization.separates() && options.separator.empty() &&
      options.train.size() + options.validation.size() > 1)
    std::printf("No token is between the texts: the tokenizer has no %s (--separator)\n",
                "<|endoftext|>, <|end_of_text|> or </s>");
  if (tokenization.validation_count() == 0)
    std::printf("%s has no tokens, and training needs some: name texts with --val\n",
                base::escape_text(tokenization.file("val.npy")).c_str());
  std::printf("Train with: --dataset tokens --data-dir %s --vocabulary-size %d\n",
              base::escape_text(options.directory).c_str(), tokenizer.size());
  return kExitOk;
}

}  // namespace tools
