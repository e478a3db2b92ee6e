// Parts of a line, dropped from the least important on until the rest fits.
#include "tools/report/progress_line.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace tools {
namespace {

constexpr int kBar = 24;  // characters between its brackets

std::string bar_text(double part) {
  const int full = std::clamp(static_cast<int>(part * kBar), 0, kBar);
  std::string bar(static_cast<std::size_t>(full), '#');
  bar.resize(kBar, '.');
  return "[" + bar + "]";
}

}  // namespace

ProgressUnit progress_unit(const io::Dataset& data) {
  switch (data.kind) {
    case io::SampleKind::kImages:
      return {"images", 1};
    case io::SampleKind::kFeatures:
      return {"rows", 1};
    case io::SampleKind::kTokens:
      return {"tokens", data.shape[0]};
  }
  return {};
}

std::string rate_text(const ProgressUnit& unit, double samples_per_s) {
  const double rate = samples_per_s * static_cast<double>(unit.per_sample);
  char decimal[32];
  std::snprintf(decimal, sizeof decimal, "%.1f", rate);
  return (rate < 9.95 ? decimal : with_commas(std::llround(rate))) + " " + unit.name + "/s";
}

std::string clock_text(double seconds) {
  constexpr double kMost = 1e9;  // 30 years, and no number overflows
  const auto whole = static_cast<long long>(std::ceil(std::clamp(seconds, 0.0, kMost)));
  char text[48];
  if (whole < 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  else
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                  whole % 60);
  return text;
}

std::string with_commas(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string progress_line(const ProgressState& state, int columns) {
  enum Part { kBarPart, kPercent, kSteps, kLoss, kRate, kLeft, kParts };
  constexpr std::array<Part, kParts> kLeastFirst{kBarPart, kRate, kLoss, kLeft, kSteps, kPercent};
  const std::int64_t total = std::max<std::int64_t>(1, state.total_steps);
  const double part = static_cast<double>(state.step) / static_cast<double>(total);
  std::array<std::string, kParts> parts;
  char text[48];
  parts[kBarPart] = bar_text(part);
  std::snprintf(text, sizeof text, "%3.0f %%", 100 * part);
  parts[kPercent] = text;
  parts[kSteps] = "step " + std::to_string(state.step) + "/" + std::to_string(state.total_steps);
  if (state.loss) {
    std::snprintf(text, sizeof text, "loss %.4f", *state.loss);
    parts[kLoss] = text;
  }
  parts[kRate] = state.rate;
  parts[kLeft] = "ETA " + clock_text(state.seconds_left);
  const auto joined = [&parts] {
    std::string line;
    for (const std::string& p : parts)
      if (!p.empty()) line += (line.empty() ? "" : "  ") + p;
    return line;
  };
  std::string line = joined();
  for (const Part least : kLeastFirst) {
    if (static_cast<int>(line.size()) < columns) break;
    parts[least].clear();
    line = joined();
  }
  return line;
}

int terminal_columns(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

int terminal_rows(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

}  // namespace tools
