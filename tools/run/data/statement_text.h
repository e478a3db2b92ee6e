// Writes names of columns, categories and classes as JSON, whatever their encoding.
#pragma once

#include <string>
#include <vector>

#include "io/base/formats/json_writer.h"

namespace tools {

// JSON text must be UTF-8, so other text becomes a list of its bytes.
void write_text(base::JsonWriter& json, const std::string& text);
// Writes the member `key`, a list, or nothing if there are no texts.
void write_texts(base::JsonWriter& json, const char* key, const std::vector<std::string>& texts);

}  // namespace tools
