// Implements the table of launchers, and the rules if several of them apply at once.
#include "backends/identity/launchers.h"

#include <charconv>
#include <climits>
#include <iterator>

#include "backends/backend_error.h"
#include "backends/identity/slurm_launcher.h"

namespace backends {
namespace {

// A launcher whose variables are plain numbers: one row each.
struct LauncherRow {
  const char* name;
  int depth;
  const char* rank;
  const char* world_size;
  const char* local_rank;  // nullptr: not set
  const char* local_world_size;
  const char* node_rank;
  const char* job;
};

constexpr LauncherRow kEnvironmentRow = {
    "environment", 3, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", nullptr};
constexpr LauncherRow kMpiRows[] = {
    {"Open MPI", 2, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr, "OMPI_MCA_ess_base_jobid"},
    {"MVAPICH2", 2, "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE", nullptr, nullptr},
    {"MVAPICH", 2, "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_LOCAL_RANK",
     "MVP_COMM_WORLD_LOCAL_SIZE", nullptr, nullptr},
    {"PMI", 2, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr, nullptr},
};
// Launchers that number the ranks but do not give the world size.
constexpr const char* kRankOnly[] = {"PMIX_RANK", "JOB_COMPLETION_INDEX"};

bool empty(const ResolvedValue& v) { return v.value.empty(); }
std::string shown(const ResolvedValue& v) { return v.source + "=" + v.value; }

Claim read_row(const LauncherRow& row, const Environment& environment) {
  Claim claim{.launcher = row.name, .depth = row.depth};
  claim.rank = variable(environment, row.rank);
  claim.world_size = variable(environment, row.world_size);
  claim.local_rank = variable(environment, row.local_rank);
  claim.local_world_size = variable(environment, row.local_world_size);
  claim.node_rank = variable(environment, row.node_rank);
  claim.one_per_node = claim.local_world_size.value == "1" || claim.world_size.value == "1";
  if (const ResolvedValue job = variable(environment, row.job); !empty(job) && !empty(claim.rank))
    claim.job = {row.name + (" " + job.value), job.source};
  if (!empty(claim.world_size) && claim.world_size.value == claim.local_world_size.value)
    claim.master_host = {"127.0.0.1", "all ranks are on this host"};
  return claim;
}

// Reads RANK and so on, and the variables that torchrun adds.
Claim environment_claim(const Environment& environment) {
  Claim claim = read_row(kEnvironmentRow, environment);
  claim.master_host = {};  // MASTER_ADDR gives it
  claim.set_by_user = true;
  const ResolvedValue group_rank = variable(environment, "GROUP_RANK");
  if (empty(claim.node_rank)) {
    claim.node_rank = group_rank;
  } else if (!empty(group_rank) && group_rank.value != claim.node_rank.value) {
    throw ConfigurationError(shown(claim.node_rank) + " and " + shown(group_rank) +
                             " contradict each other; set only one");
  }
  // torchrun's agent listens on MASTER_PORT, so host and port identify the job at any time.
  const ResolvedValue agent = variable(environment, "TORCHELASTIC_USE_AGENT_STORE");
  const ResolvedValue run = variable(environment, "TORCHELASTIC_RUN_ID");
  if ((agent.value == "True" || agent.value == "true") && !empty(claim.rank)) {
    claim.job = {"torchrun " + run.value + " " + variable(environment, "MASTER_ADDR").value + ":" +
                     variable(environment, "MASTER_PORT").value + "+" +
                     variable(environment, "TORCHELASTIC_RESTART_COUNT").value,
                 "TORCHELASTIC_RUN_ID"};
  }
  return claim;
}

bool is_empty(const Claim& c) {
  return empty(c.rank) && empty(c.world_size) && empty(c.local_rank) && empty(c.local_world_size) &&
         empty(c.node_rank);
}

// Returns the pair of values of a field in which two claims contradict each other; nullptrs if they
// agree.
std::pair<const ResolvedValue*, const ResolvedValue*> contradiction(const Claim& a,
                                                                    const Claim& b) {
  for (const auto field : {&Claim::world_size, &Claim::rank, &Claim::local_rank}) {
    const ResolvedValue &x = a.*field, &y = b.*field;
    if (!empty(x) && !empty(y) && x.value != y.value) return {&x, &y};
  }
  return {nullptr, nullptr};
}

// Returns true if `inner` was started by a task of `outer`: it numbers its ranks on the node, and
// `outer` has one task there. A world of one task may contain any other world.
bool is_within(const Claim& inner, const Claim& outer) {
  if (inner.depth <= outer.depth) return false;
  return outer.world_size.value == "1" || (!empty(inner.local_rank) && outer.one_per_node);
}

void fill(Claim& claim, const Claim& from) {
  for (const auto field :
       {&Claim::rank, &Claim::world_size, &Claim::local_rank, &Claim::local_world_size,
        &Claim::node_rank, &Claim::master_host, &Claim::job}) {
    if (empty(claim.*field)) claim.*field = from.*field;
  }
}

// One process per node under kubeflow's PET_* is one rank per node.
void fill_from_pet(Claim& claim, const Environment& environment) {
  const ResolvedValue nodes = variable(environment, "PET_NNODES"),
                      node = variable(environment, "PET_NODE_RANK");
  if (empty(nodes) || empty(node)) return;
  const ResolvedValue each = variable(environment, "PET_NPROC_PER_NODE");
  if (!empty(each) && each.value != "1")
    throw ConfigurationError(
        shown(each) +
        ": torchrun's variable requests several ranks per node, but this is one process without "
        "RANK; expected 1, or RANK and WORLD_SIZE for each process");
  claim.rank = claim.node_rank = node;
  claim.world_size = nodes;
  claim.local_rank = {"0", "PET_NPROC_PER_NODE"};
  claim.local_world_size = {"1", "PET_NPROC_PER_NODE"};
}

}  // namespace

ResolvedValue variable(const Environment& environment, const char* name) {
  if (name == nullptr) return {};
  const std::optional<std::string> value = environment(name);
  return value && !value->empty() ? ResolvedValue{*value, name} : ResolvedValue{};
}

int whole_number(const ResolvedValue& from, int least, int most, const std::string& expected) {
  int value = 0;
  const char* end = from.value.data() + from.value.size();
  const auto [stop, error] = std::from_chars(from.value.data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most) {
    throw ConfigurationError(from.source + "=" + from.value + ": expected " + expected);
  }
  return value;
}

std::vector<Claim> read_claims(const Environment& environment, bool uses_file) {
  std::vector<Claim> claims = {environment_claim(environment)};
  std::optional<Claim> step = slurm_step_claim(environment);
  // An array element of several tasks is a separate world; one of a single task is a rank.
  const bool array_counts = uses_file && (!step || step->world_size.value == "1");
  if (step) claims.push_back(std::move(*step));
  if (array_counts) {
    if (std::optional<Claim> array = slurm_array_claim(environment))
      claims.push_back(std::move(*array));
  }
  for (const LauncherRow& row : kMpiRows) claims.push_back(read_row(row, environment));
  // Open MPI 5 names its job by PMIx's variable.
  Claim& open_mpi = claims[claims.size() - std::size(kMpiRows)];
  const ResolvedValue space = variable(environment, "PMIX_NAMESPACE");
  if (empty(open_mpi.job) && !empty(open_mpi.rank) && !empty(space))
    open_mpi.job = {"Open MPI " + space.value, space.source};
  std::erase_if(claims, is_empty);
  return claims;
}

Claim reconcile(const std::vector<Claim>& claims) {
  if (claims.empty()) return {};
  Claim chosen = claims.front();
  for (std::size_t i = 1; i < claims.size(); ++i) {
    const Claim& other = claims[i];
    const auto [mine, theirs] = contradiction(chosen, other);
    if (mine == nullptr) {
      fill(chosen, other);
    } else if (is_within(other, chosen)) {
      chosen = other;
    } else if (!is_within(chosen, other)) {
      throw ConfigurationError(
          shown(*mine) + " (" + chosen.launcher + ") and " + shown(*theirs) + " (" +
          other.launcher + ") contradict each other; unset one, or give --rank and --world-size");
    }
  }
  return chosen;
}

std::string started_tasks_text(const Environment& environment) {
  try {
    const Claim claim = reconcile(read_claims(environment, /*uses_file=*/false));
    const bool several = !empty(claim.rank) && !empty(claim.world_size) &&
                         whole_number(claim.world_size, 1, INT_MAX, "") > 1;
    return several && (claim.set_by_user || claim.rank.value == "0") ? shown(claim.world_size) : "";
  } catch (const ConfigurationError&) {
    return "";
  }
}

void complete_from_fallbacks(Claim& claim, const Environment& environment) {
  if (empty(claim.rank) && empty(claim.world_size)) fill_from_pet(claim, environment);
  for (const char* name : kRankOnly) {
    const ResolvedValue rank = variable(environment, name);
    if (empty(rank) || !empty(claim.rank)) continue;
    // JOB_COMPLETION_INDEX of independent runs is not a rank, but PMIx always numbers the ranks of
    // one world.
    if (empty(claim.world_size) && std::string(name) == "PMIX_RANK")
      throw ConfigurationError(shown(rank) +
                               " without a world size: set WORLD_SIZE or --world-size");
    if (!empty(claim.world_size)) claim.rank = rank;
  }
}

}  // namespace backends
