// Encodes and decodes with a tokenizer that has been read.
#include "io/tokenizer/tokenizer.h"

#include <algorithm>

#include "io/base/files/io_error.h"
#include "io/base/text/utf8.h"
#include "io/tokenizer/composed_text.h"

namespace io {
namespace {

constexpr std::size_t kKnownIds = std::size_t{1} << 20;    // the most ids that are remembered
constexpr std::size_t kKnownBytes = 64;                    // longer pieces are not remembered
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Appends the text with U+FFFD for each maximal part that is not a character. Returns the bytes
// that were used: all, or with `waits` those before a character that may be completed by later
// bytes.
std::size_t append_utf8(std::string_view text, bool waits, std::string& valid) {
  std::size_t i = 0;
  while (i < text.size()) {
    base::Utf8Start start = base::utf8_start(static_cast<unsigned char>(text[i]));
    std::size_t have = 1;
    for (; have < start.bytes && i + have < text.size(); ++have) {
      const unsigned byte = static_cast<unsigned char>(text[i + have]);
      if (byte < start.least || byte > start.largest) break;
      start.least = 0x80, start.largest = 0xBF;
    }
    if (waits && have < start.bytes && i + have == text.size()) break;
    valid += start.bytes == have ? text.substr(i, have) : kReplacement;
    i += have;
  }
  return i;
}

// Calls between(text) for what lies between added tokens, and token(id) for these, in their order.
template <class Tokens, class Between, class Token>
void split_at(const Tokens& added, std::string_view text, Between between, Token token) {
  std::size_t done = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const auto& candidate : added[static_cast<unsigned char>(text[i])]) {
      if (!text.substr(i).starts_with(candidate.text)) continue;
      if (done < i) between(text.substr(done, i - done));
      token(candidate.id);
      done = i + candidate.text.size();
      i = done - 1;
      break;
    }
  }
  if (done < text.size()) between(text.substr(done));
}

}  // namespace

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  if (const auto found = ids_of_added_.find(std::string(token)); found != ids_of_added_.end())
    return found->second;
  const auto found = std::ranges::find(texts_, token);
  if (token.empty() || found == texts_.end()) return std::nullopt;
  return static_cast<std::int32_t>(found - texts_.begin());
}

std::optional<std::int32_t> Tokenizer::end_of_text() const {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>"})
    if (const auto id = id_of(name)) return id;
  return std::nullopt;
}

std::optional<std::int32_t> Tokenizer::first_difference(const Tokenizer& other) const {
  const auto common = static_cast<std::ptrdiff_t>(std::min(texts_.size(), other.texts_.size()));
  const auto found =
      std::mismatch(texts_.begin(), texts_.begin() + common, other.texts_.begin()).first;
  if (found == texts_.begin() + common) return std::nullopt;
  return static_cast<std::int32_t>(found - texts_.begin());
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= size())
      throw DataError("token " + std::to_string(id) + " is not in the vocabulary; expected 0.." +
                      std::to_string(size() - 1));
    text += texts_[static_cast<std::size_t>(id)];
  }
  return text;
}

std::string TokenDecoder::add(std::int32_t id) {
  bytes_ += tokenizer_.decode({&id, 1});
  std::string text;
  bytes_.erase(0, append_utf8(bytes_, /*waits=*/true, text));
  return text;
}

std::string TokenDecoder::finish() {
  std::string text;
  append_utf8(bytes_, /*waits=*/false, text);
  bytes_.clear();
  return text;
}

void TokenEncoder::encode(std::string_view text, std::vector<std::int32_t>& ids) {
  if (!base::is_utf8(text)) {
    std::string valid;
    valid.reserve(text.size() + 16);
    append_utf8(text, /*waits=*/false, valid);
    return encode(valid, ids);
  }
  split_at(
      tokenizer_.added_, text, [&](std::string_view part) { encode_segment(part, ids); },
      [&](std::int32_t id) { ids.push_back(id); });
}

void TokenEncoder::encode_segment(std::string_view text, std::vector<std::int32_t>& ids) {
  if (tokenizer_.composes_ && may_compose(text)) {
    composed_ = composed_text(text);
    text = composed_;
  }
  split_at(
      tokenizer_.added_after_normalization_, text,
      [&](std::string_view part) { encode_words(part, ids); },
      [&](std::int32_t id) { ids.push_back(id); });
}

void TokenEncoder::encode_words(std::string_view text, std::vector<std::int32_t>& ids) {
  if (tokenizer_.prefix_space_ && !text.starts_with(' ')) {
    prefixed_ = " ";
    prefixed_ += text;
    text = prefixed_;
  }
  pieces_.assign(1, text);
  for (const TextSplit& split : tokenizer_.splits_) {
    parts_.clear();
    for (const std::string_view piece : pieces_) split.split(piece, parts_);
    pieces_.swap(parts_);
  }
  for (const std::string_view piece : pieces_) encode_piece(piece, ids);
}

void TokenEncoder::encode_piece(std::string_view piece, std::vector<std::int32_t>& ids) {
  if (piece.size() > kKnownBytes) return tokenizer_.pairs_->encode(piece, ids);
  auto known = known_.find(piece);
  if (known == known_.end()) {
    if (known_ids_.size() > kKnownIds) {
      known_.clear();
      known_ids_.clear();
    }
    const std::size_t first = known_ids_.size();
    tokenizer_.pairs_->encode(piece, known_ids_);
    known = known_.emplace(piece, Range{first, known_ids_.size() - first}).first;
  }
  const auto begin = known_ids_.begin() + static_cast<std::ptrdiff_t>(known->second.first);
  ids.insert(ids.end(), begin, begin + static_cast<std::ptrdiff_t>(known->second.count));
}

}  // namespace io
