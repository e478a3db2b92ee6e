// Counts the averagings of a run before it starts.
#include "engine/averaging/policies/averaging_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/averaging/policies/fragments.h"
#include "engine/averaging/policies/outer_rate.h"
#include "io/base/text/text_parts.h"

namespace engine {
namespace {

constexpr std::int64_t kMaxEpochsCounted = 10'000'000, kMaxSavesCounted = kMaxEpochsCounted;

std::string phase_text(const AveragingPlan& plan) {
  std::string text;
  for (const auto& [from, every] : plan.schedule.phases())
    text += (text.empty() ? "" : ", ") +
            (every == 1 ? std::string("every step") : "every " + std::to_string(every) + " steps") +
            (from > 0 ? " from step " + std::to_string(from) : "");
  return text;
}

// Adds a line if a period K is longer than an epoch or than the run.
void add_long_periods(const AveragingPlan& plan, std::vector<std::string>& lines) {
  const auto& phases = plan.schedule.phases();
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const auto [from, every] = phases[i];
    if (from >= plan.steps.total) {
      lines.push_back("the run has " + base::count_text(plan.steps.total, "step") +
                      ": the phase from step " + std::to_string(from) + " never begins");
      continue;
    }
    const std::int64_t until =
        i + 1 < phases.size() ? std::min(phases[i + 1].from, plan.steps.total) : plan.steps.total;
    const std::string k = "K = " + std::to_string(every);
    if (every > until - from) {
      lines.push_back(k + " > " + base::count_text(until - from, "step") +
                      (phases.size() > 1 ? " of its phase" : " in all") +
                      (every > plan.steps.of_epoch
                           ? " and " + std::to_string(plan.steps.of_epoch) + " an epoch"
                           : "") +
                      ": averages only at epoch ends and at the end");
    } else if (every > plan.steps.of_epoch) {
      lines.push_back(k + " > " + std::to_string(plan.steps.of_epoch) +
                      " steps an epoch: averages at epoch ends, too");
    }
  }
}

// Adds lines about the compression. Without it, an all-reduce delivers 2 (n - 1) / n of the buffer
// to each rank.
void add_compression(const AveragingPlan& plan, std::vector<std::string>& lines) {
  if (plan.compression.empty()) return;
  lines.push_back("changes of parameters are sent as " + plan.compression + ", " +
                  std::to_string(plan.bytes_compressed) + " of " +
                  std::to_string(plan.bytes_uncompressed) + " bytes" +
                  (plan.bytes_each > plan.bytes_compressed
                       ? "; optimizer states and running statistics uncompressed"
                       : "") +
                  (plan.warmup > 0 || plan.islands > 0 ? "; gradients uncompressed" : ""));
  if (plan.ranks > 1 && plan.bytes_received * plan.ranks >=
                            2 * std::int64_t{plan.ranks - 1} * plan.bytes_uncompressed)
    lines.push_back(plan.compression + " over " + base::count_text(plan.ranks, "rank") +
                    ": each rank receives " + std::to_string(plan.bytes_received) +
                    " bytes, not less than without --compress");
  if (plan.sparse_beside_momentum)
    lines.push_back(
        "the error feedback of sparse changes acts as an outer momentum: consider an outer "
        "momentum of 0");
}

// Adds a line about what a rank sends and waits for. The last phase is the longest part of a run.
void add_pairs(const AveragingPlan& plan, std::vector<std::string>& lines) {
  if (!plan.in_pairs || plan.ranks == 1) return;
  const double every = static_cast<double>(plan.schedule.phases().back().every),
               paired = plan.ranks - plan.ranks % 2;  // ranks that have a partner
  const double bytes = static_cast<double>(plan.bytes_each) * paired / plan.ranks / every;
  lines.push_back(
      "each rank sends " + base::number_text("%.0f", std::ceil(bytes)) +
      " bytes per step on average and waits only for its partner" +
      (plan.ranks % 2 == 0 ? ""
                           : ", and one of the " + std::to_string(plan.ranks) + " ranks pauses") +
      "; all ranks wait for each other in evaluations, in checkpoints, at ends of epochs, and "
      "about "
      "once per second for control values");
}

// Returns the periods of the first and the last averaging of the schedule. REQUIRES: there is one.
std::pair<std::int64_t, std::int64_t> outer_periods(const AveragingPlan& plan) {
  const auto& phases = plan.schedule.phases();
  if (plan.streaming) return {phases.back().every, phases.back().every};
  std::vector<std::int64_t> periods;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const std::int64_t from = std::max(phases[i].from, plan.steps.first);
    const std::int64_t until =
        i + 1 < phases.size() ? std::min(phases[i + 1].from, plan.steps.total) : plan.steps.total;
    if (until > from && plan.schedule.count(from, until) > 0) periods.push_back(phases[i].every);
  }
  return {periods.front(), periods.back()};
}

// Returns e.g. "outer lr 1 to 0.833, momentum 0 to 0.5, in outer steps 1 to 25".
std::string outer_text(const AveragingPlan& plan, std::int64_t planned) {
  // Each fragment takes the outer steps of a run without fragments.
  const std::int64_t before =
      plan.steps.outer_done / (plan.streaming ? plan.streaming->fragments : 1);
  const auto [first_every, last_every] = outer_periods(plan);
  const OuterRate first = outer_rate(*plan.outer, before, first_every),
                  last = outer_rate(*plan.outer, before + planned - 1, last_every);
  const auto range = [](double from, double to) {
    return base::number_text("%.3g", from) +
           (from == to ? "" : " to " + base::number_text("%.3g", to));
  };
  return "outer lr " + range(first.lr, last.lr) + ", momentum " +
         range(first.momentum, last.momentum) + ", in outer steps " + std::to_string(before + 1) +
         " to " + std::to_string(before + planned);
}

// `before`: the scheduled averagings of earlier starts.
std::string state_text(const StatePlan& state, std::int64_t before, std::int64_t planned) {
  const std::int64_t count = (before + planned) / state.every - before / state.every;
  return state.name + " in 1 of " + std::to_string(state.every) +
         " averagings by the clock: " + base::count_text(count, "time") +
         (count > 0 ? ", " + std::to_string(state.bytes) + " bytes each"
                    : ": never averaged; --average-state needs a shorter period, the clock "
                      "averages " +
                          base::count_text(planned, "time"));
}

// Adds a line for the outer steps and for each state that is averaged less often.
void add_parts(const AveragingPlan& plan, const PlannedAveragings& planned,
               std::vector<std::string>& lines) {
  if (const auto& streaming = plan.streaming)
    lines.push_back("in " + base::count_text(streaming->fragments, "fragment") + " of at most " +
                    std::to_string(streaming->largest_bytes) +
                    " bytes, each on its own clock; results are merged " +
                    (streaming->overlap == 0
                         ? "at once"
                         : base::count_text(streaming->overlap, "step") + " later") +
                    ", with weight " + base::number_text("%.3g", streaming->mixing));
  const bool by_rule = plan.outer && !(plan.outer->lr && plan.outer->momentum);
  const std::int64_t fragments = plan.streaming ? plan.streaming->fragments : 1;
  if (by_rule && planned.by_clock > 0)
    lines.push_back(outer_text(plan, (planned.by_clock + fragments - 1) / fragments));
  const std::int64_t before = plan.schedule.count(0, plan.steps.first);
  for (const auto& [name, every, bytes] : plan.states)
    lines.push_back(state_text({name, every, bytes}, before, planned.by_clock));
}

// Returns true if replicas are equal after each averaging of the schedule, so that none is needed
// at the end of an epoch that it covers. After pairs they differ, and fragments are averaged apart,
// or merged later or in part.
bool makes_replicas_equal(const AveragingPlan& plan) {
  const auto& streaming = plan.streaming;
  return !plan.in_pairs && (!streaming || (streaming->fragments == 1 && streaming->overlap == 0 &&
                                           streaming->mixing == 1));
}

}  // namespace

StreamingPlan plan_streaming(const StreamingOptions& options, const FlatBuffer& gradients) {
  StreamingPlan plan{.overlap = options.overlap, .mixing = options.mixing};
  const std::vector<Elements> parts = fragments_of(gradients, options.fragments, options.every);
  plan.fragments = static_cast<std::int64_t>(parts.size());
  for (const Elements& part : parts) {
    const std::int64_t bytes =
        options.lossy ? static_cast<std::int64_t>(code_bytes(*options.lossy, part.count, 0))
                      : part.count * static_cast<std::int64_t>(size_of(gradients.dtype()));
    plan.largest_bytes = std::max(plan.largest_bytes, bytes);
  }
  return plan;
}

// Returns the averagings of single fragments after the steps (first, last].
std::int64_t count_of_fragments(const AveragingPlan& plan, std::int64_t first, std::int64_t last) {
  const auto [from, every] = plan.schedule.phases().back();
  std::int64_t total = 0;
  for (std::int64_t f = 0; f < plan.streaming->fragments; ++f) {
    const std::int64_t ahead = fragment_offset(f, plan.streaming->fragments, every);
    total += (last - from + ahead) / every - (first - from + ahead) / every;
  }
  return total;
}

PlannedAveragings count_averagings(const AveragingPlan& plan) {
  const std::int64_t first = std::max(plan.steps.first, plan.warmup), last = plan.steps.total;
  if (last <= first) return {};
  PlannedAveragings planned{.by_clock = plan.streaming ? count_of_fragments(plan, first, last)
                                                       : plan.schedule.count(first, last),
                            .at_ends = 0};
  const std::int64_t begin = plan.steps.first_of_epochs,
                     first_epoch = (first - begin) / plan.steps.of_epoch,
                     last_epoch = (last - begin) / plan.steps.of_epoch;
  const std::int64_t epochs = std::min(last_epoch - first_epoch, kMaxEpochsCounted);
  const auto averages_at_end = [&plan](std::int64_t step) {
    return !makes_replicas_equal(plan) || !plan.schedule.due(step);
  };
  for (std::int64_t e = 1; e <= epochs; ++e)
    planned.at_ends += averages_at_end(begin + (first_epoch + e) * plan.steps.of_epoch);
  if ((last - begin) % plan.steps.of_epoch != 0) planned.at_ends += averages_at_end(last);
  if (const std::int64_t every = plan.steps.save_every; every > 0) {
    const std::int64_t until = std::min((last - 1) / every, first / every + kMaxSavesCounted);
    for (std::int64_t step = (first / every + 1) * every; step <= until * every; step += every)
      planned.at_saves += (step - begin) % plan.steps.of_epoch != 0 && averages_at_end(step);
  }
  return planned;
}

std::vector<std::string> describe(const AveragingPlan& plan) {
  const PlannedAveragings planned = count_averagings(plan);
  std::string first;
  if (plan.warmup > 0)
    first = "gradients in the first " + base::count_text(plan.warmup, "step") + ", then ";
  if (plan.islands > 0)
    first += "gradients within " + base::count_text(plan.islands, "host") + " every step, ";
  first +=
      std::string("parameters ") + (plan.in_pairs ? "of random pairs of ranks " : "") +
      phase_text(plan) + ": " + base::count_text(planned.by_clock, "averaging") +
      (plan.streaming ? " of a fragment" : "") + " by the clock, " +
      std::to_string(planned.at_ends) + " more " +
      (plan.streaming  ? "of all "
       : plan.in_pairs ? "of all ranks "
                       : "") +
      "at ends of epochs or of the run, " +
      (planned.at_saves == 0 ? "" : std::to_string(planned.at_saves) + " before checkpoints, ") +
      std::to_string(plan.bytes_each) + " bytes " + (plan.streaming ? "of all" : "each");
  if (plan.bytes_at_ends > 0)
    first += " in pairs, " + std::to_string(plan.bytes_at_ends) +
             " of all ranks, with the state of the outer steps";
  std::vector<std::string> lines{first};
  add_pairs(plan, lines);
  add_parts(plan, planned, lines);
  if (plan.warmup >= plan.steps.total)
    lines.push_back("the first " + base::count_text(plan.warmup, "step") +
                    " average gradients and the run has " + std::to_string(plan.steps.total) +
                    ": parameters are never averaged");
  else if (!plan.streaming || planned.by_clock == 0)
    add_long_periods(plan, lines);
  lines.insert(lines.end(), plan.notes.begin(), plan.notes.end());
  add_compression(plan, lines);
  if (plan.outer && planned.by_clock == 0)
    lines.push_back("no outer step will be taken: the clock never averages");
  if (plan.islands == 1)
    lines.push_back("all ranks are on one host, which is one island: replicas stay equal");
  if (plan.islands > 0 && plan.islands == plan.ranks)
    lines.push_back("every host has one rank: --sync-island host changes nothing");
  return lines;
}

}  // namespace engine
