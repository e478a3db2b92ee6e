// Runs whole trainings in this process: every rank a thread, the real session, loop and policies.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/saving/train_state.h"
#include "engine/train/train_observer.h"
#include "io/checkpoint/checkpoint.h"
#include "tests/support/named_values.h"
#include "tools/options/table/run_config.h"
#include "tools/report/text/session_facts.h"

namespace session_runner {

using Options = test_support::NamedValues;
// `base` with the entries of `more` in it or, where these are empty, without.
Options with(Options base, const Options& more);
template <class... Rest>
Options with(const Options& base, const Options& more, const Options& next, const Rest&... rest) {
  return with(with(base, more), next, rest...);
}

struct RankResult {
  std::vector<double> losses;         // of every report, in order
  std::vector<io::NamedArray> state;  // parameters and buffers at the end, model order
  io::Checkpoint whole;  // all that this rank would go on from, as a checkpoint has it;
                         // empty with --shard-optimizer
  std::string coverage, stopped_early;
  engine::TrainProgress end;
  double last_accuracy = -1;  // of the last evaluation
  std::int64_t averagings = 0, bytes_sent = 0;
  std::vector<double> spreads;                    // of the reports that had one
  std::vector<std::string> plan;                  // lines told before the start
  std::string capture;                            // of steps on a device, told before the start
  std::string samples_on_device;                  // the same
  std::optional<tools::MemoryFacts> memory = {};  // with --memory
  engine::EvalReport last_eval;
  std::vector<std::int64_t> evaluated;    // global steps
  std::vector<engine::EvalReport> evals;  // all of them, in order
  std::vector<engine::DesyncReport> desyncs;
  std::vector<engine::NonFiniteReport> not_finite;
  std::vector<engine::ShareReport> shares;
  std::vector<std::string> saved;           // on rank 0
  std::vector<engine::StepReport> reports;  // without their spans
};

// Options by name over quiet defaults (mlp on synthetic 6x6x1 images, one report a step, no
// evaluation, threads 1, the CPU also if there is a GPU). `after_step` is called on every rank
// after each of its steps, for tests that meddle with the state. Rethrows a rank's error.
using AfterStep = std::function<void(int rank, engine::TrainState& state)>;
std::vector<RankResult> train(int world_size, const Options& options,
                              const AfterStep& after_step = {});
// The same with a rank for each of `hosts`: ranks of the same name seem to share a host.
std::vector<RankResult> train_on_hosts(const std::vector<std::string>& hosts,
                                       const Options& options);
// The configuration that train() runs.
tools::RunConfig make_config(const Options& options);

// Largest |a - b| over all parameters (or the running statistics), relative to the largest |a|.
double distance(const RankResult& a, const RankResult& b,
                io::Section section = io::Section::kParameter);
// The largest relative difference of their losses; infinite where they are not as many, none or not
// finite.
double loss_distance(const RankResult& a, const RankResult& b);
bool same_bits(const RankResult& a, const RankResult& b, io::Section section);
// This rank's part of what a checkpoint would hold.
io::Checkpoint whole_state(const engine::TrainState& state);
// Without what a checkpoint tells of the job beside the training: how many ranks wrote it, when
// each was written, how often they averaged and how much was sent for it.
io::Checkpoint training_in(io::Checkpoint checkpoint);
// "" where the files of these, without that, are the same byte for byte; else what differs first.
std::string difference(const io::Checkpoint& one, const io::Checkpoint& other);

}  // namespace session_runner
