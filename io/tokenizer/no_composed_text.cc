// Stands in for composed_text.cc without utf8proc.
#include "io/base/files/io_error.h"
#include "io/tokenizer/composed_text.h"

namespace io {

std::string composed_text(std::string_view) {
  throw ConfigError(
      "this tokenizer normalizes texts, but the program was built without utf8proc "
      "(libutf8proc-dev)");
}

}  // namespace io
