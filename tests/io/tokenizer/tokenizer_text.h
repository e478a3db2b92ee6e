// A tokenizer.json of a few merges, for tests.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/base/text/escape_text.h"

namespace tokenizer_text {

// The character that stands for a byte, in UTF-8.
inline std::string character_of(unsigned byte) {
  unsigned others = 0;
  for (unsigned b = 0; b <= byte; ++b) {
    const bool shown = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
    const unsigned c = shown ? b : 0x100 + others;
    others += shown ? 0 : 1;
    if (b < byte) continue;
    if (c < 0x80) return {static_cast<char>(c)};
    return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
  }
  return "";
}

inline std::string shown(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += character_of(static_cast<unsigned char>(byte));
  return text;
}

using Merges = std::vector<std::pair<std::string, std::string>>;

struct Parts {
  Merges merges = {{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {" ", "w"}, {"o", "r"}};
  std::string model = "";  // further members, ",\"ignore_merges\":true"
  std::string normalizer = "null";
  std::string pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";
  std::string added = R"({"id":262,"content":"<|end|>","special":true,"normalized":false})";
  std::string post_processor = "null";
};

// Ids 0 to 255 are the bytes, the next ones what the merges make.
inline std::string tokenizer_json(const Parts& parts) {
  std::string vocabulary, merges;
  const auto add = [&](const std::string& bytes, std::size_t id) {
    vocabulary += (id == 0 ? "" : ",") + base::json_string(shown(bytes)) + ":" + std::to_string(id);
  };
  std::size_t id = 0;
  for (; id < 256; ++id) add(std::string(1, static_cast<char>(id)), id);
  for (const auto& [left, right] : parts.merges) {
    add(left + right, id++);
    merges += (merges.empty() ? "" : ",") + base::json_string(shown(left) + " " + shown(right));
  }
  return R"({"version":"1.0","added_tokens":[)" + parts.added + R"(],"normalizer":)" +
         parts.normalizer + R"(,"post_processor":)" + parts.post_processor +
         R"(,"pre_tokenizer":)" + parts.pre_tokenizer + R"(,"model":{"type":"BPE","vocab":{)" +
         vocabulary + R"(},"merges":[)" + merges + "]" + parts.model + "}}";
}

}  // namespace tokenizer_text
