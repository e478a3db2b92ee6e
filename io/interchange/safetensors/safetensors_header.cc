#include "io/interchange/safetensors/safetensors_header.h"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "io/base/files/io_error.h"
#include "io/base/formats/json_writer.h"

namespace io {
namespace {

constexpr std::size_t kMaxTensorName = 4096, kMaxRank = 8;

// Receives the parser's events and accepts only the header's grammar: an object of objects whose
// members are a string and two lists of numbers.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderHandler(const std::string& file) : file_(file) {}

  std::vector<SafetensorsEntry> take_entries() { return std::move(entries_); }

  bool null() override { fail("null"); }
  bool boolean(bool) override { fail("true or false"); }
  bool number_integer(number_integer_t value) override { fail(std::to_string(value)); }
  bool number_float(number_float_t, const std::string& text) override { fail(text); }
  bool binary(nlohmann::json::binary_t&) override { fail("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::kShape && level_ != Level::kOffsets) fail(std::to_string(value));
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      fail(std::to_string(value));
    const std::size_t max = level_ == Level::kShape ? kMaxRank : 2;
    if (numbers_.size() == max)
      fault(key_ + " of '" + tensor_name_ + "' has more than " + std::to_string(max) + " numbers");
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(std::string& text) override {
    if (level_ == Level::kMetadata) return true;
    if (level_ != Level::kTensor || key_ != "dtype") fail("a string");
    entries_.back().dtype = text;
    return true;
  }

  bool start_object(std::size_t) override {
    if (level_ == Level::kStart) {
      level_ = Level::kHeader;
    } else if (level_ == Level::kHeader) {
      level_ = tensor_name_ == "__metadata__" ? Level::kMetadata : Level::kTensor;
      if (level_ == Level::kTensor) entries_.push_back({tensor_name_, {}, {}});
      has_dtype_ = has_shape_ = has_offsets_ = false;
    } else {
      fail("an object");
    }
    return true;
  }

  bool key(std::string& text) override {
    if (level_ == Level::kHeader) {
      if (text.size() > kMaxTensorName) fault("a name is longer than 4096 bytes");
      if (!names_.insert(text).second) fault("the name '" + text + "' stands twice");
      tensor_name_ = text;
    } else if (level_ == Level::kTensor) {
      bool& seen = text == "dtype"          ? has_dtype_
                   : text == "shape"        ? has_shape_
                   : text == "data_offsets" ? has_offsets_
                                            : unknown_key(text);
      if (seen) fault("'" + tensor_name_ + "' has two of " + text);
      seen = true;
    }
    key_ = text;
    return true;
  }

  bool end_object() override {
    if (level_ == Level::kTensor && !(has_dtype_ && has_shape_ && has_offsets_))
      fault("'" + tensor_name_ + "' lacks one of dtype, shape, data_offsets");
    level_ = level_ == Level::kHeader ? Level::kEnd : Level::kHeader;
    return true;
  }

  bool start_array(std::size_t) override {
    if (level_ != Level::kTensor || key_ == "dtype") fail("a list");
    level_ = key_ == "shape" ? Level::kShape : Level::kOffsets;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    SafetensorsEntry& entry = entries_.back();
    if (level_ == Level::kShape) {
      entry.shape = numbers_;
    } else {
      if (numbers_.size() != 2) fault("data_offsets of '" + entry.name + "' is not a pair");
      entry.begin = static_cast<std::uint64_t>(numbers_[0]);
      entry.end = static_cast<std::uint64_t>(numbers_[1]);
    }
    level_ = Level::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::json::exception&) override {
    fault("at byte " + std::to_string(position) + ": invalid JSON or UTF-8 near '" + token + "'");
  }

 private:
  enum class Level { kStart, kHeader, kMetadata, kTensor, kShape, kOffsets, kEnd };

  [[noreturn]] void fault(const std::string& text) const {
    throw DataError(file_ + ": bad safetensors header: " + text);
  }

  // Throws with the position of a value that the format does not allow there.
  [[noreturn]] void fail(const std::string& found) const {
    switch (level_) {
      case Level::kMetadata:
        fault("__metadata__ has " + found + "; expected strings");
      case Level::kShape:
      case Level::kOffsets:
        fault(key_ + " of '" + tensor_name_ + "' has " + found +
              "; expected whole numbers from 0 to 2^63 - 1");
      case Level::kTensor:
        fault(key_ + " of '" + tensor_name_ + "' is " + found + "; expected " +
              (key_ == "dtype" ? "a string" : "a list"));
      default:
        fault(level_ == Level::kStart
                  ? found + " instead of an object"
                  : "'" + tensor_name_ + "' is " + found + "; expected an object");
    }
  }

  [[noreturn]] bool& unknown_key(const std::string& text) const {
    fault("unknown key '" + text + "' of '" + tensor_name_ + "'");
  }

  const std::string& file_;
  Level level_ = Level::kStart;
  std::string tensor_name_, key_;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  std::vector<std::int64_t> numbers_;
  std::unordered_set<std::string> names_;
  std::vector<SafetensorsEntry> entries_;
};

}  // namespace

std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view text,
                                                       const std::string& file) {
  // The format allows blanks only after the object.
  if (!text.starts_with('{')) throw DataError(file + ": bad safetensors header: expected '{'");
  HeaderHandler handler(file);
  nlohmann::json::sax_parse(text, &handler);
  return handler.take_entries();
}

std::string write_safetensors_header(const std::vector<SafetensorsEntry>& entries) {
  base::JsonWriter json;
  json.begin_object();
  // Some loaders require it.
  json.key("__metadata__").begin_object().member("format", "pt").end_object();
  for (const SafetensorsEntry& entry : entries) {
    json.key(entry.name).begin_object().member("dtype", entry.dtype).member("shape", entry.shape);
    json.member("data_offsets", std::array{entry.begin, entry.end}).end_object();
  }
  return json.end_object().text();
}

}  // namespace io
