// Implements `engine doctor`: forms the group as training would, checks every host and every link,
// and reports problems.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend_error.h"
#include "io/base/time/utc_time.h"
#include "tools/commands/command.h"
#include "tools/commands/doctor/doctor.h"
#include "tools/launch/group/group_flags.h"
#include "tools/launch/group/rank_exchange.h"
#include "tools/launch/group/run_group.h"
#include "tools/launch/machine/machine_info.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

DoctorReport report_of(const backends::Group& group) {
  return {.when = base::utc_text(base::unix_us()),
          .build = build_text(),
          .backend = group.backend(),
          .backend_reason = group.backend_reason(),
          .rendezvous_address = group.rendezvous_address(),
          .hosts = {},
          .links = {},
          .findings = {}};
}

void print_report(const DoctorReport& report, const std::string& format) {
  const std::string text = format == "json" ? to_json(report) : to_text(report);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Returns the facts of hosts that the rendezvous knows, for ranks that cannot be asked.
std::vector<HostFacts> known_hosts(const backends::Group& group, const HostFacts& own) {
  std::vector<HostFacts> hosts;
  for (const backends::PeerInfo& peer : group.peers()) {
    HostFacts& facts = hosts.emplace_back();
    facts.rank = peer.rank;
    facts.pid = peer.pid;
    facts.host = peer.host;
    facts.host_id = peer.host_id;
    if (peer.rank == group.rank()) facts = own;
  }
  return hosts;
}

// Fills the report, as far as ranks reach each other, and returns their communicator. Throws
// PeerError with the rest missing.
std::unique_ptr<backends::Communicator> examine(const RunConfig& config, backends::Group& group,
                                                DoctorReport& report) {
  group.set_activity("doctor: hosts");
  HostFacts own = host_facts(group);
  report.hosts = known_hosts(group, own);
  auto control = group.make_communicator();
  if (!config.keeping.directory.empty())
    own.folder_fault = check_folder(config.keeping.directory, *control);
  std::vector<HostFacts> hosts;
  for (const std::string& text : gather_texts(*control, to_json(own)))
    hosts.push_back(facts_from_json(text));
  report.hosts = std::move(hosts);
  report.links = measure_links(group, *control);
  for (const std::vector<Finding>& part :
       {diagnose_hosts(report.hosts), diagnose_clocks(report.links),
        diagnose_links(report.links, group.world_size())})
    report.findings.insert(report.findings.end(), part.begin(), part.end());
  return control;
}

int examine_and_print(const RunConfig& config, const std::string& format, backends::Group& group) {
  DoctorReport report = report_of(group);
  std::unique_ptr<backends::Communicator> control;
  try {
    control = examine(config, group, report);
  } catch (const backends::PeerError& error) {
    report.findings.push_back({.text = error.what(), .ranks = {}});
    if (group.rank() == 0) print_report(report, format);
    throw;
  }
  if (group.rank() == 0) print_report(report, format);
  // Rank 0 has reported before any rank's exit code can end the others.
  control->barrier();
  return report.healthy() ? kExitOk : kExitDifferent;
}

}  // namespace

int doctor_command(const Arguments& arguments) {
  CLI::App app(
      "Forms the group as training would and checks it: hosts, all links between ranks, clocks, "
      "builds, --save-dir. Exits with 1 if something is bad.",
      "engine doctor");
  std::string format = "table";
  ConfigValues values;
  app.add_option("--format", format, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  add_group_flags(app, values, {"save-dir"});
  for (const char* name : {"--rdzv-timeout", "--timeout"}) app.get_option(name)->default_str("60");
  app.footer(
      "Start it as the training run: srun engine doctor, engine launch ... engine doctor, or "
      "--rank on each host. Default timeouts are shorter: 60 s to join, 60 s per transfer.");
  if (!parse(app, arguments)) return kExitOk;
  const RunConfig config =
      resolve_group_flags(values, {"save-dir"}, {{"rdzv-timeout", "60"}, {"timeout", "60"}});
  return run_group(
      config, [&](backends::Group& group) { return examine_and_print(config, format, group); });
}

}  // namespace tools
