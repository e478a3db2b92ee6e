// Runs whole trainings in this process: every rank a thread, the real session, loop and policies.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"

namespace session_runner {

struct RankResult {
  std::vector<double> losses;         // of every report, in order
  std::vector<io::NamedArray> state;  // parameters and buffers at the end, model order
  std::string coverage;
  double last_accuracy = -1;  // of the last evaluation
  std::int64_t averagings = 0, bytes_sent = 0;
  std::vector<double> spreads;    // of the reports that had one
  std::vector<std::string> plan;  // lines told before the start
};

// Options by name over quiet defaults (mlp on synthetic 6x6x1 images, one report a step, no evaluation, threads 1).
// Rethrows a rank's error. `hosts`: a name for each rank; ranks of the same name seem to share a host. Empty: they all do.
std::vector<RankResult> train(int world_size, const std::map<std::string, std::string>& options,
                              const std::vector<std::string>& hosts = {});

// Largest |a - b| over all parameters, relative to the largest |a|.
double distance(const RankResult& a, const RankResult& b);
bool same_bits(const RankResult& a, const RankResult& b, io::Section section);

}  // namespace session_runner
