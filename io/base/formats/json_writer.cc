// Writes commas, line ends and escapes.
#include "io/base/formats/json_writer.h"

#include <cmath>

#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"

namespace base {

JsonWriter& JsonWriter::new_line() {
  line_ = true;
  return *this;
}

void JsonWriter::separate() {
  if (comma_) text_ += ',';
  if (line_) text_ += '\n';
  line_ = false;
}

JsonWriter& JsonWriter::begin(char bracket) {
  separate();
  text_ += bracket;
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::end(char bracket) {
  comma_ = false;
  separate();
  text_ += bracket;
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  ready_made(json_string(name));
  text_ += ':';
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) { return ready_made(json_string(text)); }

JsonWriter& JsonWriter::value(double number) {
  return std::isfinite(number) ? ready_made(shortest_text(number)) : null();
}

JsonWriter& JsonWriter::ready_made(std::string_view json) {
  separate();
  text_ += json;
  comma_ = true;
  return *this;
}

}  // namespace base
