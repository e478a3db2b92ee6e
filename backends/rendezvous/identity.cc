// Resolves rank, world and meeting place: what was said on the command line first, then the launcher's variables.
#include "backends/rendezvous/identity.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "backends/backend_error.h"
#include "backends/rendezvous/launchers.h"
#include "backends/rendezvous/tcp_socket.h"

namespace backends {
namespace {

ResolvedValue from_environment(const Environment& environment, const char* name) {
  if (name == nullptr) return {};
  const std::optional<std::string> value = environment(name);
  return value && !value->empty() ? ResolvedValue{*value, name} : ResolvedValue{};
}

// A flag goes before the variable; without both the value is unknown.
ResolvedValue pick(const std::optional<int>& flag, const char* flag_name, const Environment& environment,
                   const char* variable) {
  if (flag) return {std::to_string(*flag), flag_name};
  return from_environment(environment, variable);
}

int number(const ResolvedValue& from, int least, int most, const std::string& expected) {
  int value = 0;
  const char* end = from.value.data() + from.value.size();
  const auto [stop, error] = std::from_chars(from.value.data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most) {
    throw ConfigurationError(from.source + "=" + from.value + ": expected " + expected);
  }
  return value;
}

int number_or(ResolvedValue& from, int fallback, int least, int most, const std::string& expected) {
  if (!from.value.empty()) return number(from, least, most, expected);
  from = {std::to_string(fallback), "default"};
  return fallback;
}

// The launcher whose rank or world size is set; the first row when none is.
const Launcher& find_launcher(const Environment& environment) {
  for (const Launcher& launcher : kLaunchers) {
    if (!from_environment(environment, launcher.rank).value.empty() ||
        !from_environment(environment, launcher.world_size).value.empty()) {
      return launcher;
    }
  }
  return kLaunchers[0];
}

void resolve_master(Identity& id, const Environment& environment) {
  id.master_addr_from = from_environment(environment, "MASTER_ADDR");
  id.master_port_from = from_environment(environment, "MASTER_PORT");
  const ResolvedValue alias = from_environment(environment, "MASTER_ADD");
  if (alias.value.empty()) return;
  if (id.master_addr_from.value.empty()) {
    id.master_addr_from = alias;
    id.warnings.push_back("MASTER_ADD=" + alias.value + " is taken for MASTER_ADDR; set MASTER_ADDR");
  } else if (id.master_addr_from.value != alias.value) {
    throw ConfigurationError("MASTER_ADDR=" + id.master_addr_from.value + " and MASTER_ADD=" + alias.value +
                             " contradict each other; set only MASTER_ADDR");
  }
}

std::string meeting_place(const Identity& id, const std::string& requested) {
  if (requested.rfind("file://", 0) == 0) {
    if (requested.size() < 9 || requested[7] != '/') {
      throw ConfigurationError("--init-method " + requested + ": expected file:///ABSOLUTE/PATH");
    }
    return requested;
  }
  if (requested.rfind("tcp://", 0) == 0)
    return "tcp://" + to_string(parse_endpoint(std::string_view(requested).substr(6), "--init-method"));
  if (!requested.empty() && requested != "env://") {
    throw ConfigurationError("--init-method " + requested + ": expected env://, tcp://HOST:PORT or file:///PATH");
  }
  if (id.master_addr_from.value.empty())
    throw ConfigurationError("MASTER_ADDR is not set: expected the host of rank 0, or --init-method");
  if (id.master_port_from.value.empty())
    throw ConfigurationError("MASTER_PORT is not set: expected a port from 1 to 65535, or --init-method");
  const int port = number(id.master_port_from, 1, 65535, "a port from 1 to 65535");
  std::string host = id.master_addr_from.value;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return "tcp://" + to_string(Endpoint{host, port});
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  };
}

Identity resolve_identity(const IdentityRequest& request, const Environment& environment) {
  constexpr int kMostRanks = 65536;
  const Launcher& launcher = find_launcher(environment);
  Identity id;
  id.rank_from = pick(request.rank, "--rank", environment, launcher.rank);
  id.world_from = pick(request.world_size, "--world-size", environment, launcher.world_size);
  id.local_rank_from = pick(request.local_rank, "--local-rank", environment, launcher.local_rank);
  id.local_world_from = from_environment(environment, launcher.local_world_size);
  id.node_rank_from = from_environment(environment, launcher.node_rank);
  resolve_master(id, environment);

  if (id.world_from.value.empty() && !id.rank_from.value.empty() && id.rank_from.value != "0") {
    throw ConfigurationError(id.rank_from.source + "=" + id.rank_from.value +
                             " without a world size: set WORLD_SIZE or --world-size");
  }
  id.world_size = number_or(id.world_from, 1, 1, kMostRanks, "a number of ranks, 1 or more");
  if (id.rank_from.value.empty() && id.world_size > 1) {
    throw ConfigurationError(id.world_from.source + "=" + id.world_from.value + " without a rank: set RANK or --rank");
  }
  const std::string within = " below the world size " + id.world_from.value + " (" + id.world_from.source + ")";
  id.rank = number_or(id.rank_from, 0, 0, id.world_size - 1, "a rank from 0" + within);
  id.local_world_size = number_or(id.local_world_from, 1, 1, id.world_size,
                                  "a number of ranks on this node, at most the world size " + id.world_from.value);
  const bool local_world_known = id.local_world_from.source != "default";
  id.local_rank = number_or(
      id.local_rank_from, 0, 0, (local_world_known ? id.local_world_size : id.world_size) - 1,
      local_world_known ? "a rank from 0 below LOCAL_WORLD_SIZE=" + id.local_world_from.value : "a rank from 0" + within);
  id.node_rank = number_or(id.node_rank_from, 0, 0, id.world_size - 1, "a node number from 0" + within);
  if (id.world_size > 1 || (!request.init_method.empty() && request.init_method != "env://")) {
    id.init_method = meeting_place(id, request.init_method);
  }
  if (id.world_size == 1) id.init_method.clear();
  return id;
}

}  // namespace backends
