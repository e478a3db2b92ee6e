// Splits text into the pieces that byte-pair merges do not cross, as the pre-tokenizers of
// tokenizer.json do.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace io {

using Pieces = std::vector<std::string_view>;

// One pre-tokenizer. Its regular expression has Oniguruma's syntax with Unicode properties, which
// pcre2_expression() translates.
class TextSplit {
 public:
  enum class Gaps {
    kKept,  // text between two matches is also a piece
    kRemoved
  };
  // Throws DataError with `source`, a path, for an expression that is not valid or cannot be
  // translated exactly.
  TextSplit(const std::string& source, const std::string& expression, Gaps gaps);
  ~TextSplit();
  TextSplit(TextSplit&&) noexcept;

  // Appends the pieces of `text`. REQUIRES: `text` is well-formed UTF-8. Throws Error if matching
  // needs too much memory. For several threads.
  void split(std::string_view text, Pieces& pieces) const;

 private:
  struct Code;
  std::unique_ptr<const Code> code_;
  Gaps gaps_;
};

}  // namespace io
