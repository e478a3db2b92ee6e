// Writes metrics as JSON lines: {"schema":1,"event":"step","step":100,"epoch":0,"time":...}, one
// object per line, flushed line by line. docs/reporting.md describes the events.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace io {

// The files that events are written to; "": no file.
struct MetricsFiles {
  std::string of_run = {};  // the file in the run's folder, which must not be a link
  std::string chosen = {};  // a file named by the user; "-": standard output
};

class MetricsWriter {
 public:
  using Clock = std::function<double()>;  // seconds since 1970
  using Notice = std::function<void(const std::string&)>;
  // Appends to each of the files; existing contents are kept. `clock`, by default the host's, gives
  // the time of events. If a write to a file fails, the writer calls `notice` and continues without
  // it, and reports when the file accepts lines again, and how many are missing. Throws
  // CannotCreateError.
  explicit MetricsWriter(const MetricsFiles& files, Clock clock = {}, Notice notice = {});
  explicit MetricsWriter(const std::string& chosen, Clock clock = {}, Notice notice = {})
      : MetricsWriter(MetricsFiles{.chosen = chosen}, std::move(clock), std::move(notice)) {}
  ~MetricsWriter();

  // Returns what the files lack (LineFile::loss()), one text per file that lacks lines.
  std::vector<std::string> losses() const;

  // Makes a file of the run again that has been deleted (LineFile::restore()), with a notice.
  void restore();

  // `step` is the number of completed global steps; `epoch` is the epoch of that step, from 0.
  // `loss` is the mean over the global batch of the step, written in the shortest form that reads
  // back exactly; NaN and infinity become null, because JSON has neither. `more` has further keys,
  // written in order. Throws io::Error if writing to standard output fails.
  using Numbers = std::vector<std::pair<const char*, double>>;
  // The first event of a run, or of a start that resumes it: everything that a plot needs to know
  // about it, as a JSON object.
  void start(std::int64_t step, std::int64_t epoch, const std::string& run_id,
             const std::string& record);
  void step(std::int64_t step, std::int64_t epoch, double loss, double lr, double samples_per_s,
            const Numbers& more = {});
  struct Evaluation {
    std::string split;
    double loss;
    std::optional<double> accuracy;
    std::int64_t samples;
    Numbers more = {};
    // Written only if they differ from the defaults.
    std::string weights = "model";  // whose weights: an average of them, "ema", "average"
    bool is_best = false;           // the best of the run so far
  };
  void eval(std::int64_t step, std::int64_t epoch, const Evaluation& evaluation);
  // The result of a learning-rate range test, after its steps; NaN: not found.
  void lr_find(std::int64_t step, std::int64_t epoch, double suggestion, double steepest,
               double lowest);
  // The event of differing replicas.
  struct Desync {
    std::int64_t last_good, first_bad;  // steps
    std::int64_t compared;              // number of tensors
    std::vector<std::string> tensors;   // the differing ones
    std::vector<int> ranks;             // the differing ones
    std::string action;                 // the reaction ("abort")
  };
  void desync(std::int64_t step, std::int64_t epoch, const Desync& found);
  // `what` ("loss") is not finite; it was at `last_good`.
  void nonfinite(std::int64_t step, std::int64_t epoch, std::optional<std::int64_t> last_good,
                 const std::string& what, const std::string& action);
  // The ranks' samples of the next step, and the measured speeds that they follow from (empty:
  // those of a checkpoint).
  void shares(std::int64_t step, std::int64_t epoch, const std::vector<std::int64_t>& samples,
              const std::vector<double>& samples_per_s);
  // Averagings and bytes sent so far; the spread of the replicas if it was measured.
  void averaging(std::int64_t step, std::int64_t epoch, std::int64_t averagings,
                 std::int64_t bytes_sent, std::optional<double> spread);
  // The ranks of an elastic job change from here on. `left`, `joined`: "process 42 on n7".
  struct Membership {
    std::uint64_t generation;
    int ranks;  // number of ranks from now on
    std::vector<std::string> left, joined;
    double seconds;  // from the end of the previous group to the first step of this one
  };
  void membership(std::int64_t step, std::int64_t epoch, const Membership& now);
  // A sample of one GPU (gpu_monitor.h).
  void gpu(std::int64_t step, std::int64_t epoch, int device, const std::string& name,
           const std::string& bus, const Numbers& values);
  void end(std::int64_t step, std::int64_t epoch, double seconds, int exit_code,
           const Numbers& more = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace io
