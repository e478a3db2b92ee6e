// Measures the link between two ranks, for `engine bench link`, `engine doctor` and `--sync auto`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backends/group.h"
#include "io/base/formats/json_writer.h"
#include "tools/report/output/text_table.h"

namespace tools {

// A pair of ranks, a < b, over one backend.
struct Link {
  int a = 0, b = 0;
  std::string backend;
  // true: no cable between the two, only memory and cores that they share with all other processes
  // of the host.
  bool one_host = false;
  double latency_us = 0, best_us = 0;      // half of a ping-pong of 8 bytes: median, shortest
  double forward_gb_s = 0, back_gb_s = 0;  // a to b, b to a
  double bytes = 0;                        // of the largest transfer
  // b's clock minus a's, with an error of at most half of the shortest round trip.
  double clock_offset_s = 0, clock_error_s = 0;
  double p99_us = 0;  // half of a ping-pong: 99 % are at most this long, or the longest of few
  // TCP segments with data that a, and b, sent during the measurement, and sent again; -1: unknown.
  double forward_segments = -1, forward_resent = -1, back_segments = -1, back_resent = -1;

  double slower_gb_s() const { return forward_gb_s < back_gb_s ? forward_gb_s : back_gb_s; }
  double round_trip_ms() const { return 2e-3 * latency_us; }
  double round_trip_p99_ms() const { return 2e-3 * p99_us; }
};

using RankPair = std::pair<int, int>;  // first < second

// Collective over the group: these disjoint pairs measure at the same time, each over a
// communicator of its own (`backend` as in CommunicatorRequest), the others wait. Every rank gets
// the links, in the order of their first ranks. Throws PeerError that names the pair whose link
// failed.
//
// A pair takes 0.3 s for small messages, and per direction about 0.3 s for transfers, whose sizes
// adapt to the rate; longer if the link carries less than 10 Mbit/s or a round trip takes longer
// than 50 ms. The rate follows from the difference of two transfers, so that neither the delay nor
// bytes that a queue takes at once count.
std::vector<Link> measure_round(backends::Group& group, backends::Communicator& control,
                                const std::vector<RankPair>& pairs,
                                const std::string& backend = "");

// The columns that all reports of links have: for people, else for programs.
Cells link_columns(bool people);
Cells link_cells(const Link& link, bool people);
// Adds the figures as members of the current object.
void add_link_figures(base::JsonWriter& json, const Link& link);
// Returns e.g. "9.56 Mbit/s".
std::string rate_text_of(double gb_s);

}  // namespace tools
