// The settings that must be equal on all ranks of a job: names with values, opaque to backends. A
// digest of them is in the hello, covered by its proof; a rank with another digest sends the list,
// so that the difference can be named.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace backends {

using Settings = std::vector<std::pair<std::string, std::string>>;

inline constexpr std::size_t kSettingsBytes = 64u << 10;  // limit of the frame that carries them

std::string settings_digest(const Settings& settings);  // 32 hexadecimal digits

std::string settings_frame(const Settings& settings);
Settings read_settings(const std::string& payload);  // throws MalformedFrame

// Returns e.g. "--batch-size: rank 0 (host a, pid 1) has 128, rank 1 (host b, pid 2) has 64; --lr:
// 0.1 and 0.2; and 3 more". `here` and `there` name the owners. One line; long values are
// truncated.
std::string settings_difference(const Settings& ours, const std::string& here,
                                const Settings& theirs, const std::string& there);

}  // namespace backends
