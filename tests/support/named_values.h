// Values by name, written as they are typed: "lr=0.1 sync=none".
#pragma once

#include <map>
#include <sstream>
#include <string>

namespace test_support {

// A word without a = belongs to the value before it.
class NamedValues : public std::map<std::string, std::string> {
 public:
  using map::map;
  NamedValues(const char* text) : NamedValues(std::string(text)) {}  // NOLINT: implicit
  NamedValues(const std::string& text) {                             // NOLINT: implicit
    std::istringstream words(text);
    std::string* value = nullptr;
    for (std::string word; words >> word;) {
      const std::size_t at = word.find('=');
      if (at != std::string::npos)
        (value = &(*this)[word.substr(0, at)])->assign(word, at + 1);
      else
        value->append(" " + word);
    }
  }
};

}  // namespace test_support
