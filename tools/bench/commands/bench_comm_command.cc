// Implements `engine bench comm`: its command line, its groups, and the output of its results.
#include <sys/mman.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>

#include "backends/compose/table/backend_table.h"
#include "io/base/files/io_error.h"
#include "io/checkpoint/atomic_file.h"
#include "tools/bench/comm/bench_comm.h"
#include "tools/bench/comm/bench_comm_device.h"
#include "tools/bench/commands/bench_commands.h"
#include "tools/folder/output_paths.h"
#include "tools/launch/group/group_flags.h"
#include "tools/launch/group/run_group.h"
#include "tools/options/table/value_check.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

struct CommFlags {
  std::string op = "allreduce", sizes = "8:16M:8", dtype = "f32", backends, ranks, baseline, plot;
  ReportFormat format = ReportFormat::kTable;
  int iterations = 20, warmup = 5;
  double seconds = 2, tolerance = 1.25;
  bool check = false;
};

base::DType type_named(const std::string& name) {
  const std::optional<base::DType> type = base::parse_dtype(name);
  if (type && *type != base::DType::kI32) return *type;
  throw UsageError("--dtype '" + name + "': expected f32, f64, f16, bf16, i64 or u8");
}

CommBench to_bench(const CommFlags& flags) {
  CommBench bench;
  for (const auto& [name, op] : comm_ops())
    if (flags.op == "all" || flags.op == name) bench.ops.push_back(op);
  bench.sizes = parse_sizes(flags.sizes);
  bench.type = type_named(flags.dtype);
  bench.iterations = flags.iterations;
  bench.warmup = flags.warmup;
  bench.seconds = flags.seconds;
  bench.check_all = flags.check;
  return bench;
}

// Returns the backends to measure in this group: "all" are those of this build that can join these
// ranks.
std::vector<std::string> backends_for(const std::vector<std::string>& asked,
                                      const backends::Group& group) {
  if (asked != std::vector<std::string>{"all"}) return asked;
  const auto& peers = group.peers();
  const bool one_host = std::all_of(peers.begin(), peers.end(), [&](const auto& p) {
    return p.host_id == peers.front().host_id;
  });
  std::vector<std::string> names;
  for (const backends::BackendInfo& b : backends::list_backends())
    if (b.usable && b.name != "inproc" && (b.joins_hosts || one_host)) names.push_back(b.name);
  return names;
}

int wrong_results(const std::vector<CommRow>& rows) {
  int wrong = 0;
  for (const CommRow& row : rows) wrong += row.wrong;
  return wrong;
}

// Memory in which rank 0 of a forked group stores its results for the parent.
class ResultFile {
 public:
  ResultFile() : fd_(memfd_create("bench-comm", MFD_CLOEXEC)) {
    if (fd_ < 0) throw std::runtime_error("cannot create a file in memory");
  }
  ~ResultFile() { close(fd_); }
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;

  void put(const std::vector<CommRow>& rows) const {
    const std::string text = rows_to_json(rows);
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t wrote =
          pwrite(fd_, text.data() + done, text.size() - done, static_cast<off_t>(done));
      if (wrote <= 0) throw std::runtime_error("cannot keep the results in memory");
      done += static_cast<std::size_t>(wrote);
    }
  }
  std::vector<CommRow> take() const {
    std::string text;
    char block[4096];
    for (ssize_t got; (got = pread(fd_, block, sizeof block, static_cast<off_t>(text.size()))) > 0;)
      text.append(block, static_cast<std::size_t>(got));
    return text.empty() ? std::vector<CommRow>{} : rows_from_json(text, "results of rank 0");
  }

 private:
  const int fd_;
};

// Measures all backends of one group. Rows are returned in the process of rank 0, or its parent.
// Returns the exit code of a failed rank.
int measure_group(const RunConfig& config, const CommBench& bench,
                  const std::vector<std::string>& asked, std::vector<CommRow>& rows) {
  const ResultFile results;
  const int code = run_group(config, [&](backends::Group& group) {
    CommBench own = bench;  // ranks may be threads
    own.backends = backends_for(asked, group);
    const std::vector<CommRow> measured = measure_collectives(own, group);
    if (group.rank() == 0) results.put(measured);
    return wrong_results(measured) > 0 ? kExitMismatch : kExitOk;
  });
  for (CommRow& row : results.take()) rows.push_back(std::move(row));
  return code;
}

int measure_all(const CommFlags& flags, const RunConfig& config, std::vector<CommRow>& rows) {
  const CommBench bench = to_bench(flags);
  std::vector<std::string> processes =
      split_list(flags.backends.empty() ? config.group.backend : flags.backends, "--backends");
  for (const std::string& name : processes)
    if (name != "all" && !is_device_backend(name)) backends::check_backend(name);
  if (in_launched_group(config)) {
    if (!flags.ranks.empty())
      throw UsageError(
          "--ranks starts new ranks, but this process is already a rank of a group: omit it");
    return measure_group(config, bench, processes, rows);
  }
  const bool threads = std::erase(processes, "inproc") > 0;
  std::vector<int> counts{config.spawn > 0 ? config.spawn : 2};
  if (!flags.ranks.empty()) counts = rank_counts(flags.ranks);
  for (const int ranks : counts) {
    RunConfig own = config;
    own.spawn = ranks;
    int code = kExitOk;
    if (!processes.empty()) {
      if (own.group.backend == "inproc" || is_device_backend(own.group.backend))
        own.group.backend = "auto";  // the control communicator is on the host
      code = measure_group(own, bench, processes, rows);
    }
    if (code == kExitOk &&
        threads) {  // threads are a separate group: not interleaved with the processes
      own.group.backend = "inproc";
      code = measure_group(own, bench, {"inproc"}, rows);
    }
    if (code != kExitOk) return code;
  }
  return kExitOk;
}

int report(const CommFlags& flags, const std::vector<CommRow>& baseline, const CommReport& result) {
  const std::string text = comm_text(result, flags.format);
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (!flags.plot.empty()) io::write_file_atomically(flags.plot, to_svg(result));
  if (const int wrong = wrong_results(result.rows); wrong > 0) {
    print_notice("error: " + std::to_string(wrong) +
                 " results of collectives were wrong (column check)");
    return kExitMismatch;
  }
  if (flags.baseline.empty()) return kExitOk;
  const Comparison comparison = compare_rows(result.rows, baseline, flags.tolerance);
  if (comparison.compared == 0)
    throw io::DataError(flags.baseline + ": has none of the " + std::to_string(result.rows.size()) +
                        " rows measured here (same op, backend, ranks, bytes and dtype)");
  // Beside a table for people; beside data for programs it would be in the way.
  const bool people =
      flags.format == ReportFormat::kTable || flags.format == ReportFormat::kMarkdown;
  const std::string summary = "baseline " + flags.baseline + ": " +
                              std::to_string(comparison.slower) + " of " +
                              std::to_string(comparison.compared) + " rows are slower\n";
  std::fprintf(people ? stdout : stderr, "\n%s%s", comparison.text.c_str(), summary.c_str());
  return comparison.slower > 0 ? kExitDifferent : kExitOk;
}

void add_flags(CLI::App& app, CommFlags& flags) {
  std::vector<std::string> ops{"all"};
  for (const auto& [name, op] : comm_ops()) ops.push_back(name);
  app.add_option("--op", flags.op, "what to measure")
      ->check(CLI::IsMember(ops))
      ->capture_default_str();
  app.add_option("--sizes", flags.sizes, "bytes: MIN:MAX:FACTOR, or a list, e.g. 8,4K,1M")
      ->type_name("LIST")
      ->capture_default_str();
  app.add_option("--dtype", flags.dtype, "f32, f64, f16, bf16, i64 or u8")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--backends", flags.backends,
                 "backends, interleaved; all: the usable ones; nccl, staged, staged:NAME: on GPUs "
                 "(default: --backend)")
      ->type_name("LIST")
      ->check(some_text("names with commas between them, or all"));
  app.add_option("--ranks", flags.ranks,
                 "numbers of ranks on this host, e.g. 2,4 (default: --spawn, else 2)")
      ->type_name("LIST")
      ->check(some_text("numbers from 1 to 1024, as 2,4"))
      ->excludes("--spawn");
  app.add_option("--iters", flags.iterations, "measured iterations")
      ->transform(whole_number(1))
      ->capture_default_str();
  app.add_option("--warmup", flags.warmup, "warm-up iterations, at least 2")
      ->transform(whole_number(0))
      ->capture_default_str();
  app.add_option("--seconds", flags.seconds,
                 "time limit per size and backend, with at least 3 iterations")
      ->transform(number_above_zero())
      ->capture_default_str();
  app.add_flag("--check", flags.check, "check every byte of every result, not samples");
  app.add_option("--baseline", flags.baseline,
                 "compare with an earlier --format json; exit 1 if a row is slower")
      ->type_name("FILE")
      ->check(some_text("a file"));
  app.add_option("--tolerance", flags.tolerance, "--baseline: factor above which a row is slower")
      ->transform(number_above_zero())
      ->capture_default_str();
  add_format_option(app, flags.format);
  app.add_option("--plot", flags.plot, "also plot the medians")
      ->type_name("FILE.svg")
      ->check(some_text("a file"));
}

}  // namespace

int bench_comm_command(const Arguments& arguments) {
  CLI::App app(
      "Measures collectives: time of the slowest rank, and bandwidths as nccl-tests defines them.",
      "engine bench comm");
  CommFlags flags;
  ConfigValues values;
  add_group_flags(app, values);
  add_flags(app, flags);
  app.footer(
      "Under a launcher (srun, mpirun, --rank) its ranks are measured; otherwise ranks are started "
      "on this host.");
  if (!parse(app, arguments)) return kExitOk;
  const RunConfig config = resolve_group_flags(values);
  if (!flags.plot.empty() && flags.op == "barrier")
    throw UsageError("--plot draws time over bytes, but a barrier transfers none");
  if (!flags.plot.empty() && has_rank_zero(config)) {
    check_output_path("plot", flags.plot, "");
    check_new_file(flags.plot, {});
  }
  std::vector<CommRow> baseline;
  if (!flags.baseline.empty())
    baseline = read_comm_rows(flags.baseline);  // read it now, to fail before minutes of measuring
  CommReport result{.heading = bench_heading(),
                    .iterations_asked = flags.iterations,
                    .check_all = flags.check,
                    .rows = {}};
  const int code = measure_all(flags, config, result.rows);
  if ((code != kExitOk && code != kExitMismatch) || result.rows.empty())
    return code;  // no rows: another rank reports
  return report(flags, baseline, std::move(result));
}

}  // namespace tools
