// Rows and tables of `engine bench kernels`.
#include <cmath>

#include "io/base/text_format.h"
#include "tools/bench/kernels/kernel_bench.h"

namespace tools {
namespace {

std::string number(double value) {
  return std::isfinite(value) ? io::shortest_text(value) : "null";
}

std::string error_text(double error) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", error);
  return text;
}

std::string to_json(const BenchHeading& heading, const std::string& device,
                    const Ceilings& ceilings, const std::vector<KernelRow>& rows) {
  std::string text = "{\"schema\":1,\"command\":\"bench kernels\"," + heading_json(heading) +
                     ",\"device\":" + io::json_string(device) +
                     ",\"ceiling_gflops\":" + number(ceilings.flops / 1e9) +
                     ",\"ceiling_gbs\":" + number(ceilings.bytes_per_second / 1e9) + ",\"rows\":[";
  for (const KernelRow& row : rows)
    text += std::string(&row == rows.data() ? "" : ",") + "{\"op\":" + io::json_string(row.op) +
            ",\"model\":" + io::json_string(row.model) +
            ",\"shape\":" + io::json_string(row.shape) + ",\"type\":" + io::json_string(row.type) +
            ",\"us\":" + number(row.seconds * 1e6) +
            ",\"gflops\":" + number(row.flops / row.seconds / 1e9) +
            ",\"gbs\":" + number(row.bytes / row.seconds / 1e9) +
            ",\"bound\":" + (row.bound > 0 ? row.by_flops ? "\"flops\"" : "\"bytes\"" : "null") +
            ",\"share\":" + (row.bound > 0 ? number(row.bound / row.seconds) : "null") +
            ",\"error\":" + number(row.error) + "}";
  return text + "]}\n";
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

std::string kernels_text(const BenchHeading& heading, const std::string& device,
                         const Ceilings& ceilings, const std::vector<KernelRow>& rows,
                         const std::string& format) {
  if (format == "json") return to_json(heading, device, ceilings, rows);
  const bool people = format != "csv", markdown = format == "md";
  std::vector<Cells> lines{people ? Cells{"operator", "model", "shape", "type", "us", "GFLOP/s",
                                          "GB/s", "bound", "of it", "error"}
                                  : Cells{"op", "model", "shape", "type", "us", "gflops", "gbs",
                                          "bound", "share", "error"}};
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
                     error_text(row.error)});
  }
  if (!people) return csv_text(lines);
  const std::string gap = markdown ? "\n" : "";
  return heading_text(heading) + device + "; at most " +
         (ceilings.flops > 0 ? fixed(ceilings.flops / 1e9, 0) + " GFLOP/s of multiply-adds, "
                             : "") +
         fixed(ceilings.bytes_per_second / 1e9, 1) + " GB/s of copying, measured just before\n" +
         gap + table_text(lines, {0, 1, 2, 3, 7}, markdown) + gap +
         "of it: the minimum time at these two rates over the measured time (above 100 %: operands "
         "stayed in cache). error: "
         "largest "
         "difference from float64, relative to the output's largest value.\n";
}

}  // namespace tools
