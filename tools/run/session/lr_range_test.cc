// Implements the range, and the analysis of its curve.
#include "tools/run/session/lr_range_test.h"

#include <algorithm>
#include <cmath>

#include "io/base/files/io_error.h"
#include "io/base/text/text_parts.h"
#include "tools/options/table/value_text.h"
#include "tools/report/output/text_table.h"
#include "tools/run/session/discarded_run.h"

namespace tools {

RateRange parse_rate_range(const std::string& text, std::int64_t steps) {
  RateRange range;
  if (steps > 0) range.steps = steps;
  if (!text.empty()) {
    const std::vector<std::string> parts = base::split_text(text, ':');
    const auto low = parse_real(parts.front()), high = parse_real(parts.back());
    if (parts.size() != 2 || !low || !high || *low <= 0 || *high <= *low || *high > 1e6)
      throw io::ConfigError("--lr-find is '" + text +
                            "'; expected MIN:MAX, learning rates above 0 of which MAX is the "
                            "greater, as 1e-5:1");
    range.lowest = *low;
    range.highest = *high;
  }
  constexpr std::int64_t kFewest = 10;
  if (range.steps < kFewest)
    throw io::ConfigError("--lr-find goes through its range in --steps " +
                          std::to_string(range.steps) + "; expected at least " +
                          std::to_string(kFewest));
  return range;
}

SessionOptions of_rate_test(SessionOptions options, const RateRange& range) {
  options = discarded_run(std::move(options));
  options.log_every = 1;
  options.steps = range.steps;
  options.update.scale = UpdateOptions::RateScale::kNone;
  options.update.milestone_epochs.clear();
  options.update.rate = {.base = range.lowest,
                         .schedule = engine::LearningRate::Schedule::kRange,
                         .milestones = {},
                         .highest = range.highest};
  return options;
}

namespace {

std::vector<double> smoothed(const std::vector<RatePoint>& points) {
  std::vector<double> smooth;
  const std::size_t count = points.size(), half = std::max<std::size_t>(1, count / 20);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t reach = std::min({half, i, count - 1 - i});
    double sum = 0;
    for (std::size_t k = i - reach; k <= i + reach; ++k) sum += points[k].loss;
    smooth.push_back(sum / static_cast<double>(2 * reach + 1));
  }
  return smooth;
}

}  // namespace

RateFinding find_rate(const std::vector<RatePoint>& points) {
  RateFinding found{.smooth = smoothed(points), .steepest = {}, .lowest = {}};
  const std::vector<double>& smooth = found.smooth;
  // The last point's loss may be infinite, NaN, or very large.
  std::size_t lowest = 0;
  for (std::size_t i = 1; i < smooth.size(); ++i)
    if (smooth[i] < smooth[lowest]) lowest = i;
  if (lowest < 2 || !(smooth[lowest] < smooth[0] - 0.01 * std::abs(smooth[0]))) return found;
  double best = 0;
  for (std::size_t i = 1; i < lowest; ++i) {
    const double slope =
        (smooth[i + 1] - smooth[i - 1]) / std::log(points[i + 1].rate / points[i - 1].rate);
    if (slope >= best) continue;
    best = slope;
    found.steepest = points[i].rate;
  }
  if (found.steepest) found.lowest = points[lowest].rate;
  return found;
}

std::string rate_table(const std::vector<RatePoint>& points, const RateFinding& found) {
  constexpr std::size_t kRows = 20;
  std::vector<Cells> lines{{"lr", "loss", "smooth"}};
  const std::size_t every = std::max<std::size_t>(1, points.size() / kRows);
  for (std::size_t i = 0; i < points.size(); ++i)
    if (i % every == 0 || i + 1 == points.size())
      lines.push_back({base::number_text("%.3g", points[i].rate),
                       base::number_text("%.6g", points[i].loss),
                       base::number_text("%.6g", found.smooth[i])});
  return table_text(lines, {}, false);
}

void LrRangeTest::on_step(const engine::TrainProgress&) {
  if (const int signal = stop_signal_.load(); signal != 0) stop_ = signal;
}

void LrRangeTest::on_report(const engine::StepReport& report) {
  const engine::TrainProgress& at = report.progress;
  if (writer_ != nullptr)
    writer_->step(at.global_step, at.epoch_of_step(), report.loss, report.lr, report.samples_per_s);
  const bool first = points_.empty();
  if (std::isfinite(report.loss)) points_.push_back({report.lr, report.loss});
  lowest_ = first ? report.loss : std::min(lowest_, report.loss);
  constexpr std::size_t kBefore = 3;
  const bool grown = points_.size() > kBefore && report.loss > 4 * std::abs(lowest_) &&
                     report.loss > points_.front().loss &&
                     report.loss > points_[points_.size() - 1 - kBefore].loss;
  if ((!std::isfinite(report.loss) || grown) && stop_.load() == 0) stop_ = kDiverged;
}

}  // namespace tools
