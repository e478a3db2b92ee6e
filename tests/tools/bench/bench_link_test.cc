// engine bench link: columns and figures of a link, and the real program on loopback and threads.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tools/launch/group/link_measure.h"
#include "tools/report/output/json_file.h"

namespace {

using namespace tools;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;

Link slow_link() {
  return {.a = 0,
          .b = 2,
          .backend = "socket",
          .latency_us = 50'000,
          .best_us = 49'000,
          .forward_gb_s = 0.0012,
          .back_gb_s = 0.125,
          .bytes = 1e6,
          .p99_us = 60'000,
          .forward_segments = 812,
          .forward_resent = 3,
          .back_segments = 700,
          .back_resent = 0};
}

TEST(LinkFigures, RatesInBothUnitsAndWholeRoundTrips) {
  EXPECT_EQ(link_cells(slow_link(), true),
            (Cells{"0 - 2", "socket", "9.600", "1000", "1.200", "125.0", "100.000", "120.000",
                   "3 of 812", "0 of 700"}));
  EXPECT_EQ(link_cells(slow_link(), false),
            (Cells{"0", "2", "socket", "false", "9.6000", "1000.0000", "1.20000", "125.00000",
                   "100.00000", "120.00000", "812", "3", "700", "0"}));
  EXPECT_EQ(link_columns(true).size(), link_cells(slow_link(), true).size());
  EXPECT_EQ(link_columns(false).size(), link_cells(slow_link(), false).size());
  Link uncounted = slow_link();
  uncounted.forward_segments = uncounted.forward_resent = -1;
  EXPECT_EQ(link_cells(uncounted, true)[8], "-");
  EXPECT_EQ(link_cells(uncounted, false)[10], "");
  EXPECT_EQ(rate_text_of(0.0012), "9.6 Mbit/s");
  EXPECT_EQ(rate_text_of(1.25), "10 Gbit/s");
}

void expect_figures(const Json& row) {
  for (const char* figure : {"there_mbit_s", "back_mbit_s", "there_mb_s", "back_mb_s",
                             "round_trip_ms", "round_trip_p99_ms"}) {
    const double value = row.at(figure).get<double>();
    EXPECT_TRUE(std::isfinite(value) && value > 0) << figure << ": " << value;
  }
  EXPECT_NEAR(row.at("there_mbit_s").get<double>(), 8 * row.at("there_mb_s").get<double>(), 1e-3);
  EXPECT_LE(row.at("round_trip_ms").get<double>(), row.at("round_trip_p99_ms").get<double>());
}

TEST(BenchLink, EveryPairOfSpawnedRanksWithItsSegments) {
  const CommandResult result =
      expect_success(engine({"bench", "link", "--spawn", "3", "--format", "json"}));
  const Json report = Json::parse(result.out);
  EXPECT_EQ(report.at("command"), "bench link");
  ASSERT_EQ(report.at("rows").size(), 3u);
  const std::vector<std::pair<int, int>> pairs{{0, 1}, {0, 2}, {1, 2}};
  for (std::size_t i = 0; i < 3; ++i) {
    const Json& row = report.at("rows").at(i);
    EXPECT_EQ(row.at("a"), pairs[i].first);
    EXPECT_EQ(row.at("b"), pairs[i].second);
    EXPECT_EQ(row.at("backend"), "socket");
    EXPECT_EQ(row.at("one_host"), true);
    expect_figures(row);
    // At least 64 KiB went each way, in segments of at most 64 KiB.
    EXPECT_GT(row.at("there_segments").get<int>(), 0);
    EXPECT_GT(row.at("back_segments").get<int>(), 0);
    EXPECT_GE(row.at("there_resent").get<int>(), 0);
  }
}

TEST(BenchLink, TableCsvAndABackendWithoutConnections) {
  const CommandResult table = expect_success(engine({"bench", "link"}));
  EXPECT_CONTAINS(table.out, "0 - 1  socket");
  EXPECT_CONTAINS(table.out, "round trip ms");
  EXPECT_VALUES(expect_success(engine({"bench", "link", "--spawn", "1"})).out,
                "One rank no link: 2 --spawn 2");
  const CommandResult csv = expect_success(
      engine({"bench", "link", "--spawn", "2", "--backend", "inproc", "--format", "csv"}));
  EXPECT_TRUE(csv.out.starts_with("a,b,backend,one_host,there_mbit_s,")) << csv.out;
  EXPECT_CONTAINS(csv.out, "\n0,1,inproc,true,");
  EXPECT_TRUE(csv.out.ends_with(",,,,\n")) << csv.out;
}

}  // namespace
