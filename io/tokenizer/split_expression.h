// Translates the regular expressions of tokenizer.json, which have Oniguruma's syntax, to PCRE2's.
#pragma once

#include <string>

namespace io {

// Returns the expression that matches in PCRE2, compiled with PCRE2_UTF | PCRE2_UCP, the texts that
// `expression` matches in Oniguruma with UTF-8 and its default syntax, as `tokenizers` uses it.
// `script_extensions`: in this PCRE2 \p{Han} includes script extensions (since 10.40). Throws
// DataError with `source`, a path, and the construct for one without an exact translation.
std::string pcre2_expression(const std::string& source, const std::string& expression,
                             bool script_extensions);

}  // namespace io
