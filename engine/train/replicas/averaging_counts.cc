// A policy that averages parameters stores "updates"; one that averages gradients alone does not.
#include "engine/train/replicas/averaging_counts.h"

#include <cstdint>
#include <string>
#include <utility>

namespace engine {
namespace {

enum class Averaged { kNothing, kGradients, kParameters };

// The last is the count of a warm-up, in a policy that has both kinds.
constexpr const char *kAveragings = "averagings", *kBytes = "bytes_sent",
                     *kOfGradients = "gradients.averagings",
                     *kOfParameters = "parameters.averagings", *kOfWarmup = "all.averagings";

bool has(const PolicyCounters& counters, std::string_view name) {
  return find_counter(counters, name, -1) >= 0;
}

Averaged averaged_by(const PolicyCounters& counters) {
  if (has(counters, "updates")) return Averaged::kParameters;
  return has(counters, kAveragings) ? Averaged::kGradients : Averaged::kNothing;
}

std::int64_t count_of(Averaged kind, const char* name, const PolicyCounters& saved) {
  return find_counter(saved, averaged_by(saved) == kind ? kAveragings : name, 0);
}

// Returns what parts of the saved policy, as a warm-up, have sent and the policy has no part for.
std::int64_t bytes_of_other_parts(const PolicyCounters& saved, const PolicyCounters& policy) {
  std::int64_t bytes = 0;
  for (const auto& [name, value] : saved)
    if (name.ends_with(std::string(".") + kBytes) && !has(policy, name)) bytes += value;
  return bytes;
}

void add_count(PolicyCounters& counters, const char* name, std::int64_t value) {
  if (value > 0) counters.emplace_back(name, value);
}

}  // namespace

CarriedCounts carry_counts(const PolicyCounters& saved, const PolicyCounters& policy) {
  CarriedCounts carried;
  PolicyCounters& own = carried.of_policy;
  for (const auto& counter : saved)
    if (counter.first != kAveragings && counter.first != kBytes && counter.first != kOfGradients &&
        counter.first != kOfParameters)
      own.push_back(counter);
  const std::int64_t bytes = bytes_of_other_parts(saved, policy);
  if (bytes > 0 || has(saved, kBytes))
    own.emplace_back(kBytes, find_counter(saved, kBytes, 0) + bytes);

  const std::int64_t parameters = count_of(Averaged::kParameters, kOfParameters, saved);
  std::int64_t gradients = count_of(Averaged::kGradients, kOfGradients, saved);
  if (has(policy, kOfWarmup) && !has(saved, kOfWarmup))
    add_count(own, kOfWarmup, std::exchange(gradients, 0));
  else if (!has(policy, kOfWarmup))
    gradients += find_counter(saved, kOfWarmup, 0);
  const Averaged now = averaged_by(policy);
  add_count(now == Averaged::kGradients ? own : carried.others,
            now == Averaged::kGradients ? kAveragings : kOfGradients, gradients);
  std::int64_t elsewhere =
      averaged_by(saved) == Averaged::kParameters ? find_counter(saved, kOfParameters, 0) : 0;
  if (now == Averaged::kParameters)
    add_count(own, kAveragings, parameters);
  else
    elsewhere += parameters;
  add_count(carried.others, kOfParameters, elsewhere);
  return carried;
}

void restore_counts(const PolicyCounters& saved, std::int64_t steps, AveragingPolicy& policy) {
  CarriedCounts counts = carry_counts(saved, policy.counters());
  counts.of_policy.insert(counts.of_policy.begin(), {"updates", steps});
  policy.restore_counters(counts.of_policy);
  // A policy in its warm-up has averaged no parameters.
  const std::int64_t left = find_counter(counts.of_policy, kAveragings, 0) -
                            find_counter(policy.counters(), kAveragings, 0);
  if (averaged_by(policy.counters()) == Averaged::kParameters)
    add_count(counts.others, kOfParameters, left);
  policy.set_other_counts(std::move(counts.others));
}

AveragingReport take_report_of_run(AveragingPolicy& policy) {
  AveragingReport report = policy.take_report();
  for (const auto& counter : policy.other_counts()) report.averagings += counter.second;
  return report;
}

}  // namespace engine
