// Text for people to paste into a shell.
#pragma once

#include <string>

namespace tools {

// In single quotes, for any POSIX shell: it's -> 'it'\''s'.
inline std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace tools
