// The learning-rate range test of `engine train --lr-find` (Smith, 2017,
// https://arxiv.org/abs/1506.01186): a short training whose rate grows exponentially; the rate at
// which its loss falls fastest is a good initial rate.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/train_observer.h"
#include "io/metrics/metrics_writer.h"
#include "tools/options/table/session_options.h"

namespace tools {

struct RateRange {
  double lowest = 1e-7, highest = 10;
  std::int64_t steps = 100;
};
// Parses "1e-5:1" as the range's ends; "" returns the default range. Throws io::ConfigError.
RateRange parse_rate_range(const std::string& text, std::int64_t steps);

// Returns the same training over the range: nothing is saved, resumed, evaluated or averaged over
// time, and a loss that is not finite does not end it by itself.
SessionOptions of_rate_test(SessionOptions options, const RateRange& range);

struct RatePoint {
  double rate, loss;  // values of one step
};

struct RateFinding {
  std::vector<double> smooth;  // mean of each loss and equally many neighbors on either side
  // The rates at which the smooth loss falls fastest over the logarithm of the rate, and at which
  // it is lowest. None: it did not fall by one percent.
  std::optional<double> steepest, lowest;
};
RateFinding find_rate(const std::vector<RatePoint>& points);

// Returns about twenty of the points, with the smooth losses.
std::string rate_table(const std::vector<RatePoint>& points, const RateFinding& found);

// Collects the points, on every rank; with a `writer`, which outlives it, each becomes a step of
// the metrics. Sets `stop` to a received stop signal, and to kDiverged if the loss is not finite,
// or is greater than at the start, more than four times the lowest and still growing.
class LrRangeTest : public engine::TrainObserver {
 public:
  static constexpr int kDiverged = 1 << 16;  // not the number of a signal

  LrRangeTest(const std::atomic<int>& stop_signal, std::atomic<int>& stop,
              io::MetricsWriter* writer)
      : stop_signal_(stop_signal), stop_(stop), writer_(writer) {}
  void on_step(const engine::TrainProgress& progress) override;
  void on_report(const engine::StepReport& report) override;
  const std::vector<RatePoint>& points() const { return points_; }

 private:
  const std::atomic<int>& stop_signal_;
  std::atomic<int>& stop_;
  io::MetricsWriter* const writer_;
  std::vector<RatePoint> points_;
  double lowest_ = 0;
};

}  // namespace tools
