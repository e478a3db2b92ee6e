// Metrics as JSON lines: {"schema":1,"event":"step","step":100,"epoch":0,"time":...}, one object a
// line, flushed line by line. What the events hold: docs/reporting.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace io {

class MetricsWriter {
 public:
  using Clock = std::function<double()>;  // seconds since 1970
  // Truncates, or appends when resuming. Events are stamped by `clock`, by default the host's.
  // Throws CannotCreateError.
  MetricsWriter(const std::string& path, bool append, Clock clock = {});
  ~MetricsWriter();

  // `step`: global steps done; `epoch`: the one that step belongs to, from 0. `loss`: mean over the
  // global batch of the step, written in the shortest form that reads back exactly; NaN and
  // infinity become null, for JSON has neither. `more`: further keys, written in their order.
  // Throws io::Error when the disk takes no more.
  using Numbers = std::vector<std::pair<const char*, double>>;
  void step(std::int64_t step, std::int64_t epoch, double loss, double lr, double samples_per_s,
            const Numbers& more = {});
  void eval(std::int64_t step, std::int64_t epoch, const std::string& split, double loss,
            double accuracy, std::int64_t samples, const Numbers& more = {});
  // Replicas differ: `compared` tensors, the names of those that do, the ranks that do, and what is
  // done about it ("abort").
  void desync(std::int64_t step, std::int64_t epoch, std::int64_t last_good, std::int64_t first_bad,
              std::int64_t compared, const std::vector<std::string>& tensors,
              const std::vector<int>& ranks, const std::string& action);
  // `what` ("loss") is not finite; it was at `last_good`, where that is not below 0.
  void nonfinite(std::int64_t step, std::int64_t epoch, std::int64_t last_good,
                 const std::string& what, const std::string& action);
  // Averagings and bytes sent so far; the spread of the replicas where it was measured.
  void averaging(std::int64_t step, std::int64_t epoch, std::int64_t averagings,
                 std::int64_t bytes_sent, std::optional<double> spread);
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
