// Runs whole trainings in this process: every rank a thread, the real session, loop and policies.
#pragma once

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
};

// Options by name over quiet defaults (mlp on synthetic 6x6x1 images, one report a step, no evaluation, threads 1).
// Rethrows a rank's error.
std::vector<RankResult> train(int world_size, const std::map<std::string, std::string>& options);

// Largest |a - b| over all parameters (or the running statistics), relative to the largest |a|.
double distance(const RankResult& a, const RankResult& b, io::Section section = io::Section::kParameter);
bool same_bits(const RankResult& a, const RankResult& b, io::Section section);

}  // namespace session_runner
