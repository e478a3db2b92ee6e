// Reads JSON that other runs of this program have written: bounded size, validated, a one-line
// error if it is malformed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tools {

using Json = nlohmann::json;

// `source` is named in the io::DataError for invalid JSON.
Json parse_json(std::string_view text, const std::string& source);
// Throws io::MissingFileError if the file cannot be opened, io::DataError if it is not a regular
// file, larger than `max_bytes` or not JSON.
Json read_json_file(const std::string& path, std::int64_t max_bytes);

// Return checked members of an object. `where` is named in the io::DataError: "PATH", "PATH:
// collective 7".
const Json& member(const Json& object, const char* key, const std::string& where);
std::string text_member(const Json& object, const char* key, const std::string& where);
inline constexpr std::int64_t kUnlimited = INT64_MAX;
std::int64_t whole_member(const Json& object, const char* key, std::int64_t low, std::int64_t high,
                          const std::string& where);
// Must be finite.
double real_member(const Json& object, const char* key, const std::string& where);
const Json& list_member(const Json& object, const char* key, const std::string& where);

}  // namespace tools
