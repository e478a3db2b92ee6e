// Quotes text for users to paste into a shell.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace tools {

// Returns the text in single quotes, for any POSIX shell: it's -> 'it'\''s'.
inline std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Quotes only if necessary: runs/a stays, my run -> 'my run'.
inline std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "-_=./,:@%+";
  const bool plain = !text.empty() && std::ranges::all_of(text, [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || kPlain.find(c) != kPlain.npos;
  });
  return plain ? text : shell_quoted(text);
}

}  // namespace tools
