// Evaluates the doctor's measurements and reports problems.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "io/base/formats/json_writer.h"
#include "io/base/text/text_parts.h"
#include "tools/commands/doctor/doctor.h"

namespace tools {
namespace {

using base::number_text;

constexpr double kTimes = 3, kLatencyFloorUs = 100;  // a latency below the floor is never a problem
constexpr double kMaxClockOffset = 1;                // seconds
constexpr std::int64_t kMinSharedMemory = std::int64_t{64} << 20;

std::string pair_text(const Link& l) {
  return "ranks " + std::to_string(l.a) + " and " + std::to_string(l.b);
}

using Kind = std::pair<std::string, bool>;  // backend, and true within one host
Kind kind_of(const Link& l) { return {l.backend, l.one_host}; }

// The values that the better quarter of the links of a kind reach.
struct Usual {
  double latency_us = 0, best_us = 0, gb_s = 0;
};
std::map<Kind, Usual> usual_links(const std::vector<Link>& links) {
  std::map<Kind, std::vector<double>> medians, shortest, rates;
  for (const Link& l : links) {
    medians[kind_of(l)].push_back(l.latency_us);
    shortest[kind_of(l)].push_back(l.best_us);
    rates[kind_of(l)].push_back(-l.slower_gb_s());  // sorted from the highest rate
  }
  const auto quarter = [](std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return values[(values.size() - 1) / 4];
  };
  std::map<Kind, Usual> usual;
  for (auto& [kind, list] : medians)
    usual[kind] = {quarter(list), quarter(shortest[kind]), -quarter(rates[kind])};
  return usual;
}

bool much_longer(double us, double usual_us) {
  return us > kTimes * usual_us && us > usual_us + kLatencyFloorUs;
}
bool slow_answer(const Link& l, const Usual& u) { return much_longer(l.best_us, u.best_us); }
bool unsteady(const Link& l, const Usual& u) {
  return !slow_answer(l, u) && much_longer(l.latency_us, u.latency_us);
}
bool thin(const Link& l, const Usual& u) { return l.slower_gb_s() < u.gb_s / kTimes; }

// Returns the rank that is in all bad links and in no good one: one cause, not many.
std::vector<int> common_ranks(const std::vector<Link>& links, const std::vector<std::size_t>& bad,
                              int ranks) {
  std::vector<int> common;
  for (int r = 0; r < ranks; ++r) {
    const auto has = [r](const Link& l) { return !l.one_host && (l.a == r || l.b == r); };
    const auto all = static_cast<std::size_t>(std::count_if(links.begin(), links.end(), has));
    const auto hit = static_cast<std::size_t>(
        std::count_if(bad.begin(), bad.end(), [&](std::size_t i) { return has(links[i]); }));
    if (bad.size() > 1 && hit == bad.size() && hit == all) common.push_back(r);
  }
  return common;
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c)
      line += row[c] + std::string(widths[c] - row[c].size() + 2, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string gigabytes(std::int64_t bytes) {
  return number_text("%.1f GiB", static_cast<double>(bytes) / (1 << 30));
}

std::string interface_list(const HostFacts& f) {
  std::string text;
  bool loopback = false;
  for (const NetworkInterface& i : f.interfaces) {
    loopback |= i.name == "lo";
    if (i.name == "lo") continue;
    text += (text.empty() ? "" : ", ") + i.name + " " + i.address + " mtu " + std::to_string(i.mtu);
    if (i.speed_mbit > 0) text += " " + std::to_string(i.speed_mbit) + " Mbit/s";
  }
  if (!text.empty()) return text;
  return loopback ? "loopback only" : "none, and loopback is down: ip link set lo up";
}

}  // namespace

std::vector<std::size_t> suspicious_links(const std::vector<Link>& links) {
  const std::map<Kind, Usual> usual = usual_links(links);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < links.size(); ++i) {
    const Usual& u = usual.at(kind_of(links[i]));
    if (slow_answer(links[i], u) || unsteady(links[i], u) || thin(links[i], u)) found.push_back(i);
  }
  return found;
}

std::vector<Finding> diagnose_links(const std::vector<Link>& links, int ranks) {
  const std::map<Kind, Usual> usual = usual_links(links);
  std::vector<Finding> findings;
  std::vector<std::size_t> bad;
  for (const std::size_t i : suspicious_links(links)) {
    const Link& l = links[i];
    const Usual& u = usual.at(kind_of(l));
    const std::string who = "link between " + pair_text(l) + " (" + l.backend + ") ";
    if (slow_answer(l, u))
      findings.push_back({who + "answers slowly: " + number_text("%.0f us", l.best_us) +
                              " at best, others " + number_text("%.0f us", u.best_us),
                          {l.a, l.b},
                          !l.one_host});
    if (unsteady(l, u))
      findings.push_back({who + "answers unsteadily: " + number_text("%.0f us", l.best_us) +
                              " at best, but a median of " + number_text("%.0f us", l.latency_us) +
                              ", others " + number_text("%.0f us", u.latency_us),
                          {l.a, l.b},
                          false});
    if (thin(l, u))
      findings.push_back({who + "carries little: " + number_text("%.4f GB/s", l.slower_gb_s()) +
                              (l.forward_gb_s < l.back_gb_s ? " from " : " to ") + "rank " +
                              std::to_string(l.a) + ", others " + number_text("%.4f GB/s", u.gb_s),
                          {l.a, l.b},
                          !l.one_host});
    if (!l.one_host && (slow_answer(l, u) || thin(l, u))) bad.push_back(i);
  }
  for (const int r : common_ranks(links, bad, ranks))
    findings.push_back({"every bad link is one of rank " + std::to_string(r) +
                            ", and it has no good one: look at its host, cable or interface",
                        {r}});
  return findings;
}

std::vector<Finding> diagnose_clocks(const std::vector<Link>& links) {
  std::vector<Finding> findings;
  for (const Link& l : links)
    if (l.a == 0 && std::abs(l.clock_offset_s) - l.clock_error_s > kMaxClockOffset)
      findings.push_back({"clock of rank " + std::to_string(l.b) + " is " +
                              number_text("%.3f s", std::abs(l.clock_offset_s)) +
                              (l.clock_offset_s > 0 ? " ahead of" : " behind") +
                              " rank 0's: timestamps in logs and records cannot be compared",
                          {l.b}});
  return findings;
}

std::vector<Finding> diagnose_hosts(const std::vector<HostFacts>& hosts) {
  std::vector<Finding> findings;
  std::map<std::string, int> ranks_on;
  for (const HostFacts& f : hosts) ++ranks_on[f.host_id];
  std::set<std::string> reported;
  for (const HostFacts& f : hosts) {
    const std::string who = "rank " + std::to_string(f.rank) + " (" + f.host + ")";
    if (!f.folder_fault.empty())
      findings.push_back({who + ": --save-dir: " + f.folder_fault, {f.rank}});
    if (f.build != hosts.front().build)
      findings.push_back({who + ": runs " + f.build + ", rank 0 " + hosts.front().build, {f.rank}});
    if (!f.is_examined() || !reported.insert(f.host_id).second)
      continue;  // the other facts are the host's
    const int here = ranks_on[f.host_id];
    if (here > 1 && f.shared_memory_free < kMinSharedMemory)
      findings.push_back({who + ": " + gigabytes(f.shared_memory_free) + " free in /dev/shm for " +
                              std::to_string(here) +
                              " ranks; expected 64 MiB or more (containers: --shm-size)",
                          {f.rank}});
    if (here > f.allowed_cores)
      findings.push_back({who + ": " + std::to_string(here) + " ranks share " +
                              std::to_string(f.allowed_cores) + " cores",
                          {f.rank},
                          false});
    if (f.load > 1.5 * f.cores)
      findings.push_back({who + ": load " + number_text("%.1f", f.load) + " on " +
                              std::to_string(f.cores) + " cores: other programs use this host",
                          {f.rank},
                          false});
  }
  return findings;
}

bool DoctorReport::healthy() const {
  return std::none_of(findings.begin(), findings.end(), [](const Finding& f) { return f.bad; });
}

namespace {

// Without its facts, a host whose rank could not be asked has its name only.
std::vector<std::string> host_cells(const HostFacts& f) {
  std::vector<std::string> cells{std::to_string(f.rank), f.host, std::to_string(f.pid)};
  if (!f.is_examined()) {
    cells.resize(10, "-");
    return cells;
  }
  cells.insert(cells.end(), {f.address.empty() ? "-" : f.address,
                             std::to_string(f.allowed_cores) + "/" + std::to_string(f.cores),
                             number_text("%.2f", f.load), gigabytes(f.memory_bytes),
                             gigabytes(f.shared_memory_free), std::to_string(f.file_limit),
                             f.gpus.empty() ? "none" : std::to_string(f.gpus.size())});
  return cells;
}

}  // namespace

std::string to_text(const DoctorReport& r) {
  std::string out = r.build + ", " + r.when + "\n" + std::to_string(r.hosts.size()) +
                    (r.hosts.size() == 1 ? " rank met at " : " ranks met at ") +
                    (r.rendezvous_address.empty() ? "(one process)" : r.rendezvous_address) +
                    "; backend " + r.backend + " (" + r.backend_reason + ")\n\n";
  std::vector<std::vector<std::string>> rows{{"rank", "host", "pid", "address", "cores", "load",
                                              "memory", "/dev/shm free", "files", "GPUs"}};
  for (const HostFacts& f : r.hosts) rows.push_back(host_cells(f));
  out += table(rows);
  std::set<std::string> reported;
  for (const HostFacts& f : r.hosts) {
    if (!f.is_examined() || !reported.insert(f.host_id).second) continue;
    out += "rank " + std::to_string(f.rank) + ": " + f.cpu + ", " + f.kernel + "; " +
           interface_list(f) + "\n";
    for (const std::string& limit : f.limits)
      out += "rank " + std::to_string(f.rank) + ": limited to " + limit + "\n";
    out += "rank " + std::to_string(f.rank) + ": " + f.gpu_note + "\n";
    for (const std::string& gpu : f.gpus)
      out += "rank " + std::to_string(f.rank) + ": " + gpu + "\n";
    if (!f.libraries.nccl.empty())
      out += "rank " + std::to_string(f.rank) + ": nccl: " + f.libraries.nccl + "\n";
    if (!f.libraries.mpi.empty())
      out += "rank " + std::to_string(f.rank) + ": mpi: " + f.libraries.mpi + "\n";
  }
  rows = {link_columns(/*people=*/true)};
  rows.back().emplace_back("clock offset ms");
  for (const Link& l : r.links) {
    rows.push_back(link_cells(l, /*people=*/true));
    rows.back().push_back(number_text("%+.3f", l.clock_offset_s * 1e3) +
                          number_text(" +- %.3f", l.clock_error_s * 1e3));
  }
  if (!r.links.empty()) out += "\n" + table(rows);
  out += "\n";
  for (const Finding& f : r.findings) out += (f.bad ? "BAD   " : "note  ") + f.text + "\n";
  return out + (r.healthy() ? "healthy\n" : "not healthy\n");
}

std::string to_json(const DoctorReport& r) {
  base::JsonWriter json;
  json.begin_object().member("schema", 1).member("command", "doctor").member("when", r.when);
  json.member("build", r.build).member("backend", r.backend);
  json.member("meeting_place", r.rendezvous_address).member("healthy", r.healthy());
  json.key("ranks").begin_array();
  for (const HostFacts& f : r.hosts) json.new_line().ready_made(to_json(f));
  json.end_array().key("links").begin_array();
  for (const Link& l : r.links) {
    json.new_line().begin_object().member("a", l.a).member("b", l.b);
    json.member("backend", l.backend).member("latency_us", l.latency_us);
    json.member("best_us", l.best_us).member("forward_gb_s", l.forward_gb_s);
    json.member("back_gb_s", l.back_gb_s).member("clock_offset_s", l.clock_offset_s);
    json.member("clock_error_s", l.clock_error_s);
    add_link_figures(json, l);
    json.end_object();
  }
  json.end_array().key("findings").begin_array();
  for (const Finding& f : r.findings)
    json.new_line()
        .begin_object()
        .member("bad", f.bad)
        .member("ranks", f.ranks)
        .member("text", f.text)
        .end_object();
  return json.end_array().end_object().text() + "\n";
}

}  // namespace tools
