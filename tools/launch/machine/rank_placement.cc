// Divides cores into runs and distributes nodes.
#include "tools/launch/machine/rank_placement.h"

#include <algorithm>
#include <map>
#include <span>

#include "io/base/files/io_error.h"
#include "io/base/numbers/part_bounds.h"
#include "io/base/text/text_parts.h"

namespace tools {
namespace {

using base::CpuSet;

std::string named(const CpuSet& cpus) {
  return (cpus.count() == 1 ? "CPU " : "CPUs ") + base::cpus_text(cpus);
}

CpuSet set_of(std::span<const Cpu> cpus) {
  CpuSet set;
  for (const Cpu& cpu : cpus) set.set(static_cast<std::size_t>(cpu.number));
  return set;
}

// Returns the allowed CPUs of the topology.
CpuTopology usable(Bind bind, const CpuTopology& topology, const CpuSet& allowed) {
  CpuTopology cpus;
  std::ranges::copy_if(topology, std::back_inserter(cpus), [&](const Cpu& cpu) {
    return cpu.number >= 0 && cpu.number < base::kMaxCpus &&
           allowed[static_cast<std::size_t>(cpu.number)];
  });
  if (const CpuSet unknown = allowed & ~set_of(cpus); unknown.any() || cpus.empty())
    throw io::ConfigError(std::string(option_text(bind)) + ": hwloc does not know " +
                          named(unknown) + ", which this process may use");
  return cpus;
}

// The ranks that share the CPUs of the rank at `own`, and its place among them.
struct Sharers {
  std::vector<RankNeed> ranks;
  std::size_t own = 0;
};

Sharers sharers_of(Bind bind, const std::vector<RankNeed>& host, std::size_t own) {
  const RankNeed& self = host.at(own);
  Sharers sharers;
  for (std::size_t i = 0; i < host.size(); ++i) {
    if (i == own) sharers.own = sharers.ranks.size();
    if (host[i].cpus == self.cpus)
      sharers.ranks.push_back(host[i]);
    else if ((host[i].cpus & self.cpus).any())
      throw io::ConfigError(std::string(option_text(bind)) + ": rank " + std::to_string(self.rank) +
                            " may use " + named(self.cpus) + " and rank " +
                            std::to_string(host[i].rank) + " " + named(host[i].cpus) +
                            " of the same host; expected the same CPUs, or none in common");
  }
  return sharers;
}

// Returns the i-th of n neighboring runs.
template <class T>
std::span<const T> run_of(const std::vector<T>& all, std::size_t i, std::size_t n) {
  const auto bounds = base::part_bounds(all.size(), i, n);
  return std::span(all).subspan(bounds.begin, bounds.size());
}

// Orders the CPUs: first one CPU of each core, then a second one, and so on.
std::vector<Cpu> by_core(std::vector<Cpu> cpus) {
  std::map<int, int> seen;
  std::vector<std::pair<int, Cpu>> ordered;
  ordered.reserve(cpus.size());
  for (const Cpu& cpu : cpus) ordered.emplace_back(seen[cpu.core]++, cpu);
  std::ranges::stable_sort(ordered, {}, &std::pair<int, Cpu>::first);
  std::ranges::transform(ordered, cpus.begin(), &std::pair<int, Cpu>::second);
  return cpus;
}

std::size_t cores_in(const std::vector<Cpu>& cpus) {
  std::map<int, int> cores;
  for (const Cpu& cpu : cpus) ++cores[cpu.core];
  return cores.size();
}

// Returns shares of whole cores, or of hardware threads.
std::vector<std::vector<Cpu>> cut(const CpuTopology& cpus, std::size_t ranks, bool whole_cores) {
  std::vector<std::vector<Cpu>> units;
  for (const Cpu& cpu : cpus)
    if (whole_cores && !units.empty() && units.back().back().core == cpu.core)
      units.back().push_back(cpu);
    else
      units.push_back({cpu});
  std::vector<std::vector<Cpu>> shares(ranks);
  for (std::size_t i = 0; i < ranks; ++i)
    for (const std::vector<Cpu>& unit : run_of(units, i, ranks))
      shares[i].insert(shares[i].end(), unit.begin(), unit.end());
  return shares;
}

// Returns the first rank whose share is too small, or the number of ranks.
std::size_t first_unfit(const std::vector<std::vector<Cpu>>& shares,
                        const std::vector<RankNeed>& ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (shares[i].size() < static_cast<std::size_t>(std::max(1, ranks[i].threads))) return i;
  return ranks.size();
}

RankPlacement on_cores(const CpuTopology& cpus, const Sharers& sharers) {
  const std::size_t ranks = sharers.ranks.size();
  std::vector<std::vector<Cpu>> shares = cut(cpus, ranks, /*whole_cores=*/true);
  if (first_unfit(shares, sharers.ranks) < ranks) shares = cut(cpus, ranks, /*whole_cores=*/false);
  if (const std::size_t unfit = first_unfit(shares, sharers.ranks); unfit < ranks)
    throw io::ConfigError(
        std::string(option_text(Bind::kCore)) + ": rank " +
        std::to_string(sharers.ranks[unfit].rank) + " has " +
        base::count_text(static_cast<std::size_t>(std::max(1, sharers.ranks[unfit].threads)),
                         "thread") +
        " and a share of " + base::count_text(shares[unfit].size(), "CPU") + " (" +
        named(set_of(cpus)) + " for " + base::count_text(ranks, "rank") +
        "), expected a CPU for each thread; start fewer ranks or threads, or give --bind none");
  const RankNeed& self = sharers.ranks[sharers.own];
  const std::vector<Cpu> order = by_core(shares[sharers.own]);
  const std::size_t threads =
      self.threads > 0
          ? static_cast<std::size_t>(self.threads)
          : std::min(order.size(), static_cast<std::size_t>(std::max(1, self.max_threads)));
  RankPlacement placement{.share = set_of(order), .threads = {}, .text = {}};
  for (std::size_t t = 0; t < threads; ++t)
    placement.threads.push_back(set_of(std::span(order).subspan(t, 1)));
  placement.text =
      named(set_of(std::span(order).first(threads))) +
      (threads > cores_in(order) ? ", cores shared by threads" : ", one core per thread");
  return placement;
}

RankPlacement on_nodes(const CpuTopology& cpus, const Sharers& sharers) {
  std::map<int, std::vector<Cpu>> nodes;
  for (const Cpu& cpu : cpus) nodes[cpu.node].push_back(cpu);
  const std::size_t ranks = sharers.ranks.size();
  const auto node_of = [&](std::size_t rank) { return rank * nodes.size() / ranks; };
  const std::size_t place = node_of(sharers.own);
  std::size_t here = 0;  // ranks on the node
  for (std::size_t i = 0; i < ranks; ++i) here += node_of(i) == place ? 1 : 0;
  const auto& [number, node] = *std::next(nodes.begin(), static_cast<std::ptrdiff_t>(place));
  const RankNeed& self = sharers.ranks[sharers.own];
  const int threads =
      self.threads > 0
          ? self.threads
          : std::max(1, std::min(self.max_threads, static_cast<int>(node.size() / here)));
  const CpuSet share = set_of(node);
  return {.share = share,
          .threads = std::vector<CpuSet>(static_cast<std::size_t>(threads), share),
          .text = named(share) + ", NUMA node " + std::to_string(number) +
                  (nodes.size() == 1 ? ", the only one" : "")};
}

}  // namespace

const char* option_text(Bind bind) {
  return bind == Bind::kCore ? "--bind core" : bind == Bind::kNuma ? "--bind numa" : "--bind none";
}

RankPlacement place_rank(Bind bind, const CpuTopology& topology, const std::vector<RankNeed>& host,
                         std::size_t own) {
  const Sharers sharers = sharers_of(bind, host, own);
  const CpuTopology cpus = usable(bind, topology, host.at(own).cpus);
  return bind == Bind::kCore ? on_cores(cpus, sharers) : on_nodes(cpus, sharers);
}

}  // namespace tools
