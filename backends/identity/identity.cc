// Resolves rank, world size and rendezvous address: the command line first, then the
// launchers' variables.
#include "backends/identity/identity.h"

#include <cstdlib>
#include <string_view>

#include "backends/backend_error.h"
#include "backends/identity/launchers.h"
#include "backends/identity/port_rule.h"
#include "backends/identity/slurm_launcher.h"
#include "backends/store/tcp_socket.h"

namespace backends {
namespace {

constexpr int kMaxRanks = 65536;

int number_or(ResolvedValue& from, int fallback, int least, int most, const std::string& expected) {
  if (!from.value.empty()) return whole_number(from, least, most, expected);
  from = {std::to_string(fallback), "default"};
  return fallback;
}

bool is_file(const std::string& init_method) { return init_method.rfind("file://", 0) == 0; }

// Returns the launchers' values, overridden by the command line. A launcher whose rank or world
// size differs from the command line is ignored: its local ranks and job are not this run's.
Claim find_claim(const IdentityRequest& request, const Environment& environment) {
  const auto flag = [](const std::optional<int>& value, const char* name) {
    return value ? ResolvedValue{std::to_string(*value), name} : ResolvedValue{};
  };
  const ResolvedValue rank = flag(request.rank, "--rank"),
                      world_size = flag(request.world_size, "--world-size");
  const auto differs = [](const ResolvedValue& mine, const ResolvedValue& theirs) {
    return !mine.value.empty() && !theirs.value.empty() && mine.value != theirs.value;
  };
  std::vector<Claim> claims = read_claims(environment, is_file(request.init_method));
  std::erase_if(claims, [&](Claim& c) {
    if (!differs(rank, c.rank) && !differs(world_size, c.world_size)) return false;
    // The user sets LOCAL_RANK and so on, which are valid together with any flag.
    c.rank = c.world_size = {};
    return !c.set_by_user;
  });
  Claim claim = reconcile(claims);
  if (request.rank) claim.rank = rank;
  if (request.world_size) claim.world_size = world_size;
  if (request.local_rank) claim.local_rank = flag(request.local_rank, "--local-rank");
  complete_from_fallbacks(claim, environment);
  if (!request.job_id.empty()) claim.job = {request.job_id, "--job-id"};
  return claim;
}

bool is_loopback_literal(const std::string& host) {
  return host == "localhost" || host.rfind("127.", 0) == 0 || host == "::1" || host == "[::1]";
}

void resolve_master(Identity& id, const Claim& claim, const Environment& environment) {
  id.master_addr_from = variable(environment, "MASTER_ADDR");
  if (id.master_addr_from.value.empty())
    id.master_addr_from = variable(environment, "PET_MASTER_ADDR");
  const ResolvedValue alias = variable(environment, "MASTER_ADD");
  if (!alias.value.empty()) {
    if (id.master_addr_from.value.empty()) {
      id.master_addr_from = alias;
      id.warnings.push_back("MASTER_ADD=" + alias.value +
                            " is taken for MASTER_ADDR; set MASTER_ADDR");
    } else if (id.master_addr_from.value != alias.value) {
      throw ConfigurationError("MASTER_ADDR=" + id.master_addr_from.value + " and MASTER_ADD=" +
                               alias.value + " contradict each other; set only MASTER_ADDR");
    }
  }
  if (id.master_addr_from.value.empty() && !claim.master_host.value.empty()) {
    const bool here = id.known_local_world_size() == id.world_size;
    id.master_addr_from =
        here ? ResolvedValue{"127.0.0.1", "all ranks are on this host"} : claim.master_host;
  }
  // SLURM's local world size shows that the ranks are on several hosts.
  if (is_loopback_literal(id.master_addr_from.value) &&
      claim.local_world_size.source.rfind("SLURM_", 0) == 0 &&
      id.local_world_size < id.world_size) {
    throw ConfigurationError(id.master_addr_from.source + "=" + id.master_addr_from.value +
                             " is a loopback address, but the ranks are on several hosts (" +
                             claim.local_world_size.source +
                             "); unset it, or give the host of rank 0");
  }
}

// Makes a tcp:// address from the host of rank 0 and the port rule.
std::string resolve_environment_place(Identity& id, const IdentityRequest& request,
                                      const Claim& claim, const Environment& environment) {
  resolve_master(id, claim, environment);
  if (id.master_addr_from.value.empty())
    throw ConfigurationError(
        "MASTER_ADDR is not set: expected the host of rank 0, or --init-method");
  const PortChoice choice = choose_port(request.port_rule, id.rank == 0, claim, environment);
  id.master_port_from = choice.from;
  id.port_window = choice.window;
  if (!choice.warning.empty()) id.warnings.push_back(choice.warning);
  std::string host = id.master_addr_from.value;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  return "tcp://" + to_string(Endpoint{host, choice.port});
}

std::string rendezvous_address(Identity& id, const IdentityRequest& request, const Claim& claim,
                               const Environment& environment) {
  const std::string& requested = request.init_method;
  if (is_file(requested)) {
    if (requested.size() < 9 || requested[7] != '/') {
      throw ConfigurationError("--init-method " + requested + ": expected file:///ABSOLUTE/PATH");
    }
    return requested;
  }
  if (requested.rfind("tcp://", 0) == 0)
    return "tcp://" +
           to_string(parse_endpoint(std::string_view(requested).substr(6), "--init-method"));
  if (!requested.empty() && requested != "env://") {
    throw ConfigurationError("--init-method " + requested +
                             ": expected env://, tcp://HOST:PORT or file:///PATH");
  }
  return resolve_environment_place(id, request, claim, environment);
}

void resolve_ranks(Identity& id, const Claim& claim) {
  id.rank_from = claim.rank;
  id.world_from = claim.world_size;
  id.local_rank_from = claim.local_rank;
  id.local_world_from = claim.local_world_size;
  id.node_rank_from = claim.node_rank;
  id.job_from = claim.job;
  if (id.world_from.value.empty() && !id.rank_from.value.empty() && id.rank_from.value != "0") {
    throw ConfigurationError(id.rank_from.source + "=" + id.rank_from.value +
                             " without a world size: set WORLD_SIZE or --world-size");
  }
  id.world_size = number_or(id.world_from, 1, 1, kMaxRanks, "a number of ranks, 1 or more");
  if (id.rank_from.value.empty() && id.world_size > 1) {
    throw ConfigurationError(id.world_from.source + "=" + id.world_from.value +
                             " without a rank: set RANK or --rank");
  }
  const std::string within =
      " below the world size " + id.world_from.value + " (" + id.world_from.source + ")";
  id.rank = number_or(id.rank_from, 0, 0, id.world_size - 1, "a rank from 0" + within);
  id.local_world_size =
      number_or(id.local_world_from, 1, 1, id.world_size,
                "a number of ranks on this node, at most the world size " + id.world_from.value);
  const bool local_world_known = id.known_local_world_size().has_value();
  id.local_rank = number_or(
      id.local_rank_from, 0, 0, (local_world_known ? id.local_world_size : id.world_size) - 1,
      local_world_known
          ? "a rank from 0 below " + id.local_world_from.source + "=" + id.local_world_from.value
          : "a rank from 0" + within);
  id.node_rank =
      number_or(id.node_rank_from, 0, 0, id.world_size - 1, "a node number from 0" + within);
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  };
}

Identity resolve_identity(const IdentityRequest& request, const Environment& environment) {
  const Claim claim = find_claim(request, environment);
  Identity id;
  resolve_ranks(id, claim);
  if (id.world_size > 1 || (!request.init_method.empty() && request.init_method != "env://"))
    id.init_method = rendezvous_address(id, request, claim, environment);
  if (id.world_size == 1) {
    id.init_method.clear();
    if (id.world_from.source == "default") {
      if (std::string notice = slurm_batch_notice(environment); !notice.empty())
        id.warnings.push_back(std::move(notice));
    }
  }
  return id;
}

}  // namespace backends
