// The faults of the matrix: what is done to the ranks, and what each must say.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tests/backends/faults/fault_stage.h"

namespace fault_list {

using fault_stage::Actor;
using fault_stage::Stage;

// What each process must have said in the end: parts of its last line; {} for one that is not
// asked.
using Expected = std::vector<std::vector<std::string>>;
inline const std::vector<std::string> kAnything = {};

struct Fault {
  const char* name;
  int processes;
  std::function<void(Actor&)> body;
  std::function<void(Stage&)> strike;  // once all are ready; may be empty
  Expected expected;
  // From the blow, or from the start where there is none; scaled as in deadline.h.
  std::chrono::milliseconds within = std::chrono::seconds(5);
  std::vector<std::string> backends = {};  // where it can be done; empty: all
};

// Rank 1 is the culprit in a world of three.
inline Expected all_name(const std::string& kind, const std::string& culprit) {
  return {{kind, culprit}, {kind}, {kind, culprit}};
}
inline void work_a_while(Actor& a) {
  a.join();
  a.work(300);
}

std::vector<Fault> faults_of_processes();
std::vector<Fault> faults_of_connections();
std::vector<Fault> faults_of_calls();
std::vector<Fault> faults_of_meeting();

}  // namespace fault_list
