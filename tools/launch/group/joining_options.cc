// Collects the settings that ranks must agree on, and their rendezvous.
#include "tools/launch/group/joining_options.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "backends/store/protocol/settings.h"
#include "backends/store/tcp_socket.h"
#include "io/base/digests/digest.h"
#include "io/base/machine/environment.h"
#include "io/base/text/text_parts.h"
#include "models/model_catalog.h"
#include "tools/launch/workers/handover.h"
#include "tools/launch/workers/stop_signals.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

// The contents of a model's own file must agree like an option, layer by layer, if they fit the
// message in which ranks exchange their settings.
void add_model(const RunConfig& config, backends::Settings& settings) {
  if (config.model.definition.empty()) return;
  constexpr std::size_t kNamed = 128, kLongest = 160;
  const auto add = [&](const std::string& part, const std::string& value) {
    const bool fits = value.size() <= kLongest;
    settings.emplace_back(config.model.name + part,
                          fits ? value
                               : value.substr(0, kLongest / 2) + "... (digest " +
                                     base::hex_text(base::short_digest_of(value)) + ")");
  };
  const std::vector<std::string> lines =
      models::definition_lines(config.model.name, config.model.definition);
  add("", lines.front());
  for (std::size_t i = 1; i < std::min(lines.size(), kNamed); ++i)
    add(", layer " + std::to_string(i), lines[i]);
  if (lines.size() <= kNamed) return;
  const std::vector<std::string> rest(lines.begin() + kNamed, lines.end());
  add(", layers from " + std::to_string(kNamed) + " on", base::join_text(rest, "\n"));
}

backends::GroupOptions group_options(const RunConfig& config) {
  backends::GroupOptions options = config.group;
  options.job.id = config.identity.job_id;
  options.job.build = ENGINE_VERSION " " ENGINE_COMMIT;
  options.job.settings = agreed_settings(config.origin);
  add_model(config, options.job.settings);
  options.notice = print_notice;
  options.cancelled = [] { return stop_signal_flag().load() != 0; };
  return options;
}

// `engine launch` sets a variable for a restarted rank, and rank 0 inherits an open rendezvous
// socket. A rank that does not need the socket closes it.
void take_launchers_word(backends::GroupOptions& options) {
  options.restarted = was_restarted();
  const std::string method = options.init_method;
  const bool by_address = method.starts_with("tcp://");
  const int port =
      by_address ? backends::parse_endpoint(std::string_view(method).substr(6), "init method").port
                 : 0;
  backends::Socket listener(take_listen_fd(port));
  if (by_address && options.rank == 0) options.listen.fd = listener.release();
}

}  // namespace

bool was_restarted() {
  const char* restarts = std::getenv("ENGINE_RESTART_COUNT");
  return restarts != nullptr && std::atoi(restarts) > 0;
}

std::string launch_id() { return base::environment("ENGINE_LAUNCH_ID"); }

backends::Identity identity_of(const RunConfig& config) {
  return backends::resolve_identity(config.identity, backends::process_environment());
}

void take_identity(const backends::Identity& identity, backends::GroupOptions& options) {
  for (const std::string& warning : identity.warnings) print_notice(warning);
  options.init_method = identity.init_method;
  options.rank = identity.rank;
  options.world_size = identity.world_size;
  options.local_rank = identity.local_rank;
  options.local_world_size = identity.known_local_world_size();
  options.listen.port_window = identity.port_window;
  options.job.id = identity.job_from.value;
}

backends::GroupOptions options_of_process(const RunConfig& config) {
  backends::GroupOptions options = group_options(config);
  if (config.spawn == 1) return options;  // one rank, whatever a launcher's variables contain
  const std::string& method = config.identity.init_method;
  if (config.is_elastic() && !config.identity.rank && !method.empty() && method != "env://") {
    options.init_method = method;  // an elastic job assigns ranks at the rendezvous
    options.rank = -1;
    options.restarted = was_restarted();
    return options;
  }
  take_identity(identity_of(config), options);
  take_launchers_word(options);
  return options;
}

backends::GroupOptions options_of_worker(const RunConfig& config, const WorkerPlace& place) {
  backends::GroupOptions options = group_options(config);
  options.init_method = "tcp://127.0.0.1:" + std::to_string(place.port);
  options.rank = options.local_rank = place.rank;
  options.world_size = config.spawn;
  options.local_world_size = config.spawn;
  options.listen.fd = place.listen_fd;
  options.job.secret = place.secret;
  return options;
}

}  // namespace tools
