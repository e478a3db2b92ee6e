// Formats headings, tables and CSV of benchmarks.
#include "tools/bench/bench_report.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "io/base/text/text_parts.h"
#include "io/base/time/utc_time.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
BenchHeading bench_heading() {
  return {machine_info(), build_text(), base::utc_text(base::unix_us())};
}

std::string heading_text(const BenchHeading& h) {
  return h.build + ", " + h.when + "\n" + h.machine.host + ": " + h.machine.cpu + ", " +
         std::to_string(h.machine.allowed_cores) + " of " + std::to_string(h.machine.cores) +
         " cores, load " + fixed(h.machine.load, 2) + ", " + h.machine.kernel + "\n";
}

CLI::Option* add_format_option(CLI::App& app, ReportFormat& format,
                               std::vector<std::string> names) {
  const auto take = [&format](const std::string& name) {
    format = name == "json"  ? ReportFormat::kJson
             : name == "csv" ? ReportFormat::kCsv
             : name == "md"  ? ReportFormat::kMarkdown
                             : ReportFormat::kTable;
  };
  const bool json = std::ranges::find(names, "json") != names.end();
  return app
      .add_option_function<std::string>("--format", take,
                                        json ? "table, json, csv or md" : "table, csv or md")
      ->check(CLI::IsMember(std::move(names)))
      ->default_str("table");
}

void begin_report(base::JsonWriter& json, const char* command, const BenchHeading& h) {
  json.begin_object().member("schema", 1).member("command", command);
  json.member("build", h.build).member("when", h.when).member("host", h.machine.host);
  json.member("cpu", h.machine.cpu).member("kernel", h.machine.kernel);
  json.member("cores", h.machine.cores).member("allowed_cores", h.machine.allowed_cores);
  json.member("load", h.machine.load);
}

std::string csv_text(const std::vector<Cells>& lines) {
  std::string text;
  for (const Cells& line : lines)
    for (std::size_t c = 0; c < line.size(); ++c)
      text += base::csv_field(line[c]) + (c + 1 < line.size() ? "," : "\n");
  return text;
}

std::string report_text(ReportFormat format, const std::string& before,
                        const std::vector<Cells>& lines, const std::vector<std::size_t>& left,
                        const std::string& after) {
  if (format == ReportFormat::kCsv) return csv_text(lines);
  const bool markdown = format == ReportFormat::kMarkdown;
  const std::string gap = markdown && !after.empty() ? "\n" : "";
  return before + gap + table_text(lines, left, markdown) + gap + after;
}

std::vector<std::string> split_list(const std::string& list, const char* option) {
  std::vector<std::string> parts{""};
  bool checked = false;  // checked:A,B counts as one backend
  for (const char c : list) {
    if (c == ',' && !(checked && parts.back().find(',') == std::string::npos)) {
      parts.emplace_back();
      checked = false;
      continue;
    }
    parts.back() += c;
    if (parts.back() == "checked:") checked = true;
  }
  if (std::find(parts.begin(), parts.end(), "") != parts.end())
    throw UsageError(std::string(option) + " '" + list +
                     "': expected names with commas between them");
  return parts;
}

std::vector<int> rank_counts(const std::string& list) {
  std::vector<int> counts;
  for (const std::string& part : split_list(list, "--ranks")) {
    const bool digits = part.size() <= 4 && std::all_of(part.begin(), part.end(), [](char c) {
                          return c >= '0' && c <= '9';
                        });
    const int count = digits ? std::stoi(part) : 0;
    if (count < 1 || count > 1024)
      throw UsageError("--ranks '" + list + "': expected numbers from 1 to 1024, as 2,4");
    counts.push_back(count);
  }
  return counts;
}

}  // namespace tools
