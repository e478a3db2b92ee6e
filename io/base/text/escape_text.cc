// Decodes UTF-8 character by character.
#include "io/base/text/escape_text.h"

#include <cstdint>
#include <cstdio>

#include "io/base/text/utf8.h"

namespace base {
namespace {

constexpr std::uint32_t kReplacement = 0xFFFD;

struct Character {
  std::size_t bytes;
  std::uint32_t code;
  bool valid;
};

// Returns the first character of a non-empty text; a byte that starts no character is returned
// alone.
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {1, first, true};
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || text.size() < bytes || !is_utf8(text.substr(0, bytes)))
    return {1, first, false};
  std::uint32_t code = first & (0x7Fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) code = code << 6 | (byte(i) & 0x3Fu);
  return {bytes, code, true};
}

bool is_hidden(std::uint32_t c) {
  struct Range {
    std::uint32_t first, last;
  };
  constexpr Range kHidden[] = {
      {0x00, 0x1F},       {0x7F, 0x9F},      // control characters
      {0xAD, 0xAD},                          // soft hyphen
      {0x61C, 0x61C},     {0x180E, 0x180E},  // direction mark; zero width
      {0x200B, 0x200F},   {0x2028, 0x202E},  // zero width, line breaks, directions
      {0x2060, 0x206F},   {0xFEFF, 0xFEFF},  // the same, and the byte-order mark
      {0xFFF9, 0xFFFB},   {0xFFFE, 0xFFFF},  // annotations; noncharacters
      {0xE0000, 0xE0FFF},                    // tags and selectors
  };
  for (const Range& range : kHidden)
    if (c >= range.first && c <= range.last) return true;
  return false;
}

std::string hex(const char* format, std::uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string escape(const Character& c) {
  if (!c.valid) return hex("\\x%02x", c.code);
  if (c.code == '\n') return "\\n";
  if (c.code == '\r') return "\\r";
  if (c.code == '\t') return "\\t";
  return hex(c.code < 0x80 ? "\\x%02x" : c.code < 0x10000 ? "\\u%04x" : "\\U%08x", c.code);
}

std::string json_escape(std::uint32_t c) {
  if (c < 0x10000) return hex("\\u%04x", c);
  c -= 0x10000;
  return hex("\\u%04x", 0xD800 + (c >> 10)) + hex("\\u%04x", 0xDC00 + (c & 0x3FF));
}

std::string visible(std::string_view text, bool lines) {
  std::string shown;
  while (!text.empty()) {
    const Character c = first_character(text);
    const bool kept = lines && (c.code == '\n' || c.code == '\t');
    if (!kept && (!c.valid || is_hidden(c.code)))
      shown += escape(c);
    else
      shown += text.substr(0, c.bytes);
    text.remove_prefix(c.bytes);
  }
  return shown;
}

}  // namespace

std::string escape_text(std::string_view text) { return visible(text, false); }

std::string visible_lines(std::string_view text) { return visible(text, true); }

std::string json_string(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const Character c = first_character(text);
    const std::uint32_t code = c.valid ? c.code : kReplacement;
    if (is_hidden(code) || code == kReplacement) {
      quoted += json_escape(code);
    } else {
      if (code == '"' || code == '\\') quoted += '\\';
      quoted += text.substr(0, c.bytes);
    }
    text.remove_prefix(c.bytes);
  }
  return quoted + '"';
}

}  // namespace base
