// Options, measurement and results of `engine bench comm`.
//
// Definitions: each rank times its own call, from the moment it leaves a barrier; the time of an
// iteration is the longest among the ranks. `bytes` and both bandwidths are those of nccl-tests
// (https://github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md): algbw = bytes / time, busbw = algbw *
// factor, which makes different numbers of ranks comparable with a link's speed:
//   allreduce       bytes of the buffer of each rank          factor 2(n-1)/n
//   broadcast       bytes of the buffer                       factor 1
//   allgather       bytes of the gathered result              factor (n-1)/n
//   reduce_scatter  bytes of the input of each rank           factor (n-1)/n
//   alltoall        bytes of the input of each rank           factor (n-1)/n
//   sendrecv        bytes that each rank sends; here ranks 0-1, 2-3, ... exchange buffers (a last
//   odd rank is idle)   factor 1
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/group.h"
#include "tools/bench/bench_report.h"

namespace tools {

enum class CommOp : std::uint8_t {
  kAllReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBarrier,
  kSendRecv
};
const std::vector<std::pair<std::string, CommOp>>& comm_ops();  // by the names of --op
std::string to_string(CommOp op);
double bus_factor(CommOp op, int ranks);

struct CommBench {
  std::vector<CommOp> ops;
  std::vector<std::int64_t> sizes;  // bytes, ascending
  base::DType type = base::DType::kF32;
  // Same as in CommunicatorRequest; the measurements of several backends are interleaved in blocks
  // of iterations.
  std::vector<std::string> backends;
  int iterations = 20, warmup = 5;
  // Measuring time for one size on one backend; there are fewer iterations if they would take
  // longer.
  double seconds = 2;
  bool check_all = false;  // check every byte of every result, not only samples
};

struct CommRow {
  std::string op, backend, dtype;
  int ranks = 1;
  std::int64_t bytes = 0, count = 0;
  int iterations = 0, wrong = 0;  // `wrong`: the number of wrong results on any rank
  double min_us = 0, p50_us = 0, p99_us = 0;
  double algbw = 0, busbw = 0;  // in GB/s (1e9), from p50

  bool operator==(const CommRow&) const = default;
};

// Parse "8", "4K", "25M", "1G" (powers of 1024), and "8:64M:8" or "8,4K,1M": sizes in ascending
// order. Throw UsageError.
std::int64_t parse_bytes(const std::string& text);
std::vector<std::int64_t> parse_sizes(const std::string& text);
// Returns e.g. "8", "4 KiB", "100 MB": exact if a unit fits.
std::string bytes_text(std::int64_t bytes);

// Collective over the group. Every rank gets the rows.
std::vector<CommRow> measure_collectives(const CommBench& bench, backends::Group& group);
// Makes one row from the times of all ranks: times[r][i] is rank r's seconds in iteration i.
CommRow summarize(CommRow row, CommOp op, const std::vector<std::vector<double>>& times);

struct CommReport {
  BenchHeading heading;
  int iterations_asked = 0;
  bool check_all = false;
  std::vector<CommRow> rows;
};
std::string comm_text(const CommReport& report, ReportFormat format);
// The rows of a report as JSON. Throws io::DataError.
std::vector<CommRow> read_comm_rows(const std::string& path);
// Converts rows to JSON lines, which rank 0 of a spawned group writes, and back.
std::string rows_to_json(const std::vector<CommRow>& rows);
std::vector<CommRow> rows_from_json(const std::string& text, const std::string& where);

struct Comparison {
  std::string text;  // one line per row that both have
  int compared = 0, slower = 0;
};
// A row counts as slower if p50 is more than `tolerance` times the old one.
Comparison compare_rows(const std::vector<CommRow>& now, const std::vector<CommRow>& before,
                        double tolerance);

// Plots median times over bytes, both axes logarithmic: one panel per operation, one line per
// backend and number of ranks.
std::string to_svg(const CommReport& report);

}  // namespace tools
