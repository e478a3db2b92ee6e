// Uses PCRE2 with its just-in-time compiler, if the platform has one.
#include "io/tokenizer/text_split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdio>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/tokenizer/split_expression.h"

namespace io {
namespace {

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// Since PCRE2 10.40, names of scripts include script extensions.
bool has_script_extensions() {
  std::array<char, 64> version{};
  pcre2_config(PCRE2_CONFIG_VERSION, version.data());
  int major = 0, minor = 0;
  return std::sscanf(version.data(), "%d.%d", &major, &minor) == 2 &&
         (major > 10 || (major == 10 && minor >= 40));
}

struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};

}  // namespace

struct TextSplit::Code {
  explicit Code(pcre2_code* compiled) : pattern(compiled) {}
  ~Code() { pcre2_code_free(pattern); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* const pattern;
};

TextSplit::TextSplit(const std::string& source, const std::string& expression, Gaps gaps)
    : gaps_(gaps) {
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::string pattern = pcre2_expression(source, expression, has_script_extensions());
  pcre2_code* const compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (compiled == nullptr)
    throw DataError(source + ": the regular expression '" + base::escape_text(expression) +
                    "' of the pre-tokenizer is not valid: " + message_of(error));
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);  // without it, matching is slower
  code_ = std::make_unique<const Code>(compiled);
}

TextSplit::~TextSplit() = default;
TextSplit::TextSplit(TextSplit&&) noexcept = default;

void TextSplit::split(std::string_view text, Pieces& pieces) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(code_->pattern, nullptr));
  if (!match) throw Error("no memory for a match of the pre-tokenizer");
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(match.get());
  const auto add = [&](std::size_t begin, std::size_t end) {
    if (begin < end) pieces.push_back(text.substr(begin, end - begin));
  };
  std::size_t done = 0, from = 0;
  while (from < text.size()) {
    const int result = pcre2_match(code_->pattern, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                   match.get(), nullptr);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0)
      throw DataError("the pre-tokenizer's regular expression cannot be matched with this text: " +
                      message_of(result));
    if (gaps_ == Gaps::kKept) add(done, found[0]);
    add(found[0], found[1]);
    done = found[1];
    from = found[1];
    if (found[0] != found[1]) continue;
    ++from;  // past an empty match, to the next character
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
  }
  if (gaps_ == Gaps::kKept) add(done, text.size());
}

}  // namespace io
