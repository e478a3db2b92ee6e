// Metrics as JSON lines: {"schema":1,"event":"step",...}, one object a line, flushed line by line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace io {

class MetricsWriter {
 public:
  // Truncates, or appends when resuming. Throws CannotCreateError.
  MetricsWriter(const std::string& path, bool append);
  ~MetricsWriter();

  // `loss`: mean over the global batch of the step, written in the shortest form that reads back exactly; NaN and infinity
  // become null, for JSON has neither. Throws io::Error when the disk takes no more.
  void step(std::int64_t step, std::int64_t epoch, double loss, double lr, double samples_per_s);
  void eval(std::int64_t step, std::int64_t epoch, const std::string& split, double loss, double accuracy, std::int64_t samples);
  // Averagings and bytes sent so far; the spread of the replicas where it was measured.
  void averaging(std::int64_t step, std::int64_t epoch, std::int64_t averagings, std::int64_t bytes_sent,
                 std::optional<double> spread);
  void end(std::int64_t step, std::int64_t epoch, double seconds, int exit_code);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace io
