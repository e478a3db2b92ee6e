// Parses the launcher's option values: streams by rank, lists of ranks, node counts.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tools {

inline constexpr unsigned kStreamOut = 1, kStreamErr = 2;

// Parses torchrun's syntax: "3" for all local ranks, or "0:1,2:3" for some; 0 none, 1 stdout, 2
// stderr, 3 both. "" is none. Returns one mask for each local rank. Throws io::ConfigError that
// names `option`, the text and the expected form.
std::vector<unsigned> parse_streams(const std::string& text, int local_world_size,
                                    const std::string& option);

// Parses "0,2-3": ascending, no duplicates, each below `count`; "" means all. Throws
// io::ConfigError.
std::vector<int> parse_rank_list(const std::string& text, int count, const std::string& option);

// Parses "2" or "2:2"; "1:4" for a job whose nodes join and leave. Throws io::ConfigError.
struct NodeCount {
  std::optional<int> min = {};  // none: the number is fixed
  int max = 1;
};
NodeCount parse_node_count(const std::string& text, const std::string& option);

// Parses a decimal integer within [min, max]. Throws io::ConfigError.
int parse_whole(const std::string& text, int min, int max, const std::string& option);

// Splits "a,b" and ",a, b" into {"a", "b"}; drops blanks around the parts and empty parts.
std::vector<std::string> split_list(const std::string& text);

}  // namespace tools
