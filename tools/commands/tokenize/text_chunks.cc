// Cuts before the first character of a line whose neighbors are printable ASCII: there a piece ends
// in the expressions of GPT-2, Llama 3 and Qwen, whatever precedes or follows.
#include "tools/commands/tokenize/text_chunks.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/data/files/file_format.h"

namespace tools {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxWholeBytes = std::size_t{1} << 28;

bool is_graphic(char c) { return c > ' ' && c < '\x7F'; }

// Returns the first cut at `from` or later: a single line feed between two such characters.
std::optional<std::size_t> find_cut(const std::string& text, std::size_t from) {
  for (std::size_t i = std::max<std::size_t>(from, 2); i < text.size(); ++i)
    if (text[i - 1] == '\n' && is_graphic(text[i - 2]) && is_graphic(text[i])) return i;
  return std::nullopt;
}

}  // namespace

TextChunks::TextChunks(const std::string& path, std::size_t chunk_bytes, ChunkEnds ends)
    : file_(path), chunk_bytes_(chunk_bytes), ends_(ends) {
  at_end_ = !fill();
  for (const std::string_view mark :
       {std::string_view("\xFF\xFE\0\0", 4), std::string_view("\0\0\xFE\xFF", 4)})
    if (text_.starts_with(mark))
      throw io::DataError(path + ": a text in UTF-32; expected UTF-8: convert it with iconv");
  if (text_.starts_with("\xFF\xFE") || text_.starts_with("\xFE\xFF"))
    throw io::DataError(path + ": a text in UTF-16; expected UTF-8: convert it with iconv");
  io::refuse_unmarked_text(
      std::span(reinterpret_cast<const std::uint8_t*>(text_.data()), text_.size()), path);
  if (text_.starts_with("\xEF\xBB\xBF")) text_.erase(0, 3);
}

bool TextChunks::fill() {
  const std::size_t before = text_.size();
  text_.resize(before + kReadBytes);
  const std::size_t got =
      file_.read(std::span(reinterpret_cast<std::uint8_t*>(text_.data()) + before, kReadBytes));
  text_.resize(before + got);
  return got > 0;
}

bool TextChunks::next(std::string& chunk) {
  std::size_t searched = chunk_bytes_;
  for (;;) {
    if (ends_ == ChunkEnds::kLines) {
      if (const auto cut = find_cut(text_, searched)) {
        chunk = text_.substr(0, *cut);
        text_.erase(0, *cut);
        return true;
      }
      searched = std::max(searched, text_.size());
    }
    if (at_end_) break;
    if (text_.size() > kMaxWholeBytes)
      throw io::DataError(file_.path() + ": more than " + std::to_string(kMaxWholeBytes) +
                          " bytes without a place to divide the text: a line feed between "
                          "printable ASCII characters, where the tokenizer ends a piece; expected "
                          "smaller files");
    at_end_ = !fill();
  }
  chunk = std::exchange(text_, {});
  return !chunk.empty();
}

}  // namespace tools
