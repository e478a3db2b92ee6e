// Names the collectives of `engine bench comm`, and formats its results: sizes, statistics, table,
// CSV, JSON, and a comparison with an earlier run.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <tuple>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/formats/json_writer.h"
#include "tools/bench/comm/bench_comm.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/json_file.h"

namespace tools {
namespace {

constexpr std::int64_t kLargestSize = std::int64_t{16} << 30, kLargestBaseline = 16 << 20;
const Cells kColumns{"op",     "backend", "ranks",  "bytes",      "count",      "dtype", "iters",
                     "min us", "p50 us",  "p99 us", "algbw GB/s", "busbw GB/s", "check"};
const Cells kCsvColumns{"op",     "backend", "ranks",  "bytes",      "count",      "dtype", "iters",
                        "min_us", "p50_us",  "p99_us", "algbw_gb_s", "busbw_gb_s", "wrong"};

std::vector<std::string> cells(const CommRow& r) {
  const auto us = [](double v) { return fixed(v, v < 1000 ? 2 : 0); };
  const std::string check = r.op == "barrier" ? "-"
                            : r.wrong == 0    ? "ok"
                                              : "WRONG " + std::to_string(r.wrong);
  return {r.op,
          r.backend,
          std::to_string(r.ranks),
          std::to_string(r.bytes),
          std::to_string(r.count),
          r.dtype,
          std::to_string(r.iterations),
          us(r.min_us),
          us(r.p50_us),
          us(r.p99_us),
          r.bytes > 0 ? fixed(r.algbw, r.algbw < 0.1 ? 5 : 3) : "-",
          r.bytes > 0 ? fixed(r.busbw, r.busbw < 0.1 ? 5 : 3) : "-",
          check};
}

std::string notes(const CommReport& r) {
  int cut = 0, wrong = 0;
  for (const CommRow& row : r.rows) cut += row.iterations<r.iterations_asked, wrong += row.wrong> 0;
  std::string text = "Time of an iteration: the slowest rank's own call. Results checked " +
                     std::string(r.check_all ? "whole" : "at samples") +
                     " in every iteration, outside the measured time.\n";
  if (cut > 0)
    text += std::to_string(cut) + " of " + std::to_string(r.rows.size()) +
            " rows have fewer than " + std::to_string(r.iterations_asked) +
            " iterations: more would not fit into --seconds.\n";
  if (wrong > 0) text += std::to_string(wrong) + " rows have WRONG RESULTS.\n";
  return text;
}

auto key_of(const CommRow& r) { return std::tuple(r.op, r.backend, r.ranks, r.bytes, r.dtype); }

}  // namespace

std::int64_t parse_bytes(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit(end, text.data() + text.size());
  if (unit.ends_with("iB")) unit.resize(unit.size() - 2);
  const std::map<std::string, int> shifts{{"", 0},   {"B", 0},  {"K", 10},
                                          {"k", 10}, {"M", 20}, {"G", 30}};
  const auto shift = shifts.find(unit);
  if (error != std::errc{} || shift == shifts.end() || value < 1 ||
      value > kLargestSize >> shift->second)
    throw UsageError(
        "size '" + text +
        "': expected 1 to 16G bytes, as 8, 4K, 25M or 100000000 (K, M and G are powers of 1024)");
  return value << shift->second;
}

std::vector<std::int64_t> parse_sizes(const std::string& text) {
  const bool range = text.find(':') != std::string::npos;
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == (range ? ':' : ','))
      parts.emplace_back();
    else
      parts.back() += c;
  }
  std::vector<std::int64_t> sizes;
  if (!range) {
    for (const std::string& part : parts) sizes.push_back(parse_bytes(part));
  } else {
    if (parts.size() > 3)
      throw UsageError("sizes '" + text + "': expected MIN:MAX:FACTOR or a list as 8,4K,1M");
    const std::int64_t low = parse_bytes(parts[0]), high = parse_bytes(parts[1]);
    const std::int64_t factor = parts.size() == 3 ? parse_bytes(parts[2]) : 2;
    if (factor < 2 || high < low)
      throw UsageError(
          "sizes '" + text +
          "': expected MIN:MAX:FACTOR with MIN not above MAX and a factor of 2 or more");
    for (std::int64_t size = low; size <= high; size *= factor) sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::string bytes_text(std::int64_t bytes) {
  for (const auto& [size, unit] : {std::pair{std::int64_t{1} << 30, " GiB"},
                                   {std::int64_t{1} << 20, " MiB"},
                                   {std::int64_t{1} << 10, " KiB"},
                                   {std::int64_t{1'000'000}, " MB"}})
    if (bytes >= size && bytes % size == 0) return std::to_string(bytes / size) + unit;
  return std::to_string(bytes) + " B";
}

CommRow summarize(CommRow row, CommOp op, const std::vector<std::vector<double>>& times) {
  std::vector<double> slowest = times.front();
  for (const auto& rank : times)
    for (std::size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], rank[i]);
  std::sort(slowest.begin(), slowest.end());
  const auto at = [&](double share) {
    return slowest[static_cast<std::size_t>(
               std::lround(share * static_cast<double>(slowest.size() - 1)))] *
           1e6;
  };
  row.min_us = at(0);
  row.p50_us = at(0.5);
  row.p99_us = at(0.99);
  row.algbw = row.p50_us > 0 ? static_cast<double>(row.bytes) / row.p50_us / 1e3 : 0;
  row.busbw = row.algbw * bus_factor(op, row.ranks);
  return row;
}

namespace {

void add_rows(base::JsonWriter& json, const std::vector<CommRow>& rows) {
  json.begin_array();
  for (const CommRow& r : rows) {
    json.new_line().begin_object().member("op", r.op).member("backend", r.backend);
    json.member("ranks", r.ranks).member("bytes", r.bytes).member("count", r.count);
    json.member("dtype", r.dtype).member("iters", r.iterations).member("min_us", r.min_us);
    json.member("p50_us", r.p50_us).member("p99_us", r.p99_us).member("algbw_gb_s", r.algbw);
    json.member("busbw_gb_s", r.busbw).member("wrong", r.wrong).end_object();
  }
  json.new_line().end_array();
}

std::string to_json(const CommReport& r) {
  base::JsonWriter json;
  begin_report(json, "bench comm", r.heading);
  json.member("iters_asked", r.iterations_asked);
  json.member("check", r.check_all ? "all" : "samples").key("rows");
  add_rows(json, r.rows);
  return json.end_object().text() + "\n";
}

Cells csv_cells(const CommRow& r) {
  return {r.op,
          r.backend,
          std::to_string(r.ranks),
          std::to_string(r.bytes),
          std::to_string(r.count),
          r.dtype,
          std::to_string(r.iterations),
          fixed(r.min_us, 3),
          fixed(r.p50_us, 3),
          fixed(r.p99_us, 3),
          fixed(r.algbw, 5),
          fixed(r.busbw, 5),
          std::to_string(r.wrong)};
}

std::vector<CommRow> rows_of(const Json& list, const std::string& where) {
  if (!list.is_array()) throw io::DataError(where + ": expected a list of rows");
  std::vector<CommRow> rows;
  for (const Json& item : list) {
    const std::string at = where + ": row " + std::to_string(rows.size());
    CommRow r;
    r.op = text_member(item, "op", at);
    r.backend = text_member(item, "backend", at);
    r.dtype = text_member(item, "dtype", at);
    r.ranks = static_cast<int>(whole_member(item, "ranks", 1, 1 << 30, at));
    r.bytes = whole_member(item, "bytes", 0, INT64_MAX, at);
    r.count = whole_member(item, "count", 0, INT64_MAX, at);
    r.iterations = static_cast<int>(whole_member(item, "iters", 1, 1 << 30, at));
    r.wrong = static_cast<int>(whole_member(item, "wrong", 0, 1 << 30, at));
    r.min_us = real_member(item, "min_us", at);
    r.p50_us = real_member(item, "p50_us", at);
    r.p99_us = real_member(item, "p99_us", at);
    r.algbw = real_member(item, "algbw_gb_s", at);
    r.busbw = real_member(item, "busbw_gb_s", at);
    rows.push_back(std::move(r));
  }
  return rows;
}

}  // namespace

std::string rows_to_json(const std::vector<CommRow>& rows) {
  base::JsonWriter json;
  add_rows(json, rows);
  return json.text();
}

std::string comm_text(const CommReport& report, ReportFormat format) {
  if (format == ReportFormat::kJson) return to_json(report);
  const bool people = format != ReportFormat::kCsv;
  std::vector<Cells> lines{people ? kColumns : kCsvColumns};
  for (const CommRow& row : report.rows) lines.push_back(people ? cells(row) : csv_cells(row));
  return report_text(format, heading_text(report.heading), lines, {0, 1, 5, 12}, notes(report));
}

std::vector<CommRow> read_comm_rows(const std::string& path) {
  const Json report = parse_json(io::read_small_file(path, kLargestBaseline), path);
  if (text_member(report, "command", path) != "bench comm")
    throw io::DataError(path + ": is not a report of engine bench comm --format json");
  return rows_of(list_member(report, "rows", path), path);
}

std::vector<CommRow> rows_from_json(const std::string& text, const std::string& where) {
  try {
    return rows_of(Json::parse(text), where);
  } catch (const Json::exception& error) {
    throw io::DataError(where + ": " + error.what());
  }
}

Comparison compare_rows(const std::vector<CommRow>& now, const std::vector<CommRow>& before,
                        double tolerance) {
  Comparison result;
  for (const CommRow& row : now) {
    const auto old = std::find_if(before.begin(), before.end(),
                                  [&](const CommRow& r) { return key_of(r) == key_of(row); });
    if (old == before.end() || old->p50_us <= 0) continue;
    const double ratio = row.p50_us / old->p50_us;
    ++result.compared;
    result.slower += ratio > tolerance;
    result.text += row.op + " " + row.backend + ", " + std::to_string(row.ranks) + " ranks, " +
                   bytes_text(row.bytes) + ": p50 " + fixed(row.p50_us, 2) + " us, was " +
                   fixed(old->p50_us, 2) + " us: " + fixed(ratio, 2) + " times" +
                   (ratio > tolerance ? "  SLOWER than " + fixed(tolerance, 2) + " times" : "") +
                   "\n";
  }
  return result;
}

const std::vector<std::pair<std::string, CommOp>>& comm_ops() {
  static const std::vector<std::pair<std::string, CommOp>> ops{
      {"allreduce", CommOp::kAllReduce}, {"broadcast", CommOp::kBroadcast},
      {"allgather", CommOp::kAllGather}, {"reduce_scatter", CommOp::kReduceScatter},
      {"alltoall", CommOp::kAllToAll},   {"barrier", CommOp::kBarrier},
      {"sendrecv", CommOp::kSendRecv}};
  return ops;
}

std::string to_string(CommOp op) { return comm_ops()[static_cast<std::size_t>(op)].first; }

double bus_factor(CommOp op, int ranks) {
  const double n = ranks;
  if (op == CommOp::kAllReduce) return 2 * (n - 1) / n;
  return op == CommOp::kBroadcast || op == CommOp::kBarrier || op == CommOp::kSendRecv
             ? 1
             : (n - 1) / n;
}

}  // namespace tools
