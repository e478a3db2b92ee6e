// What `engine train --trace` writes: valid, complete, and of all ranks on one axis of time.
#include <gtest/gtest.h>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/tools/commands/program.h"
#include "tools/report/output/json_file.h"
#include "tools/report/trace/run_trace.h"

namespace {

using test_support::CommandResult;
using test_support::TemporaryDirectory;
using tools::Json;
namespace fs = std::filesystem;

std::string unpacked(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");  // takes plain files, too
  if (file == nullptr) return "";
  std::string text;
  std::array<char, 4096> piece;
  for (int n; (n = gzread(file, piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<std::size_t>(n));
  EXPECT_EQ(gzclose(file), Z_OK) << path;
  return text;
}

Json trace_of(const std::string& path) {
  const std::string text = unpacked(path);
  EXPECT_FALSE(text.empty()) << path;
  return tools::parse_json(text, path);
}

using Place = std::pair<int, int>;  // rank and thread

Place place_of(const Json& event) {
  return {event.at("pid").get<int>(), event.at("tid").get<int>()};
}

struct Span {
  std::string name;
  double begin, end;
  Json arguments;
};

constexpr double kRounding = 0.002;  // microseconds

// The spans by rank and thread, in the order of their beginnings; every event has the keys of its
// kind.
std::map<Place, std::vector<Span>> spans_of(const Json& trace) {
  std::map<Place, std::vector<Span>> spans;
  for (const Json& e : trace.at("traceEvents")) {
    const std::string phase = e.at("ph").get<std::string>();
    EXPECT_TRUE(phase == "M" || phase == "X" || phase == "s" || phase == "f") << e;
    EXPECT_FALSE(e.at("name").get<std::string>().empty()) << e;
    const Place place = place_of(e);
    if (phase == "M") {
      EXPECT_TRUE(e.at("args").is_object()) << e;
      continue;
    }
    EXPECT_FALSE(e.at("cat").get<std::string>().empty()) << e;
    const double begin = e.at("ts").get<double>();
    EXPECT_GE(begin, 0) << e;
    if (phase != "X") continue;
    EXPECT_GE(e.at("dur").get<double>(), 0) << e;
    spans[place].push_back({e.at("name").get<std::string>(), begin,
                            begin + e.at("dur").get<double>(), e.value("args", Json::object())});
  }
  for (auto& [place, list] : spans)
    std::ranges::sort(list, [](const Span& a, const Span& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
  return spans;
}

// Each span ends before the one around it does.
void expect_nested(const std::vector<Span>& spans) {
  std::vector<const Span*> around;
  for (const Span& span : spans) {
    while (!around.empty() && around.back()->end <= span.begin + kRounding) around.pop_back();
    const double end = around.empty() ? span.end : around.back()->end;
    EXPECT_LE(span.end, end + kRounding) << span.name;
    around.push_back(&span);
  }
}

std::map<Place, std::string> names_of(const Json& trace, const std::string& what) {
  std::map<Place, std::string> names;
  for (const Json& e : trace.at("traceEvents"))
    if (e.at("ph") == "M" && e.at("name") == what)
      names[place_of(e)] = e.at("args").at("name").get<std::string>();
  return names;
}

std::map<std::string, int> count_names(const std::vector<Span>& spans) {
  std::map<std::string, int> counts;
  for (const Span& span : spans) ++counts[span.name];
  return counts;
}

// Both ends of every arrow lie within a collective, on two ranks.
int expect_arrows(const Json& trace, const std::map<Place, std::vector<Span>>& spans) {
  std::map<int, std::vector<Json>> arrows;
  for (const Json& e : trace.at("traceEvents"))
    if (e.at("ph") == "s" || e.at("ph") == "f") arrows[e.at("id").get<int>()].push_back(e);
  for (const auto& [id, ends] : arrows) {
    EXPECT_EQ(ends.size(), 2u) << id;
    if (ends.size() != 2) continue;
    EXPECT_EQ(ends[0].at("ph"), "s");
    EXPECT_EQ(ends[1].at("ph"), "f");
    EXPECT_NE(ends[0].at("pid"), ends[1].at("pid"));
    std::vector<std::string> calls;
    for (const Json& end : ends) {
      const double at = end.at("ts").get<double>();
      for (const Span& span : spans.at(place_of(end)))
        if (span.arguments.contains("sequence") && span.begin <= at + kRounding &&
            at <= span.end + kRounding)
          calls.push_back(span.name + " " + span.arguments.at("communicator").dump() + " " +
                          span.arguments.at("sequence").dump());
    }
    EXPECT_TRUE(calls.size() == 2 && calls[0] == calls[1]) << id;
  }
  return static_cast<int>(arrows.size());
}

// No rank ends a sum before all have begun it.
int expect_overlap(const std::map<Place, std::vector<Span>>& spans) {
  struct Call {
    double last_begin = 0, first_end = 1e300;
    std::set<int> ranks;
  };
  std::map<std::pair<std::int64_t, std::int64_t>, Call> calls;
  for (const auto& [place, list] : spans)
    for (const Span& span : list) {
      if (span.name != "all_reduce") continue;
      Call& call = calls[{span.arguments.at("communicator").get<std::int64_t>(),
                          span.arguments.at("sequence").get<std::int64_t>()}];
      call.last_begin = std::max(call.last_begin, span.begin);
      call.first_end = std::min(call.first_end, span.end);
      call.ranks.insert(place.first);
    }
  for (const auto& [number, call] : calls) {
    EXPECT_EQ(call.ranks, (std::set<int>{0, 1})) << number.second;
    EXPECT_LE(call.last_begin, call.first_end + kRounding) << number.second;
  }
  return static_cast<int>(calls.size());
}

std::vector<std::string> two_ranks(const std::vector<std::string>& more) {
  std::vector<std::string> all{"--spawn", "2", "--steps", "6"};
  all = test_support::overridden(all, more);
  return program::quick_train(all);
}

TEST(TraceProgram, HasAllRanksOnOneAxis) {
  const TemporaryDirectory folder;
  const std::string path = folder / "t.json";
  const CommandResult run =
      test_support::engine(two_ranks({"--trace", path, "--bucket-cap-mb", "0.002", "--eval-every",
                                      "3s", "--save-dir", folder / "run", "--save-every", "3s"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  program::expect_words(run.out, {"Trace of steps 1 to 6, ", " spans: " + path, "clocks within "});
  const Json trace = trace_of(path);
  EXPECT_EQ(trace.at("otherData").at("ranks"), 2);
  EXPECT_EQ(trace.at("otherData").at("dropped_spans").dump(), R"({"0":0,"1":0})");
  for (const char* rank : {"0", "1"})
    EXPECT_LE(trace.at("otherData").at("clock_error_us").at(rank).get<double>(),
              100 * test_support::time_scale());
  const std::map<Place, std::vector<Span>> spans = spans_of(trace);
  const auto processes = names_of(trace, "process_name"), threads = names_of(trace, "thread_name");
  EXPECT_EQ(processes.size(), 2u);
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(processes.at({rank, 0}).starts_with("rank " + std::to_string(rank) + " ("));
    std::map<std::string, std::map<std::string, int>> counts;  // by name of the thread
    for (const auto& [place, list] : spans)
      if (place.first == rank) counts[threads.at(place)] = count_names(list);
    std::map<std::string, int>& training = counts["training"];
    for (const char* name :
         {"step", "wait for data", "forward", "backward", "wait for averaging", "update"})
      EXPECT_EQ(training[name], 6) << name;
    EXPECT_EQ(training["evaluation"], 2);
    EXPECT_EQ(training["save"], 2);
    EXPECT_GE(training["layer 'layers.0' (dense)"], 6 * 2) << "forward and backward";
    EXPECT_GT(counts["averaging"]["bucket"], 6) << "several buckets a step";
    EXPECT_EQ(counts["averaging"]["bucket"], counts["averaging"]["all_reduce"]);
    EXPECT_GE(counts["loader"]["prepare a batch"], 4);
  }
  for (const auto& [place, list] : spans) expect_nested(list);
  EXPECT_GT(expect_overlap(spans), 6);
  EXPECT_GE(expect_arrows(trace, spans), expect_overlap(spans));
}

// By check_trace.py, and by Perfetto's trace_processor where PEER_PYTHON (python3) has it.
TEST(TraceProgram, FollowsTheTraceEventFormat) {
  const TemporaryDirectory folder;
  const std::string path = folder / "t.json";
  const CommandResult run =
      test_support::engine(two_ranks({"--trace", path, "--eval-every", "3s"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const char* python = std::getenv("PEER_PYTHON");
  const CommandResult checked = test_support::run_command(
      {"/usr/bin/env", python == nullptr ? "python3" : python,
       test_support::source_directory() + "/tests/tools/report/trace/check_trace.py", path});
  if (checked.exit_code == 77) GTEST_SKIP() << checked.out;
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
}

TEST(TraceProgram, OfSomeStepsIsCompressedAndThere) {
  const TemporaryDirectory folder;
  const std::string path = folder / "t.json.gz";
  const CommandResult run = test_support::engine(program::quick_train(
      {"--devices", "cpu:0,cpu:1", "--steps", "9", "--trace", path, "--trace-steps", "3:5"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  program::expect_words(run.out, {"Trace of steps 3 to 5, "});
  EXPECT_EQ(test_support::read_text(path).substr(0, 2), "\x1f\x8b");
  std::map<int, std::vector<std::int64_t>> steps;
  const Json trace = trace_of(path);
  for (const auto& [place, list] : spans_of(trace)) {
    expect_nested(list);
    for (const Span& span : list)
      if (span.name == "step")
        steps[place.first].push_back(span.arguments.at("step").get<std::int64_t>());
  }
  const std::vector<std::int64_t> expected{3, 4, 5};
  EXPECT_EQ(steps, (std::map<int, std::vector<std::int64_t>>{{0, expected}, {1, expected}}));
}

TEST(TraceProgram, SaysWhenThereIsNothingToWrite) {
  const TemporaryDirectory folder;
  const CommandResult run = test_support::engine(
      program::quick_train({"--steps", "3", "--trace", folder / "t.json", "--trace-steps", "4:5"}));
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_VALUES(run.err, "--trace: steps 4");
  EXPECT_FALSE(fs::exists(folder / "t.json"));
}

TEST(TraceProgram, EachRankLeavesItsOwnWhenTheTrainingFails) {
  const TemporaryDirectory folder;
  const CommandResult run = test_support::engine(
      two_ranks({"--trace", folder / "t.json", "--lr", "1e6", "--log-every", "1"}));
  EXPECT_EQ(run.exit_code, 79) << run.err;
  for (const int rank : {0, 1}) {
    const std::string path = tools::own_trace_path(folder / "t.json", rank);
    program::expect_words(run.err, {"trace of rank " + std::to_string(rank) + " alone: " + path});
    const std::map<Place, std::vector<Span>> spans = spans_of(trace_of(path));
    EXPECT_FALSE(spans.empty());
    for (const auto& [place, list] : spans) {
      EXPECT_EQ(place.first, rank);
      expect_nested(list);
    }
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 2);
}

TEST(TraceProgram, RanksNameTheirOwnFiles) {
  EXPECT_EQ(tools::own_trace_path("a.json/t.json.gz", 0), "a.json/t.json.gz");
  EXPECT_EQ(tools::own_trace_path("a.json/t.json.gz", 12), "a.json/t.rank12.json.gz");
  EXPECT_EQ(tools::own_trace_path("t.json", 1), "t.rank1.json");
}

TEST(TraceProgram, RefusesWhatItCannotDo) {
  const TemporaryDirectory folder;
  const auto refused = [](const std::vector<std::string>& more, int code,
                          const std::string& words) {
    program::expect_error(test_support::engine(program::quick_train(more)), code, words);
  };
  refused({"--trace", folder / "t.txt"}, 78, "--trace t.txt .json .json.gz");
  refused({"--trace", folder / "none/t.json"}, 73, "there is no folder " + (folder / "none"));
  refused({"--trace", folder / "t.json", "--trace-steps", "5:4"}, 78,
          "--trace-steps 5:4 1, 100:150");
  refused({"--trace", folder / "t.json", "--trace-steps", "5"}, 78, "--trace-steps 5 1, 100:150");
  refused({"--trace-steps", "1:5"}, 78, "--trace-steps 1:5 requires --trace");
  refused({"--trace", folder / "t.json", "--spawn", "2", "--elastic", "1:2"}, 78,
          "requires that ranks stay");
}

}  // namespace
