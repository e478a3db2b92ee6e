// Training events as JSON lines (io/metrics).
#pragma once

#include "engine/train/train_observer.h"
#include "io/metrics/metrics_writer.h"

namespace tools {

class MetricsObserver : public engine::TrainObserver {
 public:
  MetricsObserver(const std::string& path, bool append) : writer_(path, append) {}
  void on_report(const engine::StepReport& r) override {
    writer_.step(r.progress.global_step, r.progress.epoch, r.loss, r.lr, r.samples_per_s);
    averaging(r.progress, r.averagings, r.bytes_sent, r.spread);
  }
  void on_eval(const engine::EvalReport& r) override {
    writer_.eval(r.progress.global_step, r.progress.epoch, r.split, r.loss, r.accuracy(), r.samples);
  }
  void on_end(const engine::TrainResult& r) override {
    averaging(r.progress, r.averagings, r.bytes_sent, std::nullopt);
    writer_.end(r.progress.global_step, r.progress.epoch, r.seconds, r.signal == 0 ? 0 : 128 + r.signal);
  }

 private:
  void averaging(const engine::TrainProgress& p, std::int64_t averagings, std::int64_t bytes_sent, std::optional<double> spread) {
    if (averagings > 0) writer_.averaging(p.global_step, p.epoch, averagings, bytes_sent, spread);
  }

  io::MetricsWriter writer_;
};

}  // namespace tools
