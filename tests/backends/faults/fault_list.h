// The faults of the matrix: what is injected, and what each rank must report.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/backends/faults/fault_ranks.h"

namespace fault_list {

using fault_ranks::Rank;
using fault_ranks::RankProcesses;

// Parts that the last line of each process must contain; {}: not checked.
using Expected = std::vector<std::vector<std::string>>;
inline const std::vector<std::string> kAnything = {};

struct Fault {
  const char* name;
  int processes;
  std::function<void(Rank&)> body;
  std::function<void(RankProcesses&)> inject;  // called once all work; may be empty
  Expected expected;
  std::vector<std::string> backends = {};  // to which it applies; empty: all
  bool holds_port = false;                 // of the store, until all processes have ended
};

// Rank 1 of three is the faulty one.
inline Expected all_name(const std::string& kind, const std::string& faulty) {
  return {{kind, faulty}, {kind}, {kind, faulty}};
}
inline void work_a_while(Rank& rank) {
  rank.join();
  rank.work(300);
}

std::vector<Fault> faults_of_processes();
std::vector<Fault> faults_of_connections();
std::vector<Fault> faults_of_calls();
std::vector<Fault> faults_of_rendezvous();

}  // namespace fault_list
