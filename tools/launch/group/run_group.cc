// Selects how the ranks are started, and joins them into a group.
#include "tools/launch/group/run_group.h"

#include <algorithm>
#include <memory>

#include "backends/backend_error.h"
#include "backends/compose/table/backend_table.h"
#include "backends/identity/launchers.h"
#include "io/base/files/io_error.h"
#include "io/base/machine/cpu_affinity.h"
#include "io/gpu/cuda_runtime.h"
#include "tools/launch/group/elastic_rank.h"
#include "tools/launch/group/joined_rank.h"
#include "tools/launch/group/joining_options.h"
#include "tools/launch/group/measured_slices.h"
#include "tools/launch/machine/cpu_topology.h"
#include "tools/launch/machine/device_choice.h"
#include "tools/launch/machine/rank_placement.h"
#include "tools/launch/machine/thread_choice.h"
#include "tools/launch/workers/worker_processes.h"
#include "tools/launch/workers/worker_threads.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

void check_bind(Bind bind) {
  if (bind != Bind::kNone) require_topology(option_text(bind));
}

// Runs one process with its devices: a rank or, with several devices, one thread per device, each
// of which is a rank. All processes must have equally many devices, or their world sizes contradict
// each other at the rendezvous.
int run_process(const backends::GroupOptions& options, const RunConfig& config,
                const std::function<int(backends::Group&)>& body) {
  const int replicas = std::max(1, static_cast<int>(config.compute.device.devices.size()));
  if (options.world_size * replicas > 1) base::cuda::load_kernels_at_start();
  require_named_devices(config.compute.device);
  const std::string folder = chosen_folder(config);
  if (replicas == 1) return run_member(options, folder, body);
  if (options.world_size == 1) {
    if (config.group.backend != "auto" && config.group.backend != "inproc")
      throw backends::ConfigurationError(
          "--backend " + config.group.backend + " connects processes, but the " +
          std::to_string(replicas) + " devices are of one: leave it out");
    return run_inproc_ranks(
        replicas, options.timeout_ms,
        [&](std::unique_ptr<backends::Group> group) { return run_joined(*group, folder, body); });
  }
  return run_worker_threads(replicas, [&](int replica) {
    backends::GroupOptions of_replica = options;
    of_replica.rank = options.rank * replicas + replica;
    of_replica.world_size = options.world_size * replicas;
    of_replica.local_rank = options.local_rank * replicas + replica;
    if (options.local_world_size)
      of_replica.local_world_size = *options.local_world_size * replicas;
    if (replica > 0) of_replica.listen.fd = -1;
    return run_member(of_replica, folder, body);
  });
}

void report_unused_relay(const RunConfig& config, const backends::Group& group) {
  const std::string backend = group.backend();
  if (!config.group.listen.relay || group.rank() != 0) return;
  if (backend == "single" || backend == "shm" || backend == "inproc")
    print_notice("--relay has no effect: backend " + backend +
                 " makes no connections between hosts");
}

// More ranks than this per CPU would not even start within their deadlines.
constexpr int kMaxRanksPerCpu = 16;

void report_other_tasks(const RunConfig& config) {
  if (config.spawn == 0) return;
  const std::string tasks = backends::started_tasks_text(backends::process_environment());
  if (!tasks.empty())
    print_notice("warning: each of several processes (" + tasks +
                 ") starts a group of its own, --spawn " + std::to_string(config.spawn) +
                 ": for one group of all ranks, leave --spawn out");
}

// Checks once what each of N workers would report.
void check_group_options(const RunConfig& config) {
  backends::check_backend(config.group.backend);
  check_threads(config.compute.threads);
  check_bind(config.compute.bind);
  check_spawn(config.spawn);
  report_other_tasks(config);
}

}  // namespace

void check_spawn(int ranks) {
  const int cpus = base::count_of_cpus(), most = kMaxRanksPerCpu * cpus;
  if (ranks <= most) return;
  const std::string limit = base::cpu_limit_text();
  throw io::ConfigError("--spawn " + std::to_string(ranks) + ": at most " + std::to_string(most) +
                        " ranks can share the " + std::to_string(cpus) + " CPUs of this host" +
                        (limit.empty() ? "" : " (" + limit + ")") +
                        "; one rank per CPU is fastest (--spawn without a number)");
}

int run_elastic(const RunConfig& config, const ElasticBody& group_body) {
  const ElasticBody body = [&](backends::Group& group, const backends::View& view,
                               const std::function<bool()>& pause) {
    if (config.measured_slices) divide_sums_by_rates(group);
    return group_body(group, view, pause);
  };
  if (config.group.backend == "mpi")
    throw io::ConfigError("--elastic cannot use --backend mpi, which cannot replace ranks");
  if (const std::vector<engine::Device>& devices = config.compute.device.devices;
      devices.size() > 1)
    throw io::ConfigError("--elastic needs one device a process, found " +
                          std::to_string(devices.size()) + " in " +
                          (config.compute.device.names_cuda() ? "--gpu-devices" : "--devices") +
                          "; give --spawn " + std::to_string(devices.size()) + " in its place");
  if (config.spawn > 0 && config.spawn < config.min_ranks)
    throw io::ConfigError("--elastic " + std::to_string(config.min_ranks) + ":" +
                          std::to_string(config.data.max_ranks) + " needs at least " +
                          std::to_string(config.min_ranks) + " ranks, and --spawn starts " +
                          std::to_string(config.spawn) + ", which nobody can join");
  check_group_options(config);
  if (config.spawn == 0) return run_elastic_member(options_of_process(config), config, body);
  return run_worker_processes(
      config.spawn,
      [&](const WorkerPlace& place) {
        return run_elastic_member(options_of_worker(config, place), config, body);
      },
      config.min_ranks);
}

int run_group(const RunConfig& config, const std::function<int(backends::Group&)>& group_body) {
  const auto body = [&](backends::Group& group) {
    report_unused_relay(config, group);
    if (config.measured_slices) divide_sums_by_rates(group);
    return group_body(group);
  };
  check_group_options(config);
  if (config.spawn > 1 && config.group.backend == "inproc") {
    base::cuda::load_kernels_at_start();
    return run_inproc_ranks(config.spawn, config.group.timeout_ms,
                            [&](std::unique_ptr<backends::Group> group) {
                              return run_joined(*group, chosen_folder(config), body);
                            });
  }
  if (config.spawn > 1)
    return run_worker_processes(config.spawn, [&](const WorkerPlace& place) {
      return run_process(options_of_worker(config, place), config, body);
    });
  return run_process(options_of_process(config), config, body);
}

}  // namespace tools
