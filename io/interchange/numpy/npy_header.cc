#include "io/interchange/numpy/npy_header.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "io/base/files/io_error.h"

namespace io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::uint64_t kLongestText = 65536;
constexpr std::size_t kMaxDimensions = 8;
constexpr std::pair<std::string_view, DType> kNpyTypes[] = {
    {"<f2", DType::kF16}, {"<f4", DType::kF32}, {"<f8", DType::kF64},
    {"<i4", DType::kI32}, {"<i8", DType::kI64}, {"|u1", DType::kU8}};

// Parses the Python dictionary of a header by recursive descent.
class DictionaryReader {
 public:
  DictionaryReader(std::string_view text, const std::string& what) : text_(text), what_(what) {}

  NpyHeader read() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    const auto once = [&](bool& seen, const std::string& key) {
      if (seen) fail("two of '" + key + "'");
      seen = true;
    };
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        once(has_descr, key);
        read_type(header);
      } else if (key == "fortran_order") {
        once(has_order, key);
        header.fortran_order = boolean();
      } else if (key == "shape") {
        once(has_shape, key);
        header.shape = tuple();
      } else {
        fail("unknown key '" + key + "'");
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    space();
    if (at_ != text_.size()) fail("text after the dictionary");
    if (!has_descr || !has_order || !has_shape)
      fail("one of descr, fortran_order, shape is missing");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& fault) const {
    throw DataError(what_ + ": bad .npy header at byte " + std::to_string(at_) + ": " + fault);
  }
  void space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  bool take(char c) {
    space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(std::string("expected '") + c + "'");
  }
  // Shapes and offsets are integers of at least 0.
  std::int64_t number() {
    space();
    const std::size_t start = at_;
    std::int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      const std::int64_t digit = text_[at_] - '0';
      if (value > (std::numeric_limits<std::int64_t>::max() - digit) / 10)
        fail("a number that does not fit into 63 bits");
      value = value * 10 + digit;
      ++at_;
    }
    if (at_ == start) fail("expected a whole number of at least 0");
    if (at_ - start > 1 && text_[start] == '0') fail("a number with a leading zero");
    return value;
  }

  std::string string() {
    space();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) fail("expected a string");
    const char quote = text_[at_++];
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) fail("an unterminated string");
    std::string out(text_.substr(at_, end - at_));
    if (std::any_of(out.begin(), out.end(), [](char c) { return c < 0x20 || c == '\\'; }))
      fail("an escape in a string");
    at_ = end + 1;
    return out;
  }

  void read_type(NpyHeader& header) {
    space();
    if (at_ < text_.size() && text_[at_] == '[')
      fail("a structured dtype; save each field as an array of its own");
    const std::string descr = string();
    for (const auto& [name, known] : kNpyTypes)
      if (descr == name) {
        header.type = known;
        return;
      }
    if (descr.find('O') != std::string::npos)
      fail("dtype '" + descr +
           "': an array of Python objects is a pickle, and pickles are never read");
    if (descr.starts_with('>'))
      fail("dtype '" + descr + "' is big-endian; save it after .astype(a.dtype.newbyteorder('<'))");
    // Booleans, integers, text and times: no model has weights of these types.
    constexpr std::string_view kUnread = "|b1 |i1 <i2 <u2 <u4 <u8";
    const bool unread = (descr.size() == 3 && kUnread.find(descr) != std::string_view::npos) ||
                        descr.starts_with("<U") || descr.starts_with("|S") ||
                        descr.starts_with("<M8") || descr.starts_with("<m8");
    if (!unread) fail("dtype '" + descr + "'; known are <f2 <f4 <f8 <i4 <i8 |u1");
    header.unread_type = descr;
  }

  bool boolean() {
    space();
    for (const auto& [word, value] :
         {std::pair{std::string_view("True"), true}, std::pair{std::string_view("False"), false}})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    fail("expected True or False");
  }

  std::vector<std::int64_t> tuple() {  // (), (3,), (3, 4), (3, 4,); "(3)" is not a tuple
    expect('(');
    std::vector<std::int64_t> values;
    if (take(')')) return values;
    bool comma = false;
    do {
      if (values.size() == kMaxDimensions) fail("more than 8 dimensions");
      values.push_back(number());
      comma = take(',');
    } while (comma && !take(')'));
    if (comma) return values;
    expect(')');
    if (values.size() == 1) fail("the shape is not a tuple");
    return values;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  const std::string& what_;
};

}  // namespace

std::uint64_t npy_header_length(std::span<const std::byte> first, const std::string& what) {
  if (first.size() < 10 || std::memcmp(first.data(), kMagic.data(), kMagic.size()) != 0)
    throw DataError(what + ": not a .npy array (wrong first bytes)");
  const auto byte = [&](std::size_t i) { return std::to_integer<std::uint64_t>(first[i]); };
  const std::uint64_t major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0)
    throw DataError(what + ": .npy version " + std::to_string(major) + "." + std::to_string(minor) +
                    "; known are 1.0, 2.0, 3.0");
  if (major > 1 && first.size() < 12) throw DataError(what + ": truncated .npy header");
  const std::uint64_t text =
      byte(8) | byte(9) << 8 | (major > 1 ? byte(10) << 16 | byte(11) << 24 : 0);
  if (text > kLongestText)
    throw DataError(what + ": a .npy header of " + std::to_string(text) + " bytes; at most " +
                    std::to_string(kLongestText));
  return (major > 1 ? 12 : 10) + text;
}

NpyHeader parse_npy_header(std::span<const std::byte> header, const std::string& what) {
  const std::uint64_t length =
      npy_header_length(header.first(std::min(header.size(), kNpyPrefix)), what);
  if (header.size() < length) throw DataError(what + ": truncated .npy header");
  const std::size_t begin = std::to_integer<int>(header[6]) == 1 ? 10 : 12;
  const std::string_view text(reinterpret_cast<const char*>(header.data()) + begin, length - begin);
  NpyHeader result = DictionaryReader(text, what).read();
  result.header_bytes = length;
  return result;
}

std::string write_npy_header(DType type, const std::vector<std::int64_t>& shape,
                             const std::string& what) {
  const auto known = std::find_if(std::begin(kNpyTypes), std::end(kNpyTypes),
                                  [&](const auto& t) { return t.second == type; });
  if (known == std::end(kNpyTypes))
    throw DataError(what + " is " + std::string(to_string(type)) +
                    ", which .npy files cannot hold");
  std::string text =
      "{'descr': '" + std::string(known->first) + "', 'fortran_order': False, 'shape': (";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  text += shape.size() == 1 ? ",), }" : "), }";
  constexpr std::size_t kAlignment = 64, kFixed = 10;
  const std::size_t all = (kFixed + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  text.resize(all - kFixed - 1, ' ');
  text += '\n';
  std::string header(kMagic);
  header +=
      {'\x01', '\x00', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return header + text;
}

}  // namespace io
