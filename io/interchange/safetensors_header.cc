// A recursive-descent reader for exactly the header's grammar; depth is bounded by the grammar
// itself.
#include "io/interchange/safetensors_header.h"

#include <array>
#include <unordered_set>

#include "io/base/formats/json_writer.h"
#include "io/base/text/text_format.h"
#include "io/interchange/header_scanner.h"

namespace io {
namespace {

constexpr std::size_t kLongestTensorName = 4096;

class HeaderReader : private HeaderScanner {
 public:
  HeaderReader(std::string_view text, const std::string& file)
      : HeaderScanner(text, file, "bad safetensors header") {}

  std::vector<SafetensorsEntry> read() {
    if (!text_.starts_with('{')) fail("expected '{'");  // the format allows blanks at the end alone
    if (!is_utf8(text_)) fail("it is not UTF-8");
    std::vector<SafetensorsEntry> entries;
    std::unordered_set<std::string> names;
    members([&](const std::string& name) {
      if (name.size() > kLongestTensorName) fail("a name longer than 4096 bytes");
      if (!names.insert(name).second) fail("the name '" + name + "' stands twice");
      if (name == "__metadata__") {
        members([&](const std::string&) { static_cast<void>(string()); });
      } else {
        entries.push_back(entry(name));
      }
    });
    space();
    if (at_ != text_.size()) fail("text after the end of the object");
    return entries;
  }

 private:
  template <class Member>
  void members(Member member) {  // "{" key ":" value ... "}"
    expect('{');
    if (take('}')) return;
    do {
      const std::string key = string();
      expect(':');
      member(key);
    } while (take(','));
    expect('}');
  }

  std::string string() {
    expect('"');
    std::string out;
    while (true) {
      if (at_ >= text_.size()) fail("an unterminated string");
      const char c = text_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a string");
      if (c == '\\') {
        escape(out);
      } else {
        out += c;
      }
    }
  }

  void escape(std::string& out) {
    if (at_ >= text_.size()) fail("an unterminated string");
    const char c = text_[at_++];
    constexpr std::string_view kPlain = "\"\\/bfnrt", kMeaning = "\"\\/\b\f\n\r\t";
    if (const auto i = kPlain.find(c); i != std::string_view::npos) {
      out += kMeaning[i];
      return;
    }
    if (c != 'u') fail("an unknown escape");
    std::uint32_t code = hex4();
    if (code >= 0xD800 && code < 0xDC00) {  // the first half of a pair
      if (!(at_ + 1 < text_.size() && text_[at_] == '\\' && text_[at_ + 1] == 'u'))
        fail("an unpaired surrogate");
      at_ += 2;
      const std::uint32_t low = hex4();
      if (low < 0xDC00 || low > 0xDFFF) fail("an unpaired surrogate");
      code = 0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
      fail("an unpaired surrogate");
    }
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
    } else if (code < 0x10000) {
      out += {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
              static_cast<char>(0x80 | (code & 63))};
    } else {
      out += {static_cast<char>(0xF0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 63)),
              static_cast<char>(0x80 | (code >> 6 & 63)), static_cast<char>(0x80 | (code & 63))};
    }
  }

  std::uint32_t hex4() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      if (at_ >= text_.size()) fail("an unterminated string");
      const char c = text_[at_++];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail("a bad \\u escape");
      value = value * 16 + static_cast<std::uint32_t>(digit);
    }
    return value;
  }

  std::vector<std::int64_t> numbers(std::size_t most) {
    std::vector<std::int64_t> values;
    expect('[');
    if (take(']')) return values;
    do {
      if (values.size() == most) fail("a list of more than " + std::to_string(most) + " numbers");
      values.push_back(number());
    } while (take(','));
    expect(']');
    return values;
  }

  SafetensorsEntry entry(const std::string& name) {
    SafetensorsEntry e{.name = name, .dtype = {}, .shape = {}};
    bool has_dtype = false, has_shape = false, has_offsets = false;
    const auto once = [&](bool& seen, const std::string& key) {
      if (seen) fail("'" + name + "' has two of " + key);
      seen = true;
    };
    members([&](const std::string& key) {
      if (key == "dtype") {
        once(has_dtype, key);
        e.dtype = string();
      } else if (key == "shape") {
        once(has_shape, key);
        e.shape = numbers(8);
      } else if (key == "data_offsets") {
        once(has_offsets, key);
        const std::vector<std::int64_t> offsets = numbers(2);
        if (offsets.size() != 2) fail("data_offsets of '" + name + "' is not a pair");
        e.begin = static_cast<std::uint64_t>(offsets[0]);
        e.end = static_cast<std::uint64_t>(offsets[1]);
      } else {
        fail("unknown key '" + key + "' of '" + name + "'");
      }
    });
    if (!has_dtype || !has_shape || !has_offsets)
      fail("'" + name + "' lacks one of dtype, shape, data_offsets");
    return e;
  }
};

}  // namespace

std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view text,
                                                       const std::string& file) {
  return HeaderReader(text, file).read();
}

std::string write_safetensors_header(const std::vector<SafetensorsEntry>& entries) {
  base::JsonWriter json;
  json.begin_object();
  // Some loaders ask for it.
  json.key("__metadata__").begin_object().member("format", "pt").end_object();
  for (const SafetensorsEntry& entry : entries) {
    json.key(entry.name).begin_object().member("dtype", entry.dtype).member("shape", entry.shape);
    json.member("data_offsets", std::array{entry.begin, entry.end}).end_object();
  }
  return json.end_object().text();
}

}  // namespace io
