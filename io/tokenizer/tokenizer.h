// Byte-level tokenizers, as tokenizer.json of Hugging Face's library `tokenizers` describes them:
// those of GPT-2, Llama 3, Qwen and many others.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/base/text/text_hash.h"
#include "io/tokenizer/byte_pairs.h"
#include "io/tokenizer/text_frame.h"
#include "io/tokenizer/text_split.h"

namespace io {

// The largest tokenizer.json that is read. Those of 256,000 tokens have about 34 MB.
inline constexpr std::uint64_t kMaxTokenizerBytes = std::uint64_t{128} << 20;

class Tokenizer {
 public:
  // `path`: tokenizer.json, or a folder with it. Throws MissingFileError; DataError for a file that
  // is damaged or describes another kind of tokenizer, with the part that is not supported.
  static Tokenizer read(const std::string& path);
  // Returns the file that read() reads.
  static std::string file_of(const std::string& path);
  // `source`: for messages.
  static Tokenizer parse(const std::string& text, const std::string& source);

  // The highest id plus 1.
  std::int32_t size() const { return static_cast<std::int32_t>(texts_.size()); }
  // True if the ids of a text are those of its parts, divided at a line feed between printable
  // ASCII characters: an expression ends a piece there, and no added token crosses it.
  bool cuts_at_lines() const { return splits_at_lines_ && !joins_lines_; }
  // Returns the id of a token by its text, e.g. "<|endoftext|>".
  std::optional<std::int32_t> id_of(std::string_view token) const;
  // Returns the id of the token between documents: <|endoftext|>, <|end_of_text|> or </s>,
  // whichever it has first.
  std::optional<std::int32_t> end_of_text() const;
  // Returns the tokens that the library `tokenizers` adds around a text by default.
  // TokenEncoder does not add them.
  const TextFrame& frame() const { return frame_; }
  // The settings of the file that limit or extend texts, which TokenEncoder does not: "truncation",
  // "padding".
  const std::vector<std::string>& length_settings() const { return length_settings_; }
  // Returns the first id that both tokenizers have with different texts.
  std::optional<std::int32_t> first_difference(const Tokenizer& other) const;
  // Returns the text of the ids. Bytes that are not a whole character stay as they are. Throws
  // DataError for an id outside the vocabulary.
  std::string decode(std::span<const std::int32_t> ids) const;

 private:
  friend class TokenEncoder;
  friend class TokenizerFile;

  // A token that is found in the text before it is split.
  struct AddedToken {
    std::string text;
    std::int32_t id;
  };
  // Added tokens by their first byte, the longest first.
  using AddedTokens = std::array<std::vector<AddedToken>, 256>;

  Tokenizer() = default;

  AddedTokens added_, added_after_normalization_;
  bool composes_ = false;  // normalization form C
  bool prefix_space_ = false;
  bool splits_at_lines_ = false, joins_lines_ = false;
  std::vector<TextSplit> splits_;  // one after the other
  std::optional<BytePairs> pairs_;
  TextFrame frame_;
  std::vector<std::string> length_settings_;
  std::vector<std::string> texts_;  // by id, as bytes; "": the id is unused
  std::unordered_map<std::string, std::int32_t> ids_of_added_;
};

// Encodes texts, for one thread: remembers the ids of pieces.
class TokenEncoder {
 public:
  explicit TokenEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Appends the ids of `text`. Bytes that are not UTF-8 become U+FFFD, one for each maximal part of
  // a character (Unicode 15, section 3.9), as Python's errors="replace" does.
  void encode(std::string_view text, std::vector<std::int32_t>& ids);

 private:
  void encode_segment(std::string_view text, std::vector<std::int32_t>& ids);
  void encode_words(std::string_view text, std::vector<std::int32_t>& ids);
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& ids);

  struct Range {
    std::size_t first, count;
  };
  const Tokenizer& tokenizer_;
  std::unordered_map<std::string, Range, base::TextHash, std::equal_to<>>
      known_;  // ranges of known_ids_
  std::vector<std::int32_t> known_ids_;
  Pieces pieces_, parts_;
  std::string composed_, prefixed_;
};

// Decodes the ids of one text one by one, as UTF-8: a character whose bytes end within a token
// waits for the tokens that complete it. Bytes that are not a whole character become U+FFFD, as in
// TokenEncoder.
class TokenDecoder {
 public:
  explicit TokenDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Returns the text that is complete with this id. Throws DataError as Tokenizer::decode().
  std::string add(std::int32_t id);
  // Returns what still waits.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::string bytes_;
};

}  // namespace io
