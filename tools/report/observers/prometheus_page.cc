// Training threads copy numbers under the lock; the thread that serves the page formats the text.
#include "tools/report/observers/prometheus_page.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "io/base/time/utc_time.h"
#include "io/metrics/exposition_text.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

io::HttpResponderOptions responder_options(const PrometheusServer& server) {
  return {.address = server.address,
          .port = server.port,
          .name = "prometheus",
          // A page that the network can read anyway accepts any host name.
          .host_check =
              io::is_loopback_address(server.address) ? io::HostCheck::kName : io::HostCheck::kNone,
          .patient = server.patient,
          .notice = print_notice};
}

struct Evaluation {
  std::int64_t step = 0;
  double loss = 0;
  std::optional<double> accuracy{}, top5{}, perplexity{}, mse{}, mae{}, r2{};
  std::optional<double> map{}, micro_f1{}, macro_f1{}, mean_iou{}, auc{};
};

struct LastReport {
  std::optional<double> accuracy{};
  double lr = 0, samples_per_s = 0, step_seconds = 0, time = 0;
  std::optional<double> gradient_norm{};
  std::optional<std::int64_t> skipped_steps{};
  std::int64_t bytes_sent = 0, averagings = 0;
  std::vector<engine::StepPhases> ranks{};
};

void add_report(io::ExpositionText& out, const LastReport& r) {
  if (r.accuracy)
    out.gauge("engine_accuracy_ratio",
              "Share of right predictions in training, of the epoch so far.")
        .sample(*r.accuracy);
  out.gauge("engine_learning_rate", "Learning rate of the last reported step.").sample(r.lr);
  out.gauge("engine_samples_per_second", "Training samples per second over all ranks.")
      .sample(r.samples_per_s);
  out.gauge("engine_step_seconds", "Time of a step, mean since the report before.")
      .sample(r.step_seconds);
  if (r.gradient_norm)
    out.gauge("engine_gradient_norm", "Euclidean norm of the gradients before clipping.")
        .sample(*r.gradient_norm);
  if (r.skipped_steps)
    out.counter("engine_skipped_steps", "Steps skipped because of numbers that were not finite.")
        .sample(static_cast<double>(*r.skipped_steps));
  out.counter("engine_averagings", "Averagings of parameters or gradients in this run.")
      .sample(static_cast<double>(r.averagings));
  out.counter("engine_sent_bytes", "Payload that rank 0 has handed to the averaging's collectives.")
      .sample(static_cast<double>(r.bytes_sent));
  out.gauge("engine_phase_seconds", "Where the time of a step goes, by rank and phase.");
  for (std::size_t rank = 0; rank < r.ranks.size(); ++rank) {
    const engine::StepPhases& p = r.ranks[rank];
    for (const auto& [phase, seconds] : {std::pair<const char*, double>{"data", p.data},
                                         {"forward", p.forward},
                                         {"backward", p.backward},
                                         {"communication", p.communication},
                                         {"update", p.update}})
      out.sample(seconds, {{"rank", std::to_string(rank)}, {"phase", phase}});
  }
  out.gauge("engine_report_timestamp_seconds", "When the run last reported.").sample(r.time);
}

using Evaluations = std::map<std::pair<std::string, std::string>, Evaluation>;  // split, weights

void add_evaluations(io::ExpositionText& out, const Evaluations& evaluations) {
  if (evaluations.empty()) return;
  // Writes one family, with a sample for every evaluation that has the number.
  const auto add = [&](const char* name, const char* help, const auto& number) {
    bool begun = false;
    for (const auto& [key, evaluation] : evaluations) {
      const std::optional<double> value = number(evaluation);
      if (!value) continue;
      if (!std::exchange(begun, true)) out.gauge(name, help);
      out.sample(*value, {{"split", key.first}, {"weights", key.second}});
    }
  };
  using Value = std::optional<double>;
  add("engine_evaluation_step", "Step after which the last evaluation was made.",
      [](const Evaluation& e) { return Value(static_cast<double>(e.step)); });
  add("engine_evaluation_loss", "Mean loss of the last evaluation.",
      [](const Evaluation& e) { return Value(e.loss); });
  add("engine_evaluation_accuracy_ratio", "Share of right predictions in the last evaluation.",
      [](const Evaluation& e) { return e.accuracy; });
  add("engine_evaluation_top5_ratio", "Share of labels among the five likeliest classes.",
      [](const Evaluation& e) { return e.top5; });
  add("engine_evaluation_perplexity", "Perplexity of the last evaluation.",
      [](const Evaluation& e) { return e.perplexity; });
  add("engine_evaluation_mse", "Mean squared error of the last evaluation, in the target's unit.",
      [](const Evaluation& e) { return e.mse; });
  add("engine_evaluation_mae", "Mean absolute error of the last evaluation, in the target's unit.",
      [](const Evaluation& e) { return e.mae; });
  add("engine_evaluation_r2", "Share of the targets' variance that the predictions explain.",
      [](const Evaluation& e) { return e.r2; });
  add("engine_evaluation_map", "Mean average precision of the labels in the last evaluation.",
      [](const Evaluation& e) { return e.map; });
  add("engine_evaluation_micro_f1", "F1 of the counts of all labels together.",
      [](const Evaluation& e) { return e.micro_f1; });
  add("engine_evaluation_macro_f1", "Mean F1 of the labels.",
      [](const Evaluation& e) { return e.macro_f1; });
  add("engine_evaluation_mean_iou", "Mean intersection over union of the classes.",
      [](const Evaluation& e) { return e.mean_iou; });
  add("engine_evaluation_auc", "Mean area under the ROC curves of the labels.",
      [](const Evaluation& e) { return e.auc; });
}

}  // namespace

struct PrometheusPage::Numbers {
  std::optional<PrometheusRun> run;
  std::optional<double> loss;
  std::optional<LastReport> report;
  std::optional<std::pair<std::int64_t, double>> save;  // step, time
  Evaluations evaluations;
};

class PrometheusPage::Observer final : public engine::TrainObserver {
 public:
  explicit Observer(PrometheusPage& page) : page_(page), numbers_(*page.numbers_) {}

  void on_step(const engine::TrainProgress& p) override {
    const std::lock_guard lock(page_.mutex_);
    numbers_.run->step = p.global_step;
    numbers_.run->epoch = p.epoch_of_step();
    numbers_.run->samples = p.samples_seen;
  }
  void on_loss(const engine::TrainProgress&, double loss) override {
    const std::lock_guard lock(page_.mutex_);
    numbers_.loss = loss;
  }
  void on_report(const engine::StepReport& r) override {
    LastReport report{.accuracy = r.train_accuracy,
                      .lr = r.lr,
                      .samples_per_s = r.samples_per_s,
                      .step_seconds = r.step_seconds,
                      .time = base::unix_seconds(),
                      .gradient_norm = r.gradient_norm,
                      .skipped_steps = r.skipped_steps,
                      .bytes_sent = r.bytes_sent,
                      .averagings = r.averagings,
                      .ranks = {r.ranks.begin(), r.ranks.end()}};
    const std::lock_guard lock(page_.mutex_);
    numbers_.loss = r.loss;
    numbers_.report = std::move(report);
  }
  void on_eval(const engine::EvalReport& r) override {
    Evaluation evaluation{.step = r.progress.global_step, .loss = r.loss};
    if (r.errors) {
      evaluation.mse = r.errors->mse;
      evaluation.mae = r.errors->mae;
      evaluation.r2 = r.errors->r2;
    } else if (r.labels) {
      evaluation.map = r.labels->mean_average_precision();
      evaluation.micro_f1 = r.labels->micro_f1();
      evaluation.macro_f1 = r.labels->macro_f1();
      evaluation.auc = r.labels->mean_roc_auc();
    } else {
      evaluation.accuracy = r.accuracy();
    }
    evaluation.mean_iou = r.mean_iou;
    if (r.top5) evaluation.top5 = r.top5_accuracy();
    if (r.text) evaluation.perplexity = r.perplexity();
    const std::lock_guard lock(page_.mutex_);
    numbers_.evaluations[{r.split, r.weights}] = evaluation;
  }
  void on_save(const engine::TrainProgress& p, const std::string&) override {
    const std::lock_guard lock(page_.mutex_);
    numbers_.save = {p.global_step, base::unix_seconds()};
  }

 private:
  PrometheusPage& page_;
  Numbers& numbers_;
};

PrometheusPage::PrometheusPage(PrometheusServer server)
    : server_(std::move(server)),
      numbers_(std::make_unique<Numbers>()),
      responder_(std::make_unique<io::HttpResponder>(
          responder_options(server_), [this](std::string_view accept) { return text(accept); })) {}
PrometheusPage::~PrometheusPage() = default;

std::string PrometheusPage::url() const { return responder_->url(); }

void PrometheusPage::begin(const PrometheusRun& run) {
  const std::lock_guard lock(mutex_);
  numbers_->run = run;
}

std::unique_ptr<engine::TrainObserver> PrometheusPage::make_observer() {
  return std::make_unique<Observer>(*this);
}

io::HttpResponder::Content PrometheusPage::text(std::string_view accept) const {
  const Numbers n = [this] {
    const std::lock_guard lock(mutex_);
    return *numbers_;
  }();
  const io::ExpositionText::Format format = io::ExpositionText::format_for(accept);
  io::ExpositionText out(format);
  out.gauge("engine_build_info", "The program.")
      .sample(1, {{"version", server_.version}, {"commit", server_.commit}});
  if (n.run) {
    const PrometheusRun& r = *n.run;
    out.gauge("engine_run_info", "The run.")
        .sample(
            1,
            {{"run", r.run}, {"model", r.model}, {"dataset", r.dataset}, {"backend", r.backend}});
    out.gauge("engine_ranks", "Ranks that train together.").sample(r.ranks);
    out.gauge("engine_step", "Global steps done.").sample(static_cast<double>(r.step));
    out.gauge("engine_planned_steps", "Global steps at the end of the run.")
        .sample(static_cast<double>(r.steps));
    out.gauge("engine_epoch", "Epoch of the last step, from 0.")
        .sample(static_cast<double>(r.epoch));
    out.gauge("engine_planned_epochs", "Epochs at the end of the run.")
        .sample(static_cast<double>(r.epochs));
    out.gauge("engine_samples", "Training samples seen over all ranks, from the run's beginning.")
        .sample(static_cast<double>(r.samples));
  }
  if (n.loss)
    out.gauge("engine_loss", "Mean loss over the global batch of a step, the latest known.")
        .sample(*n.loss);
  if (n.report) add_report(out, *n.report);
  if (n.save) {
    out.gauge("engine_last_save_step", "Step of the newest checkpoint of this process.")
        .sample(static_cast<double>(n.save->first));
    out.gauge("engine_last_save_timestamp_seconds", "When the newest checkpoint was complete.")
        .sample(n.save->second);
  }
  add_evaluations(out, n.evaluations);
  return {io::ExpositionText::content_type(format), out.finish()};
}

void check_prometheus_address(const PrometheusServer& server) {
  io::check_http_address(responder_options(server));
}

}  // namespace tools
