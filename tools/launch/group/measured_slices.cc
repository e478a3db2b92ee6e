// Implements the measurement and the agreement on its result.
#include "tools/launch/group/measured_slices.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/identity/host_layout.h"
#include "io/base/time/deadline.h"
#include "tools/launch/group/link_measure.h"
#include "tools/launch/group/rank_exchange.h"
#include "tools/launch/group/slice_choice.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

constexpr auto kMeasuringTime = std::chrono::seconds(60);
constexpr double kWeightOfAll = 1 << 16;

struct Hosts {
  explicit Hosts(const backends::Group& group) : host_of(group.peers().size()) {
    for (const std::vector<int>& of_host : backends::host_layout(group).hosts) {
      for (const int rank : of_host) host_of[static_cast<std::size_t>(rank)] = ranks.size();
      first_ranks.push_back(of_host.front());
      ranks.push_back(static_cast<int>(of_host.size()));
    }
  }
  std::vector<int> first_ranks;
  std::vector<int> ranks;            // [host] their number
  std::vector<std::size_t> host_of;  // [rank]
};

// Returns why there is nothing to choose; "" if there is.
std::string reason_for_equal(const backends::Group& group, std::size_t hosts) {
  if (group.backend() == "nccl") return "NCCL divides sums itself";
  if (hosts < 3)
    return std::to_string(hosts) + (hosts == 1 ? " host" : " hosts") +
           ", whose links carry the same with any slices: expected 3 or more";
  if (hosts > kMaxMeasuredHosts)
    return std::to_string(hosts) + " hosts are too many to measure: expected at most " +
           std::to_string(kMaxMeasuredHosts);
  return "";
}

// Returns nothing if it takes too long, which rank 0 decides.
std::optional<HostRates> measure_rates(backends::Group& group, backends::Communicator& control,
                                       const Hosts& hosts) {
  HostRates rates(hosts.first_ranks.size());
  const base::Deadline until = base::deadline_in(kMeasuringTime);
  for (const auto& round : pair_rounds(static_cast<int>(rates.hosts()))) {
    std::uint8_t is_late = base::has_passed(until) ? 1 : 0;
    control.broadcast(&is_late, sizeof is_late, 0);
    if (is_late != 0) return std::nullopt;
    std::vector<RankPair> pairs;
    for (const auto& [a, b] : round)
      pairs.emplace_back(hosts.first_ranks[static_cast<std::size_t>(a)],
                         hosts.first_ranks[static_cast<std::size_t>(b)]);
    for (const Link& link : measure_round(group, control, pairs, "socket"))
      rates.set(hosts.host_of[static_cast<std::size_t>(link.a)],
                hosts.host_of[static_cast<std::size_t>(link.b)], link.slower_gb_s());
  }
  return rates;
}

// Returns the weight of each rank: the ranks of a host have equal ones.
std::vector<std::uint32_t> weights_of(const SliceChoice& choice, const Hosts& hosts) {
  std::vector<std::uint32_t> weights;
  for (const std::size_t host : hosts.host_of)
    weights.push_back(static_cast<std::uint32_t>(
        std::lround(kWeightOfAll * choice.shares[host] / hosts.ranks[host])));
  return weights;
}

}  // namespace

void divide_sums_by_rates(backends::Group& group) {
  const Hosts hosts(group);
  const auto report_choice = [&](const std::string& text) {
    if (group.rank() == 0) print_notice(text);
  };
  if (const std::string why = reason_for_equal(group, hosts.ranks.size()); !why.empty())
    return report_choice("Slices: equal: " + why);
  const auto control = group.make_communicator();
  const std::optional<HostRates> rates = measure_rates(group, *control, hosts);
  if (!rates) return report_choice("Slices: equal: measuring the links took longer than 60 s");
  const SliceChoice choice = choose_slices(*rates);
  // Every rank has the same figures, but rounding may differ between processors.
  std::vector<std::uint32_t> weights = weights_of(choice, hosts);
  std::uint8_t are_equal = choice.are_equal() ? 1 : 0;
  control->broadcast(weights.data(), weights.size() * sizeof weights.front(), 0);
  control->broadcast(&are_equal, sizeof are_equal, 0);
  if (are_equal == 0) group.divide_sums(weights);
  report_choice(slices_text(*rates, choice, hosts.first_ranks));
}

}  // namespace tools
