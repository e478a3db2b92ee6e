// engine bench comm: sizes, statistics, right and wrong results, reports that read back, and the
// real program.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "engine/core/cuda.h"
#include "io/base/files/io_error.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tools/bench/comm/bench_comm.h"
#include "tools/bench/comm/bench_comm_pattern.h"
#include "tools/report/output/exit_codes.h"

namespace {

using namespace tools;
using test_support::CommandResult;
using test_support::engine;
using test_support::TemporaryDirectory;

TEST(CommSizes, RangesAndLists) {
  EXPECT_EQ(parse_sizes("8:4K:8"), (std::vector<std::int64_t>{8, 64, 512, 4096}));
  EXPECT_EQ(parse_sizes("1K:3K"), (std::vector<std::int64_t>{1024, 2048}));
  EXPECT_EQ(parse_sizes("25M,8,100000000,8"),
            (std::vector<std::int64_t>{8, 25 << 20, 100'000'000}));
  for (const char* bad : {"", "8:", "x", "8Q", "0", "-8", "4K:8:2", "8:16:1", "8:16:2:2", "17G",
                          "9999999999999999999", "8,,16"})
    EXPECT_THROW(parse_sizes(bad), UsageError) << bad;
  EXPECT_EQ(bytes_text(8), "8 B");
  EXPECT_EQ(bytes_text(4096), "4 KiB");
  EXPECT_EQ(bytes_text(100'000'000), "100 MB");
}

TEST(CommStatistics, TimeIsTheSlowestRanksAndBandwidthsAreThoseOfNcclTests) {
  CommRow row;
  row.ranks = 4;
  row.bytes = 4'000'000;
  // Maxima of the two ranks' iterations: 4, 2, 3 ms.
  const CommRow done =
      summarize(row, CommOp::kAllReduce, {{0.001, 0.002, 0.003}, {0.004, 0.001, 0.001}});
  EXPECT_NEAR(done.min_us, 2000, 1e-6);
  EXPECT_NEAR(done.p50_us, 3000, 1e-6);
  EXPECT_NEAR(done.p99_us, 4000, 1e-6);
  EXPECT_NEAR(done.algbw, 4.0 / 3, 1e-9);
  EXPECT_NEAR(done.busbw, 2, 1e-9);  // 2(n-1)/n = 1.5
  EXPECT_NEAR(bus_factor(CommOp::kAllGather, 4), 0.75, 1e-12);
  EXPECT_NEAR(bus_factor(CommOp::kReduceScatter, 4), 0.75, 1e-12);
  EXPECT_NEAR(bus_factor(CommOp::kAllToAll, 4), 0.75, 1e-12);
  EXPECT_NEAR(bus_factor(CommOp::kBroadcast, 4), 1, 1e-12);
}

class CommPatternOf : public testing::TestWithParam<base::DType> {};

TEST_P(CommPatternOf, ABitAStaleRoundAndAnotherRankAreSeen) {
  const CommPattern pattern(GetParam(), 3);
  const std::size_t count = 300'000, element = base::size_of(GetParam());
  std::vector<std::byte> data(count * element);
  pattern.fill(data.data(), count, 1, 5, true);
  EXPECT_TRUE(pattern.matches(data.data(), 0, count, 1, 5, true));
  EXPECT_TRUE(pattern.matches(data.data(), 0, count, 1, 5, false));
  EXPECT_TRUE(pattern.matches(&data[777 * element], 777, count - 777, 1, 5, true));
  EXPECT_FALSE(pattern.matches(data.data(), 0, count, 1, 4, false));
  EXPECT_FALSE(pattern.matches(data.data(), 0, count, 0, 5, false));
  EXPECT_FALSE(pattern.matches(data.data(), 0, count, CommPattern::kSum, 5, false));
  for (const std::size_t at : {std::size_t{0}, data.size() / 3, data.size() - 1}) {
    data[at] ^= std::byte{1};
    EXPECT_FALSE(pattern.matches(data.data(), 0, count, 1, 5, true)) << at;
    data[at] ^= std::byte{1};
  }
}

INSTANTIATE_TEST_SUITE_P(All, CommPatternOf,
                         testing::Values(base::DType::kF32, base::DType::kF64, base::DType::kI64,
                                         base::DType::kU8, base::DType::kF16, base::DType::kBF16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

// A communicator whose sums are off by one in one element.
class Wrong final : public backends::Communicator {
 public:
  explicit Wrong(std::unique_ptr<backends::Communicator> inner) : inner_(std::move(inner)) {}
  std::string_view name() const override { return "wrong"; }
  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  void run(const backends::Call& call) override {
    inner_->run(call);
    if (call.word.operation == backends::Operation::kAllReduce)
      static_cast<float*>(call.data)[0] += 1;
  }
  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }

 private:
  std::unique_ptr<backends::Communicator> inner_;
};

class WrongGroup final : public backends::Group {
 public:
  explicit WrongGroup(std::unique_ptr<backends::Group> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  const std::vector<backends::PeerInfo>& peers() const override { return inner_->peers(); }
  std::string backend() const override { return "wrong"; }
  std::string backend_reason() const override { return ""; }
  std::unique_ptr<backends::Communicator> make_communicator(
      const backends::CommunicatorRequest& request) override {
    return std::make_unique<Wrong>(inner_->make_communicator({.members = request.members}));
  }
  std::string flight_record(const std::string& reason) const override {
    return inner_->flight_record(reason);
  }
  void set_activity(std::string_view activity) noexcept override { inner_->set_activity(activity); }
  void check() override { inner_->check(); }
  using Group::leave;
  void leave(const std::function<bool()>& hurried) override { inner_->leave(hurried); }

 private:
  std::unique_ptr<backends::Group> inner_;
};

TEST(CommMeasure, WrongResultsAreCounted) {
  auto groups = backends::make_inproc_groups(1, test_support::deadline_ms(10'000));
  WrongGroup group(std::move(groups[0]));
  CommBench bench;
  bench.ops = {CommOp::kAllReduce, CommOp::kBroadcast};
  bench.sizes = {64};
  bench.backends = {"wrong"};
  bench.iterations = 4;
  const std::vector<CommRow> rows = measure_collectives(bench, group);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_GE(rows[0].wrong, 4);
  EXPECT_EQ(rows[1].wrong, 0);
  CommReport report{.heading = {.machine = {}, .build = "b", .when = "w"},
                    .iterations_asked = 4,
                    .check_all = false,
                    .rows = rows};
  EXPECT_NE(comm_text(report, ReportFormat::kTable).find("WRONG RESULTS"), std::string::npos);
}

CommRow sample_row(const std::string& backend, std::int64_t bytes, double p50) {
  CommRow row;
  row.op = "allreduce";
  row.backend = backend;
  row.dtype = "f32";
  row.ranks = 2;
  row.bytes = bytes;
  row.count = bytes / 4;
  row.iterations = 20;
  row.min_us = p50 / 2;
  row.p50_us = p50;
  row.p99_us = p50 * 2;
  row.algbw = row.busbw = 0.1;
  return row;
}

TEST(CommReport, JsonReadsBackAndComparisonsCountTheSlower) {
  const TemporaryDirectory folder;
  CommReport report;
  report.heading.machine.host = "h \"quoted\"";
  report.rows = {sample_row("gloo", 8, 10), sample_row("checked:gloo,shm", 1 << 20, 1.0 / 3)};
  test_support::write_text(folder / "a.json", comm_text(report, ReportFormat::kJson));
  EXPECT_EQ(read_comm_rows(folder / "a.json"), report.rows);
  EXPECT_NE(comm_text(report, ReportFormat::kCsv).find("allreduce,\"checked:gloo,shm\",2,1048576"),
            std::string::npos)
      << comm_text(report, ReportFormat::kCsv);

  std::vector<CommRow> now = report.rows;
  now[0].p50_us = 12.4;
  EXPECT_EQ(compare_rows(now, report.rows, 1.25).slower, 0);
  now[0].p50_us = 12.6;
  now.push_back(sample_row("zmq", 8, 5));  // not in the baseline
  const Comparison comparison = compare_rows(now, report.rows, 1.25);
  EXPECT_EQ(comparison.slower, 1);
  EXPECT_EQ(comparison.compared, 2);
  EXPECT_VALUES(comparison.text,
                "allreduce gloo, 2 ranks, 8 B: p50 12.60 us, 10.00 us: 1.26 SLOWER");
}

TEST(CommReport, DamagedBaselinesAreOneClearLine) {
  const TemporaryDirectory folder;
  for (const char* text :
       {"", "{", "[]", "{\"command\":\"bench comm\"}", "{\"command\":\"bench comm\",\"rows\":[{}]}",
        "{\"command\":\"bench comm\",\"rows\":[{\"op\":7}]}", "{\"command\":\"other\",\"rows\":[]}",
        "\xff"}) {
    test_support::write_text(folder / "b.json", text);
    const CommandResult result = engine({"bench", "comm", "--baseline", folder / "b.json"});
    EXPECT_EQ(result.exit_code, 65) << text << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_NE(result.err.find("b.json"), std::string::npos) << result.err;
  }
}

TEST(BenchComm, EveryOperationOnSpawnedRanksWithChecksPlotAndBaseline) {
  const TemporaryDirectory folder;
  const std::vector<std::string> run{
      "bench",   "comm",    "--op",     "all",         "--backends", "shm,inproc", "--ranks",
      "2,3",     "--sizes", "8:4K:512", "--iters",     "3",          "--warmup",   "2",
      "--check", "--dtype", "bf16",     "--tolerance", "1e9"};
  std::vector<std::string> json = run;
  json.insert(json.end(), {"--format", "json", "--plot", folder / "p.svg"});
  const CommandResult first = engine(json);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  test_support::write_text(folder / "a.json", first.out);
  const std::vector<CommRow> rows = read_comm_rows(folder / "a.json");
  EXPECT_EQ(rows.size(),
            2u * 2 * (6 * 2 + 1));  // backends, groups, 5 operations of 2 sizes and the barrier
  for (const CommRow& row : rows) {
    EXPECT_EQ(row.wrong, 0) << row.op << row.backend;
    EXPECT_EQ(row.iterations, 3);
    EXPECT_LE(row.min_us, row.p50_us);
    EXPECT_LE(row.p50_us, row.p99_us);
    EXPECT_GT(row.p50_us, 0);
  }
  const std::string svg = test_support::read_text(folder / "p.svg");
  for (const char* part :
       {"<svg", "allreduce", "sendrecv", "shm, 3 ranks", "inproc, 2 ranks", "</svg>"})
    EXPECT_NE(svg.find(part), std::string::npos) << part;

  std::vector<std::string> again{
      "bench", "comm",       "--backends",      "shm",        "--sizes", "4K", "--dtype",
      "bf16",  "--baseline", folder / "a.json", "--tolerance"};
  again.emplace_back("1e9");
  const CommandResult same = engine(again);
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_NE(same.out.find("0 of 1 rows are slower"), std::string::npos) << same.out;
  again.back() = "1e-9";
  EXPECT_EQ(engine(again).exit_code, 1);
  again[5] = "8K";
  const CommandResult none = engine(again);
  EXPECT_EQ(none.exit_code, 65);
  EXPECT_VALUES(none.err, (folder / "a.json") + ": none 1 rows");
}

TEST(BenchComm, ALaunchedGroupIsMeasuredAsItIsAndRankZeroReports) {
  const TemporaryDirectory folder;
  std::vector<CommandResult> results(2);
  std::vector<std::thread> ranks;
  ranks.reserve(2);
  for (int r = 0; r < 2; ++r)
    ranks.emplace_back([&, r] {
      results[static_cast<std::size_t>(r)] =
          engine({"bench", "comm", "--rank", std::to_string(r), "--world-size", "2",
                  "--init-method", "file://" + (folder / "meet"), "--backends", "all", "--op",
                  "all", "--sizes", "64K", "--iters", "4", "--format", "csv"});
    });
  for (std::thread& t : ranks) t.join();
  EXPECT_EQ(results[0].exit_code, 0) << results[0].err;
  EXPECT_EQ(results[1].exit_code, 0) << results[1].err;
  EXPECT_NE(results[0].out.find("allreduce,shm,2,65536,16384,f32,4,"), std::string::npos)
      << results[0].out;
  EXPECT_EQ(results[0].out.find("inproc"), std::string::npos) << results[0].out;
  EXPECT_EQ(results[1].out, "");
  const CommandResult more = engine({"bench", "comm", "--rank", "0", "--world-size", "2",
                                     "--init-method", "file:///nowhere/x", "--ranks", "3"});
  EXPECT_EQ(more.exit_code, 2) << more.err;
}

// Buffers of GPUs, with ranks that have one each; where there is none, the reason is said and
// nothing fails.
TEST(BenchComm, DeviceBackendsAreMeasuredOrSkippedWithTheReason) {
  setenv("ENGINE_EMULATED_GPUS", "4", 1);
  const std::vector<std::string> run{
      "bench",   "comm",    "--op",    "all",        "--backends", "shm,nccl,staged:shm",
      "--ranks", "3",       "--sizes", "8:256K:512", "--iters",    "3",
      "--check", "--dtype", "bf16",    "--format",   "csv"};
  const CommandResult result = engine(run);
  unsetenv("ENGINE_EMULATED_GPUS");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("allreduce,shm,3,"), std::string::npos) << result.out;
  for (const std::string backend : {"nccl", "staged:shm"}) {
    if (result.err.find("backend " + backend + " is skipped: ") != std::string::npos) {
      EXPECT_EQ(result.out.find("," + backend + ","), std::string::npos);
      continue;
    }
    for (const char* op : {"allreduce", "broadcast", "allgather", "reduce_scatter", "alltoall",
                           "barrier", "sendrecv"})
      EXPECT_NE(result.out.find(std::string(op) + "," + backend + ",3,"), std::string::npos)
          << op << result.out << result.err;
  }
  if (::engine::cuda::kBuilt) return;
  EXPECT_VALUES(result.err, "nccl skipped: CUDA");
}

TEST(BenchComm, IterationsShrinkToTheTimeAndItSaysSo) {
  const CommandResult result =
      engine({"bench", "comm", "--sizes", "4M", "--iters", "100000", "--seconds", "0.05"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_VALUES(result.out, "1 1 rows 100000 iterations");
}

TEST(BenchComm, NonsenseIsRefused) {
  EXPECT_EQ(engine({"bench", "comm", "--sizes", "4Q"}).exit_code, 2);
  EXPECT_EQ(engine({"bench", "comm", "--ranks", "0"}).exit_code, 2);
  EXPECT_EQ(engine({"bench", "comm", "--ranks", "2,"}).exit_code, 2);
  EXPECT_EQ(engine({"bench", "comm", "--dtype", "f8"}).exit_code, 2);
  EXPECT_EQ(engine({"bench", "comm", "--op", "alltoone"}).exit_code, 2);
  EXPECT_EQ(engine({"bench", "comm", "--backends", "carrier-pigeon"}).exit_code, 78);
  EXPECT_EQ(engine({"bench", "comm", "--op", "barrier", "--plot", "p.svg"}).exit_code, 2);
  const CommandResult nowhere =
      engine({"bench", "comm", "--sizes", "8", "--iters", "2", "--plot", "/proc/nowhere/p.svg"});
  EXPECT_EQ(nowhere.exit_code, 73);
  EXPECT_EQ(nowhere.out, "");  // before anything is measured
}

}  // namespace
