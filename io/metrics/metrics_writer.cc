// Writes events as JSON lines.
#include "io/metrics/metrics_writer.h"

#include <chrono>
#include <cstdio>
#include <list>

#include "io/base/formats/json_writer.h"
#include "io/base/time/utc_time.h"
#include "io/metrics/line_file.h"

namespace io {
namespace {

void add(base::JsonWriter& json, const MetricsWriter::Numbers& numbers) {
  for (const auto& [key, value] : numbers) json.member(key, value);
}

}  // namespace

struct MetricsWriter::Impl {
  std::list<LineFile> files;
  Clock clock;
  Notice notice;

  base::JsonWriter head(const char* event, std::int64_t step, std::int64_t epoch) const {
    char time[32];  // with milliseconds
    std::snprintf(time, sizeof time, "%.3f", clock());
    base::JsonWriter json;
    json.begin_object().member("schema", 1).member("event", event);
    json.member("step", step).member("epoch", epoch).key("time").ready_made(time);
    return json;
  }
  void write_line(base::JsonWriter& json) {
    const std::string line = json.end_object().text() + "\n";
    for (LineFile& file : files)
      if (const std::string fault = file.write(line); !fault.empty() && notice) notice(fault);
  }
};

MetricsWriter::MetricsWriter(const MetricsFiles& files, Clock clock, Notice notice)
    : impl_(std::make_unique<Impl>()) {
  impl_->clock = clock ? std::move(clock) : base::unix_seconds;
  impl_->notice = std::move(notice);
  if (!files.of_run.empty()) impl_->files.emplace_back("metrics", files.of_run, NamedBy::kRun);
  if (!files.chosen.empty()) impl_->files.emplace_back("metrics", files.chosen);
}

MetricsWriter::~MetricsWriter() = default;

std::vector<std::string> MetricsWriter::losses() const {
  std::vector<std::string> losses;
  for (const LineFile& file : impl_->files)
    if (std::string loss = file.loss(); !loss.empty()) losses.push_back(std::move(loss));
  return losses;
}

void MetricsWriter::restore() {
  for (LineFile& file : impl_->files)
    if (const std::string made = file.restore(); !made.empty() && impl_->notice)
      impl_->notice(made);
}

void MetricsWriter::start(std::int64_t step, std::int64_t epoch, const std::string& run_id,
                          const std::string& record) {
  base::JsonWriter json = impl_->head("start", step, epoch);
  json.member("run", run_id).key("record").ready_made(record);
  impl_->write_line(json);
}

void MetricsWriter::step(std::int64_t step, std::int64_t epoch, double loss, double lr,
                         double samples_per_s, const Numbers& more) {
  base::JsonWriter json = impl_->head("step", step, epoch);
  json.member("loss", loss).member("lr", lr).member("samples_per_s", samples_per_s);
  add(json, more);
  impl_->write_line(json);
}

void MetricsWriter::lr_find(std::int64_t step, std::int64_t epoch, double suggestion,
                            double steepest, double lowest) {
  base::JsonWriter json = impl_->head("lr_find", step, epoch);
  json.member("suggestion", suggestion).member("steepest", steepest).member("lowest", lowest);
  impl_->write_line(json);
}

void MetricsWriter::eval(std::int64_t step, std::int64_t epoch, const Evaluation& e) {
  base::JsonWriter json = impl_->head("eval", step, epoch);
  json.member("split", e.split).member("loss", e.loss);
  if (e.accuracy) json.member("accuracy", *e.accuracy);
  json.member("samples", e.samples);
  add(json, e.more);
  if (e.weights != "model") json.member("weights", e.weights);
  if (e.is_best) json.member("best", true);
  impl_->write_line(json);
}

void MetricsWriter::desync(std::int64_t step, std::int64_t epoch, const Desync& found) {
  base::JsonWriter json = impl_->head("desync", step, epoch);
  json.member("last_good", found.last_good).member("first_bad", found.first_bad);
  json.member("compared", found.compared).member("tensors", found.tensors);
  json.member("ranks", found.ranks).member("action", found.action);
  impl_->write_line(json);
}

void MetricsWriter::nonfinite(std::int64_t step, std::int64_t epoch,
                              std::optional<std::int64_t> last_good, const std::string& what,
                              const std::string& action) {
  base::JsonWriter json = impl_->head("nonfinite", step, epoch);
  json.member("last_good", last_good);
  json.member("what", what).member("action", action);
  impl_->write_line(json);
}

void MetricsWriter::shares(std::int64_t step, std::int64_t epoch,
                           const std::vector<std::int64_t>& samples,
                           const std::vector<double>& samples_per_s) {
  base::JsonWriter json = impl_->head("shares", step, epoch);
  json.member("samples", samples);
  if (!samples_per_s.empty()) json.member("samples_per_s", samples_per_s);
  impl_->write_line(json);
}

void MetricsWriter::averaging(std::int64_t step, std::int64_t epoch, std::int64_t averagings,
                              std::int64_t bytes_sent, std::optional<double> spread) {
  base::JsonWriter json = impl_->head("averaging", step, epoch);
  json.member("averagings", averagings).member("bytes_sent", bytes_sent);
  if (spread) json.member("spread", *spread);
  impl_->write_line(json);
}

void MetricsWriter::membership(std::int64_t step, std::int64_t epoch, const Membership& now) {
  base::JsonWriter json = impl_->head("membership", step, epoch);
  json.member("generation", static_cast<std::int64_t>(now.generation)).member("ranks", now.ranks);
  json.member("left", now.left).member("joined", now.joined).member("seconds", now.seconds);
  impl_->write_line(json);
}

void MetricsWriter::gpu(std::int64_t step, std::int64_t epoch, int device, const std::string& name,
                        const std::string& bus, const Numbers& values) {
  base::JsonWriter json = impl_->head("gpu", step, epoch);
  json.member("device", device).member("name", name).member("bus", bus);
  add(json, values);
  impl_->write_line(json);
}

void MetricsWriter::end(std::int64_t step, std::int64_t epoch, double seconds, int exit_code,
                        const Numbers& more) {
  base::JsonWriter json = impl_->head("end", step, epoch);
  json.member("seconds", seconds).member("exit", exit_code);
  add(json, more);
  impl_->write_line(json);
}

}  // namespace io
