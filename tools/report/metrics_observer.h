// Training events as JSON lines (io/metrics).
#pragma once

#include "engine/train/train_observer.h"
#include "io/metrics/gpu_monitor.h"
#include "io/metrics/metrics_writer.h"

namespace tools {

class MetricsObserver : public engine::TrainObserver {
 public:
  // `gpu_every`: steps between samples of the GPUs; 0: none. Throws io::ConfigError where there is
  // nothing to sample.
  explicit MetricsObserver(const std::string& path, std::int64_t gpu_every = 0)
      : gpu_every_(gpu_every),
        gpus_(gpu_every > 0 ? std::make_unique<io::GpuMonitor>() : nullptr),
        writer_(path) {}
  io::MetricsWriter& writer() { return writer_; }
  void on_step(const engine::TrainProgress& p) override {
    if (gpu_every_ == 0 || p.global_step % gpu_every_ != 0) return;
    for (const io::GpuSample& s : gpus_->sample())
      writer_.gpu(p.global_step, p.epoch, s.device, s.name, s.bus, s.values);
  }
  void on_report(const engine::StepReport& r) override {
    io::MetricsWriter::Numbers more{{"data_s", r.phases.data},
                                    {"forward_s", r.phases.forward},
                                    {"backward_s", r.phases.backward},
                                    {"communication_s", r.phases.communication},
                                    {"update_s", r.phases.update}};
    if (r.ranks.size() > 1) {
      more.emplace_back("slowest_rank", r.slowest_rank);
      more.emplace_back("slowest_ratio", r.slowest_ratio);
    }
    writer_.step(r.progress.global_step, r.progress.epoch, r.loss, r.lr, r.samples_per_s, more);
    averaging(r.progress, r.averagings, r.bytes_sent, r.spread);
  }
  void on_eval(const engine::EvalReport& r) override {
    io::MetricsWriter::Numbers more;
    if (r.top5 >= 0) more.emplace_back("top5", r.top5_accuracy());
    if (r.text) more.emplace_back("perplexity", r.perplexity());
    writer_.eval(r.progress.global_step, r.progress.epoch, r.split, r.loss, r.accuracy(), r.samples,
                 more, {.weights = r.weights, .best = r.best && r.best->this_one});
  }
  void on_desync(const engine::TrainProgress& p, const engine::DesyncReport& r) override {
    std::vector<std::string> names;
    for (const engine::DesyncTensor& tensor : r.tensors) names.push_back(tensor.name);
    writer_.desync(p.global_step, p.epoch, r.last_good, r.first_bad, r.compared, names, r.ranks,
                   std::string(engine::to_string(r.action)));
  }
  void on_end(const engine::TrainResult& r) override {
    averaging(r.progress, r.averagings, r.bytes_sent, std::nullopt);
    writer_.end(r.progress.global_step, r.progress.epoch, r.seconds,
                r.signal == 0 ? 0 : 128 + r.signal);
  }

 private:
  void averaging(const engine::TrainProgress& p, std::int64_t averagings, std::int64_t bytes_sent,
                 std::optional<double> spread) {
    if (averagings > 0) writer_.averaging(p.global_step, p.epoch, averagings, bytes_sent, spread);
  }

  std::int64_t gpu_every_;
  std::unique_ptr<io::GpuMonitor> gpus_;
  io::MetricsWriter writer_;
};

}  // namespace tools
