// Decides how the ranks are started, and joins them into a group.
#include "tools/group/run_group.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "backends/backend_error.h"
#include "backends/compose/table/backend_table.h"
#include "backends/identity/identity.h"
#include "backends/store/protocol/settings.h"
#include "backends/store/tcp_socket.h"
#include "io/base/deadline.h"
#include "io/base/digest.h"
#include "io/base/io_error.h"
#include "io/base/stoppable_sleep.h"
#include "io/base/text_parts.h"
#include "io/base/utc_time.h"
#include "io/checkpoint/atomic_file.h"
#include "models/model_catalog.h"
#include "tools/group/flight_folder.h"
#include "tools/group/membership_text.h"
#include "tools/machine/build_info.h"
#include "tools/machine/cpu_topology.h"
#include "tools/machine/device_choice.h"
#include "tools/machine/thread_choice.h"
#include "tools/report/console_observer.h"
#include "tools/report/exit_codes.h"
#include "tools/workers/handover.h"
#include "tools/workers/stop_signals.h"
#include "tools/workers/worker_processes.h"
#include "tools/workers/worker_threads.h"

namespace tools {
namespace {

void check_bind(const std::string& bind) {
  if (bind != "none") require_topology("--bind " + bind);
}

int milliseconds(double seconds) { return static_cast<int>(std::llround(seconds * 1000)); }

// What a model's own file says is agreed on like an option, layer by layer, as far as that fits the
// message in which ranks tell each other their settings.
void add_model(const tools::RunConfig& config, backends::Settings& settings) {
  if (config.model_definition.empty()) return;
  constexpr std::size_t kNamed = 128, kLongest = 160;
  const auto add = [&](const std::string& part, const std::string& value) {
    const bool fits = value.size() <= kLongest;
    settings.emplace_back(config.model + part,
                          fits ? value
                               : value.substr(0, kLongest / 2) + "... (digest " +
                                     base::hex_text(base::short_digest_of(value)) + ")");
  };
  const std::vector<std::string> lines =
      models::definition_lines(config.model, config.model_definition);
  add("", lines.front());
  for (std::size_t i = 1; i < std::min(lines.size(), kNamed); ++i)
    add(", layer " + std::to_string(i), lines[i]);
  if (lines.size() <= kNamed) return;
  const std::vector<std::string> rest(lines.begin() + kNamed, lines.end());
  add(", layers from " + std::to_string(kNamed) + " on", base::join_text(rest, "\n"));
}

backends::GroupOptions group_options(const tools::RunConfig& config) {
  backends::GroupOptions options;
  options.backend = config.backend;
  options.local_stage = config.local_stage;
  options.streams = config.streams;
  options.interface = config.interface_name;
  options.job_id = config.job_id;
  options.build_id = ENGINE_VERSION " " ENGINE_COMMIT;
  options.settings = tools::agreed_settings(config.origin);
  add_model(config, options.settings);
  options.rendezvous_timeout_ms = milliseconds(config.rdzv_timeout_s);
  options.timeout_ms = milliseconds(config.timeout_s);
  options.heartbeat_ms = milliseconds(config.heartbeat_s);
  options.stall_after_ms = milliseconds(config.stall_after_s);
  options.stall_abort = config.stall_abort;
  options.notice = print_notice;
  options.cancelled = [] { return stop_signal_flag().load() != 0; };
  return options;
}

// For flight records; "": none was chosen.
std::string chosen_folder(const tools::RunConfig& config) {
  if (!config.flight_dir.empty() || config.save_dir == "auto") return config.flight_dir;
  return config.save_dir;
}

// As chosen, else one below the temporary folder for each job of this user.
std::string flight_folder(const std::string& chosen, const std::vector<backends::PeerInfo>& peers) {
  if (!chosen.empty()) {
    std::filesystem::create_directories(chosen);
    return chosen;
  }
  const backends::PeerInfo& first = peers.front();
  std::string job = first.host + "-" + std::to_string(first.pid);
  std::ranges::replace(job, '/', '_');
  return tools::own_flight_folder(
      std::filesystem::temp_directory_path() / ("engine-flight-" + std::to_string(geteuid())), job);
}

// What a rank was waiting for, for `engine inspect --flight`. Returns what to add to the error that
// it is written for; must not hide that error.
std::string write_flight_record(int rank, const std::vector<backends::PeerInfo>& peers,
                                const std::string& record,
                                const std::string& chosen_folder) noexcept {
  try {
    try {
      const std::string path =
          flight_folder(chosen_folder, peers) + "/flight_rank_" + std::to_string(rank) + ".json";
      io::write_file_atomically(path, record);
      return " (last collectives: " + path + ")";
    } catch (const std::exception& error) {
      return std::string(" (last collectives not written: ") + error.what() + ")";
    }
  } catch (const std::exception&) {
    return "";  // out of memory: the error itself says what happened
  }
}

std::string write_flight_record(const backends::Group& group, const std::string& chosen_folder,
                                const char* reason) {
  return write_flight_record(group.rank(), group.peers(), group.flight_record(reason),
                             chosen_folder);
}

// While it lives: 2 s after the signal to stop, rank 0 gives up a collective that hangs, saves what
// it has (Trainer) and leaves, which ends the others. They do not give up by themselves: rank 0 may
// be busy with the last save.
class StopWatchdog {
 public:
  explicit StopWatchdog(backends::Group& group) {
    if (group.rank() != 0 || group.world_size() == 1) return;
    thread_ = std::jthread([this, &group](const std::stop_token& stop) { watch(group, stop); });
  }
  bool has_interrupted() const { return interrupted_; }

 private:
  void watch(backends::Group& group, const std::stop_token& stop) {
    constexpr auto kTime = std::chrono::seconds(2);
    std::optional<std::chrono::steady_clock::time_point> since;
    while (base::sleep_unless_stopped(stop, std::chrono::milliseconds(50))) {
      const auto now = std::chrono::steady_clock::now();
      if (stop_signal_flag().load() == 0) continue;
      if (!since) since = now;
      if (now - *since < kTime) continue;
      if (group.interrupt(kTime,
                          "stopped by signal " + std::to_string(stop_signal_flag().load()))) {
        interrupted_ = true;
        return;
      }
    }
  }

  std::atomic<bool> interrupted_{false};
  std::jthread thread_;  // last: it uses the others
};

int run_joined(backends::Group& group, const std::string& flight_dir,
               const std::function<int(backends::Group&)>& body) {
  try {
    const StopWatchdog watchdog(group);
    const int code = body(group);
    if (!watchdog.has_interrupted()) group.leave([] { return stop_signal_flag().load() != 0; });
    return code;
  } catch (const backends::InterruptedError& error) {
    print_notice(error.what());
    return 128 + stop_signal_flag().load();
  } catch (const backends::PeerError& error) {
    group.abandon(error.what());
    throw backends::PeerError(error.what() + write_flight_record(group, flight_dir, error.what()));
  } catch (const backends::MismatchError& error) {
    group.abandon(error.what());
    throw backends::MismatchError(error.what() +
                                  write_flight_record(group, flight_dir, error.what()));
  } catch (const std::exception& error) {
    group.abandon(tools::text_of(error));
    throw;
  }
}

int run_member(const backends::GroupOptions& options, const std::string& flight_dir,
               const std::function<int(backends::Group&)>& body) {
  std::unique_ptr<backends::Group> group;
  try {
    group = backends::join_group(options);
    return run_joined(*group, flight_dir, body);
  } catch (const backends::CancelledError& error) {
    print_notice(error.what());
    return 128 + stop_signal_flag().load();
  }
}

// The groups that this process is in, one after the other.
class ElasticRank {
 public:
  ElasticRank(const backends::GroupOptions& options, const tools::RunConfig& config,
              const ElasticBody& body)
      : body_(body),
        flight_dir_(chosen_folder(config)),
        heartbeats_(3 * options.heartbeat_ms),
        membership_({.group = with_rules(options, config),
                     .least = config.least_ranks,
                     .most = config.most_ranks}) {}

  int run() {
    backends::View view = membership_.first_view();
    for (;;) {
      note(view);
      if (const std::optional<int> code = run_in(view)) {
        if (*code == kExitLeft)
          membership_.part();
        else
          membership_.leave();
        return *code;
      }
      try {
        view = membership_.next_view();
      } catch (const backends::JobEnded&) {
        throw;
      } catch (const backends::PeerError& error) {
        throw backends::PeerError(error.what() + write_last_record());
      }
    }
  }

 private:
  // Ranks that come later save into the same folder. And who has trained stops in order: with
  // those that are left, which takes as long as it takes to miss the others.
  backends::GroupOptions with_rules(backends::GroupOptions options,
                                    const tools::RunConfig& config) {
    options.settings.emplace_back("--save-dir", config.save_dir);
    const auto patience = std::chrono::milliseconds(4 * options.heartbeat_ms + 2000);
    options.cancelled = [this, patience] {
      if (stop_signal_flag().load() == 0) return is_asked_to_leave() && !has_trained_;
      const std::lock_guard lock(stop_mutex_);
      if (!stop_until_) stop_until_ = base::deadline_in(patience);
      return !has_trained_ || base::has_passed(*stop_until_);
    };
    return options;
  }

  // Nothing: another group follows, because of why_.
  std::optional<int> run_in(const backends::View& view) {
    std::unique_ptr<backends::Group> group;
    last_record_ = {};
    try {
      backends::GroupOptions options = membership_.group_options(view);
      options.history = history_;
      group = backends::join_group(options);
      const StopWatchdog watchdog(*group);
      has_trained_ = true;
      // Asked behind each step, or every few of them.
      const std::optional<int> code = body_(*group, view, [&] {
        in_vain_ = 0;
        membership_.took_step(view);
        return membership_.join_wanted();
      });
      if (!watchdog.has_interrupted()) group->leave([] { return stop_signal_flag().load() != 0; });
      if (!code) why_ = "ranks wait to be taken in";
      return code;
    } catch (const backends::InterruptedError& error) {
      print_notice(error.what());
      return 128 + stop_signal_flag().load();
    } catch (const backends::CancelledError& error) {
      const std::lock_guard lock(stop_mutex_);
      if (stop_until_ && (!has_trained_ || base::has_passed(*stop_until_))) throw;
      why_ = error.what();
    } catch (const backends::PeerError& error) {
      lost(group.get(), error);
    } catch (const io::Error& error) {
      if (!is_soon_broken()) {
        if (group) group->abandon(error.what());
        throw;
      }
      why_ = error.what();
      if (group) group->abandon(why_);
    } catch (const std::exception& error) {
      if (group) group->abandon(tools::text_of(error));
      throw;
    }
    return std::nullopt;
  }

  // A rank that was paused may find that another one goes on in its place, and has taken its
  // folder, before it hears of the others.
  bool is_soon_broken() const {
    const base::Deadline until = base::deadline_in(heartbeats_);
    while (!membership_.broken() && !base::has_passed(until))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return membership_.broken().has_value();
  }

  void lost(backends::Group* group, const backends::PeerError& error) {
    why_ = error.what();
    if (group == nullptr) return;
    group->abandon(why_);
    last_record_ = {group->rank(), group->peers(), group->flight_record(why_)};
  }

  // The same ranks again and again without a step: what fails is not a rank, and comes back.
  void note(const backends::View& view) {
    constexpr std::size_t kMost = 64;
    constexpr int kMostInVain = 5;
    const bool same = view.left.empty() && view.joined.empty() && view.generation > 1;
    in_vain_ = same ? in_vain_ + 1 : 0;
    if (in_vain_ > kMostInVain)
      throw backends::PeerError("the same " + std::to_string(view.world_size) + " ranks have met " +
                                std::to_string(in_vain_) + " times, and failed each time: " + why_);
    if (history_.size() == kMost) history_.erase(history_.begin());
    history_.push_back(base::utc_seconds_text(std::time(nullptr)) + " generation " +
                       std::to_string(view.generation) + ": " + membership_text(view));
  }

  std::string write_last_record() const noexcept {
    if (last_record_.text.empty()) return "";
    return write_flight_record(last_record_.rank, last_record_.peers, last_record_.text,
                               flight_dir_);
  }

  struct Record {
    int rank = 0;
    std::vector<backends::PeerInfo> peers;
    std::string text;
  };

  const ElasticBody& body_;
  const std::string flight_dir_;
  const std::chrono::milliseconds heartbeats_;  // after which who is silent is taken for lost
  std::atomic<bool> has_trained_ = false;
  std::mutex stop_mutex_;
  std::optional<base::Deadline> stop_until_;  // guarded by it
  backends::Membership membership_;
  std::string why_;
  std::vector<std::string> history_;
  int in_vain_ = 0;
  Record last_record_;  // of the group before
};

int run_elastic_member(const backends::GroupOptions& options, const tools::RunConfig& config,
                       const ElasticBody& body) {
  require_named_devices({.device = config.device, .devices = config.devices});
  try {
    return ElasticRank(options, config, body).run();
  } catch (const backends::CancelledError& error) {
    print_notice(error.what());
    const int signal = stop_signal_flag().load();
    return signal == 0 ? kExitLeft : 128 + signal;
  } catch (const backends::JobEnded& error) {
    print_notice(error.what());  // the others have done it all
    return kExitOk;
  }
}

// One process with its devices: a rank, or with several devices a thread for each, which takes a
// rank of its own. All processes have equally many devices, or their world sizes contradict each
// other at the rendezvous.
int run_process(const backends::GroupOptions& options, const tools::RunConfig& config,
                const std::function<int(backends::Group&)>& body) {
  require_named_devices({.device = config.device, .devices = config.devices});
  const int replicas = std::max(1, static_cast<int>(config.devices.size()));
  const std::string folder = chosen_folder(config);
  if (replicas == 1) return run_member(options, folder, body);
  if (options.world_size == 1) {
    if (config.backend != "auto" && config.backend != "inproc")
      throw backends::ConfigurationError(
          "--backend " + config.backend + " connects processes, but the " +
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
    of_replica.local_world_size = options.local_world_size * replicas;
    if (replica > 0) of_replica.listen_fd = -1;
    return run_member(of_replica, folder, body);
  });
}

// Under `engine launch` a rank is told whether it was started again, and rank 0 finds its meeting
// socket open already. A rank that has no use for it lets it go.
void take_launchers_word(backends::GroupOptions& options) {
  options.restarted = was_restarted();
  const std::string method = options.init_method;
  const bool by_address = method.starts_with("tcp://");
  const int port =
      by_address ? backends::parse_endpoint(std::string_view(method).substr(6), "init method").port
                 : 0;
  backends::Socket listener(take_listen_fd(port));
  if (by_address && options.rank == 0) options.listen_fd = listener.release();
}

}  // namespace

bool was_restarted() {
  const char* restarts = std::getenv("ENGINE_RESTART_COUNT");
  return restarts != nullptr && std::atoi(restarts) > 0;
}

namespace {

// As the launcher's variables and the options say, for a process that is one rank, or several.
backends::GroupOptions options_of_process(const tools::RunConfig& config) {
  backends::GroupOptions options = group_options(config);
  if (config.spawn == 1) return options;  // one rank, whatever a launcher's variables say
  const std::string& method = config.init_method;
  if (config.most_ranks > 0 && !config.rank && !method.empty() && method != "env://") {
    options.init_method = method;  // ranks of an elastic job are given out where they meet
    options.rank = -1;
    options.restarted = was_restarted();
    return options;
  }
  const backends::Identity identity = backends::resolve_identity({.init_method = config.init_method,
                                                                  .rank = config.rank,
                                                                  .world_size = config.world_size,
                                                                  .local_rank = config.local_rank,
                                                                  .port_rule = config.port_rule,
                                                                  .job_id = config.job_id},
                                                                 backends::process_environment());
  for (const std::string& warning : identity.warnings) print_notice(warning);
  options.init_method = identity.init_method;
  options.rank = identity.rank;
  options.world_size = identity.world_size;
  options.local_rank = identity.local_rank;
  options.local_world_size = identity.known_local_world_size();
  options.port_window = identity.port_window;
  options.job_id = identity.job_from.value;
  take_launchers_word(options);
  return options;
}

// The options of a rank that --spawn has forked.
backends::GroupOptions options_of_worker(const tools::RunConfig& config, const WorkerPlace& place) {
  backends::GroupOptions options = group_options(config);
  options.init_method = "tcp://127.0.0.1:" + std::to_string(place.port);
  options.rank = options.local_rank = place.rank;
  options.world_size = options.local_world_size = config.spawn;
  options.listen_fd = place.listen_fd;
  options.secret = place.secret;
  return options;
}

}  // namespace

int run_elastic(const tools::RunConfig& config, const ElasticBody& body) {
  backends::check_backend(config.backend, config.local_stage);
  check_threads(config.threads);
  check_bind(config.bind);
  if (config.devices.size() > 1)
    throw io::ConfigError("--elastic needs one device a process, found " +
                          std::to_string(config.devices.size()) + " in --devices");
  if (config.spawn == 0) return run_elastic_member(options_of_process(config), config, body);
  return run_worker_processes(
      config.spawn,
      [&](const WorkerPlace& place) {
        return run_elastic_member(options_of_worker(config, place), config, body);
      },
      config.least_ranks);
}

int run_group(const tools::RunConfig& config, const std::function<int(backends::Group&)>& body) {
  backends::check_backend(config.backend,
                          config.local_stage);  // once, before N workers say the same
  check_threads(config.threads);
  check_bind(config.bind);
  if (config.spawn > 1 && config.backend == "inproc")
    return run_inproc_ranks(config.spawn, milliseconds(config.timeout_s),
                            [&](std::unique_ptr<backends::Group> group) {
                              return run_joined(*group, chosen_folder(config), body);
                            });
  if (config.spawn > 1)
    return run_worker_processes(config.spawn, [&](const WorkerPlace& place) {
      return run_process(options_of_worker(config, place), config, body);
    });
  return run_process(options_of_process(config), config, body);
}

}  // namespace tools
