// The learning-rate range test of `engine train --lr-find` (Smith, 2017,
// https://arxiv.org/abs/1506.01186): a short training whose rate grows exponentially; where its
// loss falls fastest is a good rate to begin with.
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
// "1e-5:1" as the range's ends, "" as it is. Throws io::ConfigError.
RateRange parse_rate_range(const std::string& text, std::int64_t steps);

// The same training through the range: nothing is saved, resumed, evaluated or averaged over time,
// and a loss that is not finite ends nothing by itself.
SessionOptions of_rate_test(SessionOptions options, const RateRange& range);

struct RatePoint {
  double rate, loss;  // of a step
};

struct RateFinding {
  std::vector<double> smooth;  // each loss's mean with its neighbors, as many on either side
  // Rates: where the smooth loss falls fastest over the rate's logarithm, and where it is lowest.
  // None: it did not fall by a hundredth.
  std::optional<double> steepest, lowest;
};
RateFinding find_rate(const std::vector<RatePoint>& points);

// Some twenty of the points, with the smooth losses.
std::string rate_table(const std::vector<RatePoint>& points, const RateFinding& found);

// Collects the points, on every rank; with a `writer`, which outlives it, each becomes a step of
// the metrics. Sets `stop` to a stop signal that comes, and to kDiverged where the loss is not
// finite, or greater than at the start, more than four times the lowest and still growing.
class LrRangeTest : public engine::TrainObserver {
 public:
  static constexpr int kDiverged = 1 << 16;  // is no signal's number

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
