// Formats reports of `engine bench scaling` and `engine bench demos`.
#include <cmath>
#include <cstdio>

#include "io/base/formats/json_writer.h"
#include "tools/bench/step/bench_step.h"

namespace tools {
namespace {

std::string with_sign(double value, int digits, const char* unit) {
  return fixed(value, digits) + unit;
}

// On a busy machine more ranks get a larger part of the cores, and look faster than they are.
std::string busy_note(const BenchHeading& heading) {
  const MachineInfo& m = heading.machine;
  if (m.load < 0.5 * m.allowed_cores) return "";
  return "Load " + fixed(m.load, 1) + " on " + std::to_string(m.allowed_cores) +
         " cores: other programs were running; rows with different numbers of ranks are not "
         "comparable.\n";
}

std::string left_out_lines(const std::vector<LeftOutBackend>& left_out) {
  std::string text;
  for (const LeftOutBackend& b : left_out) text += "left out: " + b.name + ": " + b.reason + "\n";
  return text;
}

}  // namespace

std::string scaling_text(const BenchHeading& heading, const std::string& mode,
                         const std::string& model, const std::vector<ScalingRow>& rows,
                         const std::vector<LeftOutBackend>& left_out, ReportFormat format) {
  if (format == ReportFormat::kJson) {
    base::JsonWriter json;
    begin_report(json, "bench scaling", heading);
    json.member("mode", mode).member("model", model).key("rows").begin_array();
    for (const ScalingRow& r : rows) {
      json.new_line().begin_object().member("backend", r.backend).member("ranks", r.ranks);
      json.member("global_batch", r.global_batch).member("samples_per_s", r.rate);
      json.member("speedup", r.speedup).member("efficiency", r.speedup / r.ranks);
      json.member("communication_share", r.communication).end_object();
    }
    json.new_line().end_array().key("left_out").begin_array();
    for (const LeftOutBackend& b : left_out)
      json.begin_object().member("backend", b.name).member("reason", b.reason).end_object();
    return json.end_array().end_object().text() + "\n";
  }
  const bool people = format != ReportFormat::kCsv;
  std::vector<Cells> lines{people ? Cells{"backend", "ranks", "batch", "img/s", "speed-up",
                                          "efficiency", "exposed comm."}
                                  : Cells{"backend", "ranks", "global_batch", "samples_per_s",
                                          "speedup", "efficiency", "communication_share"}};
  for (const ScalingRow& r : rows)
    lines.push_back(
        {r.backend, std::to_string(r.ranks), std::to_string(r.global_batch),
         fixed(r.rate, r.rate < 100 ? 2 : 0), fixed(r.speedup, people ? 2 : 5),
         people ? with_sign(100 * r.speedup / r.ranks, 0, " %") : fixed(r.speedup / r.ranks, 5),
         people ? with_sign(100 * r.communication, 1, " %") : fixed(r.communication, 5)});
  return report_text(format,
                     heading_text(heading) + model + ", " +
                         (mode == "weak" ? "weak scaling: constant batch per rank"
                                         : "strong scaling: constant global batch") +
                         "\n",
                     lines, {0},
                     "img/s: of the whole group, at the median step. Speed-up: relative to one "
                     "rank. Exposed comm.: rank 0's wait for averaging.\n" +
                         left_out_lines(left_out) + busy_note(heading));
}

std::string epoch_text(const DemoRow& row) {
  const auto seconds = static_cast<long long>(std::llround(row.epoch_s));
  char text[48];
  std::snprintf(text, sizeof text, "%s%lld:%02lld", row.measured < row.iterations ? "~" : "",
                seconds / 60, seconds % 60);
  return text;
}

std::string batch_text(double seconds) { return fixed(seconds, seconds < 0.1 ? 4 : 2) + "s"; }

std::string demos_text(const BenchHeading& heading, const std::string& about,
                       std::int64_t global_batch, const std::vector<DemoRow>& rows,
                       ReportFormat format) {
  if (format == ReportFormat::kJson) {
    base::JsonWriter json;
    begin_report(json, "bench demos", heading);
    json.member("about", about).member("global_batch", global_batch).key("rows").begin_array();
    for (const DemoRow& r : rows) {
      json.new_line().begin_object().member("method", r.method);
      json.member("processes", r.processes).member("devices", r.devices);
      json.member("iterations", r.iterations).member("measured", r.measured);
      json.member("epoch_s", r.epoch_s).member("batch_s", r.batch_s);
      json.member("samples_per_s", r.rate).end_object();
    }
    return json.new_line().end_array().end_object().text() + "\n";
  }
  const bool people = format != ReportFormat::kCsv;
  std::vector<Cells> lines{people ? Cells{"method", "epoch time", "batch time", "iters", "measured",
                                          "processes x devices", "img/s", "times single"}
                                  : Cells{"method", "epoch_s", "batch_s", "iterations", "measured",
                                          "processes", "devices", "samples_per_s"}};
  for (const DemoRow& r : rows) {
    const std::string iterations = std::to_string(r.iterations),
                      measured = std::to_string(r.measured);
    if (people)
      lines.push_back({r.method, epoch_text(r), batch_text(r.batch_s), iterations, measured,
                       std::to_string(r.processes) + " x " + std::to_string(r.devices),
                       fixed(r.rate, r.rate < 100 ? 2 : 0), fixed(r.rate / rows.front().rate, 2)});
    else
      lines.push_back({r.method, fixed(r.epoch_s, 4), fixed(r.batch_s, 6), iterations, measured,
                       std::to_string(r.processes), std::to_string(r.devices), fixed(r.rate, 3)});
  }
  std::string after = "One global batch of " + std::to_string(global_batch) +
                      " for every method. Epoch time: m:ss, the training loop alone; batch time: "
                      "the median iteration.\n";
  if (rows.front().measured < rows.front().iterations)
    after += "~: extrapolated from " + std::to_string(rows.front().measured) + " of " +
             std::to_string(rows.front().iterations) +
             " iterations (--limit-steps); the first one is not counted.\n";
  return report_text(format, heading_text(heading) + about + "\n", lines, {0, 5},
                     after + busy_note(heading));
}

}  // namespace tools
