// Measures the links between all pairs of ranks.
#include <algorithm>

#include "tools/commands/doctor/doctor.h"
#include "tools/launch/group/rank_exchange.h"

namespace tools {
namespace {

void keep_better(Link& link, const Link& again) {
  link.latency_us = std::min(link.latency_us, again.latency_us);
  link.best_us = std::min(link.best_us, again.best_us);
  link.p99_us = std::min(link.p99_us, again.p99_us);
  link.forward_gb_s = std::max(link.forward_gb_s, again.forward_gb_s);
  link.back_gb_s = std::max(link.back_gb_s, again.back_gb_s);
  if (again.clock_error_s < link.clock_error_s) {
    link.clock_error_s = again.clock_error_s;
    link.clock_offset_s = again.clock_offset_s;
  }
}

}  // namespace

std::vector<Link> measure_links(backends::Group& group, backends::Communicator& control) {
  std::vector<Link> links;
  for (const auto& pairs : pair_rounds(group.world_size()))
    for (Link& link : measure_round(group, control, pairs)) links.push_back(std::move(link));
  std::sort(links.begin(), links.end(),
            [](const Link& x, const Link& y) { return std::pair(x.a, x.b) < std::pair(y.a, y.b); });
  // Pairs of one host compete for its cores and its cable, and other users may load the machine. A
  // link is bad only if it is bad twice, the second time alone.
  for (const std::size_t i : suspicious_links(links))
    for (const Link& again : measure_round(group, control, {{links[i].a, links[i].b}}))
      keep_better(links[i], again);
  return links;
}

}  // namespace tools
