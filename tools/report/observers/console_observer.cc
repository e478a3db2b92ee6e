// Prints lines on stdout, each flushed so that a log follows the run.
#include "tools/report/observers/console_observer.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <string_view>
#include <utility>

#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "tools/report/output/console_output.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

using Clock = std::chrono::steady_clock;

// The ratio of a rank's own work to the others' median from which on it is named.
constexpr double kSlowRatio = 1.5;
constexpr double kSlowSeconds = 0.001;  // same, for the difference per step
constexpr double kSlowCost = 1;         // same, for the sum of these differences

// Returns "24 + 8", of many ranks only the first.
std::string sum_text(const std::vector<std::int64_t>& numbers) {
  constexpr std::size_t kMaxShown = 8;
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i == kMaxShown) return text + " + ...";
    text += (i > 0 ? " + " : "") + std::to_string(numbers[i]);
  }
  return text;
}

class ConsoleObserver : public engine::TrainObserver {
 public:
  explicit ConsoleObserver(const ConsoleOptions& options) : options_(options) {}

  void on_step(const engine::TrainProgress& progress) override {
    log_context().step = progress.global_step;
    if (!options_.progress_bar) return;
    const auto now = Clock::now();
    if (first_samples_ < 0) {
      first_samples_ = progress.samples_seen;
      first_step_ = progress.global_step;
      started_ = now;
    }
    if (now - drawn_ < std::chrono::milliseconds(200)) return;
    if (!console_is_idle(ConsoleStream::kOut)) return;  // the bar would be outdated
    drawn_ = now;
    draw(progress, std::chrono::duration<double>(now - started_).count());
  }

  void on_loss(const engine::TrainProgress&, double loss) override {
    loss_ = loss;
    if (options_.rich) losses_.add(loss);
  }

  void on_report(const engine::StepReport& report) override {
    log_context().step = report.progress.global_step;  // on_step() comes later
    const bool is_last = report.progress.global_step == options_.total_steps;
    since_shown_.add(report);
    const auto now = Clock::now();
    if (now - reported_ < options_.min_interval && !is_last) return;
    reported_ = now;
    const Span span = std::exchange(since_shown_, {.step = report.progress.global_step});
    const bool epoch_end = report.progress.step_in_epoch == 0;
    const std::int64_t step = epoch_end ? options_.steps_per_epoch : report.progress.step_in_epoch;
    const std::int64_t epoch = report.progress.epoch + (epoch_end ? 0 : 1);
    // The last epoch may be shorter than the others.
    const std::int64_t steps = std::min(options_.steps_per_epoch,
                                        step + options_.total_steps - report.progress.global_step);
    char text[256];
    std::snprintf(text, sizeof text, "Epoch [%lld/%lld], Step [%lld/%lld], ",
                  static_cast<long long>(epoch), static_cast<long long>(options_.epochs),
                  static_cast<long long>(step), static_cast<long long>(steps));
    print((report.train_accuracy ? base::number_text("Accuracy: %.4f\n", *report.train_accuracy)
                                 : std::string()) +
              text + base::number_text("Loss: %.4f", report.loss),
          "step");
    if (!options_.progress_bar) {
      const auto left = static_cast<double>(options_.total_steps - report.progress.global_step);
      print("  " + rate_text(options_.unit, span.samples / std::max(span.seconds, 1e-9)) + ", " +
                clock_text(left * span.seconds / std::max(span.steps, 1.0)) + " left",
            "step");
    }
    if (options_.verbose) print(phases_text(report), "step");
    if (report.spread) {
      std::snprintf(text, sizeof text, "Spread of the replicas before averaging %lld: %.3g",
                    static_cast<long long>(report.averagings), *report.spread);
      print(text);
    }
    if (options_.equal_work) name_straggler(report, span.steps);
  }

  void on_eval(const engine::EvalReport& report) override {
    const std::string_view weights = report.weights;
    print("Test after step " + std::to_string(report.progress.global_step) +
              (weights == "model" ? "" : " (" + std::string(weights) + ")") + ": " +
              eval_text(report),
          "eval");
    if (report.best)
      print("Best so far: " + best_text(*report.best) + " at step " +
                std::to_string(report.best->step),
            "eval");
  }

  void on_nonfinite(const engine::TrainProgress&, const engine::NonFiniteReport& report) override {
    if (report.ends_run()) return;  // the error reports it
    clear();
    print_notice("warning: " + to_string(report) + "; the run continues (--on-nonfinite " +
                 std::string(to_string(report.action)) + ")");
  }

  void on_shares(const engine::TrainProgress&, const engine::ShareReport& report) override {
    std::vector<std::int64_t> percent;
    for (const double steps : report.local_steps) percent.push_back(std::llround(100 * steps));
    std::string text = percent.empty()
                           ? "Shares of a step: "
                           : "Local steps: " + sum_text(percent) + " % of all, on average ";
    text += sum_text(report.samples) + " samples";
    if (!report.samples_per_s.empty()) {
      std::vector<std::int64_t> speeds;
      for (const double speed : report.samples_per_s) speeds.push_back(std::llround(speed));
      text += ", by the measured " + sum_text(speeds) + " samples/s";
    }
    print(text);
  }

  void on_save(const engine::TrainProgress& progress, const std::string& path) override {
    print("Saved step " + std::to_string(progress.global_step) + ": " + base::escape_text(path),
          "save");
  }

  void on_end(const engine::TrainResult& result) override {
    if (result.paused) return;
    print("Replicas: " + result.coverage);
    if (result.bytes_sent > 0) print("Bytes sent by rank 0: " + with_commas(result.bytes_sent));
    if (result.skipped_steps.value_or(0) > 0)
      print("Skipped steps, whose loss or gradients were not finite: " +
            with_commas(*result.skipped_steps));
    if (result.signal != 0)
      print("Stopped by signal " + std::to_string(result.signal) + " after step " +
            std::to_string(result.progress.global_step) + " of " +
            std::to_string(options_.total_steps));
    if (!result.stopped_early.empty())
      print("Stopped early after step " + std::to_string(result.progress.global_step) + " of " +
            std::to_string(options_.total_steps) + ": " + result.stopped_early);
    print((result.signal == 0 ? "Training completed in: " : "Training stopped after: ") +
              duration_text(options_.seconds_before + result.seconds),
          "end");
  }

 private:
  // The sums of the reports since the last printed one.
  struct Span {
    std::int64_t step = -1;  // step of the previous report; -1: none yet
    double steps = 0, seconds = 0, samples = 0;

    void add(const engine::StepReport& report) {
      const std::int64_t now = report.progress.global_step;
      const double more = step < 0 ? 1.0 : static_cast<double>(now - step);
      steps += more;
      seconds += more * report.step_seconds;
      samples += more * report.step_seconds * report.samples_per_s;
      step = now;
    }
  };
  void print(const std::string& text, const char* event = "message") {
    clear();
    log_info(text, event);
  }
  // Formats the time of a step's phases, as means over steps and ranks.
  static std::string phases_text(const engine::StepReport& report) {
    char text[256];
    const engine::StepPhases& p = report.phases;
    std::snprintf(
        text, sizeof text,
        "  a step: data %.2f ms, forward %.2f ms, backward %.2f ms, waiting for averaging "
        "%.2f ms, update %.2f ms; lr %g",
        1e3 * p.data, 1e3 * p.forward, 1e3 * p.backward, 1e3 * p.communication, 1e3 * p.update,
        report.lr);
    std::string line = text;
    if (report.ranks.size() > 1) {
      std::snprintf(text, sizeof text, "; slowest rank %d, %.2fx the others' median",
                    report.slowest_rank, report.slowest_ratio);
      line += text;
    }
    return line;
  }
  // Returns the additional time per step of the slowest rank, compared with the others' median.
  static double excess_of(const engine::StepReport& report) {
    const auto slowest = static_cast<std::size_t>(report.slowest_rank);
    if (slowest >= report.ranks.size()) return 0;
    return report.ranks[slowest].own() * (1 - 1 / report.slowest_ratio);
  }
  // Names a rank only if it is the slowest in two reports in a row and has cost a second by then:
  // less is noise.
  void name_straggler(const engine::StepReport& report, double steps) {
    const bool slow = report.slowest_ratio >= kSlowRatio && excess_of(report) >= kSlowSeconds;
    const bool again = slow && slow_rank_ == report.slowest_rank;
    slow_cost_ = (again ? slow_cost_ : 0) + excess_of(report) * steps;
    if (again && slow_cost_ >= kSlowCost && !slow_reported_) {
      const engine::StepPhases& own = report.ranks[static_cast<std::size_t>(slow_rank_)];
      char text[256];
      std::snprintf(text, sizeof text,
                    "rank %d is slow: its own work per step is %.2fx the other ranks' median (data "
                    "%.2f ms, forward %.2f ms, backward %.2f ms, update %.2f ms)",
                    slow_rank_, report.slowest_ratio, 1e3 * own.data, 1e3 * own.forward,
                    1e3 * own.backward, 1e3 * own.update);
      print_notice(text);
      slow_reported_ = true;
    } else if (!again) {
      slow_reported_ = false;
    }
    slow_rank_ = slow ? report.slowest_rank : -1;
  }
  void draw(const engine::TrainProgress& progress, double seconds) {
    const std::int64_t steps = progress.global_step - first_step_;
    if (steps <= 0 || seconds <= 0) return;
    const double rate = static_cast<double>(progress.samples_seen - first_samples_) / seconds;
    const double left = static_cast<double>(options_.total_steps - progress.global_step) * seconds /
                        static_cast<double>(steps);
    const std::string line = progress_line({.step = progress.global_step,
                                            .total_steps = options_.total_steps,
                                            .loss = loss_,
                                            .rate = rate_text(options_.unit, rate),
                                            .seconds_left = left},
                                           terminal_columns(STDOUT_FILENO));
    const std::string cleared = taken_clearing();
    write_console(ConsoleStream::kOut,
                  cleared + (options_.rich ? curve_text() : "") + "\r" + line + "\033[K");
    drawn_bar_ = true;
  }
  // The curve has two lines above the bar.
  std::string curve_text() {
    const std::vector<std::string> curve =
        sparkline(losses_.values(), terminal_columns(STDOUT_FILENO) - 1);
    std::string text;
    for (const std::string& line : curve)
      text += options_.color ? "\r\033[36m" + line + "\033[0m\033[K\n" : "\r" + line + "\033[K\n";
    drawn_above_ = static_cast<int>(curve.size());
    return text;
  }
  // Returns the text that removes the bar from the terminal, and forgets it.
  std::string taken_clearing() {
    std::string text = drawn_bar_ ? "\r\033[K" : "";
    for (; drawn_above_ > 0; --drawn_above_) text += "\033[1A\033[K";
    drawn_bar_ = false;
    return text;
  }
  void clear() {
    if (const std::string text = taken_clearing(); !text.empty())
      write_console(ConsoleStream::kOut, text);
  }

  const ConsoleOptions options_;
  Clock::time_point started_{}, drawn_{}, reported_{};
  Span since_shown_;
  std::int64_t first_samples_ = -1, first_step_ = 0;
  std::optional<double> loss_;  // as last reported
  LossHistory losses_;
  bool drawn_bar_ = false;
  int drawn_above_ = 0;   // lines above the bar
  int slow_rank_ = -1;    // in the last report; -1: none
  double slow_cost_ = 0;  // seconds, since it is the slowest
  bool slow_reported_ = false;
};

class DesyncObserver : public engine::TrainObserver {
 public:
  DesyncObserver(int rank, int world_size) : rank_(rank), world_size_(world_size) {}
  void on_desync(const engine::TrainProgress&, const engine::DesyncReport& report) override {
    if (report.action == engine::OnDesync::kAbort) return;  // the error reports it
    if (rank_ == 0) return print_notice("warning: " + to_string(report, world_size_));
    if (std::find(report.ranks.begin(), report.ranks.end(), rank_) == report.ranks.end()) return;
    print_notice("warning: desync after step " + std::to_string(report.step) + ": rank " +
                 std::to_string(rank_) + " differs (see rank 0's message)");
  }

 private:
  const int rank_, world_size_;
};

}  // namespace

std::unique_ptr<engine::TrainObserver> make_desync_observer(int rank, int world_size) {
  return std::make_unique<DesyncObserver>(rank, world_size);
}

std::string eval_text(const engine::EvalReport& report) {
  char text[160];
  if (!report.is_finite())
    return base::number_text("loss %.4f", report.loss) + " (" + std::to_string(report.samples) +
           " samples)";
  if (report.errors) {
    const engine::RegressionErrors& e = *report.errors;
    return base::number_text("loss %.4f", report.loss) + base::number_text(", MSE %.6g", e.mse) +
           base::number_text(", MAE %.6g", e.mae) +
           (std::isnan(e.r2) ? ", R2 undefined: all targets are equal"
                             : base::number_text(", R2 %.4f", e.r2)) +
           " (" + std::to_string(report.samples) + " samples)";
  }
  if (report.labels) {
    const engine::LabelScores& l = *report.labels;
    const double map = l.mean_average_precision();
    return base::number_text("loss %.4f", report.loss) +
           (std::isnan(map) ? ", mAP undefined: no label has positives"
                            : base::number_text(", mAP %.4f", map)) +
           base::number_text(", micro F1 %.4f", l.micro_f1()) +
           base::number_text(", macro F1 %.4f", l.macro_f1()) +
           (std::isnan(l.mean_roc_auc()) ? "" : base::number_text(", AUC %.4f", l.mean_roc_auc())) +
           " (" + std::to_string(report.samples) + " samples)";
  }
  std::snprintf(text, sizeof text, "loss %.4f, accuracy %.2f %% (%lld/%lld)", report.loss,
                100 * report.accuracy(), static_cast<long long>(report.correct),
                static_cast<long long>(report.rows));
  std::string line = text;
  if (report.unknown > 0)
    line += ", " + std::to_string(report.unknown) + " of classes that the model lacks";
  if (report.top5) {
    std::snprintf(text, sizeof text, ", top-5 %.2f %%", 100 * report.top5_accuracy());
    line += text;
  }
  if (report.mean_iou) line += base::number_text(", mean IoU %.4f", *report.mean_iou);
  if (report.text) {
    std::snprintf(text, sizeof text, ", perplexity %.3f", report.perplexity());
    line += text;
  }
  return line;
}

std::string best_text(const engine::BestEvaluation& best) {
  using engine::Measure;
  const bool share = best.measure == Measure::kAccuracy || best.measure == Measure::kTop5;
  char text[80];
  std::snprintf(text, sizeof text,
                share                                  ? "%s %.2f %%"
                : best.measure == Measure::kPerplexity ? "%s %.3f"
                                                       : "%s %.4f",
                to_string(best.measure), share ? 100 * best.value : best.value);
  return text;
}

std::unique_ptr<engine::TrainObserver> make_console_observer(const ConsoleOptions& options) {
  return std::make_unique<ConsoleObserver>(options);
}

std::string duration_text(double seconds) {
  const auto micros = static_cast<long long>(std::llround(seconds * 1e6));
  char text[64];
  std::snprintf(text, sizeof text, "%lld:%02lld:%02lld.%06lld", micros / 3'600'000'000,
                micros / 60'000'000 % 60, micros / 1'000'000 % 60, micros % 1'000'000);
  return text;
}

}  // namespace tools
