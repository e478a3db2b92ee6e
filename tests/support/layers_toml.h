// Definitions of small networks, a line for each layer:
//
//   layers_toml(R"(
//   sample_shape=[6,6,1] classes=10
//   conv2d conv out_channels=4
//   flatten
//   dense fc out=classes
//   )")
#pragma once

#include <sstream>
#include <string>

namespace test_support {

inline std::string toml_setting(const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::string value = word.substr(equals + 1);
  const bool is_text = value != "true" && value != "false" &&
                       std::string("-0123456789[\"").find(value[0]) == std::string::npos;
  return word.substr(0, equals) + " = " + (is_text ? "\"" + value + "\"" : value) + "\n";
}

// A line is a layer's kind, its name if it has one, and its settings; or it has settings of the
// model alone. Texts need no quotes, arrays have no spaces.
inline std::string layers_toml(const std::string& lines) {
  std::string toml;
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);) {
    std::istringstream words(line);
    bool is_named = false;
    for (std::string word; words >> word; is_named = true) {
      if (word.find('=') != std::string::npos)
        toml += toml_setting(word);
      else
        toml += is_named ? "name = \"" + word + "\"\n" : "[[layer]]\nkind = \"" + word + "\"\n";
    }
  }
  return toml;
}

}  // namespace test_support
