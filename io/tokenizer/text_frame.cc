// The library `tokenizers` has five types of post-processors. ByteLevel adds no token.
#include "io/tokenizer/text_frame.h"

#include <nlohmann/json.hpp>

#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"

namespace io {
namespace {

using Json = nlohmann::json;

class FrameReader {
 public:
  FrameReader(std::int64_t size, const std::string& source) : size_(size), source_(source) {}

  TextFrame read(const Json& part) {
    if (part.is_null()) return {};
    const Json& kind = item(part, "type");
    const std::string type = kind.is_string() ? kind.get<std::string>() : kind.dump();
    if (type == "ByteLevel") return {};
    if (type == "TemplateProcessing") return of_template(part);
    if (type == "BertProcessing" || type == "RobertaProcessing")
      return {.before = ids_of(item(part, "cls"), 1), .after = ids_of(item(part, "sep"), 1)};
    if (type == "Sequence") return of_sequence(item(part, "processors"));
    fail(
        "post_processor.type is '" + base::escape_text(type) +
        "'; expected ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing or Sequence");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw DataError(source_ + ": " + what); }

  const Json& item(const Json& of, const std::string& name) const {
    if (of.is_object())
      if (const auto found = of.find(name); found != of.end()) return *found;
    fail("post_processor lacks '" + base::escape_text(name) + "'");
  }

  // Appends the ids of the list from the place `first` on.
  std::vector<std::int32_t> ids_of(const Json& list, std::size_t first) const {
    std::vector<std::int32_t> ids;
    for (std::size_t i = first; list.is_array() && i < list.size(); ++i) {
      if (!list[i].is_number_integer() || list[i] < 0 || list[i] >= size_)
        fail("post_processor has the token '" + base::escape_text(list[i].dump()) +
             "'; expected 0.." + std::to_string(size_ - 1));
      ids.push_back(list[i].get<std::int32_t>());
    }
    return ids;
  }

  // Each processor adds its tokens around those of the ones before it.
  TextFrame of_sequence(const Json& processors) {
    TextFrame frame;
    for (const Json& processor : processors) {
      const TextFrame outer = read(processor);
      frame.before.insert(frame.before.begin(), outer.before.begin(), outer.before.end());
      frame.after.insert(frame.after.end(), outer.after.begin(), outer.after.end());
    }
    return frame;
  }

  TextFrame of_template(const Json& part) const {
    TextFrame frame;
    bool is_text_found = false;
    for (const Json& piece : item(part, "single")) {
      if (piece.contains("Sequence")) {
        is_text_found = true;
        continue;
      }
      const Json& token = item(item(piece, "SpecialToken"), "id");
      const std::string name = token.is_string() ? token.get<std::string>() : "";
      const auto ids = ids_of(item(item(item(part, "special_tokens"), name), "ids"), 0);
      auto& side = is_text_found ? frame.after : frame.before;
      side.insert(side.end(), ids.begin(), ids.end());
    }
    return frame;
  }

  const std::int64_t size_;
  const std::string& source_;
};

}  // namespace

TextFrame read_text_frame(const Json& post_processor, std::int64_t size,
                          const std::string& source) {
  return FrameReader(size, source).read(post_processor);
}

}  // namespace io
