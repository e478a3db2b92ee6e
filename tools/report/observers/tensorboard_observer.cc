// Writes one event per report, evaluation and sample.
#include "tools/report/observers/tensorboard_observer.h"

#include <utility>

#include "io/metrics/gpu_monitor.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/lost_output.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

constexpr std::pair<const char*, double engine::StepPhases::*> kPhases[] = {
    {"data", &engine::StepPhases::data},
    {"forward", &engine::StepPhases::forward},
    {"backward", &engine::StepPhases::backward},
    {"communication", &engine::StepPhases::communication},
    {"update", &engine::StepPhases::update}};

io::Histogram histogram_of_slot(const engine::FlatBuffer& buffer,
                                const engine::FlatBuffer::Slot& slot) {
  const auto part = [&](auto all) {
    return io::histogram_of(
        all.subspan(static_cast<std::size_t>(slot.offset), static_cast<std::size_t>(slot.count)));
  };
  return buffer.dtype() == engine::DType::kF64
             ? part(std::span<const double>(buffer.span<double>()))
             : part(std::span<const float>(buffer.span<float>()));
}

class TensorboardObserver final : public engine::TrainObserver {
 public:
  explicit TensorboardObserver(TensorboardOptions options)
      : options_(std::move(options)),
        gpus_(options_.gpu_every > 0 ? std::make_unique<io::GpuMonitor>() : nullptr),
        file_(options_.folder, {}, print_notice, options_.folder_named_by),
        last_step_(options_.step) {
    file_.begin(options_.step);
    file_.hyperparameters(options_.step, options_.run, options_.hyperparameters, metrics());
    file_.text(options_.step, "run/configuration", options_.configuration);
    file_.scalars(options_.step, {{"job/ranks", options_.ranks}});
  }
  ~TensorboardObserver() override {
    if (!ended_ && !options_.elastic) file_.end(last_step_, /*success=*/false);
    note_lost_output(file_.loss(), kExitIo);
  }

  void on_step(const engine::TrainProgress& p) override {
    last_step_ = p.global_step;
    if (options_.gpu_every > 0 && p.global_step % options_.gpu_every == 0) sample_gpus(p);
    if (options_.histogram_every > 0 && p.global_step % options_.histogram_every == 0)
      write_histograms(p);
  }

  void on_report(const engine::StepReport& r) override {
    io::EventFile::Scalars values{{"train/loss", r.loss},
                                  {"train/learning_rate", r.lr},
                                  {"train/epoch", static_cast<double>(r.progress.epoch_of_step())},
                                  {"speed/samples_per_second", r.samples_per_s},
                                  {"speed/step_seconds", r.step_seconds}};
    if (r.train_accuracy) values.emplace_back("train/accuracy", *r.train_accuracy);
    if (r.gradient_norm) values.emplace_back("train/gradient_norm", *r.gradient_norm);
    if (r.skipped_steps)
      values.emplace_back("train/skipped_steps", static_cast<double>(*r.skipped_steps));
    for (std::size_t rank = 0; rank < r.ranks.size(); ++rank)
      for (const auto& [name, seconds] : kPhases)
        values.emplace_back(std::string("phases/") + name + "_seconds/rank_" + std::to_string(rank),
                            r.ranks[rank].*seconds);
    if (r.averagings > 0) {
      values.emplace_back("averaging/averagings", static_cast<double>(r.averagings));
      values.emplace_back("averaging/bytes_sent", static_cast<double>(r.bytes_sent));
      if (r.spread) values.emplace_back("averaging/spread", *r.spread);
    }
    file_.scalars(r.progress.global_step, values);
  }

  void on_eval(const engine::EvalReport& r) override {
    const std::string weights = r.weights,
                      group = weights == "model" ? r.split + "/" : r.split + "_" + weights + "/";
    io::EventFile::Scalars values{{group + "loss", r.loss}};
    if (r.errors)
      values.insert(values.end(), {{group + "mse", r.errors->mse},
                                   {group + "mae", r.errors->mae},
                                   {group + "r2", r.errors->r2}});
    if (r.labels)
      values.insert(values.end(), {{group + "map", r.labels->mean_average_precision()},
                                   {group + "micro_f1", r.labels->micro_f1()},
                                   {group + "macro_f1", r.labels->macro_f1()},
                                   {group + "auc", r.labels->mean_roc_auc()}});
    if (r.has_classes()) values.emplace_back(group + "accuracy", r.accuracy());
    if (r.top5) values.emplace_back(group + "top5", r.top5_accuracy());
    if (r.mean_iou) values.emplace_back(group + "mean_iou", *r.mean_iou);
    if (r.text) values.emplace_back(group + "perplexity", r.perplexity());
    file_.scalars(r.progress.global_step, values);
    if (options_.show_samples && weights == "model" && r.split == "test") {
      const engine::HostView view(*options_.home, engine::Access::kRead);
      options_.show_samples(r.progress.global_step, file_);
    }
  }

  void on_desync(const engine::TrainProgress& p, const engine::DesyncReport& r) override {
    file_.text(p.global_step, "run/events", to_string(r, options_.ranks));
  }
  void on_nonfinite(const engine::TrainProgress& p, const engine::NonFiniteReport& r) override {
    file_.text(p.global_step, "run/events",
               r.what + " not finite at step " + std::to_string(p.global_step) + ": " +
                   std::string(engine::to_string(r.action)));
  }

  // A run that was stopped, or continues with other ranks, is not complete.
  void on_end(const engine::TrainResult& r) override {
    ended_ = true;
    if (!r.paused && r.signal == 0) file_.end(r.progress.global_step, /*success=*/true);
  }

 private:
  std::vector<std::string> metrics() const {
    if (options_.labels)
      return {"test/auc", "test/loss", "test/macro_f1", "test/map", "test/micro_f1", "train/loss"};
    if (options_.regression) return {"test/loss", "test/mae", "test/mse", "test/r2", "train/loss"};
    std::vector<std::string> tags{"test/accuracy", "test/loss"};
    if (options_.positions) tags.emplace_back("test/mean_iou");
    if (options_.top5) tags.emplace_back("test/top5");
    if (options_.text) tags.emplace_back("test/perplexity");
    tags.insert(tags.end(), {"train/accuracy", "train/loss"});
    return tags;
  }

  void sample_gpus(const engine::TrainProgress& p) {
    io::EventFile::Scalars values;
    for (const io::GpuSample& sample : gpus_->sample())
      for (const auto& [name, value] : sample.values)
        values.emplace_back("gpu_" + std::to_string(sample.device) + "/" + name, value);
    file_.scalars(p.global_step, values);
  }

  void write_histograms(const engine::TrainProgress& p) {
    const engine::HostView view(*options_.home, engine::Access::kRead);
    io::EventFile::Histograms all;
    const engine::ParameterBuffer& parameters = options_.model->parameters;
    for (const engine::FlatBuffer::Slot& slot : parameters.values.slots())
      all.emplace_back("parameters/" + slot.name, histogram_of_slot(parameters.values, slot));
    if (options_.gradients) {
      options_.home->fetch_gradients();
      for (const engine::FlatBuffer::Slot& slot : parameters.gradients.slots())
        all.emplace_back("gradients/" + slot.name, histogram_of_slot(parameters.gradients, slot));
    }
    file_.histograms(p.global_step, all);
  }

  const TensorboardOptions options_;
  const std::unique_ptr<io::GpuMonitor> gpus_;
  io::EventFile file_;
  std::int64_t last_step_;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<engine::TrainObserver> make_tensorboard_observer(TensorboardOptions options) {
  return std::make_unique<TensorboardObserver>(std::move(options));
}

}  // namespace tools
