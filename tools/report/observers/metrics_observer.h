// Writes training events as JSON lines (io/metrics).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "engine/train/train_observer.h"
#include "io/metrics/gpu_monitor.h"
#include "io/metrics/metrics_writer.h"

namespace tools {

class MetricsObserver : public engine::TrainObserver {
 public:
  // `gpu_every`: steps between samples of the GPUs; 0: none. Throws io::ConfigError if there is
  // nothing to sample.
  explicit MetricsObserver(const io::MetricsFiles& files, std::int64_t gpu_every = 0);
  ~MetricsObserver() override;
  MetricsObserver(const MetricsObserver&) = delete;
  MetricsObserver& operator=(const MetricsObserver&) = delete;

  io::MetricsWriter& writer() { return writer_; }
  void on_step(const engine::TrainProgress& p) override;
  void on_report(const engine::StepReport& r) override;
  void on_eval(const engine::EvalReport& r) override;
  void on_desync(const engine::TrainProgress& p, const engine::DesyncReport& r) override;
  void on_nonfinite(const engine::TrainProgress& p, const engine::NonFiniteReport& r) override;
  void on_shares(const engine::TrainProgress& p, const engine::ShareReport& r) override;
  // The run has just found its folder in place.
  void on_save(const engine::TrainProgress&, const std::string&) override { writer_.restore(); }
  void on_end(const engine::TrainResult& r) override;

 private:
  void averaging(const engine::TrainProgress& p, std::int64_t averagings, std::int64_t bytes_sent,
                 std::optional<double> spread);

  std::int64_t gpu_every_;
  std::unique_ptr<io::GpuMonitor> gpus_;
  io::MetricsWriter writer_;
};

}  // namespace tools
