// The times follow from bytes and rates: an all-reduce of n nodes sends 2 (n - 1) / n of its buffer
// over each node's link. Codes are summed as engine/averaging/codes/coded_sum.h says.
#include "tools/run/choices/sync_choice.h"

#include <algorithm>

#include "engine/averaging/codes/coded_sum.h"
#include "engine/averaging/codes/lossy_code.h"
#include "io/base/text/text_parts.h"
#include "tools/report/output/text_table.h"

namespace tools {
namespace {

using Compression = AveragingOptions::Compression;
using base::number_text;

struct Accuracy {
  double points;
  std::string text;
};

// A policy of docs/averaging.md, "Accuracy against bytes".
struct Policy {
  const char* sync;
  Compression compression;
  Accuracy accuracy;
  std::int64_t measured_every;        // longest period of the figures
  std::vector<std::int64_t> periods;  // to choose from, ascending; empty: every step
  bool is_default = true;             // a candidate if no compression is given

  bool averages_gradients() const { return periods.empty(); }
  bool makes_outer_steps() const {
    return sync == std::string_view("diloco") || sync == std::string_view("streaming");
  }
};

const std::vector<Policy>& policies() {
  static const std::vector<Policy> table{
      {"grad", Compression::kNone, {0, "the reference"}, 1, {}},
      {"grad", Compression::kInt8, {0, "MNIST 92.37 % of 92.35 %"}, 1, {}},
      {"grad", Compression::kInt4, {0, "MNIST 92.33 % of 92.35 %"}, 1, {}, false},
      {"grad", Compression::kSparse, {0.1, "MNIST 92.24 % of 92.35 %"}, 1, {}, false},
      {"params", Compression::kNone, {1.2, "CIFAR-10 50.42 % of 51.61 %"}, 4, {4}},
      {"params", Compression::kNone, {2.2, "CIFAR-10 49.41 % of 51.61 %"}, 16, {16}},
      {"params", Compression::kNone, {2.2, "CIFAR-10 49.94 % of 51.61 %"}, 64, {64}},
      {"params", Compression::kInt8, {2.2, "as without int8; MNIST 92.74 %"}, 16, {16, 64}},
      {"params", Compression::kInt4, {2.2, "as without int4"}, 16, {16, 64}, false},
      {"streaming", Compression::kNone, {2.4, "CIFAR-10 49.18 % of 51.61 %"}, 16, {16, 64, 256}},
      {"diloco", Compression::kNone, {2.9, "CIFAR-10 48.70 % of 51.61 %"}, 16, {16, 64, 256}},
      {"diloco", Compression::kInt8, {2.9, "as without int8"}, 16, {16, 64, 256}, false},
      {"diloco",
       Compression::kInt4,
       {3.0, "CIFAR-10 48.70 % of 51.61 %, MNIST 94.45 % of 94.59 %"},
       16,
       {16, 64, 256},
       false},
      {"diloco",
       Compression::kSparse,
       {5.5, "CIFAR-10 48.70 % of 51.61 %, MNIST 91.96 % of 94.59 %"},
       16,
       {16, 64, 256}}};
  return table;
}

// The least number of scheduled averagings in a run. Two: one is before the end. Runs of the
// figures made 25 outer steps.
constexpr std::int64_t kMinAveragings = 2, kMinOuterSteps = 25;

const char* compression_name(Compression compression) {
  switch (compression) {
    case Compression::kInt8:
      return "int8";
    case Compression::kInt4:
      return "int4";
    case Compression::kSparse:
      return "sparse";
    default:
      return "none";
  }
}

engine::LossyOptions code_of(Compression compression, const SyncLimits& limits) {
  if (compression == Compression::kSparse)
    return {.kind = engine::LossyOptions::Kind::kSparse,
            .bits = limits.sparse.bits,
            .ratio = limits.sparse.ratio};
  engine::LossyOptions quantized;
  if (compression == Compression::kInt4) quantized.bits = 4;
  return quantized;
}

double all_reduce_s(const SyncFigures& f, double bytes) {
  const double nodes = f.hosts > 1 ? f.hosts : f.ranks;
  return 2 * (nodes - 1) / nodes * bytes / f.link_bytes_per_s + f.round_trip_s;
}

// A node receives the codes of all ranks of other nodes: whole ones, or those of a share for each
// of its ranks and of the sum of each other rank's share.
double coded_s(const SyncFigures& f, const engine::LossyOptions& lossy, double code) {
  const double ranks = f.ranks, nodes = f.hosts > 1 ? f.hosts : f.ranks, here = ranks / nodes;
  const auto received =
      static_cast<double>(engine::coded_bytes_received(lossy, f.elements, f.ranks, 0));
  const bool in_shares = received < (ranks - 1) * code;
  const double of_each = in_shares ? (here + 1) * code / ranks : code;
  return (ranks - here) * of_each / f.link_bytes_per_s + f.round_trip_s;
}

// The overlap measured in docs/averaging.md, in proportion.
std::int64_t overlap_of(std::int64_t every) { return every / 8; }

// Returns the transfer time of a period of streaming, and the part that steps wait for.
std::pair<double, double> streaming_s(const SyncFigures& f, std::int64_t every) {
  const auto parts = static_cast<double>(std::min(f.fragments, every));
  const double each = all_reduce_s(f, static_cast<double>(f.bytes) / parts), all = parts * each;
  const double hidden = static_cast<double>(overlap_of(every)) * f.step_s;
  const double waits = parts * std::max(0.0, each - hidden);
  // One thread exchanges: it may not keep up, whatever the overlap.
  return {all, std::max(waits, all - static_cast<double>(every) * f.step_s)};
}

SyncCandidate candidate_of(const Policy& policy, std::int64_t every, const SyncFigures& f,
                           const SyncLimits& limits) {
  const std::string sync = policy.sync;
  const auto period = static_cast<double>(every);
  const bool coded = policy.compression != Compression::kNone;
  const engine::LossyOptions lossy = code_of(policy.compression, limits);
  const auto bytes =
      static_cast<double>(coded ? engine::code_bytes(lossy, f.elements, 0) : f.bytes);
  SyncCandidate c{.options = {{"sync", sync}}, .accuracy = policy.accuracy.text};
  if (!policy.periods.empty()) c.options.emplace_back("sync-every", std::to_string(every));
  double communication = coded ? coded_s(f, lossy, bytes) : all_reduce_s(f, bytes);
  double waits = communication;
  if (sync == "streaming") {
    c.options.emplace_back("sync-overlap", std::to_string(overlap_of(every)));
    std::tie(communication, waits) = streaming_s(f, every);
  }
  if (coded) c.options.emplace_back("compress", compression_name(policy.compression));
  // Error feedback replaces the outer momentum (SparseLoCo).
  if (sync == "diloco" && policy.compression == Compression::kSparse)
    c.options.emplace_back("outer-momentum", "0");
  c.bytes_per_step = bytes / period;
  c.wire_s = communication / period;
  c.overhead = waits / (period * f.step_s);
  c.points = policy.accuracy.points;
  if (!policy.periods.empty()) c.accuracy += ", K = " + std::to_string(policy.measured_every);
  if (every > policy.measured_every) c.accuracy += " (longer ones were not measured)";
  return c;
}

// Returns true if the policy is that of the row of its kind whose periods are nearest to `every`. A
// period above those of all rows counts as the longest of them.
bool covers_period(const Policy& policy, std::int64_t every) {
  if (policy.makes_outer_steps()) return true;
  const std::int64_t longest = policy.periods.back();
  return std::ranges::none_of(policies(), [&](const Policy& other) {
    if (other.sync != std::string_view(policy.sync) || other.averages_gradients() ||
        other.compression != policy.compression)
      return false;
    const std::int64_t last = other.periods.back();
    return every <= longest ? last < longest && every <= last : last > longest;
  });
}

bool is_allowed(const Policy& policy, const SyncFigures& figures, const SyncLimits& limits) {
  if (limits.compression ? *limits.compression != policy.compression : !policy.is_default)
    return false;
  const bool coded = policy.compression != Compression::kNone;
  // Codes and local steps shorten transfers; in memory a transfer is the sum itself.
  if (figures.in_memory && coded && !limits.compression) return false;
  if (limits.every) return !policy.averages_gradients() && covers_period(policy, *limits.every);
  return !figures.in_memory || limits.compression || policy.averages_gradients();
}

// Returns true if the figures of the policy apply to that period in a run of that length.
bool suits(const Policy& policy, std::int64_t every, const SyncFigures& figures) {
  if (policy.averages_gradients()) return true;
  if (policy.makes_outer_steps() && every < policy.periods.front()) return false;
  return figures.steps / every >= (policy.makes_outer_steps() ? kMinOuterSteps : kMinAveragings);
}

// Returns the periods to choose from, ascending.
std::vector<std::int64_t> periods_of(const Policy& policy, const SyncLimits& limits) {
  if (limits.every) return {*limits.every};
  return policy.averages_gradients() ? std::vector<std::int64_t>{1} : policy.periods;
}

// The smallest of these periods whose overhead is acceptable, else the largest.
SyncCandidate candidate_of(const Policy& policy, const std::vector<std::int64_t>& periods,
                           const SyncFigures& figures, const SyncLimits& limits) {
  SyncCandidate found;
  for (const std::int64_t every : periods) {
    found = candidate_of(policy, every, figures, limits);
    if (found.overhead <= kSyncOverhead) break;
  }
  return found;
}

// A step of `most_accurate` takes this much longer, as a fraction of a step of `c`.
double gain_over(const SyncCandidate& most_accurate, const SyncCandidate& c) {
  return (1 + most_accurate.overhead) / (1 + c.overhead) - 1;
}

std::string bytes_cell(double bytes) {
  if (bytes >= 1e6) return fixed(bytes / 1e6, 2) + " MB";
  return bytes >= 1e3 ? fixed(bytes / 1e3, 1) + " kB" : fixed(bytes, 0) + " B";
}

std::string overhead_cell(double share) { return fixed(100 * share, share < 0.1 ? 1 : 0) + " %"; }

}  // namespace

std::vector<SyncCandidate> sync_candidates(const SyncFigures& figures, const SyncLimits& limits) {
  std::vector<SyncCandidate> suitable, allowed;
  for (const Policy& policy : policies()) {
    if (!is_allowed(policy, figures, limits)) continue;
    std::vector<std::int64_t> periods = periods_of(policy, limits);
    allowed.push_back(candidate_of(policy, periods, figures, limits));
    std::erase_if(periods, [&](std::int64_t every) { return !suits(policy, every, figures); });
    if (!periods.empty()) suitable.push_back(candidate_of(policy, periods, figures, limits));
  }
  std::vector<SyncCandidate>& found = suitable.empty() ? allowed : suitable;
  std::ranges::stable_sort(found, {}, &SyncCandidate::points);
  return found;
}

std::size_t choose_candidate(const std::vector<SyncCandidate>& candidates) {
  const SyncCandidate& first = candidates.front();
  std::size_t least = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const SyncCandidate& c = candidates[i];
    const double needed = kLeastGain + kGainPerPoint * (c.points - first.points);
    if (i > 0 && gain_over(first, c) < needed) continue;
    if (c.overhead <= kSyncOverhead) return i;
    if (c.overhead < candidates[least].overhead) least = i;
  }
  return least;
}

std::string options_text(const SyncCandidate& candidate) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : candidate.options) parts.push_back("--" + name + " " + value);
  return base::join_text(parts, " ");
}

std::string sync_choice_text(const SyncFigures& f, const std::vector<SyncCandidate>& candidates,
                             std::size_t chosen) {
  std::vector<Cells> lines{
      {"candidate", "bytes/step", "ms on the wire/step", "overhead", "points lost", "by"}};
  for (const SyncCandidate& c : candidates)
    lines.push_back({options_text(c), bytes_cell(c.bytes_per_step), fixed(1e3 * c.wire_s, 3),
                     overhead_cell(c.overhead), fixed(c.points, 1), c.accuracy});
  const SyncCandidate& choice = candidates[chosen];
  const bool fits = choice.overhead <= kSyncOverhead;
  return "Sync auto: " + std::to_string(f.ranks) + " ranks on " + std::to_string(f.hosts) +
         (f.hosts == 1 ? " host" : " hosts") + "; slowest link: " + f.link + " " +
         number_text("%.4g Mbit/s", 8e-6 * f.link_bytes_per_s) + ", round trip " +
         number_text("%.3g ms", 1e3 * f.round_trip_s) + "; " +
         bytes_cell(static_cast<double>(f.bytes)) + " of gradients; a step takes " +
         number_text("%.3g ms", 1e3 * f.step_s) + " without averaging; the run has " +
         std::to_string(f.steps) + (f.steps == 1 ? " step\n" : " steps\n") +
         table_text(lines, {0, 5}, false) + "Sync auto: chosen: " + options_text(choice) + " (" +
         (fits ? "least loss of accuracy with at most " + overhead_cell(kSyncOverhead) + " overhead"
               : "least overhead of those that gain enough for their loss of accuracy") +
         ")";
}

}  // namespace tools
