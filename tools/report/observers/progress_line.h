// How far a run is, in one line that never wraps; rates and times as users read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/data/dataset/splits.h"

namespace tools {

// What rates count, and how many of them are in a sample.
struct ProgressUnit {
  const char* name = "samples";  // in the plural
  std::int64_t per_sample = 1;
};
ProgressUnit progress_unit(const io::Dataset& data);  // images, rows, or the tokens of a window
// "1,280 tokens/s"; below ten with a decimal.
std::string rate_text(const ProgressUnit& unit, double samples_per_s);

// "0:12", "1:02:03": whole seconds, rounded up.
std::string clock_text(double seconds);
// 29034 -> "29,034"
std::string with_commas(std::int64_t value);

struct ProgressState {
  std::int64_t step = 0, total_steps = 1;
  std::optional<double> loss{};
  std::string rate{};  // rate_text()
  double seconds_left = 0;
};
// "[####....]  37 %  step 3/8  loss 0.1234  1,280 images/s  ETA 0:12". Less than `columns`
// characters: where they do not suffice the bar goes first, then rate, loss, ETA and steps.
std::string progress_line(const ProgressState& state, int columns);

// A number of losses, however many there were: where they become too many, two neighbors become
// their mean.
class LossHistory {
 public:
  void add(double loss);
  const std::vector<double>& values() const { return values_; }  // oldest first

 private:
  std::vector<double> values_;
  int in_last_ = 1, of_each_ = 1;  // losses that the last value, and each, is the mean of
};

// A curve of the values in two lines of block characters (UTF-8), each of at most `columns`
// characters; with the highest and the lowest value behind it where there is room. Values that are
// not finite leave a gap. Empty where there are fewer than two finite values or no room.
std::vector<std::string> sparkline(const std::vector<double>& values, int columns);

// Whether the locale of the environment (LC_ALL, LC_CTYPE, LANG) has UTF-8.
bool shows_utf8();
// Whether `fd` is a terminal and the user has not set NO_COLOR.
bool wants_colour(int fd);

// Of the terminal that `fd` is; 80 and 24 where it is none or does not tell.
int terminal_columns(int fd);
int terminal_rows(int fd);

}  // namespace tools
