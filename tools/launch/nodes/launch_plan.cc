// Counts processors, assigns ranks and fills environments.
#include "tools/launch/nodes/launch_plan.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>

#include "backends/identity/host_identity.h"
#include "backends/secret.h"
#include "backends/store/tcp_socket.h"
#include "io/base/files/io_error.h"
#include "io/base/machine/environment.h"
#include "tools/launch/machine/thread_choice.h"
#include "tools/launch/machine/visible_gpus.h"
#include "tools/launch/nodes/launch_values.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

constexpr int kDefaultPort = 29500;
constexpr int kMaxWorkers = 4096;

// A program other than this one may be able to use a GPU that is skipped here.
UsableGpus gpus_for(bool own_command) {
  if (own_command) return usable_gpus();
  UsableGpus all;
  const int visible = visible_gpus();
  for (int i = 0; i < visible; ++i) all.indices.push_back(i);
  return all;
}

int count_workers(const std::string& text, LaunchPlan& plan) {
  if (text.empty()) return 1;
  if (text == "cpu") return default_threads(1);
  if (text == "gpu" || text == "auto") {
    const UsableGpus found = gpus_for(plan.own_command);
    plan.gpus = found.indices;
    plan.unused_gpus = found.passed_over;
    if (!found.indices.empty()) return static_cast<int>(found.indices.size());
    if (text == "auto") return default_threads(1);
    if (!found.passed_over.empty())
      throw io::ConfigError("--nproc-per-node gpu: " + found.passed_over +
                            "; give cpu or a number");
    throw io::ConfigError(
        "--nproc-per-node gpu: no GPU is visible (CUDA_VISIBLE_DEVICES, /dev/nvidia0); expected "
        "one or more, or give "
        "cpu or a number");
  }
  if (text.find_first_not_of("0123456789") != std::string::npos)
    throw io::ConfigError("--nproc-per-node '" + text + "': expected a number, gpu, cpu or auto");
  return parse_whole(text, 1, kMaxWorkers, "--nproc-per-node");
}

int find_node_rank(const LaunchOptions& options) {
  if (options.nodes.rank) return *options.nodes.rank;
  if (options.nodes.count == 1 || !options.nodes.hosts.empty()) return 0;
  for (const char* name : {"NODE_RANK", "GROUP_RANK", "SLURM_NODEID"})
    if (const std::string value = base::environment(name); !value.empty())
      return parse_whole(value, 0, options.nodes.count - 1, name);
  throw UsageError("which of the " + std::to_string(options.nodes.count) +
                   " nodes is this? Give --node-rank 0 to " +
                   std::to_string(options.nodes.count - 1) + ", a different one on each node");
}

// Makes a name for logs that sorts by time.
std::string random_run_id() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%S", &local);
  return text + ("-" + backends::to_hex(backends::random_bytes(3)));
}

// A user may give several launches the same --rdzv-id, but not two elastic jobs.
std::string launch_id_of(const LaunchPlan& plan) {
  if (plan.elastic.empty()) return backends::to_hex(backends::random_bytes(8));
  return plan.common_run_id ? plan.run_id : "";
}

void check_run_id(const std::string& id) {
  const bool good = !id.empty() && id.size() <= 128 && id != "." && id != ".." &&
                    std::all_of(id.begin(), id.end(),
                                [](unsigned char c) { return c > ' ' && c != '/' && c != 127; });
  if (!good)
    throw io::ConfigError("--rdzv-id '" + id +
                          "': expected a name of 1 to 128 characters without blanks and /");
}

void choose_meeting(LaunchPlan& plan, const LaunchOptions& options) {
  if (options.rendezvous.endpoint.starts_with("file://")) {
    if (options.rendezvous.endpoint.size() < 9 || options.rendezvous.endpoint[7] != '/')
      throw io::ConfigError("--rdzv-endpoint " + options.rendezvous.endpoint +
                            ": expected file:///ABSOLUTE/PATH");
    plan.init_method = options.rendezvous.endpoint;
    return;
  }
  if (!options.rendezvous.endpoint.empty()) {
    const backends::Endpoint endpoint =
        backends::parse_endpoint(options.rendezvous.endpoint, "--rdzv-endpoint");
    plan.master_addr = endpoint.host;
    plan.master_port = endpoint.port;
    return;
  }
  const bool one_node = options.nodes.count == 1;
  plan.master_addr = options.rendezvous.master_addr;
  if (plan.master_addr.empty() && !options.nodes.hosts.empty())
    plan.master_addr =
        options.nodes.hosts.front().substr(options.nodes.hosts.front().find('@') + 1);
  if (plan.master_addr.empty())
    plan.master_addr = one_node ? "127.0.0.1" : base::environment("MASTER_ADDR");
  if (plan.master_addr.empty())
    throw UsageError(
        "no rendezvous address for " + std::to_string(options.nodes.count) +
        " nodes: give --master-addr (or MASTER_ADDR), the host of rank 0, or --rdzv-endpoint");
  const std::string port = one_node ? "" : base::environment("MASTER_PORT");
  plan.master_port = options.rendezvous.master_port ? *options.rendezvous.master_port
                     : !options.nodes.hosts.empty() && !one_node
                         ? 10001 + static_cast<unsigned char>(backends::random_bytes(1)[0]) * 39
                     : !port.empty() ? parse_whole(port, 1, 65535, "MASTER_PORT")
                                     : (one_node ? 0 : kDefaultPort);
  if (plan.master_port == 0 && !one_node)
    throw UsageError("--master-port 0 is for one node: the other nodes could not know the port");
}

// Ranks of an elastic job that no rank can join would wait for the whole time of the rendezvous.
void require_enough_ranks(const LaunchPlan& plan, const LaunchOptions& options) {
  const int min_ranks = std::atoi(plan.elastic.c_str());
  const bool is_alone = plan.nnodes == 1 && plan.init_method.empty() && !options.restarts.respawn;
  if (is_alone && plan.nproc < min_ranks)
    throw io::ConfigError("--elastic " + plan.elastic + " needs at least " +
                          std::to_string(min_ranks) + " ranks, and --nproc-per-node starts " +
                          std::to_string(plan.nproc) + " on the only node, which nobody can join");
}

}  // namespace

std::string elastic_of(const std::vector<std::string>& command) {
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (command[i].starts_with("--elastic=")) return command[i].substr(10);
    if (command[i] == "--elastic" && i + 1 < command.size()) return command[i + 1];
  }
  return "";
}

LaunchPlan make_launch_plan(const LaunchOptions& options) {
  LaunchPlan plan;
  plan.nnodes = options.nodes.count;
  plan.node_rank = find_node_rank(options);
  // The devices of other hosts are counted there.
  const bool elsewhere = !options.nodes.hosts.empty() && !options.dry_run;
  const bool number = options.nproc_per_node.find_first_not_of("0123456789") == std::string::npos;
  plan.own_command = std::find(options.own_commands.begin(), options.own_commands.end(),
                               options.command.front()) != options.own_commands.end();
  plan.nproc = elsewhere && !number ? 1 : count_workers(options.nproc_per_node, plan);
  if (plan.world_size() > 65536)
    throw io::ConfigError(std::to_string(plan.nnodes) + " nodes x " + std::to_string(plan.nproc) +
                          " workers: expected at most 65536 ranks");
  plan.threads_chosen =
      base::environment("OMP_NUM_THREADS").empty() &&
      std::none_of(options.environment.begin(), options.environment.end(),
                   [](const std::string& e) { return e.starts_with("OMP_NUM_THREADS="); });
  plan.threads = default_threads(plan.nproc);
  plan.host = backends::host_name();
  plan.max_restarts = options.restarts.max;
  if (!options.rendezvous.id.empty()) check_run_id(options.rendezvous.id);
  plan.run_id = options.rendezvous.id.empty() ? random_run_id() : options.rendezvous.id;
  plan.common_run_id = plan.nnodes == 1 || !options.rendezvous.id.empty();
  plan.elastic = plan.own_command ? elastic_of(options.command) : "";
  if (plan.elastic.empty() && options.nodes.min_count)
    plan.elastic = std::to_string(*options.nodes.min_count * plan.nproc) + ":" +
                   std::to_string(plan.world_size());
  plan.launch_id = launch_id_of(plan);
  if (!plan.elastic.empty() && !plan.own_command)
    throw UsageError("--nnodes MIN:MAX is for commands of this program, as train");
  if (!plan.elastic.empty() && plan.max_restarts > 0)
    throw UsageError(
        "--max-restarts starts all workers again, which an elastic job does not need: "
        "give --respawn, which starts those again that have failed");
  if (options.restarts.longest_pause_ms && !options.restarts.respawn)
    throw UsageError("--respawn-pause is the longest pause of --respawn: give that, too");
  if (options.restarts.respawn && plan.elastic.empty())
    throw UsageError("--respawn is for elastic jobs, but the number of nodes is fixed, at " +
                     std::to_string(plan.nnodes) +
                     ": give --nnodes MIN:MAX with MIN below MAX, or train --elastic MIN:MAX, "
                     "which counts ranks");
  choose_meeting(plan, options);
  require_enough_ranks(plan, options);
  return plan;
}

std::string plan_table(const LaunchPlan& plan, const LaunchOptions& options) {
  std::string table = "rank,node,device,threads,address\n";
  const std::string set = base::environment("OMP_NUM_THREADS");
  const std::string threads =
      plan.threads_chosen || set.empty() ? std::to_string(plan.threads) : set;
  const std::string address = plan.init_method.empty()
                                  ? backends::to_string({plan.master_addr, plan.master_port})
                                  : plan.init_method;
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const int node = rank / plan.nproc, local = rank % plan.nproc;
    const std::string name = !options.nodes.hosts.empty()
                                 ? options.nodes.hosts[static_cast<std::size_t>(node)]
                             : node == plan.node_rank ? plan.host
                                                      : "node" + std::to_string(node);
    table +=
        std::to_string(rank) + "," + name + "," +
        (plan.gpus.empty() ? "cpu"
                           : "cuda:" + std::to_string(plan.gpus[static_cast<std::size_t>(local)])) +
        "," + threads + "," + address + "\n";
  }
  return table;
}

}  // namespace tools
