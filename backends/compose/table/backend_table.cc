// The table of backends, one row each; `auto` takes the first usable one that connects hosts.
#include "backends/compose/table/backend_table.h"

#include <algorithm>
#include <set>

#include "backends/backend_error.h"
#include "backends/compose/plugin/backend_plugin.h"
#include "backends/transport/gloo/gloo_backend.h"
#include "backends/transport/mpi/mpi_backend.h"
#include "backends/transport/nccl/nccl_backend.h"
#include "backends/transport/shm/shm_backend.h"
#include "backends/transport/socket/socket_backend.h"
#include "backends/transport/zmq/zmq_backend.h"
#include "io/base/text/text_parts.h"

namespace backends {
namespace {

const Backend kBackends[] = {
    {.name = "gloo",
     .reach = Reach::kHosts,
     .usable = kGlooIsBuilt,
     .note = kGlooNote,
     .create = &make_gloo_communicator,
     .encrypts = Encrypts::kInRecords,
     .relays = true},
    {.name = "zmq",
     .reach = Reach::kHosts,
     .usable = kZmqIsBuilt,
     .note = kZmqNote,
     .create = &make_zmq_communicator,
     .encrypts = Encrypts::kWithCurve},
    {.name = "socket",
     .reach = Reach::kHosts,
     .usable = true,
     .note = "our own TCP protocol, ranks are processes",
     .create = &make_socket_communicator,
     .encrypts = Encrypts::kInRecords,
     .relays = true},
    {"nccl", Reach::kHosts, kNcclIsBuilt, kNcclNote, &make_nccl_communicator, &missing_for_nccl,
     &describe_nccl, true},
    {"mpi", Reach::kHosts, true, "MPI, ranks are started by mpirun", &make_mpi_communicator,
     &missing_for_mpi, &describe_mpi},
    {"shm", Reach::kHost, true, "shared memory between processes of one host",
     &make_shm_communicator},
    {"inproc", Reach::kThreads, true, "ranks are threads of one process", nullptr},
};
constexpr const char* kCheckedPrefix = "checked:";

std::string missing_here(const Backend& b) {
  return b.usable && b.missing != nullptr ? b.missing() : std::string();
}

std::string usable_names() {
  std::string names = "auto";
  for (const Backend& b : kBackends) {
    if (b.usable && missing_here(b).empty()) names += std::string(", ") + b.name;
  }
  return names + ", checked:A,B or the path of a plug-in (./libengine_x.so)";
}

// Finds a backend between processes, by name or by the path of its plug-in.
const Backend& find_backend(const std::string& name) {
  if (name.find('/') != std::string::npos) return load_backend_plugin(name);
  for (const Backend& b : kBackends) {
    if (name != b.name) continue;
    if (!b.usable) throw ConfigurationError("backend " + name + " is not in this build: " + b.note);
    if (const std::string missing = missing_here(b); !missing.empty())
      throw ConfigurationError("backend " + name + " cannot be used on this machine: " + missing);
    if (b.reach == Reach::kThreads)
      throw ConfigurationError(
          "backend " + name +
          " connects threads of one process, not the processes that --spawn N starts");
    return b;
  }
  if (const std::string plugin = find_plugin(name); !plugin.empty())
    return load_backend_plugin(plugin);
  throw ConfigurationError("unknown backend \"" + name + "\"; this build has " + usable_names() +
                           ", and there is no plug-in " +
                           base::join_text(plugin_places(name), " or "));
}

const Backend& first_between_hosts() {
  std::string missing;
  for (const Backend& b : kBackends) {
    if (b.reach != Reach::kHosts || b.device_memory) continue;
    if (b.usable) return b;
    missing += std::string("; ") + b.name + ": " + b.note;
  }
  throw ConfigurationError("no backend in this build connects ranks of several hosts" + missing);
}

const Backend& shared_memory() { return find_backend("shm"); }

struct CheckedPair {
  std::string first, second;
};
CheckedPair checked_pair(const std::string& backend) {
  const std::string rest = backend.substr(std::string(kCheckedPrefix).size());
  const std::size_t comma = rest.find(',');
  if (comma == std::string::npos || comma == 0 || comma + 1 == rest.size())
    throw ConfigurationError("backend \"" + backend + "\": expected checked:A,B with two backends");
  return {rest.substr(0, comma), rest.substr(comma + 1)};
}

bool is_checked(const std::string& backend) { return backend.rfind(kCheckedPrefix, 0) == 0; }

std::size_t host_count(const std::vector<PeerInfo>& peers) {
  std::set<std::string> hosts;
  for (const PeerInfo& p : peers) hosts.insert(p.host_id);
  return hosts.size();
}

void require_one_host(const Backend& backend, const std::vector<PeerInfo>& peers) {
  if (backend.reach != Reach::kHost) return;
  const auto other = std::ranges::find_if(
      peers, [&](const PeerInfo& p) { return p.host_id != peers.front().host_id; });
  if (other == peers.end()) return;
  throw ConfigurationError(
      std::string("backend ") + backend.name + " connects ranks of one host, but rank " +
      std::to_string(peers.front().rank) + " is on " + peers.front().host + " and rank " +
      std::to_string(other->rank) + " on " + other->host + " (or in another network namespace)");
}

void require_host_memory(const Backend& backend, const std::string& what) {
  if (backend.device_memory)
    throw ConfigurationError(std::string("backend ") + backend.name +
                             " works on GPU memory: it cannot be part of " + what);
}

}  // namespace

std::span<const Backend> all_backends() { return kBackends; }

std::vector<BackendInfo> list_backends() {
  std::vector<BackendInfo> list;
  for (const Backend& b : kBackends) {
    const std::string missing = missing_here(b);
    const bool usable = b.usable && missing.empty();
    std::string note = missing.empty() ? b.note : missing;
    if (usable && b.describe != nullptr) note += ": " + b.describe();
    list.push_back({b.name, usable, b.reach == Reach::kHosts, note, b.device_memory});
  }
  return list;
}

LocalStage parse_local_stage(const std::string& text) {
  if (text == "auto") return LocalStage::kAuto;
  if (text == "shm") return LocalStage::kShm;
  if (text == "off") return LocalStage::kOff;
  throw ConfigurationError("local stage \"" + text + "\": expected auto, shm or off");
}

void check_backend(const std::string& backend) {
  if (backend == "auto" || backend == "inproc") return;
  if (!is_checked(backend)) {
    find_backend(backend);
    return;
  }
  const CheckedPair pair = checked_pair(backend);
  find_backend(pair.first);
  find_backend(pair.second);
}

BackendPlan plan_backend(const std::string& backend, LocalStage local_stage,
                         const std::vector<PeerInfo>& peers) {
  check_backend(backend);
  const std::string by_name = backend == "auto" ? "auto: " : "";
  if (peers.size() == 1)
    return {.name = "single",
            .reason = by_name.empty()
                          ? backend + " was asked for, but one rank has nothing to exchange"
                          : "auto: one rank has nothing to exchange"};
  if (is_checked(backend)) {
    const CheckedPair pair = checked_pair(backend);
    const Backend &first = find_backend(pair.first), &second = find_backend(pair.second);
    require_one_host(first, peers);
    require_one_host(second, peers);
    require_host_memory(first, "a comparison");
    require_host_memory(second, "a comparison");
    return {.across = &first,
            .compared = &second,
            .name = backend,
            .reason = "every result is compared"};
  }
  const std::size_t hosts = host_count(peers);
  const bool staged =
      local_stage == LocalStage::kShm || (local_stage == LocalStage::kAuto && backend == "auto");
  if (staged && hosts == 1)
    return {.within = &shared_memory(),
            .name = "shm",
            .reason = by_name.empty() ? "the local stage is shm and all ranks are on one host"
                                      : "auto: all ranks are on one host"};
  const Backend& across = backend == "auto" ? first_between_hosts() : find_backend(backend);
  require_one_host(across, peers);
  if (staged) require_host_memory(across, "a local stage of shm");
  if (!staged || hosts == peers.size())
    return {.across = &across,
            .name = across.name,
            .reason = !by_name.empty()
                          ? std::string("auto: ") + across.name + " is built in and connects hosts"
                          : "asked for"};
  return {.across = &across,
          .within = &shared_memory(),
          .name = std::string("shm+") + across.name,
          .reason = by_name + "shm within each of " + std::to_string(hosts) + " hosts, " +
                    across.name + " across"};
}

}  // namespace backends
