// Rows and tables of `engine bench kernels`.
#include <cmath>

#include "io/base/json_writer.h"
#include "io/base/text_parts.h"
#include "tools/bench/kernels/kernel_bench.h"

namespace tools {
namespace {

std::string to_json(const BenchHeading& heading, const std::string& device,
                    const Ceilings& ceilings, const std::vector<KernelRow>& rows) {
  base::JsonWriter json;
  json.begin_object().member("schema", 1).member("command", "bench kernels");
  add_heading(json, heading);
  json.member("device", device).member("ceiling_gflops", ceilings.flops / 1e9);
  json.member("ceiling_gbs", ceilings.bytes_per_second / 1e9).key("rows").begin_array();
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
    json.member("share", share).member("error", row.error).end_object();
  }
  return json.end_array().end_object().text() + "\n";
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
                     base::number_text("%.1e", row.error)});
  }
  if (!people) return csv_text(lines);
  const std::string gap = markdown ? "\n" : "";
  return heading_text(heading) + device + "; at most " +
         (ceilings.flops > 0 ? fixed(ceilings.flops / 1e9, 0) + " GFLOP/s of multiply-adds, "
                             : "") +
         fixed(ceilings.bytes_per_second / 1e9, 1) + " GB/s of copying, measured just before\n" +
         gap + table_text(lines, {0, 1, 2, 3, 7}, markdown) + gap +
         "of it: the minimum time at these two rates over the measured time (above 100 %: operands "
         "stayed in cache, or a convolution took fewer multiply-adds than the plain sums that it "
         "is "
         "counted as). error: largest difference from float64, relative to the output's largest "
         "value.\n";
}

}  // namespace tools
