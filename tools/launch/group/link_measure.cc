// Both ranks of a pair make the same calls of a communicator of two.
#include "tools/launch/group/link_measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>

#include "backends/backend_error.h"
#include "backends/identity/host_layout.h"
#include "backends/transport/socket/link_counters.h"
#include "io/base/text/text_parts.h"
#include "io/base/time/deadline.h"
#include "io/base/time/utc_time.h"
#include "tools/launch/group/rank_exchange.h"

namespace tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kLatencySeconds = 0.3, kRateSeconds = 0.15;
constexpr int kFewestPings = 5, kMaxPings = 200, kMaxTransfers = 3;
constexpr std::size_t kFirstTransfer = 64 << 10, kMaxTransfer = 1 << 20;
// A transfer that takes this long, without its round trip, is large enough for its rate: in any
// case, or if a larger one is not much faster.
constexpr double kLongEnough = 0.15, kLongEnoughIfSteady = 0.02, kSteady = 1.3;
// A first transfer is slow until the connection sends at its full rate, and a queue may take it at
// once: it is large enough only if it takes this long, and some round trips.
constexpr double kLongEnoughAtFirst = 0.4, kTripsAtFirst = 4;

// Rank 0 of the pair measures and decides, and broadcasts its decisions.
class PairTalk {
 public:
  PairTalk(backends::Communicator& pair, Link& link) : pair_(pair), link_(link) {}

  void run() {
    link_.backend = pair_.name();
    ping();  // the first one pays for buffers
    const auto before = own_counters();
    measure_latency();
    link_.forward_gb_s = measure_rate(0);
    link_.back_gb_s = measure_rate(1);
    link_.bytes = static_cast<double>(data_.size());
    count_segments(before);
  }

 private:
  // Makes a round trip. Returns seconds on the first rank; the reply contains the other's clock,
  // which the fastest trip shows best.
  double ping() {
    double question = 0, answer = 0;
    const double sent = base::unix_seconds();
    const auto start = Clock::now();
    pair_.broadcast(&question, sizeof question, 0);
    answer = base::unix_seconds();
    pair_.broadcast(&answer, sizeof answer, 1);
    const double trip = base::seconds_since(start);
    if (trip < shortest_) {
      shortest_ = trip;
      link_.clock_offset_s = answer - (sent + trip / 2);
      link_.clock_error_s = trip / 2;
    }
    return trip;
  }

  void measure_latency() {
    std::vector<double> trips{ping(), ping()};
    const int pings = agreed(kLatencySeconds / std::max(std::min(trips[0], trips[1]), 1e-9),
                             kFewestPings, kMaxPings);
    while (std::ssize(trips) < pings) trips.push_back(ping());
    std::ranges::sort(trips);
    const auto at = [&](double share) {
      return trips[static_cast<std::size_t>(
                 std::lround(share * static_cast<double>(trips.size() - 1)))] *
             0.5e6;
    };
    link_.best_us = at(0);
    link_.latency_us = at(0.5);
    link_.p99_us = at(0.99);
  }

  int agreed(double wish, int low, int high) {
    double value = std::clamp(wish, static_cast<double>(low), static_cast<double>(high));
    pair_.broadcast(&value, sizeof value, 0);
    return static_cast<int>(value);
  }

  // Transfers in one direction, confirmed by 8 bytes back, whose round trip is subtracted. Returns
  // seconds on the first rank.
  double transfer(std::size_t bytes, int from) {
    data_.resize(std::max(data_.size(), bytes));
    double mark = 0;
    // The other rank makes this call after it has this rank's control word of the call before: if
    // the end of that was short, up to a round trip later. A backend whose sender waits for the
    // other's control word would begin late, by a time that depends on the last transfer.
    if (pair_.rank() == 0)
      std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(2 * link_.best_us));
    const auto start = Clock::now();
    if (from == 0) {
      pair_.broadcast(data_.data(), bytes, 0);
      pair_.broadcast(&mark, sizeof mark, 1);
    } else {
      pair_.broadcast(&mark, sizeof mark, 0);
      pair_.broadcast(data_.data(), bytes, 1);
    }
    const double taken = base::seconds_since(start);
    return std::max(taken - link_.best_us * 2e-6, taken * 1e-3);
  }

  // Returns the size of a transfer that takes long enough; a connection also needs some until it
  // sends at its full rate.
  std::size_t find_size(int from) {
    double rate_before = 0;
    for (std::size_t bytes = kFirstTransfer;; bytes *= 4) {
      const double taken = transfer(bytes, from), rate = static_cast<double>(bytes) / taken;
      const bool steady = rate < kSteady * rate_before && taken > kLongEnoughIfSteady;
      const double long_enough = bytes > kFirstTransfer
                                     ? kLongEnough
                                     : kLongEnoughAtFirst + kTripsAtFirst * 2e-6 * link_.best_us;
      const bool enough = bytes >= kMaxTransfer || taken > long_enough || steady;
      if (agreed(enough ? 1 : 0, 0, 1) == 1) return bytes;
      rate_before = rate;
    }
  }

  // Returns GB/s on the first rank.
  double measure_rate(int from) {
    const std::size_t small = find_size(from), large = small * 5 / 2;
    double fastest_small = std::numeric_limits<double>::infinity(), fastest_large = fastest_small;
    int rounds = 1;
    for (int i = 0; i < rounds; ++i) {
      fastest_small = std::min(fastest_small, transfer(small, from));
      fastest_large = std::min(fastest_large, transfer(large, from));
      if (i == 0) rounds = agreed(kRateSeconds / (fastest_small + fastest_large), 1, kMaxTransfers);
    }
    const auto more = static_cast<double>(large - small);
    // Other load may have slowed all the small ones.
    const double least = fastest_large * more / static_cast<double>(large) / 2;
    return more / std::max(fastest_large - fastest_small, least) / 1e9;
  }

  struct Counted {
    double segments = -1, resent = -1;
  };
  Counted own_counters() const {
    const auto counters = backends::link_counters_of(pair_, 1 - pair_.rank());
    if (!counters) return {};
    return {static_cast<double>(counters->segments), static_cast<double>(counters->resent)};
  }
  void count_segments(const Counted& before) {
    const Counted after = own_counters();
    Counted own, both[2];
    if (before.segments >= 0 && after.segments >= 0)
      own = {after.segments - before.segments, after.resent - before.resent};
    pair_.all_gather(&own, sizeof own, both);
    link_.forward_segments = both[0].segments;
    link_.forward_resent = both[0].resent;
    link_.back_segments = both[1].segments;
    link_.back_resent = both[1].resent;
  }

  backends::Communicator& pair_;
  Link& link_;
  std::vector<char> data_;
  double shortest_ = std::numeric_limits<double>::infinity();
};

void measure_pair(backends::Group& group, const RankPair& pair, const std::string& backend,
                  Link& link) {
  group.set_activity("measuring the link between ranks " + std::to_string(pair.first) + " and " +
                     std::to_string(pair.second));
  link.a = pair.first;
  link.b = pair.second;
  link.one_host = backends::are_on_one_host(group, link.a, link.b);
  try {
    const auto two =
        group.make_communicator({.backend = backend, .members = {pair.first, pair.second}});
    PairTalk(*two, link).run();
  } catch (const backends::PeerError& error) {
    throw backends::PeerError("the link between ranks " + std::to_string(pair.first) + " and " +
                              std::to_string(pair.second) + " failed: " + error.what());
  }
}

// The fields of a link that are sent before its backend's name.
double Link::*const kMeasured[] = {
    &Link::latency_us,     &Link::best_us,       &Link::forward_gb_s,
    &Link::back_gb_s,      &Link::bytes,         &Link::clock_offset_s,
    &Link::clock_error_s,  &Link::p99_us,        &Link::forward_segments,
    &Link::forward_resent, &Link::back_segments, &Link::back_resent};
struct PackedLink {
  int a = 0, b = 0, one_host = 0;
  double measured[std::size(kMeasured)] = {};
};

std::string pack_link(const Link& link) {
  PackedLink p{.a = link.a, .b = link.b, .one_host = link.one_host};
  for (std::size_t i = 0; i < std::size(kMeasured); ++i) p.measured[i] = link.*kMeasured[i];
  return std::string(reinterpret_cast<const char*>(&p), sizeof p) + link.backend;
}

Link unpack_link(const std::string& text) {
  PackedLink p;
  std::memcpy(&p, text.data(), sizeof p);
  Link link{.a = p.a, .b = p.b, .backend = text.substr(sizeof p), .one_host = p.one_host != 0};
  for (std::size_t i = 0; i < std::size(kMeasured); ++i) link.*kMeasured[i] = p.measured[i];
  return link;
}

// Returns "3 of 812"; "-" if unknown.
std::string resent_text(double resent, double segments) {
  if (segments < 0) return "-";
  return fixed(resent, 0) + " of " + fixed(segments, 0);
}

std::string segments_cell(double count) { return count < 0 ? "" : fixed(count, 0); }

std::string rate_digits(double rate) { return fixed(rate, rate < 10 ? 3 : rate < 1000 ? 1 : 0); }

}  // namespace

std::vector<Link> measure_round(backends::Group& group, backends::Communicator& control,
                                const std::vector<RankPair>& pairs, const std::string& backend) {
  std::string report;
  for (const RankPair& pair : pairs) {
    if (pair.first != group.rank() && pair.second != group.rank()) continue;
    Link link;
    measure_pair(group, pair, backend, link);
    if (pair.first == group.rank()) report = pack_link(link);
  }
  std::vector<Link> links;
  for (const std::string& text : gather_texts(control, report))
    if (text.size() >= sizeof(PackedLink)) links.push_back(unpack_link(text));
  return links;
}

Cells link_columns(bool people) {
  if (people)
    return {"link", "backend",       "Mbit/s there", "back",         "MB/s there",
            "back", "round trip ms", "99 %",         "resent there", "back"};
  return {"a",
          "b",
          "backend",
          "one_host",
          "there_mbit_s",
          "back_mbit_s",
          "there_mb_s",
          "back_mb_s",
          "round_trip_ms",
          "round_trip_p99_ms",
          "there_segments",
          "there_resent",
          "back_segments",
          "back_resent"};
}

Cells link_cells(const Link& l, bool people) {
  if (people)
    return {std::to_string(l.a) + " - " + std::to_string(l.b),
            l.backend,
            rate_digits(8e3 * l.forward_gb_s),
            rate_digits(8e3 * l.back_gb_s),
            rate_digits(1e3 * l.forward_gb_s),
            rate_digits(1e3 * l.back_gb_s),
            fixed(l.round_trip_ms(), 3),
            fixed(l.round_trip_p99_ms(), 3),
            resent_text(l.forward_resent, l.forward_segments),
            resent_text(l.back_resent, l.back_segments)};
  return {std::to_string(l.a),
          std::to_string(l.b),
          l.backend,
          l.one_host ? "true" : "false",
          fixed(8e3 * l.forward_gb_s, 4),
          fixed(8e3 * l.back_gb_s, 4),
          fixed(1e3 * l.forward_gb_s, 5),
          fixed(1e3 * l.back_gb_s, 5),
          fixed(l.round_trip_ms(), 5),
          fixed(l.round_trip_p99_ms(), 5),
          segments_cell(l.forward_segments),
          segments_cell(l.forward_resent),
          segments_cell(l.back_segments),
          segments_cell(l.back_resent)};
}

void add_link_figures(base::JsonWriter& json, const Link& l) {
  json.member("there_mbit_s", 8e3 * l.forward_gb_s).member("back_mbit_s", 8e3 * l.back_gb_s);
  json.member("there_mb_s", 1e3 * l.forward_gb_s).member("back_mb_s", 1e3 * l.back_gb_s);
  json.member("round_trip_ms", l.round_trip_ms());
  json.member("round_trip_p99_ms", l.round_trip_p99_ms());
  if (l.forward_segments < 0 || l.back_segments < 0) return;
  json.member("there_segments", static_cast<std::int64_t>(l.forward_segments));
  json.member("there_resent", static_cast<std::int64_t>(l.forward_resent));
  json.member("back_segments", static_cast<std::int64_t>(l.back_segments));
  json.member("back_resent", static_cast<std::int64_t>(l.back_resent));
}

std::string rate_text_of(double gb_s) {
  const double mbit = 8e3 * gb_s;
  return mbit < 1000 ? base::number_text("%.3g Mbit/s", mbit)
                     : base::number_text("%.3g Gbit/s", mbit / 1000);
}

}  // namespace tools
