// Determines the kind of a token file from its first bytes, and unpacks it block by block.
#include "io/data/readers/tokens/token_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/data/files/data_file.h"
#include "io/data/files/data_folder.h"

namespace io {
namespace {

constexpr std::size_t kHeaderBytes = 1024;                 // in llm.c's files
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;  // a multiple of every width
constexpr std::string_view kNpyMagic = "\x93NUMPY";

using Bytes = std::span<const std::uint8_t>;

struct Layout : TokenLayout {
  std::optional<std::uint64_t> count = {};  // the count in the header
};

std::uint64_t little_endian(const std::uint8_t* at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;) value = value << 8 | at[i];
  return value;
}

struct KnownMagic {
  std::uint32_t magic, version;
  std::size_t width;  // 0: not a token file
  const char* what;
};
// The first two words of llm.c's files.
constexpr KnownMagic kMagics[] = {
    {20240520, 1, 2, "llm.c token file of 16-bit ids"},
    {20240801, 7, 4, "llm.c token file of 32-bit ids"},
    {20240522, 1, 0, "llm.c evaluation file of questions with answers (HellaSwag, MMLU)"},
    {20240326, 0, 0, "llm.c model (GPT-2)"},
    {20240803, 0, 0, "llm.c model (Llama 3)"},
    {20240327, 0, 0, "llm.c debugging state"},
    {20240328, 0, 0, "llm.c tokenizer"},
};

std::optional<Layout> llmc_layout(const std::string& path, Bytes head) {
  if (head.size() < 8) return std::nullopt;
  const auto word = [&](std::size_t i) {
    return static_cast<std::uint32_t>(little_endian(&head[4 * i], 4));
  };
  for (const KnownMagic& known : kMagics) {
    const std::string what = std::string("an ") + known.what;
    if (word(0) == __builtin_bswap32(known.magic))
      throw DataError(path + ": " + what + " in big-endian order (its first word is " +
                      std::to_string(known.magic) + " backwards); expected little-endian");
    if (word(0) != known.magic) continue;
    if (known.width == 0)
      throw DataError(path + ": " + what + " (its first word is " + std::to_string(known.magic) +
                      "); expected a file of token ids");
    if (word(1) != known.version)
      throw DataError(path + ": " + what + " of version " + std::to_string(word(1)) +
                      "; expected version " + std::to_string(known.version));
    if (head.size() < kHeaderBytes)
      throw DataError(path + ": truncated: found " + std::to_string(head.size()) +
                      " bytes, expected a header of " + std::to_string(kHeaderBytes));
    return Layout{{.first = kHeaderBytes, .width = known.width}, word(2)};
  }
  return std::nullopt;
}

// Returns the text after `key` in a .npy header, without blanks; the header is a Python dictionary.
std::string_view value_of(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view rest = header.substr(at + key.size());
  while (rest.starts_with(' ') || rest.starts_with(':')) rest.remove_prefix(1);
  return rest;
}

std::optional<Layout> npy_layout(const std::string& path, Bytes head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (!text.starts_with(kNpyMagic)) return std::nullopt;
  const std::size_t fixed = head.size() > 6 && head[6] == 1 ? 10 : 12;
  const std::uint64_t length =
      head.size() < 12 ? kBlockBytes : little_endian(&head[8], fixed == 10 ? 2 : 4);
  if (length > head.size() - std::min(head.size(), fixed))
    throw DataError(path + ": truncated or bad .npy header");
  const std::string_view header = text.substr(fixed, length);
  const std::string_view quoted = value_of(header, "'descr'");
  const std::string_view type =
      quoted.starts_with('\'') ? quoted.substr(1, quoted.find('\'', 1) - 1) : quoted.substr(0, 8);
  Layout layout{{.first = fixed + length}};
  constexpr std::string_view kKinds = "|u1 |i1 <u2 <i2 <u4 <i4 <u8 <i8";
  if (type.size() != 3 || kKinds.find(type) == std::string_view::npos)
    throw DataError(path + ": a .npy of dtype '" + std::string(type) +
                    "'; expected whole numbers, little-endian, as <u2, <u4, <i4 or <i8");
  layout.width = static_cast<std::size_t>(type[2] - '0');
  layout.is_signed = type[1] == 'i';
  const std::string_view shape = value_of(header, "'shape'");
  std::uint64_t count = 0;
  const auto [end, failure] = std::from_chars(shape.data() + std::min<std::size_t>(shape.size(), 1),
                                              shape.data() + shape.size(), count);
  const std::string_view behind(end, static_cast<std::size_t>(shape.data() + shape.size() - end));
  if (!shape.starts_with('(') || failure != std::errc{} || !behind.starts_with(",)"))
    throw DataError(path + ": a .npy of shape " +
                    std::string(shape.substr(0, shape.find(')') + 1)) +
                    "; expected one dimension, as (1000,): save it after .reshape(-1)");
  layout.count = count;
  return layout;
}

// Returns true if 16-bit ids look byte-swapped: then nearly all nonzero ones are multiples of 256.
bool looks_swapped(Bytes head) {
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
  std::uint64_t most = 0, most_swapped = 0;
  std::size_t zeros = 0, count = 0;

  bool are_mostly_zero() const { return 4 * zeros >= 3 * count; }
  bool are_seldom_zero() const { return 2 * zeros <= count; }
};
using WordsByPlace = std::array<Words, 4>;

WordsByPlace words_by_place(Bytes head) {
  WordsByPlace at;
  for (std::size_t i = 0; 2 * i + 1 < head.size(); ++i) {
    const std::uint64_t word = little_endian(&head[2 * i], 2);
    Words& of = at[i % at.size()];
    of.most = std::max(of.most, word);
    of.most_swapped = std::max(of.most_swapped, word >> 8 | (word & 0xFF) << 8);
    of.zeros += word == 0 ? 1 : 0;
    ++of.count;
  }
  return at;
}

// The upper halves of ids are small, the lower ones are not.
bool are_halves(std::uint64_t most_upper, std::uint64_t most_lower) {
  constexpr std::uint64_t kTiny = 31;  // vocabularies of up to 2 million
  return most_upper <= kTiny && most_lower > 255 && most_lower > 64 * most_upper;
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
std::string looks_like(Bytes head) {
  constexpr std::size_t kFewest = 16, kEnough = 256;  // wider ids, below which there is too little
                                                      // evidence
  const WordsByPlace at = words_by_place(head);
  const auto most = [&](std::size_t first, std::uint64_t Words::*value) {
    return std::max(at[first].*value, at[first + 2].*value);
  };
  const std::uint64_t even = most(0, &Words::most), odd = most(1, &Words::most);
  const std::size_t words = head.size() / 2;
  if (words < 2 * kFewest || even + odd == 0) return "";
  if (odd == 0) return at[2].most == 0 && words >= 4 * kFewest ? "64-bit ids" : "32-bit ids";
  if (even == 0)
    return at[1].most == 0 && words >= 4 * kFewest ? kSwapped64 : "32-bit ids in big-endian order";
  if (words < 2 * kEnough) return "";
  if (are_halves(odd, even)) return "32-bit ids";
  if (are_halves(most(0, &Words::most_swapped), most(1, &Words::most_swapped))) return kSwapped32;
  return looks_sparse(at);
}

Layout raw_layout(const std::string& path, Bytes head, int bits) {
  if (bits != 0) return {{.width = static_cast<std::size_t>(bits / 8)}};
  const std::string found = looks_like(head);
  if (found.empty() && looks_swapped(head))
    throw DataError(path +
                    ": looks like 16-bit ids in big-endian order: read as little-endian, nearly "
                    "all are multiples of 256; expected little-endian: save it as '<u2'; "
                    "--token-bits 16 reads it as it is");
  if (found.empty()) return {};
  throw DataError(path + ": looks like " + found +
                  ": read as 16-bit ids, every second one is 0 or tiny; expected 16 bits; " +
                  (found == "32-bit ids"
                       ? "--token-bits 32 reads it as such, --token-bits 16 as it is"
                       : "save it as np.uint16 or np.uint32"));
}

Layout layout_of(const std::string& path, Bytes head, int bits) {
  std::optional<Layout> stated = llmc_layout(path, head);
  if (!stated) stated = npy_layout(path, head);
  if (!stated) return raw_layout(path, head, bits);
  if (bits != 0 && stated->width != static_cast<std::size_t>(bits / 8))
    throw DataError(path + ": its header says ids of " + std::to_string(8 * stated->width) +
                    " bits, but --token-bits is " + std::to_string(bits) + "; leave it out");
  return *stated;
}

std::string find_tokens(const std::string& directory, const std::string& name) {
  std::vector<std::string> found;
  for (const FolderEntry& entry : list_folder(directory)) {
    std::string_view plain = entry.name;
    if (plain.ends_with(".gz")) plain.remove_suffix(3);
    if (plain != name + ".bin" && plain != name + ".npy") continue;
    if (entry.kind == FolderEntry::Kind::kFolder) continue;
    check_usable(entry, "a file");
    found.push_back(entry.path);
  }
  if (found.empty())
    throw MissingFileError("no " + name + ".bin in " + directory + ": looked for " + name +
                           ".bin and " + name +
                           ".npy, plain or .gz; name the folder with "
                           "--data-dir");
  if (found.size() > 1)
    throw DataError("found both " + found[0] + " and " + found[1] +
                    ": expected one of them; remove or rename the other");
  return found[0];
}

// `bytes`: of the whole file, header included.
std::int64_t checked_count(const std::string& path, const Layout& layout, std::uint64_t bytes) {
  const std::uint64_t ids = bytes - std::min<std::uint64_t>(bytes, layout.first);
  const std::uint64_t count = ids / layout.width;
  if (ids % layout.width != 0)
    throw DataError(path + ": truncated or not a token file: found " + std::to_string(bytes) +
                    " bytes, expected a whole number of " + std::to_string(8 * layout.width) +
                    "-bit tokens" + (layout.first > 0 ? " after the header" : ""));
  if (layout.count && *layout.count != count)
    throw DataError(path + ": found " + std::to_string(count) +
                    " tokens after the header, which announces " + std::to_string(*layout.count));
  return static_cast<std::int64_t>(count);
}

// Unpacks a file whose first block has been read.
std::vector<std::int32_t> unpacked_tokens(DataFile& source, const Layout& layout,
                                          std::vector<std::uint8_t> block, std::size_t got) {
  std::vector<std::int32_t> tokens;
  std::uint64_t bytes = got;
  std::size_t begin = layout.first;
  while (got > 0) {
    const std::size_t ids = (got - begin) / layout.width, before = tokens.size();
    tokens.resize(before + ids);
    decode_tokens(source.path(), layout, static_cast<std::int64_t>(before),
                  Bytes(block).subspan(begin), std::span(tokens).subspan(before));
    // The next block starts with the remaining part of an id.
    const std::size_t used = begin + ids * layout.width, rest = got - used;
    std::copy_n(block.begin() + static_cast<std::ptrdiff_t>(used), rest, block.begin());
    const std::size_t more = source.read(std::span(block).subspan(rest));
    bytes += more;
    source.check_unpacked(bytes);
    if (more == 0) break;
    got = rest + more;
    begin = 0;
  }
  static_cast<void>(checked_count(source.path(), layout, bytes));
  return tokens;
}

}  // namespace

TokenFile read_token_file(const std::string& directory, const std::string& name, int bits) {
  const std::string path = find_tokens(directory, name);
  DataFile source(path);
  std::vector<std::uint8_t> block(kBlockBytes);
  const std::size_t got = source.read(block);
  const Layout layout = layout_of(path, Bytes(block).first(got), bits);
  if (source.is_packed()) return {path, unpacked_tokens(source, layout, std::move(block), got)};
  OpenedFile file = open_regular_file(path);
  const std::int64_t count = checked_count(path, layout, file.bytes);
  return {path, TokenStream(path, std::move(file), layout, count)};
}

TokenPlace find_token_file(const std::string& directory, const std::string& name, int bits) {
  const std::string path = find_tokens(directory, name);
  DataFile source(path);
  std::vector<std::uint8_t> block(kBlockBytes);
  const std::size_t got = source.read(block);
  const Layout layout = layout_of(path, Bytes(block).first(got), bits);
  return {path, source.is_packed() ? layout.width : 0};
}

}  // namespace io
