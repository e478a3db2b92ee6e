// Measures the links between all pairs of ranks, through communicators of two.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>

#include "backends/backend_error.h"
#include "io/base/time/deadline.h"
#include "tools/commands/doctor/doctor.h"
#include "tools/launch/group/rank_exchange.h"

namespace tools {
namespace {

using Clock = std::chrono::steady_clock;
// Approximate measuring time per pair.
constexpr double kLatencySeconds = 0.3, kBandwidthSeconds = 0.6;
constexpr int kFewestPings = 5, kMaxPings = 200, kMaxTransfers = 5;
constexpr std::size_t kSmallTransfer = 1 << 20, kLargeTransfer = 8 << 20;

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The measurement of one pair. Both sides make the same calls; rank 0 of the pair measures and
// decides, and broadcasts its decisions.
class PairTalk {
 public:
  PairTalk(backends::Communicator& pair, Link& link) : pair_(pair), link_(link) {}

  void run() {
    link_.backend = pair_.name();
    double trip = ping();  // the first one warms up
    for (int i = 0; i < 2; ++i) trip = std::min(trip, ping());
    const int pings = agreed(kLatencySeconds / std::max(trip, 1e-9), kFewestPings, kMaxPings);
    std::vector<double> trips;
    for (int i = 0; i < pings; ++i) trips.push_back(ping());
    std::nth_element(trips.begin(), trips.begin() + pings / 2, trips.end());
    link_.best_us = *std::min_element(trips.begin(), trips.end()) * 0.5e6;
    link_.latency_us = trips[static_cast<std::size_t>(pings / 2)] * 0.5e6;
    measure_bandwidth();
  }

 private:
  // Makes a round trip. Returns seconds on the first rank; the reply contains the other's clock,
  // which the fastest trip shows best.
  double ping() {
    double question = 0, answer = 0;
    const double sent = wall_clock();
    const auto start = Clock::now();
    pair_.broadcast(&question, sizeof question, 0);
    answer = wall_clock();
    pair_.broadcast(&answer, sizeof answer, 1);
    const double trip = base::seconds_since(start);
    if (trip < shortest_) {
      shortest_ = trip;
      link_.clock_offset_s = answer - (sent + trip / 2);
      link_.clock_error_s = trip / 2;
    }
    return trip;
  }

  int agreed(double wish, int low, int high) {
    double value = std::clamp(wish, static_cast<double>(low), static_cast<double>(high));
    pair_.broadcast(&value, sizeof value, 0);
    return static_cast<int>(value);
  }

  // Transfers in one direction, confirmed by 8 bytes back, whose latency is subtracted. Returns
  // seconds on the first rank.
  double transfer(std::vector<char>& data, int from) {
    double mark = 0;
    const auto start = Clock::now();
    if (from == 0) {
      pair_.broadcast(data.data(), data.size(), 0);
      pair_.broadcast(&mark, sizeof mark, 1);
    } else {
      pair_.broadcast(&mark, sizeof mark, 0);
      pair_.broadcast(data.data(), data.size(), 1);
    }
    const double taken = base::seconds_since(start);
    return std::max(taken - link_.best_us * 1e-6, taken / 2);
  }

  void measure_bandwidth() {
    std::vector<char> data(kSmallTransfer);
    double once = transfer(data, 0) + transfer(data, 1);  // the first one warms up
    once = std::min(once, transfer(data, 0) + transfer(data, 1));
    const bool large = agreed(once < kBandwidthSeconds / 32 ? 1 : 0, 0, 1) == 1;
    if (large) data.resize(kLargeTransfer);
    const double each = large ? once * static_cast<double>(kLargeTransfer / kSmallTransfer) : once;
    const int transfers = agreed(kBandwidthSeconds / each, 2, kMaxTransfers);
    double best[2] = {1e300, 1e300};
    for (int i = 0; i < transfers; ++i)
      for (const int from : {0, 1}) best[from] = std::min(best[from], transfer(data, from));
    link_.bytes = static_cast<double>(data.size());
    link_.forward_gb_s = link_.bytes / best[0] / 1e9;
    link_.back_gb_s = link_.bytes / best[1] / 1e9;
  }

  backends::Communicator& pair_;
  Link& link_;
  double shortest_ = std::numeric_limits<double>::infinity();
};

// `pair` is empty for a rank that is in no pair.
void measure_pair(backends::Group& group, const std::pair<int, int>& pair, Link& link) {
  group.set_activity("doctor: link between ranks " + std::to_string(pair.first) + " and " +
                     std::to_string(pair.second));
  link.a = pair.first;
  link.b = pair.second;
  const auto host = [&](int rank) {
    return group.peers().at(static_cast<std::size_t>(rank)).host_id;
  };
  link.one_host = host(link.a) == host(link.b);
  try {
    const auto two = group.make_communicator({.members = {pair.first, pair.second}});
    PairTalk(*two, link).run();
  } catch (const backends::PeerError& error) {
    throw backends::PeerError("the link between ranks " + std::to_string(pair.first) + " and " +
                              std::to_string(pair.second) + " failed: " + error.what());
  }
}

// The fields of a link that are sent before its backend's name.
double Link::*const kMeasured[] = {&Link::latency_us,   &Link::best_us, &Link::forward_gb_s,
                                   &Link::back_gb_s,    &Link::bytes,   &Link::clock_offset_s,
                                   &Link::clock_error_s};
struct PackedLink {
  int a = 0, b = 0, one_host = 0;
  double measured[std::size(kMeasured)] = {};
};

std::string packed(const Link& link) {
  PackedLink p{.a = link.a, .b = link.b, .one_host = link.one_host};
  for (std::size_t i = 0; i < std::size(kMeasured); ++i) p.measured[i] = link.*kMeasured[i];
  return std::string(reinterpret_cast<const char*>(&p), sizeof p) + link.backend;
}

Link unpacked(const std::string& text) {
  PackedLink p;
  std::memcpy(&p, text.data(), sizeof p);
  Link link{.a = p.a, .b = p.b, .backend = text.substr(sizeof p), .one_host = p.one_host != 0};
  for (std::size_t i = 0; i < std::size(kMeasured); ++i) link.*kMeasured[i] = p.measured[i];
  return link;
}

// Runs one round: the pairs measure at the same time, the others wait. The first rank of each pair
// reports.
std::vector<Link> run_round(backends::Group& group, backends::Communicator& control,
                            const std::vector<std::pair<int, int>>& pairs) {
  std::string report;
  for (const auto& pair : pairs) {
    if (pair.first != group.rank() && pair.second != group.rank()) continue;
    Link link;
    measure_pair(group, pair, link);
    if (pair.first == group.rank()) report = packed(link);
  }
  std::vector<Link> links;
  for (const std::string& text : gather_texts(control, report))
    if (text.size() >= sizeof(PackedLink)) links.push_back(unpacked(text));
  return links;
}

void keep_better(Link& link, const Link& again) {
  link.latency_us = std::min(link.latency_us, again.latency_us);
  link.best_us = std::min(link.best_us, again.best_us);
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
    for (Link& link : run_round(group, control, pairs)) links.push_back(std::move(link));
  std::sort(links.begin(), links.end(),
            [](const Link& x, const Link& y) { return std::pair(x.a, x.b) < std::pair(y.a, y.b); });
  // Pairs of one host compete for its cores and its cable, and other users may load the machine. A
  // link is bad only if it is bad twice, the second time alone.
  for (const std::size_t i : suspicious_links(links))
    for (const Link& again : run_round(group, control, {{links[i].a, links[i].b}}))
      keep_better(links[i], again);
  return links;
}

}  // namespace tools
