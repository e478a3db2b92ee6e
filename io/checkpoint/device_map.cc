// Parses --map-location.
#include "io/checkpoint/device_map.h"

#include <algorithm>
#include <cctype>

#include "io/base/files/io_error.h"
#include "io/base/text/text_parts.h"

namespace io {
namespace {

// "cpu" and "cuda" mean their first device. Returns "" if `text` is not a device.
std::string canonical_device(const std::string& text) {
  const auto colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  if (kind != "cpu" && kind != "cuda") return "";
  if (colon == std::string::npos) return kind + ":0";
  const std::string index = text.substr(colon + 1);
  const bool digits =
      !index.empty() && index.size() <= 4 &&
      std::all_of(index.begin(), index.end(), [](unsigned char c) { return std::isdigit(c); });
  return digits ? kind + ":" + std::to_string(std::stoi(index)) : "";
}

std::string device_or_throw(const std::string& text, const std::string& spec) {
  std::string device = canonical_device(text);
  if (device.empty())
    throw ConfigError(
        "map-location '" + spec + "': '" + text +
        "' is not a device; expected auto, cpu, cuda:N, or a list like cuda:0=cuda:1");
  return device;
}

}  // namespace

DeviceMap DeviceMap::parse(const std::string& spec) {
  DeviceMap map;
  if (spec == "auto") {
    map.all_ = spec;
  } else if (spec.find('=') == std::string::npos) {
    map.all_ = device_or_throw(spec, spec);
  } else {
    for (const std::string& pair : base::split_text(spec, ',')) {
      const auto equals = pair.find('=');
      if (equals == std::string::npos)
        throw ConfigError("map-location '" + spec + "': '" + pair + "' lacks its =target");
      const std::string from = device_or_throw(pair.substr(0, equals), spec),
                        to = device_or_throw(pair.substr(equals + 1), spec);
      for (const auto& [known, target] : map.pairs_)
        if (known == from)
          throw ConfigError("map-location '" + spec + "': " + from + " is mapped twice, to " +
                            target + " and " + to);
      map.pairs_.emplace_back(from, to);
    }
  }
  return map;
}

std::string DeviceMap::target(const std::string& saved, const std::string& own) const {
  if (all_ == "auto") return own;
  if (!all_.empty()) return all_;
  for (const auto& [from, to] : pairs_)
    if (from == saved) return to;
  throw ConfigError("map-location says nothing about " + saved + ", where an array was saved");
}

}  // namespace io
