// Plots `engine bench comm`: one chart per operation.
#include <cmath>
#include <map>
#include <vector>

#include "io/base/text/text_parts.h"
#include "tools/bench/comm/bench_comm.h"
#include "tools/html/svg_chart.h"

namespace tools {
namespace {

std::string time_text(double us) {
  const auto plain = [](double v) { return base::number_text("%.4g", v); };
  if (us >= 1e6) return plain(us / 1e6) + " s";
  return us >= 1e3 ? plain(us / 1e3) + " ms" : plain(us) + " us";
}

std::string size_text(double bytes) {
  return bytes_text(static_cast<std::int64_t>(std::llround(bytes)));
}

// Makes the chart of one operation: one curve per backend and number of ranks.
Chart chart_of(const std::string& operation, const std::vector<CommRow>& rows) {
  std::map<std::pair<std::string, int>, ChartSeries> curves;
  for (const CommRow& row : rows)
    if (row.op == operation && row.bytes > 0)
      curves[{row.backend, row.ranks}].points.emplace_back(static_cast<double>(row.bytes),
                                                           row.p50_us);
  Chart chart{.title = operation,
              .x_name = "bytes",
              .y_name = "p50",
              .x_scale = Scale::kLog2,
              .y_scale = Scale::kLog10,
              .x_text = size_text,
              .y_text = time_text};
  for (auto& [name, series] : curves) {
    series.name =
        name.first + ", " + std::to_string(name.second) + (name.second == 1 ? " rank" : " ranks");
    series.color = static_cast<int>(chart.series.size());
    series.dots = true;
    chart.series.push_back(std::move(series));
  }
  return chart;
}

}  // namespace

std::string to_svg(const CommReport& report) {
  std::vector<Chart> charts;
  for (const auto& [name, op] : comm_ops())
    if (Chart chart = chart_of(name, report.rows); !chart.series.empty())
      charts.push_back(std::move(chart));
  return charts_svg(
      charts, "engine bench comm: median time of the slowest rank, " + report.rows.front().dtype,
      report.heading.machine.cpu + ", " + std::to_string(report.heading.machine.allowed_cores) +
          " cores; " + report.heading.build);
}

}  // namespace tools
