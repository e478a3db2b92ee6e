// Formats the progress of a run in one line that never wraps; rates and times in readable units.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/data/dataset/dataset.h"

namespace tools {

// The unit of rates, and the number of units in a sample.
struct ProgressUnit {
  const char* name = "samples";  // in the plural
  std::int64_t per_sample = 1;
};
ProgressUnit progress_unit(const io::Dataset& data);  // images, rows, or the tokens of a window
// Returns e.g. "1,280 tokens/s"; with one decimal below ten.
std::string rate_text(const ProgressUnit& unit, double samples_per_s);

// Returns e.g. "0:12", "1:02:03": whole seconds, rounded up.
std::string clock_text(double seconds);
// Converts 29034 to "29,034".
std::string with_commas(std::int64_t value);

struct ProgressState {
  std::int64_t step = 0, total_steps = 1;
  std::optional<double> loss{};
  std::string rate{};  // from rate_text()
  double seconds_left = 0;
};
// Returns e.g. "[####....]  37 %  step 3/8  loss 0.1234  1,280 images/s  ETA 0:12". The line is
// shorter than `columns` characters: if there is too little room, the bar is dropped first, then
// rate, loss, ETA and steps.
std::string progress_line(const ProgressState& state, int columns);

// A bounded history of any number of losses: if there are too many values, each pair of neighbors
// is replaced by its mean.
class LossHistory {
 public:
  void add(double loss);
  const std::vector<double>& values() const { return values_; }  // oldest first

 private:
  std::vector<double> values_;
  int in_last_ = 1, of_each_ = 1;  // losses in the mean of the last value, and of each value
};

// Draws a curve of the values in two lines of block characters (UTF-8), each of at most `columns`
// characters; with the highest and the lowest value after it if there is room. Values that are not
// finite leave a gap. Empty if there are fewer than two finite values or no room.
std::vector<std::string> sparkline(const std::vector<double>& values, int columns);

// Returns true if the locale of the environment (LC_ALL, LC_CTYPE, LANG) has UTF-8.
bool shows_utf8();
// Returns true if `fd` is a terminal and the user has not set NO_COLOR.
bool wants_colour(int fd);

// Return the size of the terminal of `fd`; 80 and 24 if it is not a terminal or the size is
// unknown.
int terminal_columns(int fd);
int terminal_rows(int fd);

}  // namespace tools
