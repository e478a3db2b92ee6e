// Pages about runs, as a browser gets them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"
#include "tools/html/environment_table.h"
#include "tools/html/run_history.h"
#include "tools/html/run_predictions.h"
#include "tools/html/svg_chart.h"
#include "tools/report/output/json_file.h"

namespace {

using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
using test_support::TemporaryDirectory;
namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
    ++count;
  return count;
}

void train_into(const std::string& folder, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = program::quick_train({"--log-every", "2"});
  arguments.insert(arguments.end(), {"--save-dir", folder});
  arguments = test_support::overridden(arguments, more);
  expect_success(engine(arguments));
}

TEST(Report, OfARunHasItsCurvesAndNeedsNoOtherFile) {
  const TemporaryDirectory folder;
  const std::string run = folder / "run", page = folder / "page.html";
  ASSERT_NO_FATAL_FAILURE(train_into(run));
  expect_success(call("report", run, "-o", page));
  const std::string text = text_of(page);
  program::expect_words(text, {">Loss</figcaption>", "time of a step goes</figcaption>"});
  EXPECT_EQ(count_of(text, "<svg "), count_of(text, "</svg>"));
  EXPECT_EQ(count_of(text, "<figure "), count_of(text, "</figure>"));
  for (const char* from_elsewhere : {"http:", "https:", "href=", "@import", "url("})
    EXPECT_LACKS(text, from_elsewhere) << from_elsewhere;
  EXPECT_EQ(count_of(text, "src="), count_of(text, "src=\"data:image/png;base64,"));
  EXPECT_LACKS(text, "http-equiv=\"refresh\"");
  program::expect_words(text, {"Content-Security-Policy", "default-src 'none'"});
  EXPECT_EQ(call("report", run, "-o -").out, text);
}

TEST(Report, OfSeveralRunsShowsWhereTheyDiffer) {
  const TemporaryDirectory folder;
  ASSERT_NO_FATAL_FAILURE(train_into(folder / "slow", {"--lr", "0.001"}));
  ASSERT_NO_FATAL_FAILURE(train_into(folder / "quick", {"--lr", "0.2"}));
  const std::string text = call("report", folder / "slow", folder / "quick", "-o -").out;
  program::expect_words(
      text, {"<th scope=\"row\">--lr</th><td>0.001</td><td>0.2</td>", "slow, training"});
}

TEST(Report, SaysWhatARunRanOnAndWhereThatDiffers) {
  const TemporaryDirectory folder;
  ASSERT_NO_FATAL_FAILURE(train_into(folder / "one"));
  ASSERT_NO_FATAL_FAILURE(train_into(folder / "two", {"--threads", "2", "--spawn", "2"}));
  const std::string text = call("report", folder / "one", "-o - --no-predictions").out;
  for (const char* name : {"CPU", "instruction set", "cores", "memory", "kernel", "compiler"})
    EXPECT_EQ(count_of(text, "<tr><th scope=\"row\">" + std::string(name) + "</th><td>"), 1u)
        << name;
  program::expect_words(
      text, {"<tr><th scope=\"row\">threads of each rank</th><td>1</td></tr>",
             "<tr><th scope=\"row\">backend</th><td>" +
                 tools::read_run_record(folder / "one").starts.at(0).backend + "</td></tr>"});
  const tools::RunRecord two = tools::read_run_record(folder / "two");
  ASSERT_EQ(two.starts.at(0).machines.size(), 1u);  // equal ones are one
  EXPECT_EQ(two.starts[0].machines[0].ranks, (std::vector<int>{0, 1}));
  const std::string both = call("report", folder / "one", folder / "two", "-o -").out;
  const std::size_t end = both.find("</table>");  // of what is at a glance
  EXPECT_LT(both.find("<th scope=\"row\">threads of each rank</th><td>1</td><td>2</td>"), end);
  EXPECT_GT(both.find("<th scope=\"row\">CPU</th>"), end);  // the same
}

tools::RunStart start_of(const std::string& program, const std::vector<std::string>& hosts,
                         const std::string& backend = "",
                         const std::vector<tools::RunMachine>& machines = {}) {
  tools::RunStart start;
  start.program = program;
  start.hosts = hosts;
  start.backend = backend;
  start.machines = machines;
  return start;
}

TEST(Report, OfARunThatDoesNotKnowItsMachinesSaysWhatItKnows) {
  tools::RunRecord record;
  EXPECT_EQ(tools::environment_html(record), "");
  record.starts = {start_of("0.1.0 abc", {"n1", "n1"})};
  EXPECT_EQ(tools::environment_html(record),
            "<h3>Environment</h3>\n<div class=\"scroll\"><table><tbody>"
            "<tr><th scope=\"row\">ranks</th><td>2</td></tr>"
            "<tr><th scope=\"row\">program</th><td>engine 0.1.0 abc</td></tr>"
            "</tbody></table></div>\n");
}

TEST(Report, ShowsMachinesAndStartsThatDifferBesideEachOther) {
  const std::vector<tools::RunMachine> two{{.ranks = {0, 1}, .facts = {{"cpu", "A"}}},
                                           {.ranks = {2}, .facts = {{"cpu", "B"}}}};
  const tools::RunStart start = start_of("1", {"a", "b", "c"}, "gloo", two);
  tools::RunRecord record;
  record.starts = {start, start};
  EXPECT_EQ(tools::environment_text(record, "cpu"), "A; B");
  record.starts.push_back(start_of("2", {"a"}, "single", {two.front()}));
  program::expect_words(
      tools::environment_html(record),
      {"<th scope=\"col\">start 1, ranks 0\u20131; start 2, ranks 0\u20131</th>"
       "<th scope=\"col\">start 1, rank 2; start 2, rank 2</th><th scope=\"col\">start 3</th>",
       "<th scope=\"row\">CPU</th><td>A</td><td>B</td><td>A</td>",
       "<th scope=\"row\">backend</th><td>gloo</td><td>gloo</td><td>single</td>"});
  EXPECT_EQ(tools::environment_text(record, "cpu"), "A");
}

TEST(Report, ShowsNamesAsTheyAreAndRunsNothingInThem) {
  const TemporaryDirectory folder;
  const std::string run = folder / "<script>alert(1)<&";
  ASSERT_NO_FATAL_FAILURE(train_into(run));
  const std::string text = call("report", run, run, "-o -").out;
  EXPECT_LACKS(text, "<script>alert");
  EXPECT_CONTAINS(text, "&lt;script&gt;alert(1)&lt;&amp;");
}

// The numbers of a matrix's cells, row by row, with the means that end the rows.
std::vector<std::string> cells_of(const std::string& page) {
  std::vector<std::string> cells;
  const std::size_t begin = page.find("<table class=\"confusion\">");
  const std::size_t end = page.find("</table>", begin);
  for (std::size_t at = page.find("<td class=", begin); at < end;
       at = page.find("<td class=", at + 1)) {
    const std::size_t from = page.find('>', at) + 1;
    cells.push_back(page.substr(from, page.find('<', from) - from));
  }
  return cells;
}

TEST(Report, HasTheConfusionMatrixOfEvalAndTheWorstSamples) {
  const TemporaryDirectory folder;
  const std::string run = folder / "run";
  ASSERT_NO_FATAL_FAILURE(train_into(run, {"--synthetic-size", "600", "--epochs", "2"}));
  const std::string page = call("report", run, "-o - --worst 5").out;
  const tools::Json eval = tools::parse_json(call("eval", run, "--format json").out, "eval");
  std::vector<std::string> expected;
  for (const tools::Json& row : eval["confusion"])
    for (const tools::Json& count : row) expected.push_back(count == 0 ? "" : count.dump());
  EXPECT_EQ(cells_of(page), expected);
  program::expect_words(page, {eval["correct"].dump() + " of " + eval["samples"].dump() + " right",
                               "Worst predictions"});
  EXPECT_EQ(count_of(page, "<li class=\"shot\">"), 5u);
#ifdef HAS_PNG
  EXPECT_EQ(count_of(page, "width=\"6\" height=\"6\" src=\"data:image/png;base64,iVBOR"), 5u);
#endif
  const std::string none = call("report", run, "-o - --worst 0").out;
  EXPECT_EQ(cells_of(none), expected);
  EXPECT_EQ(count_of(none, "class=\"shot\""), 0u);
  const std::string plain = call("report", run, "-o - --no-predictions").out;
  EXPECT_LACKS(plain, "Predictions");
}

TEST(Report, SaysWhyThereAreNoPredictions) {
  const TemporaryDirectory folder;
  const std::string run = folder / "run", table = folder / "t.csv";
  std::string rows = "a,b,kind\n";
  for (int i = 0; i < 60; ++i)
    rows += std::to_string(i) + "," + std::to_string(i * i % 7) + (i % 2 == 0 ? ",x\n" : ",y\n");
  test_support::write_text(table, rows);
  expect_success(engine({"train", "--model", "mlp", "--dataset", "csv", "--annotations", table,
                         "--epochs", "1", "--batch-size", "8", "--threads", "1", "--log-every",
                         "1000", "--save-dir", run}));
  const std::string whole = call("report", run, "-o -").out;
  program::expect_words(whole, {"Confusion matrix", "Worst predictions"});
  EXPECT_LACKS(whole, "<img");  // rows are no pictures
  test_support::write_text(table, rows + "1,1,x\n");
  program::expect_words(call("report", run, "-o -").out, {"data differ"});
  fs::rename(table, folder / "moved.csv");
  const CommandResult gone = expect_success(call("report", run, "-o -"));
  program::expect_words(gone.out, {"Left out: t.csv", "None: one step"});
  program::expect_words(gone.err, {"no predictions: t.csv"});
  test_support::write_text(folder / "moved.csv", rows);
  const std::string moved = call("report", run, "-o - --annotations", folder / "moved.csv").out;
  EXPECT_EQ(cells_of(moved), cells_of(whole));
}

TEST(Report, OfManyClassesShowsAPictureAndTheCommonestMistakes) {
  tools::RunPredictions result{.checkpoint = "s", .set = "d"};
  result.counts.emplace(50);
  for (int c = 0; c < 50; ++c) result.names.push_back("<" + std::to_string(c) + ">");
  std::vector<double> logits(50);
  for (int i = 0; i < 9; ++i) {
    logits.assign(50, 0);
    logits[i < 6 ? 7 : 3] = 5;
    result.counts->add(logits, std::vector<std::int32_t>{3});
  }
  const std::string html = tools::predictions_html(result);
  program::expect_words(
      html, {"3 of 9 right (33.33\u00a0%)", "<td>&lt;3&gt;</td><td>&lt;7&gt;</td><td>6 of 9</td>"});
  EXPECT_EQ(count_of(html, "<rect "), 2u);
  EXPECT_LACKS(html, "<table class=\"confusion\">");
}

TEST(Report, OfAFolderWithoutARunNamesIt) {
  const TemporaryDirectory folder;
  const CommandResult result = call("report", folder / "none", "-o", folder / "page.html");
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_CONTAINS(result.err, "none/run.json");
  EXPECT_FALSE(fs::exists(folder / "page.html"));
}

TEST(RunHistory, LeavesOutWhatAResumedRunHasGivenUpAndTornLines) {
  const TemporaryDirectory folder;
  const std::string run = folder / "run";
  ASSERT_NO_FATAL_FAILURE(train_into(run));
  {
    std::ofstream metrics(run + "/metrics.jsonl", std::ios::app);
    metrics << "{\"schema\":1,\"event\":\"step\",\"step\":1000,\"loss\":1}\n"
            << "{\"schema\":1,\"event\":\"start\",\"step\":4}\n"
            << "{\"schema\":1,\"event\":\"step\",\"step\":5,\"loss\":0.5}\n"
            << "{\"schema\":1,\"event\":\"st";
  }
  const tools::RunHistory history = tools::read_run_history(run);
  ASSERT_FALSE(history.steps.empty());
  EXPECT_EQ(history.steps.back().step, 5);
  EXPECT_EQ(history.steps.back().loss, 0.5);
  EXPECT_TRUE(std::ranges::is_sorted(history.steps, {}, &tools::RunHistory::Step::step));
  EXPECT_EQ(history.unreadable_lines, 1u);
  EXPECT_FALSE(history.exit.has_value());
}

TEST(SvgChart, KeepsTheExtremesOfManyPoints) {
  tools::Chart chart{.title = "t"};
  chart.series.push_back({.name = "s"});
  for (int i = 0; i < 100'000; ++i) chart.series[0].points.emplace_back(i, i == 70'001 ? 9 : i % 2);
  const std::string html = tools::chart_html(chart, "c");
  EXPECT_LT(html.size(), 60'000u);
  EXPECT_CONTAINS(html, "[70001,9");
  EXPECT_EQ(tools::chart_html({.title = "empty", .series = {{.name = "s"}}}, "c"), "");
  EXPECT_EQ(tools::chart_html({.title = "one", .series = {{.name = "s", .points = {{3, 4}}}}}, "c"),
            "");
}

TEST(SvgChart, WritesNumbersShortly) {
  EXPECT_EQ(tools::short_number(0), "0");
  EXPECT_EQ(tools::short_number(1234), "1234");
  EXPECT_EQ(tools::short_number(12'345), "12.35k");
  EXPECT_EQ(tools::short_number(2.5e9), "2.5G");
  EXPECT_EQ(tools::short_number(1.5e-5), "1.50e-05");
}

}  // namespace
