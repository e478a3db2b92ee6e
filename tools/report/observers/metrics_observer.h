// Writes training events as JSON lines (io/metrics).
#pragma once

#include <optional>
#include <utility>

#include "engine/train/train_observer.h"
#include "io/metrics/gpu_monitor.h"
#include "io/metrics/metrics_writer.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/lost_output.h"
#include "tools/report/output/run_log.h"

namespace tools {

class MetricsObserver : public engine::TrainObserver {
 public:
  // `gpu_every`: steps between samples of the GPUs; 0: none. Throws io::ConfigError if there is
  // nothing to sample.
  explicit MetricsObserver(const io::MetricsFiles& files, std::int64_t gpu_every = 0)
      : gpu_every_(gpu_every),
        gpus_(gpu_every > 0 ? std::make_unique<io::GpuMonitor>() : nullptr),
        writer_(files, {}, print_notice) {}
  ~MetricsObserver() override {
    for (const std::string& loss : writer_.losses()) note_lost_output(loss, kExitIo);
  }
  MetricsObserver(const MetricsObserver&) = delete;
  MetricsObserver& operator=(const MetricsObserver&) = delete;

  io::MetricsWriter& writer() { return writer_; }
  void on_step(const engine::TrainProgress& p) override {
    if (gpu_every_ == 0 || p.global_step % gpu_every_ != 0) return;
    for (const io::GpuSample& s : gpus_->sample())
      writer_.gpu(p.global_step, p.epoch_of_step(), s.device, s.name, s.bus, s.values);
  }
  void on_report(const engine::StepReport& r) override {
    io::MetricsWriter::Numbers more;
    if (r.train_accuracy) more.emplace_back("accuracy", *r.train_accuracy);
    more.insert(more.end(), {{"data_s", r.phases.data},
                             {"forward_s", r.phases.forward},
                             {"backward_s", r.phases.backward},
                             {"communication_s", r.phases.communication},
                             {"update_s", r.phases.update}});
    if (r.ranks.size() > 1) {
      more.emplace_back("slowest_rank", r.slowest_rank);
      more.emplace_back("slowest_ratio", r.slowest_ratio);
    }
    if (r.skipped_steps) more.emplace_back("skipped_steps", static_cast<double>(*r.skipped_steps));
    writer_.step(r.progress.global_step, r.progress.epoch_of_step(), r.loss, r.lr, r.samples_per_s,
                 more);
    averaging(r.progress, r.averagings, r.bytes_sent, r.spread);
  }
  void on_eval(const engine::EvalReport& r) override {
    io::MetricsWriter::Numbers more;
    if (r.top5) more.emplace_back("top5", r.top5_accuracy());
    if (r.mean_iou) more.emplace_back("mean_iou", *r.mean_iou);
    if (r.text) more.emplace_back("perplexity", r.perplexity());
    if (r.errors)
      more.insert(more.end(),
                  {{"mse", r.errors->mse}, {"mae", r.errors->mae}, {"r2", r.errors->r2}});
    if (r.labels)
      more.insert(more.end(), {{"map", r.labels->mean_average_precision()},
                               {"micro_f1", r.labels->micro_f1()},
                               {"macro_f1", r.labels->macro_f1()},
                               {"auc", r.labels->mean_roc_auc()}});
    writer_.eval(r.progress.global_step, r.progress.epoch_of_step(),
                 {.split = r.split,
                  .loss = r.loss,
                  .accuracy = r.has_classes() ? std::optional(r.accuracy()) : std::nullopt,
                  .samples = r.samples,
                  .more = more,
                  .weights = r.weights,
                  .is_best = r.best && r.best->this_one});
  }
  void on_desync(const engine::TrainProgress& p, const engine::DesyncReport& r) override {
    std::vector<std::string> names;
    for (const engine::DesyncTensor& tensor : r.tensors) names.push_back(tensor.name);
    writer_.desync(p.global_step, p.epoch_of_step(),
                   {.last_good = r.last_good,
                    .first_bad = r.first_bad,
                    .compared = r.compared,
                    .tensors = std::move(names),
                    .ranks = r.ranks,
                    .action = std::string(engine::to_string(r.action))});
  }
  void on_nonfinite(const engine::TrainProgress& p, const engine::NonFiniteReport& r) override {
    writer_.nonfinite(p.global_step, p.epoch_of_step(), r.last_good, r.what,
                      std::string(engine::to_string(r.action)));
  }
  void on_shares(const engine::TrainProgress& p, const engine::ShareReport& r) override {
    writer_.shares(p.global_step, p.epoch_of_step(), r.samples, r.samples_per_s);
  }
  // The run has just found its folder in place.
  void on_save(const engine::TrainProgress&, const std::string&) override { writer_.restore(); }
  void on_end(const engine::TrainResult& r) override {
    if (r.paused) return;
    averaging(r.progress, r.averagings, r.bytes_sent, std::nullopt);
    io::MetricsWriter::Numbers more;
    if (r.skipped_steps) more.emplace_back("skipped_steps", static_cast<double>(*r.skipped_steps));
    writer_.end(r.progress.global_step, r.progress.epoch_of_step(), r.seconds,
                r.signal == 0 ? 0 : 128 + r.signal, more);
  }

 private:
  void averaging(const engine::TrainProgress& p, std::int64_t averagings, std::int64_t bytes_sent,
                 std::optional<double> spread) {
    if (averagings > 0)
      writer_.averaging(p.global_step, p.epoch_of_step(), averagings, bytes_sent, spread);
  }

  std::int64_t gpu_every_;
  std::unique_ptr<io::GpuMonitor> gpus_;
  io::MetricsWriter writer_;
};

}  // namespace tools
