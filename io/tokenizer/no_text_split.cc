// Stands in for text_split.cc without PCRE2.
#include "io/base/files/io_error.h"
#include "io/tokenizer/text_split.h"

namespace io {

struct TextSplit::Code {};

TextSplit::TextSplit(const std::string& source, const std::string&, Gaps gaps) : gaps_(gaps) {
  throw ConfigError(source +
                    ": splits texts by regular expressions, but the program was built without "
                    "PCRE2 (libpcre2-dev)");
}

TextSplit::~TextSplit() = default;
TextSplit::TextSplit(TextSplit&&) noexcept = default;

void TextSplit::split(std::string_view, Pieces&) const {}

}  // namespace io
