// Implements the port rules.
#include "backends/identity/port_rule.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "backends/backend_error.h"
#include "backends/identity/slurm_launcher.h"

namespace backends {
namespace {

constexpr int kIdrBase = 12345, kGpuIds = 16, kJobBase = 10001, kJobPorts = 10000,
              kFixedPort = 29500;

constexpr std::string_view kRuleNames[] = {"auto", "idr", "jobid", "fixed"};  // by PortRule

// Returns the number in the job's name, else a hash of the name (FNV-1a).
std::uint64_t job_number(const std::string& job) {
  std::size_t first = job.find_first_of("0123456789");
  std::uint64_t number = 0;
  if (first != std::string::npos && job.size() - first < 19) {
    const std::size_t stop = job.find_first_not_of("0123456789", first);
    return std::stoull(job.substr(first, stop == std::string::npos ? stop : stop - first));
  }
  number = 0xcbf29ce484222325;
  for (const char c : job) number = (number ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return number;
}

PortChoice idr_port(bool is_rank_0, const ResolvedValue& gpus) {
  const int smallest = smallest_gpu(gpus) % kGpuIds, port = kIdrBase + smallest;
  if (is_rank_0)
    return {port, kPortWindow, {std::to_string(port), "12345 + smallest of " + gpus.source}, {}};
  return {kIdrBase,
          kGpuIds - 1 + kPortWindow,
          {std::to_string(kIdrBase), "12345 (rule idr, any GPU)"},
          {}};
}

PortChoice job_port(const ResolvedValue& job) {
  const int port = kJobBase + static_cast<int>(job_number(job.value) % kJobPorts);
  return {
      port, kPortWindow, {std::to_string(port), "10001 + job % 10000, job from " + job.source}, {}};
}

PortChoice given_port(const ResolvedValue& given, const Claim& claim) {
  const int port = whole_number(given, 1, 65535, "a port from 1 to 65535");
  // torchrun's agent listens on MASTER_PORT itself.
  if (claim.job.source == "TORCHELASTIC_RUN_ID" && port < 65535)
    return {port + 1,
            kPortWindow,
            {std::to_string(port + 1), "MASTER_PORT + 1 (torchrun keeps MASTER_PORT)"},
            {}};
  return {port, kPortWindow, given, {}};
}

// By the GPUs or the number of the job.
PortChoice derived_port(PortRule rule, bool is_rank_0, const Claim& claim,
                        const ResolvedValue& gpus) {
  if (rule == PortRule::kIdr ||
      (rule == PortRule::kAuto && !claim.job.value.empty() && !gpus.value.empty())) {
    if (gpus.value.empty())
      throw ConfigurationError(
          "SLURM_STEP_GPUS is not set: port rule idr needs the GPUs of a SLURM step; give "
          "MASTER_PORT or "
          "another --port-rule");
    return idr_port(is_rank_0, gpus);
  }
  if (claim.job.value.empty())
    throw ConfigurationError(
        rule == PortRule::kAuto
            ? "MASTER_PORT is not set: expected a port from 1 to 65535, or --init-method"
            : "port rule jobid: no job number here; give MASTER_PORT or --port-rule fixed");
  return job_port(claim.job);
}

PortChoice by_rule(PortRule rule, bool is_rank_0, const Claim& claim,
                   const Environment& environment) {
  ResolvedValue given = variable(environment, "MASTER_PORT");
  if (given.value.empty()) given = variable(environment, "PET_MASTER_PORT");
  if (!given.value.empty() && (rule == PortRule::kAuto || rule == PortRule::kFixed))
    return given_port(given, claim);
  // MPICH and Intel MPI name no job. Two of them at a time on one host need MASTER_PORT.
  const bool is_nameless = claim.job.value.empty() && !claim.master_host.value.empty() &&
                           claim.world_size.value == claim.local_world_size.value;
  if (rule == PortRule::kAuto && is_nameless)
    return {kFixedPort,
            1,
            {std::to_string(kFixedPort), "all ranks are on this host, and there is no job number"},
            {}};
  if (rule == PortRule::kFixed)
    return {kFixedPort, kPortWindow, {std::to_string(kFixedPort), "port rule fixed"}, {}};
  PortChoice choice =
      derived_port(rule, is_rank_0, claim, variable(environment, "SLURM_STEP_GPUS"));
  if (!given.value.empty())
    choice.warning = "MASTER_PORT=" + given.value + " is not used: port rule " +
                     std::string(to_string(rule)) + " was requested";
  return choice;
}

}  // namespace

std::string_view to_string(PortRule rule) { return kRuleNames[static_cast<std::size_t>(rule)]; }

PortRule parse_port_rule(const std::string& text) {
  const auto* found = std::ranges::find(kRuleNames, text);
  if (found == std::end(kRuleNames))
    throw ConfigurationError("--port-rule " + text + ": expected auto, idr, jobid or fixed");
  return static_cast<PortRule>(found - std::begin(kRuleNames));
}

PortChoice choose_port(PortRule rule, bool is_rank_0, const Claim& claim,
                       const Environment& environment) {
  PortChoice choice = by_rule(rule, is_rank_0, claim, environment);
  choice.window = claim.job.value.empty() ? 1 : std::min(choice.window, 65536 - choice.port);
  return choice;
}

}  // namespace backends
