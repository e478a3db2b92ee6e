// Compares the bytes of places that wider, narrower and swapped ids have in common.
#include "io/data/readers/tokens/unmarked_tokens.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>

#include "io/base/files/io_error.h"

namespace io {
namespace {

using Head = std::span<const std::uint8_t>;

std::uint64_t word_at(const std::uint8_t* at) {
  return at[0] | static_cast<std::uint64_t>(at[1]) << 8;
}

// Returns true if 16-bit ids look byte-swapped: then nearly all nonzero ones are multiples of 256.
bool looks_swapped(Head head) {
  constexpr std::size_t kFewest = 32;  // nonzero ids, below which there is too little evidence
  std::size_t others = 0, multiples = 0;
  for (std::size_t i = 0; i + 1 < head.size(); i += 2) {
    if (head[i] == 0 && head[i + 1] == 0) continue;
    ++others;
    multiples += head[i] == 0 ? 1 : 0;
  }
  return others >= kFewest && 10 * multiples >= 9 * others;
}

// The 16-bit words at every fourth place of a file.
struct Words {
  std::uint64_t max = 0, max_swapped = 0;
  std::size_t zeros = 0, count = 0;

  bool are_mostly_zero() const { return 4 * zeros >= 3 * count; }
  bool are_seldom_zero() const { return 2 * zeros <= count; }
};
using WordsByPlace = std::array<Words, 4>;

WordsByPlace words_by_place(Head head) {
  WordsByPlace at;
  for (std::size_t i = 0; 2 * i + 1 < head.size(); ++i) {
    const std::uint64_t word = word_at(&head[2 * i]);
    Words& of = at[i % at.size()];
    of.max = std::max(of.max, word);
    of.max_swapped = std::max(of.max_swapped, word >> 8 | (word & 0xFF) << 8);
    of.zeros += word == 0 ? 1 : 0;
    ++of.count;
  }
  return at;
}

// The upper halves of ids are small, the lower ones are not.
bool are_halves(std::uint64_t max_upper, std::uint64_t max_lower) {
  constexpr std::uint64_t kTiny = 31;  // vocabularies of up to 2 million
  return max_upper <= kTiny && max_lower > 255 && max_lower > 64 * max_upper;
}

constexpr const char* kSwapped32 = "32-bit floating-point numbers or ids in big-endian order";
constexpr const char* kSwapped64 = "64-bit floating-point numbers or ids in big-endian order";

// Read as 16-bit words, wider numbers have places that are nearly always 0. A few may be -100,
// which marks tokens without a label.
std::string looks_sparse(const WordsByPlace& at) {
  const auto zero = [&](std::size_t place) { return at[place].are_mostly_zero(); };
  const auto other = [&](std::size_t place) { return at[place].are_seldom_zero(); };
  if (other(0) && zero(1) && zero(2) && zero(3)) return "64-bit ids";
  if (zero(0) && zero(1) && other(3)) return kSwapped64;
  if (other(0) && zero(1) && other(2) && zero(3)) return "32-bit ids";
  if (zero(0) && other(1) && zero(2) && other(3)) return kSwapped32;
  return "";
}

// Describes the probable contents of a file without header if its ids do not look like 16-bit ids;
// "" if they do.
std::string looks_like(Head head) {
  constexpr std::size_t kFewest = 16, kEnough = 256;  // wider ids, below which there is too little
                                                      // evidence
  const WordsByPlace at = words_by_place(head);
  const auto max_of = [&](std::size_t first, std::uint64_t Words::*value) {
    return std::max(at[first].*value, at[first + 2].*value);
  };
  const std::uint64_t even = max_of(0, &Words::max), odd = max_of(1, &Words::max);
  const std::size_t words = head.size() / 2;
  if (words < 2 * kFewest || even + odd == 0) return "";
  if (odd == 0) return at[2].max == 0 && words >= 4 * kFewest ? "64-bit ids" : "32-bit ids";
  if (even == 0)
    return at[1].max == 0 && words >= 4 * kFewest ? kSwapped64 : "32-bit ids in big-endian order";
  if (words < 2 * kEnough) return "";
  if (are_halves(odd, even)) return "32-bit ids";
  if (are_halves(max_of(0, &Words::max_swapped), max_of(1, &Words::max_swapped))) return kSwapped32;
  return looks_sparse(at);
}

// Both bytes of 8-bit ids, and of plain text, are distributed alike and have far fewer than 256
// values; in 16-bit ids the lower one has nearly all of them, or the upper one has few. Words of 0
// may be padding.
bool are_bytes(Head head) {
  constexpr std::int64_t kFewest = 2048;  // words, below which there is too little evidence
  constexpr std::int64_t kMaxValues = 224;
  std::array<std::int64_t, 256> lower{}, upper{};
  std::int64_t words = 0;
  for (std::size_t i = 0; i + 1 < head.size(); i += 2) {
    if (head[i] == 0 && head[i + 1] == 0) continue;
    ++words;
    ++lower[head[i]];
    ++upper[head[i + 1]];
  }
  std::int64_t values = 0, differences = 0;
  for (std::size_t byte = 0; byte < lower.size(); ++byte) {
    values += lower[byte] + upper[byte] > 0 ? 1 : 0;
    differences += std::abs(lower[byte] - upper[byte]);
  }
  return words >= kFewest && values >= 2 && values <= kMaxValues && 5 * differences <= 2 * words;
}

}  // namespace

void check_unmarked_tokens(const std::string& path, std::span<const std::uint8_t> head) {
  const std::string found = looks_like(head);
  if (!found.empty())
    throw DataError(path + ": looks like " + found +
                    ": read as 16-bit ids, every second one is 0 or tiny; expected 16 bits; " +
                    (found == "32-bit ids"
                         ? "--token-bits 32 reads it as such, --token-bits 16 as it is"
                         : "save it as np.uint16 or np.uint32"));
  if (looks_swapped(head))
    throw DataError(path +
                    ": looks like 16-bit ids in big-endian order: read as little-endian, nearly "
                    "all are multiples of 256; expected little-endian: save it as '<u2'; "
                    "--token-bits 16 reads it as it is");
  if (are_bytes(head))
    throw DataError(path +
                    ": looks like 8-bit ids or plain text: read as 16-bit ids, their lower and "
                    "upper bytes are alike; expected 16 bits: save ids as np.uint16, and encode "
                    "text with engine tokenize; --token-bits 16 reads it as it is");
}

}  // namespace io
