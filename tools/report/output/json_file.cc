// Implements the checks around nlohmann's parser. It has its own stack, but its values are
// compared, printed and destroyed recursively, so their depth is limited first.
#include "tools/report/output/json_file.h"

#include <cmath>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/formats/nesting.h"

namespace tools {
namespace {

[[noreturn]] void refuse(const std::string& where, const char* key, const std::string& expected,
                         const Json& found) {
  std::string text = found.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  throw io::DataError(where + ": \"" + key + "\" is " + text + "; expected " + expected);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& source) {
  if (!io::json_nests_within_limit(text))
    throw io::DataError(source + ": its JSON nests more than " + std::to_string(io::kMaxNesting) +
                        " levels deep, more than any such text has");
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    const std::string what =
        error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 5: ..."
    const std::size_t start = what.find("] ");
    throw io::DataError(source + ": invalid JSON (" + std::to_string(text.size()) +
                        " bytes): " + (start == std::string::npos ? what : what.substr(start + 2)));
  }
}

Json read_json_file(const std::string& path, std::int64_t max_bytes) {
  return parse_json(io::read_run_file(path, static_cast<std::uint64_t>(max_bytes)), path);
}

const Json& member(const Json& object, const char* key, const std::string& where) {
  if (!object.is_object()) throw io::DataError(where + ": not a JSON object");
  const auto found = object.find(key);
  if (found == object.end()) throw io::DataError(where + ": lacks \"" + key + "\"");
  return *found;
}

std::string text_member(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_string()) refuse(where, key, "text", value);
  return value.get<std::string>();
}

std::int64_t whole_member(const Json& object, const char* key, std::int64_t low, std::int64_t high,
                          const std::string& where) {
  const Json& value = member(object, key, where);
  const std::string expected =
      "a whole number from " + std::to_string(low) + " to " + std::to_string(high);
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX))
    refuse(where, key, expected, value);
  const auto number = value.get<std::int64_t>();
  if (number < low || number > high) refuse(where, key, expected, value);
  return number;
}

double real_member(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_number() || !std::isfinite(value.get<double>()))
    refuse(where, key, "a number", value);
  return value.get<double>();
}

const Json& list_member(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_array()) refuse(where, key, "a list", value);
  return value;
}

}  // namespace tools
