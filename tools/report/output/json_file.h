// Reading JSON that other runs of this program have written: bounded size, validated, a one-line
// error when it is malformed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tools {

using Json = nlohmann::json;

// `source` stands in the io::DataError of what is no JSON.
Json parse_json(std::string_view text, const std::string& source);
// Throws io::MissingFileError when the file cannot be opened, io::DataError when it is no regular
// file, larger than `max_bytes` or no JSON.
Json read_json_file(const std::string& path, std::int64_t max_bytes);

// Members of an object, checked. `where` stands in the io::DataError: "PATH", "PATH: collective 7".
const Json& member(const Json& object, const char* key, const std::string& where);
std::string text_member(const Json& object, const char* key, const std::string& where);
inline constexpr std::int64_t kUnlimited = INT64_MAX;
std::int64_t whole_member(const Json& object, const char* key, std::int64_t low, std::int64_t high,
                          const std::string& where);
double real_member(const Json& object, const char* key, const std::string& where);  // finite
const Json& list_member(const Json& object, const char* key, const std::string& where);

}  // namespace tools
