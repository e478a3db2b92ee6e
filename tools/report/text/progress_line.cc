// Drops parts of a line, starting with the least important, until the rest fits.
#include "tools/report/text/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "io/base/numbers/part_bounds.h"
#include "io/base/text/text_parts.h"

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
  const bool by_sample = data.sample_traits().single;
  return {data.sample_traits().unit, by_sample ? 1 : data.positions()};
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
  constexpr std::array<Part, kParts> kMinFirst{kBarPart, kRate, kLoss, kLeft, kSteps, kPercent};
  const std::int64_t total = std::max<std::int64_t>(1, state.total_steps);
  const double part = static_cast<double>(state.step) / static_cast<double>(total);
  std::array<std::string, kParts> parts;
  char text[48];
  parts[kBarPart] = bar_text(part);
  std::snprintf(text, sizeof text, "%3.0f %%", 100 * part);
  parts[kPercent] = text;
  parts[kSteps] = "step " + std::to_string(state.step) + "/" + std::to_string(state.total_steps);
  if (state.loss) {
    parts[kLoss] = base::number_text("loss %.4f", *state.loss);
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
  for (const Part least : kMinFirst) {
    if (static_cast<int>(line.size()) < columns) break;
    parts[least].clear();
    line = joined();
  }
  return line;
}

void LossHistory::add(double loss) {
  constexpr std::size_t kMost = 512;  // no terminal has more columns
  if (!values_.empty() && in_last_ < of_each_) {
    values_.back() += (loss - values_.back()) / ++in_last_;
    return;
  }
  if (values_.size() == kMost) {
    for (std::size_t i = 0; i < kMost / 2; ++i)
      values_[i] = (values_[2 * i] + values_[2 * i + 1]) / 2;
    values_.resize(kMost / 2);
    of_each_ *= 2;
  }
  values_.push_back(loss);
  in_last_ = 1;
}

namespace {

// Returns means of neighbors, of which at most `most` remain.
std::vector<double> gathered(const std::vector<double>& values, std::size_t most) {
  if (values.size() <= most) return values;
  std::vector<double> means(most);
  for (std::size_t i = 0; i < most; ++i) {
    const auto bounds = base::part_bounds(values.size(), i, most);
    for (std::size_t k = bounds.begin; k < bounds.end; ++k)
      means[i] += values[k] / static_cast<double>(bounds.size());
  }
  return means;
}

// `eighths`: 0 to 8, of a character's height.
std::string_view block(int eighths) {
  constexpr std::string_view kBlocks = "▁▂▃▄▅▆▇█";  // three bytes each
  if (eighths <= 0) return " ";
  return kBlocks.substr(3 * static_cast<std::size_t>(std::min(eighths, 8) - 1), 3);
}

}  // namespace

std::vector<std::string> sparkline(const std::vector<double>& values, int columns) {
  constexpr int kLabel = 12, kMinWithLabel = 40, kLeast = 8, kLevels = 16;
  const int width = columns >= kMinWithLabel ? columns - kLabel : columns;
  if (width < kLeast) return {};
  const std::vector<double> shown = gathered(values, static_cast<std::size_t>(width));
  double low = std::numeric_limits<double>::infinity(), high = -low;
  int finite = 0;
  for (const double value : shown) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
    ++finite;
  }
  if (finite < 2) return {};
  std::string top, bottom;
  for (const double value : shown) {
    // The level is from 1 to 16, so that the lowest is also visible.
    const double part = high > low ? (value - low) / (high - low) : 0;
    const int level = std::isfinite(value) ? 1 + static_cast<int>(part * (kLevels - 1) + 0.5) : 0;
    top += block(level - 8);
    bottom += block(level);
  }
  if (width < columns) {
    char text[24];
    std::snprintf(text, sizeof text, "  %-10.4g", high);
    top += text;
    std::snprintf(text, sizeof text, "  %-10.4g", low);
    bottom += text;
  }
  return {top, bottom};
}

bool shows_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string locale = value;
    for (char& c : locale) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

bool wants_colour(int fd) {
  const char* no = std::getenv("NO_COLOR");
  return (no == nullptr || *no == '\0') && isatty(fd) == 1;
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
