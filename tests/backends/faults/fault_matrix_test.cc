// Faults x backends between processes: no rank hangs, and the error of every survivor has the right
// kind and names the faulty rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <set>

#include "io/base/text/text_parts.h"
#include "tests/backends/faults/fault_list.h"

namespace {

using Clock = std::chrono::steady_clock;
using fault_list::Fault;
using fault_ranks::RankProcesses;

std::vector<Fault> all_faults() {
  std::vector<Fault> all;
  for (auto&& some : {fault_list::faults_of_processes(), fault_list::faults_of_connections(),
                      fault_list::faults_of_calls(), fault_list::faults_of_rendezvous()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

std::vector<std::string> process_backends() {
  std::vector<std::string> names;
  for (const backends::BackendInfo& b : backends::list_backends()) {
    if (b.usable && !b.device_memory && b.name != "inproc") names.push_back(b.name);
  }
  return names;
}

// [fault][backend]: seconds, "FAILED" or "-".
std::map<std::string, std::map<std::string, std::string>> matrix;

class MatrixPrinter : public ::testing::Environment {
 public:
  void TearDown() override {
    const std::vector<std::string> backends = process_backends();
    std::printf("%-28s", "fault");
    for (const std::string& b : backends) std::printf(" %9s", b.c_str());
    std::set<std::string> shown;
    for (const Fault& fault : all_faults()) {
      if (matrix.count(fault.name) == 0 || !shown.insert(fault.name).second) continue;
      std::printf("\n%-28s", fault.name);
      for (const std::string& b : backends) std::printf(" %9s", matrix[fault.name][b].c_str());
    }
    std::printf("\n");
  }
};
[[maybe_unused]] ::testing::Environment* const printer =
    ::testing::AddGlobalTestEnvironment(new MatrixPrinter);

struct Cell {
  Fault fault;
  std::string backend;
};
void PrintTo(const Cell& c, std::ostream* out) { *out << c.fault.name << " x " << c.backend; }

std::vector<Cell> cells() {
  std::vector<Cell> all;
  for (const Fault& fault : all_faults()) {
    for (const std::string& backend : process_backends()) {
      const bool fits = fault.backends.empty() ||
                        std::ranges::find(fault.backends, backend) != fault.backends.end();
      if (fits) all.push_back({fault, backend});
    }
  }
  return all;
}

class FaultMatrix : public ::testing::TestWithParam<Cell> {};

TEST_P(FaultMatrix, IsNoticedAndNamed) {
  const auto& [fault, backend] = GetParam();
  for (const std::string& b : process_backends()) matrix[fault.name].try_emplace(b, "-");
  auto start = Clock::now();
  RankProcesses ranks(backend, 3, fault.processes, fault.body, fault.holds_port);
  if (fault.inject) {
    ASSERT_TRUE(ranks.all_work());
    start = Clock::now();
    fault.inject(ranks);
  }
  for (int who = 0; who < ranks.size(); ++who) {
    if (fault.expected[static_cast<std::size_t>(who)].empty()) continue;
    const std::string outcome = ranks.outcome(who);
    for (const std::string& part : fault.expected[static_cast<std::size_t>(who)])
      EXPECT_NE(outcome.find(part), std::string::npos)
          << "process " << who << " lacks \"" << part << "\": " << outcome;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  matrix[fault.name][backend] = HasFailure() ? "FAILED" : base::number_text("%.1f s", seconds);
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultMatrix, ::testing::ValuesIn(cells()), [](const auto& cell) {
  std::string name = std::string(cell.param.fault.name) + "_" + cell.param.backend;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
});

}  // namespace
