// Decides how ranks come to be, and joins them.
#include "tools/run_group.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "backends/rendezvous/identity.h"
#include "backends/rendezvous/tcp_socket.h"
#include "tools/build_info.h"
#include "tools/console_observer.h"
#include "tools/launch/handover.h"
#include "tools/worker_processes.h"

namespace tools {
namespace {

int milliseconds(double seconds) { return static_cast<int>(std::llround(seconds * 1000)); }

backends::GroupOptions group_options(const io::RunConfig& config) {
  backends::GroupOptions options;
  options.backend = config.backend;
  options.interface = config.interface_name;
  options.job_id = config.job_id;
  options.build_id = ENGINE_VERSION " " ENGINE_COMMIT;
  options.config_digest = io::config_digest(config.origin);
  options.rendezvous_timeout_ms = milliseconds(config.rdzv_timeout_s);
  options.timeout_ms = milliseconds(config.timeout_s);
  options.heartbeat_ms = milliseconds(config.heartbeat_s);
  options.notice = print_notice;
  return options;
}

// Ranks of one host may be threads: when asked for, and where "auto" finds no backend between processes in this build. The
// start line says which it is.
bool spawns_threads(const std::string& backend) {
  if (backend != "auto") return backend == "inproc";
  const std::vector<backends::BackendInfo> all = backends::list_backends();
  return std::none_of(all.begin(), all.end(), [](const backends::BackendInfo& b) { return b.name == "gloo" && b.usable; });
}

int run_member(const backends::GroupOptions& options, const std::function<int(backends::Group&)>& body) {
  const std::unique_ptr<backends::Group> group = backends::join_group(options);
  const int code = body(*group);
  group->leave();
  return code;
}

// Under `engine launch` a rank is told whether it was started again, and rank 0 finds its meeting socket open already. A rank
// that has no use for it lets it go.
void take_launchers_word(backends::GroupOptions& options) {
  const char* restarts = std::getenv("ENGINE_RESTART_COUNT");
  options.restarted = restarts != nullptr && std::atoi(restarts) > 0;
  const std::string method = options.init_method;
  const bool by_address = method.starts_with("tcp://");
  const int port = by_address ? backends::parse_endpoint(std::string_view(method).substr(6), "init method").port : 0;
  backends::Socket listener(take_listen_fd(port));
  if (by_address && options.rank == 0) options.listen_fd = listener.release();
}

}  // namespace

int run_group(const io::RunConfig& config, const std::function<int(backends::Group&)>& body) {
  if (config.spawn > 1 && spawns_threads(config.backend))
    return run_worker_threads(config.spawn, milliseconds(config.timeout_s), [&](std::unique_ptr<backends::Group> group) {
      const int code = body(*group);
      group->leave();
      return code;
    });
  if (config.spawn > 1) {
    return run_worker_processes(config.spawn, [&](const WorkerPlace& place) {
      backends::GroupOptions options = group_options(config);
      options.init_method = "tcp://127.0.0.1:" + std::to_string(place.port);
      options.rank = options.local_rank = place.rank;
      options.world_size = options.local_world_size = config.spawn;
      options.listen_fd = place.listen_fd;
      options.secret = place.secret;
      return run_member(options, body);
    });
  }
  backends::GroupOptions options = group_options(config);
  if (config.spawn != 1) {  // --spawn 1 is one rank, whatever a launcher's variables say
    const backends::Identity identity = backends::resolve_identity({.init_method = config.init_method,
                                                                    .rank = config.rank,
                                                                    .world_size = config.world_size,
                                                                    .local_rank = config.local_rank},
                                                                   backends::process_environment());
    for (const std::string& warning : identity.warnings) print_notice(warning);
    options.init_method = identity.init_method;
    options.rank = identity.rank;
    options.world_size = identity.world_size;
    options.local_rank = identity.local_rank;
    options.local_world_size = identity.local_world_size;
    take_launchers_word(options);
  }
  return run_member(options, body);
}

}  // namespace tools
