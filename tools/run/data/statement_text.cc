// Distinguishes text by its encoding.
#include "tools/run/data/statement_text.h"

#include "io/base/text/utf8.h"

namespace tools {

void write_text(base::JsonWriter& json, const std::string& text) {
  if (base::is_utf8(text)) {
    json.value(text);
    return;
  }
  json.begin_array();
  for (const char byte : text) json.value(int{static_cast<unsigned char>(byte)});
  json.end_array();
}

void write_texts(base::JsonWriter& json, const char* key, const std::vector<std::string>& texts) {
  if (texts.empty()) return;
  json.key(key).begin_array();
  for (const std::string& text : texts) write_text(json, text);
  json.end_array();
}

}  // namespace tools
