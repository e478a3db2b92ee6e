// Implements `engine bench link`: rate, delay and loss of the link between each pair of ranks.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "io/base/text/text_parts.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/commands/bench_commands.h"
#include "tools/launch/group/group_flags.h"
#include "tools/launch/group/link_measure.h"
#include "tools/launch/group/run_group.h"
#include "tools/report/output/exit_codes.h"
#include "tools/run/choices/compute_choice.h"

namespace tools {
namespace {

// One pair at a time: two links may share a cable. Collective; every rank gets all links.
std::vector<Link> measure_all_pairs(const std::string& backend, backends::Group& group) {
  const auto control = host_communicator(group);
  std::vector<Link> links;
  for (int a = 0; a < group.world_size(); ++a)
    for (int b = a + 1; b < group.world_size(); ++b)
      for (Link& link : measure_round(group, *control, {{a, b}}, backend))
        links.push_back(std::move(link));
  return links;
}

std::string links_json(const std::vector<Link>& links, const backends::Group& group) {
  const auto host = [&](int rank) { return group.peers().at(static_cast<std::size_t>(rank)).host; };
  base::JsonWriter json;
  begin_report(json, "bench link", bench_heading());
  json.member("ranks", group.world_size()).key("rows").begin_array();
  for (const Link& link : links) {
    json.new_line().begin_object().member("a", link.a).member("b", link.b);
    json.member("host_a", host(link.a)).member("host_b", host(link.b));
    json.member("one_host", link.one_host).member("backend", link.backend);
    add_link_figures(json, link);
    json.end_object();
  }
  return json.new_line().end_array().end_object().text() + "\n";
}

std::string host_list(const backends::Group& group) {
  std::vector<std::string> hosts;
  for (const backends::PeerInfo& peer : group.peers())
    hosts.push_back(std::to_string(peer.rank) + " " + peer.host);
  return "ranks and hosts: " + base::join_text(hosts, ", ") + "\n";
}

std::string links_text(const std::vector<Link>& links, const backends::Group& group,
                       ReportFormat format) {
  if (format == ReportFormat::kJson) return links_json(links, group);
  const bool people = format != ReportFormat::kCsv;
  if (people && links.empty())
    return "One rank has no link: expected 2 or more ranks; give --spawn 2, or start more ranks.\n";
  std::vector<Cells> lines{link_columns(people)};
  for (const Link& link : links) lines.push_back(link_cells(link, people));
  return report_text(format, heading_text(bench_heading()) + host_list(group) + "\n", lines, {0, 1},
                     "Pairs are measured one at a time; there: from the first rank to the second. "
                     "resent: TCP segments with data sent again, of all sent (-: unknown).\n");
}

// Every built-in transport between processes but `socket` hides its connections.
std::string backend_of_pairs(const std::string& chosen) {
  return chosen == "auto" || chosen == "nccl" ? "socket" : "";
}

}  // namespace

int bench_link_command(const Arguments& arguments) {
  CLI::App app(
      "Measures the link between each pair of ranks: rate in each direction, round trips of small "
      "messages, and segments sent again.",
      "engine bench link");
  ReportFormat format = ReportFormat::kTable;
  ConfigValues values;
  add_group_flags(app, values);
  add_format_option(app, format);
  app.footer(
      "Under a launcher (srun, engine launch, torchrun, --rank) its ranks are measured; otherwise "
      "--spawn ranks are started on this host (2). --backend auto measures connections of the "
      "backend socket.");
  if (!parse(app, arguments)) return kExitOk;
  RunConfig config = resolve_group_flags(values);
  if (!in_launched_group(config) && config.spawn == 0) config.spawn = 2;
  const std::string backend = backend_of_pairs(config.group.backend);
  return run_group(config, [&](backends::Group& group) {
    const std::vector<Link> links = measure_all_pairs(backend, group);
    if (group.rank() != 0) return kExitOk;
    const std::string text = links_text(links, group, format);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    return kExitOk;
  });
}

}  // namespace tools
