// Formats rows and tables of `engine bench kernels`.
#include <array>
#include <cmath>
#include <optional>

#include "io/base/formats/json_writer.h"
#include "io/base/text/text_parts.h"
#include "tools/bench/kernels/kernel_bench.h"

namespace tools {
namespace {

std::optional<double> some(int count) {
  return count > 0 ? std::optional<double>(count) : std::nullopt;
}
// Returns cuBLASLt's time divided by ours: above 1 this program is faster.
std::optional<double> ratio_of(const KernelRow& row) {
  return row.cublaslt_seconds ? std::optional(*row.cublaslt_seconds / row.seconds) : std::nullopt;
}

std::string to_json(const KernelHeading& heading, const std::vector<KernelRow>& rows) {
  const Ceilings& ceilings = heading.ceilings;
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? std::nullopt : std::optional(text);
  };
  base::JsonWriter json;
  begin_report(json, "bench kernels", heading.bench);
  json.member("device", heading.device).member("ceiling_gflops", ceilings.flops / 1e9);
  json.member("ceiling_instruction", text_or_null(ceilings.instruction));
  json.member("ceiling_gbs", ceilings.bytes_per_second / 1e9);
  json.member("cublaslt", text_or_null(heading.cublaslt)).key("rows").begin_array();
  for (const KernelRow& row : rows) {
    std::optional<std::string> bound;
    std::optional<double> share;
    if (row.bound > 0) {
      bound = row.by_flops ? "flops" : "bytes";
      share = row.bound / row.seconds;
    }
    json.begin_object().member("op", row.op).member("model", row.model);
    json.member("shape", row.shape).member("type", row.type).member("us", row.seconds * 1e6);
    json.member("gflops", row.flops / row.seconds / 1e9);
    json.member("gbs", row.bytes / row.seconds / 1e9).member("bound", bound);
    json.member("share", share).member("error", row.error);
    json.member("blocks_per_processor", some(row.occupancy.blocks));
    json.member("warps_per_processor", some(row.occupancy.warps));
    std::optional<double> beside;
    if (row.cublaslt_seconds) beside = *row.cublaslt_seconds * 1e6;
    json.member("cublaslt_us", beside).member("ratio", ratio_of(row)).end_object();
  }
  return json.end_array().end_object().text() + "\n";
}

// Adds the cells that exist only for kernels on CUDA devices.
void add_device_cells(Cells& line, const KernelRow& row) {
  const auto number = [](const std::optional<double>& value, int digits) {
    return value ? fixed(*value, digits) : "";
  };
  line.push_back(number(some(row.occupancy.blocks), 0));
  line.push_back(number(some(row.occupancy.warps), 0));
  const std::optional<double> beside = row.cublaslt_seconds;
  line.push_back(number(beside ? std::optional(*beside * 1e6) : std::nullopt, 2));
  line.push_back(number(ratio_of(row), 3));
}

std::string limits_text(const KernelHeading& heading) {
  const Ceilings& c = heading.ceilings;
  const std::string instruction = c.instruction.empty() ? "" : " (" + c.instruction + ")";
  return heading.device + "; at most " +
         (c.flops > 0 ? fixed(c.flops / 1e9, 0) + " GFLOP/s of multiply-adds" + instruction + ", "
                      : "") +
         fixed(c.bytes_per_second / 1e9, 1) + " GB/s of copying, measured just before\n" +
         (heading.cublaslt.empty() ? "" : "beside: " + heading.cublaslt + "\n");
}

}  // namespace

KernelRow make_row(const KernelCase& test, engine::DType stored, const std::string& type,
                   const Ceilings& ceilings) {
  KernelRow row{.op = test.op, .model = test.model, .shape = test.shape, .type = type};
  row.flops = test.flops;
  row.bytes = moved_bytes(test, stored);
  const double by_bytes = ceilings.bytes_per_second > 0 ? row.bytes / ceilings.bytes_per_second : 0;
  const double by_flops = ceilings.flops > 0 ? row.flops / ceilings.flops : 0;
  row.by_flops = by_flops > by_bytes;
  row.bound = row.flops > 0 && ceilings.flops <= 0 ? 0 : std::max(by_bytes, by_flops);
  return row;
}

std::string cuts_text(const KernelCase* test, const std::string& type,
                      const std::vector<CutTime>& times) {
  if (test == nullptr)
    return csv_text({{"op", "model", "shape", "type", "rows", "columns", "splits", "warpgroup",
                      "chosen", "us", "gflops"}});
  std::vector<Cells> lines;
  for (const CutTime& each : times)
    lines.push_back({test->op, test->model, test->shape, type, std::to_string(each.rows),
                     std::to_string(each.columns), std::to_string(each.splits),
                     each.warpgroup ? "1" : "0", each.chosen ? "1" : "0",
                     fixed(each.seconds * 1e6, 2), fixed(test->flops / each.seconds / 1e9, 1)});
  return csv_text(lines);
}

std::string kernels_text(const KernelHeading& heading, const std::vector<KernelRow>& rows,
                         ReportFormat format) {
  if (format == ReportFormat::kJson) return to_json(heading, rows);
  const bool people = format != ReportFormat::kCsv;
  std::vector<Cells> lines{people ? Cells{"operator", "model", "shape", "type", "us", "GFLOP/s",
                                          "GB/s", "bound", "of it", "error"}
                                  : Cells{"op", "model", "shape", "type", "us", "gflops", "gbs",
                                          "bound", "share", "error"}};
  if (heading.cuda)
    for (const char* name : people ? std::array{"blocks", "warps", "cuBLASLt us", "ratio"}
                                   : std::array{"blocks", "warps", "cublaslt_us", "ratio"})
      lines.front().push_back(name);
  for (const KernelRow& row : rows) {
    const double share = row.bound / row.seconds;
    lines.push_back({row.op, row.model, row.shape, row.type, fixed(row.seconds * 1e6, 2),
                     row.flops > 0 || !people ? fixed(row.flops / row.seconds / 1e9, 1) : "",
                     fixed(row.bytes / row.seconds / 1e9, 1),
                     row.bound <= 0 ? ""
                     : row.by_flops ? "flops"
                                    : "bytes",
                     row.bound <= 0 ? ""
                     : people       ? fixed(100 * share, 0) + " %"
                                    : fixed(share, 4),
                     base::number_text("%.1e", row.error)});
    if (heading.cuda) add_device_cells(lines.back(), row);
  }
  const std::string of_cuda =
      "blocks, warps: what a processor holds at once of the call's largest kernel. ratio: "
      "cuBLASLt's time, of the product alone, over ours (above 1: ours is shorter).\n";
  return report_text(
      format, heading_text(heading.bench) + limits_text(heading), lines, {0, 1, 2, 3, 7},
      "of it: the minimum time at these two rates over the measured time (above 100 %: operands "
      "stayed in cache, or a convolution took fewer multiply-adds than the plain sums that it is "
      "counted as). error: largest difference from float64, relative to the output's largest "
      "value.\n" +
          (heading.cuda ? of_cuda : ""));
}

}  // namespace tools
