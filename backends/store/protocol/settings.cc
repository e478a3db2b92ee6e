// Implements the frame, digest and comparison of settings.
#include "backends/store/protocol/settings.h"

#include <algorithm>
#include <span>

#include "backends/store/protocol/wire.h"
#include "io/base/digests/digest.h"

namespace backends {
namespace {

std::string shown(const std::string& value) {
  constexpr std::size_t kLongest = 100;
  if (value.empty()) return "no value";
  std::string text = value.substr(0, kLongest);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  return value.size() > kLongest ? text + "..." : text;
}

std::string value_of(const Settings& settings, const std::string& name) {
  const auto found = std::find_if(settings.begin(), settings.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  return found == settings.end() ? "" : found->second;
}

struct Difference {
  std::string name, ours, theirs;
};

std::vector<Difference> differences(const Settings& ours, const Settings& theirs) {
  std::vector<Difference> found;
  for (const auto& [name, value] : ours)
    if (const std::string other = value_of(theirs, name); other != value)
      found.push_back({name, value, other});
  for (const auto& setting : theirs) {
    const bool known = std::any_of(ours.begin(), ours.end(),
                                   [&](const auto& own) { return own.first == setting.first; });
    if (!known && !setting.second.empty()) found.push_back({setting.first, "", setting.second});
  }
  return found;
}

}  // namespace

std::string settings_frame(const Settings& settings) {
  FrameWriter w(FrameType::kSettings);
  w.u32(static_cast<std::uint32_t>(settings.size()));
  for (const auto& [name, value] : settings) w.text(name).text(value);
  return w.finish();
}

Settings read_settings(const std::string& payload) {
  FrameReader in(payload);
  Settings settings;
  for (std::uint32_t left = in.u32(); left > 0; --left) {
    std::string name = in.text(), value = in.text();
    settings.emplace_back(std::move(name), std::move(value));
  }
  return settings;
}

std::string settings_digest(const Settings& settings) {
  const std::string text = settings_frame(settings);
  return base::hex_text(base::digest_of(std::as_bytes(std::span(text))));
}

std::string settings_difference(const Settings& ours, const std::string& here,
                                const Settings& theirs, const std::string& there) {
  constexpr std::size_t kShown = 4;
  const std::vector<Difference> found = differences(ours, theirs);
  if (found.empty()) return "the settings of " + here + " and " + there + " differ in their order";
  std::string text = found.front().name + ": " + here + " has " + shown(found.front().ours) + ", " +
                     there + " has " + shown(found.front().theirs);
  for (std::size_t i = 1; i < std::min(kShown, found.size()); ++i)
    text += "; " + found[i].name + ": " + shown(found[i].ours) + " and " + shown(found[i].theirs);
  if (found.size() > kShown) text += "; and " + std::to_string(found.size() - kShown) + " more";
  return text;
}

}  // namespace backends
