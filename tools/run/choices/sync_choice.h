// Chooses the policy of `--sync auto` from figures: the arithmetic, without any measurement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/options/table/session_options.h"

namespace tools {

struct SyncFigures {
  int ranks = 1, hosts = 1;
  std::int64_t elements = 0, bytes = 0;  // size of the gradients
  std::int64_t fragments = 1;            // number with --sync streaming and a long period
  bool in_memory = false;                // true: the ranks exchange through memory that they share
  std::int64_t steps = 0;                // of the whole run
  double step_s = 0;                     // time of the slowest rank, without averaging
  // The slowest link's bytes/s in its slower direction, the longest round trip of all links, and
  // the slowest link's name, e.g. "ranks 0 and 1 (gloo)".
  double link_bytes_per_s = 0, round_trip_s = 0;
  std::string link;
};

// The options that the user has given; those without a value are chosen.
struct SyncLimits {
  std::optional<std::int64_t> every;  // --sync-every
  std::optional<AveragingOptions::Compression> compression;
  AveragingOptions::Sparse sparse = {};
};

struct SyncCandidate {
  // The options, as text and in the order of the command line: {"sync", "diloco"}, ...
  std::vector<std::pair<std::string, std::string>> options;
  double bytes_per_step = 0;  // payload of a rank
  double wire_s = 0;          // time on the slowest link, per step
  double overhead = 0;        // the part of it that is not hidden by the step, as a fraction of it
  double points = 0;          // accuracy lost, in percentage points, by docs/averaging.md
  std::string accuracy;       // the figures of this: "CIFAR-10 49.41 % of 51.61 %, K = 16"
};

inline constexpr double kSyncOverhead = 0.1;  // acceptable
// A candidate must be faster than the most accurate one by the first and, for each percentage point
// of accuracy that it loses more, by the second: both are fractions of the candidate's step.
inline constexpr double kLeastGain = 0.05, kGainPerPoint = 0.1;

// Returns one candidate for each policy that the limits allow and the length of the run suits, by
// ascending loss of accuracy. With a free K it is the smallest one whose overhead is acceptable,
// else the largest. If no policy suits the length, those that the limits allow are candidates.
// Ranks that share memory sum gradients, unless the limits say otherwise.
std::vector<SyncCandidate> sync_candidates(const SyncFigures& figures, const SyncLimits& limits);

// Returns the index of the first one with an acceptable overhead, else of the one with the least,
// among the first and those that gain enough over it. REQUIRES: there is a candidate.
std::size_t choose_candidate(const std::vector<SyncCandidate>& candidates);

// Returns e.g. "--sync diloco --sync-every 64".
std::string options_text(const SyncCandidate& candidate);
// Returns the figures, a table of the candidates and the choice.
std::string sync_choice_text(const SyncFigures& figures,
                             const std::vector<SyncCandidate>& candidates, std::size_t chosen);

}  // namespace tools
