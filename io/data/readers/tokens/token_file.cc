// Determines the kind of a token file from its first bytes, and unpacks it block by block.
#include "io/data/readers/tokens/token_file.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/numbers/number_bytes.h"
#include "io/data/files/data_file.h"
#include "io/data/files/data_folder.h"
#include "io/data/readers/tokens/unmarked_tokens.h"

namespace io {
namespace {

constexpr std::size_t kHeaderBytes = 1024;                 // in llm.c's files
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;  // a multiple of every width
constexpr std::string_view kNpyMagic = "\x93NUMPY";

using Bytes = std::span<const std::uint8_t>;

struct Layout : TokenLayout {
  std::optional<std::uint64_t> count = {};  // the count in the header
};

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
    return static_cast<std::uint32_t>(base::little_endian(&head[4 * i], 4));
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
      head.size() < 12 ? kBlockBytes : base::little_endian(&head[8], fixed == 10 ? 2 : 4);
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

Layout raw_layout(const std::string& path, Bytes head, int bits) {
  if (bits != 0) return {{.width = static_cast<std::size_t>(bits / 8)}};
  check_unmarked_tokens(path, head);
  return {};
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
