// Implements the group of ranks that are processes: joins through rank 0's store, detects failures,
// and makes communicators.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>

#include "backends/backend_error.h"
#include "backends/compose/guard/guarded_communicator.h"
#include "backends/compose/process_watch.h"
#include "backends/compose/setup_stages.h"
#include "backends/compose/table/backend_table.h"
#include "backends/compose/table/communicator_factory.h"
#include "backends/compose/table/device_factory.h"
#include "backends/compose/table/link_encryption.h"
#include "backends/flight_recorder.h"
#include "backends/group.h"
#include "backends/identity/host_identity.h"
#include "backends/identity/join.h"
#include "backends/open_files.h"
#include "backends/reduction.h"
#include "backends/relay/relay_route.h"
#include "backends/relay/relay_watch.h"
#include "backends/secure/record_cipher.h"
#include "backends/transport/single/single_communicator.h"
#include "backends/transport/socket/socket_messages.h"
#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"
#include "io/base/threads/stoppable_sleep.h"
#include "io/base/time/deadline.h"

namespace backends {
namespace {

constexpr auto kHurriedLeave = std::chrono::seconds(5);
// Interval between calls of cancelled().
constexpr auto kCancelInterval = std::chrono::milliseconds(100);
constexpr const char* kCancelled = "stopped while connecting the ranks";

// Returns the text of an error that no other rank can have caused; "" for others. Names the limit
// that was hit, which the standard library's message lacks.
std::string own_cause(const std::exception& error) {
  if (dynamic_cast<const LimitError*>(&error) != nullptr ||
      dynamic_cast<const io::LimitError*>(&error) != nullptr)
    return error.what();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return "out of memory: an allocation failed" + base::limit_text(ENOMEM);
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system == nullptr || system->code() != std::errc::resource_unavailable_try_again) return "";
  return std::string("cannot start a thread: ") + error.what() +
         "; raise the limit on memory (ulimit -v) or processes (ulimit -u)";
}

// structure: overrides all of Group
class ProcessGroup final : public Group {
 public:
  ProcessGroup(const GroupOptions& options, JoinedStore joined)
      : options_(options),
        joined_(std::move(joined)),
        watch_(std::make_shared<ProcessWatch>(joined_.store)),
        recorder_(std::make_shared<FlightRecorder>()),
        departures_(std::make_shared<Departures>()),
        peers_(joined_.store->state().peers),
        plan_(plan_for(options, peers_)),
        stages_(
            *joined_.store, peers_, options.rank,
            std::chrono::milliseconds(std::min(options.timeout_ms, options.rendezvous_timeout_ms))),
        encryption_(encryption_for(options, joined_, stages_)),
        relay_(relay_route(options, joined_, plan_)) {
    joined_.store->on_failure(
        [watch = std::weak_ptr<ProcessWatch>(watch_)](const std::string& text) {
          if (const auto alive = watch.lock()) alive->failed(text);
        },
        [all = departures_, peers = peers_](int rank, const std::string& calls) {
          const auto at = static_cast<std::size_t>(rank);
          if (at >= peers.size()) return;
          all->left(rank, member_text(rank, peers[at].host, peers[at].pid), call_counts(calls));
        });
    joined_.store->set_progress_source([this] { return progress(); });
    if (relay_ != nullptr) watch_relay();
  }

  ~ProcessGroup() override {
    relay_watch_.reset();
    joined_.store->set_progress_source({});
    watch_->release();
  }

  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.world_size; }
  const std::vector<PeerInfo>& peers() const override { return peers_; }
  std::string backend() const override { return plan_.name; }
  std::string backend_reason() const override {
    return plan_.reason + encryption_text(plan_, options_.links.encryption, encryption_);
  }
  std::string rendezvous_address() const override { return joined_.rendezvous_address; }
  std::string address() const override { return joined_.address; }

  using Group::make_communicator;
  std::unique_ptr<Communicator> make_communicator(const CommunicatorRequest& request) override {
    const std::vector<PeerInfo> members = members_of(request);
    const BackendContext context = context_for(members);
    const BackendPlan plan =
        request.backend.empty() && request.members.empty()
            ? plan_
            : plan_backend(request.backend.empty() ? options_.backend : request.backend,
                           options_.local_stage, members);
    return connecting(plan.name, [&] {
      Guard by = next_guard();
      by.departures = departures_;
      by.name = context.prefix;
      by.members = context.members;
      return guard(create_communicator(plan, context, members), std::move(by));
    });
  }

  using Group::make_device_communicator;
  std::unique_ptr<DeviceCommunicator> make_device_communicator(
      const CommunicatorRequest& request) override {
    const std::vector<PeerInfo> members = members_of(request);
    BackendContext context = context_for(members);
    const DeviceChoice choice = choose_for_device(request.backend, options_.backend);
    return connecting(choice.nccl ? "nccl" : "staged:" + choice.host, [&] {
      return guard_device(
          create_device_communicator(choice, options_.local_stage, std::move(context), members),
          next_guard());
    });
  }

  void divide_sums(const std::vector<std::uint32_t>& weights) override {
    // Throws if they do not fit.
    static_cast<void>(SumSlices(world_size(), weights));
    sum_weights_ = weights;
  }

  std::unique_ptr<Messages> make_messages(const std::vector<int>& members) override {
    const BackendContext context = context_for(members_of({.members = members}));
    if (context.world_size == 1) return Group::make_messages(members);
    return connecting("socket", [&] { return make_socket_messages(context, heard_within()); });
  }

  std::string flight_record(const std::string& reason) const override {
    return recorder_->to_json({options_.rank, options_.world_size, getpid(), host_name(),
                               plan_.name, reason, joined_.store->state().activity,
                               options_.history});
  }
  void set_activity(std::string_view activity) noexcept override {
    joined_.store->set_activity(activity);
  }
  std::vector<RankStatus> statuses() const override {
    return joined_.server ? joined_.server->statuses() : std::vector<RankStatus>{};
  }
  void publish_status(const std::string& text) override {
    if (joined_.server) joined_.server->set_status(text);
  }
  void check() override {
    const auto failure = joined_.store->failure();
    if (failure && failure->mismatch) failure->raise();
    if (failure) throw LostPeerError(failure->text);
  }
  bool interrupt(std::chrono::milliseconds time, const std::string& why) override {
    const RankProgress now = progress();
    if (now.waiting_ms < time.count()) return false;
    watch_->interrupt(why + " after " + stalled_time_text(now.waiting_ms) + " in " + now.call +
                      (now.links.empty() ? "" : ": this rank has " + now.links));
    return true;
  }
  void abandon(const std::string& why) noexcept override {
    try {
      joined_.store->abandon({why});
    } catch (const std::exception&) {
      // Out of memory: the others learn that this rank has ended, but not why.
    }
  }
  using Group::leave;
  void leave(const std::function<bool()>& in_a_hurry) override {
    const auto hurried = base::deadline_in(kHurriedLeave);
    joined_.store->leave(
        std::chrono::milliseconds(options_.timeout_ms),
        [&] { return base::has_passed(hurried) && in_a_hurry && in_a_hurry(); },
        to_bytes(departures_->counts()));
    watch_->release();
  }

 private:
  // Every rank rejects the same, before it waits for another one.
  static BackendPlan plan_for(const GroupOptions& options, const std::vector<PeerInfo>& peers) {
    BackendPlan plan = plan_backend(options.backend, options.local_stage, peers);
    if (options.listen.relay && plan.across != nullptr) require_relay(*plan.across);
    return plan;
  }

  static LinkEncryption encryption_for(const GroupOptions& options, const JoinedStore& joined,
                                       SetupStages& stages) {
    return stages.run(SetupStage::kEncryption, [&] {
      return agree_on_encryption(*joined.store, options.rank, options.world_size,
                                 {.asked = options.links.encryption,
                                  .fastest = fastest_cipher(),
                                  .address = joined.address,
                                  .relayed = options.listen.relay.has_value()},
                                 stages.time());
    });
  }

  // Returns nullptr if no connection could use it.
  static std::shared_ptr<RelayRoute> relay_route(const GroupOptions& options,
                                                 const JoinedStore& joined,
                                                 const BackendPlan& plan) {
    if (!options.listen.relay || plan.across == nullptr || plan.across->reach != Reach::kHosts)
      return nullptr;
    try {
      return make_relay_route(
          {.place = *options.listen.relay,
           .rank = options.rank,
           .rank_zero = parse_endpoint(joined.rendezvous_address, "the rendezvous"),
           .secret = joined.job_secret,
           .job = options.job.id,
           .deadline = base::deadline_in(std::chrono::milliseconds(options.rendezvous_timeout_ms)),
           // Rank 0 may have ended because it cannot listen at the relay's port.
           .cancelled =
               [&] {
                 if (const auto failure = joined.store->failure()) failure->raise();
                 return options.cancelled && options.cancelled();
               },
           .notice = options.notice});
    } catch (const std::exception& error) {
      joined.store->abandon({error.what()});  // the others may reach the relay
      throw;
    }
  }

  // Names a relay that does not answer: it may be the cause of an error.
  static std::string relay_fault(const RelayRoute* relay) {
    if (relay == nullptr) return "";
    const std::string fault = relay->fault();
    if (fault.empty()) return "";
    return "; the relay at " + to_string(relay->relay()) + " does not answer: " + fault;
  }

  // Notify the others first: their errors then name the relay, not this rank's connections.
  void watch_relay() {
    const auto pause = std::chrono::milliseconds(options_.heartbeat_ms);
    relay_watch_.emplace(RelayWatchOptions{.route = relay_,
                                           .heartbeat = pause,
                                           .limit = 3 * pause,
                                           .waits =
                                               [this] {
                                                 const auto running = recorder_->running();
                                                 return running && running->waited_us / 1000 >=
                                                                       options_.heartbeat_ms;
                                               },
                                           .on_silence =
                                               [this](const std::string& text) {
                                                 joined_.store->abandon({text});
                                                 watch_->failed(text);
                                               }});
  }

  // Called on the store's thread.
  RankProgress progress() const {
    const std::optional<FlightRecorder::Running> running = recorder_->running();
    if (!running) return {};
    RankProgress progress;
    progress.waiting_ms = std::max<std::int64_t>(running->waited_us / 1000, 1);
    // Build the texts only if a call has been waiting for a while.
    if (progress.waiting_ms < std::min(options_.heartbeat_ms, 1000)) return progress;
    progress.call = to_string(running->call) + " (collective " +
                    std::to_string(running->call.sequence) + " of communicator " +
                    std::to_string(running->communicator) + ")";
    progress.links = watch_->waiting_text();
    return progress;
  }

  std::vector<PeerInfo> members_of(const CommunicatorRequest& request) const {
    if (request.members.empty()) return peers_;
    std::vector<PeerInfo> members;
    for (const int r : request.members) members.push_back(peers_.at(static_cast<std::size_t>(r)));
    return members;
  }

  BackendContext context_for(const std::vector<PeerInfo>& members) {
    std::string prefix = "communicator";
    BackendContext context{.members = {},
                           .store = *joined_.store,
                           .watch = *watch_,
                           .prefix = "",
                           .address = joined_.address,
                           .secret = joined_.secret,
                           .streams = options_.links.streams,
                           .encryption = options_.links.encryption,
                           .cipher = encryption_.cipher,
                           .timeout = std::chrono::milliseconds(options_.timeout_ms),
                           .link_patience = std::chrono::milliseconds(options_.links.patience_ms),
                           .notice = options_.notice};
    context.relay = relay_.get();
    if (!stages_.is_over()) context.setup_timeout = stages_.time();
    context.world_size = static_cast<int>(members.size());
    context.group_size = world_size();
    context.rank = -1;
    for (const PeerInfo& p : members) {
      if (p.rank == rank()) context.rank = static_cast<int>(context.members.size());
      context.members.push_back(p.rank);
      prefix += "/" + std::to_string(p.rank);
    }
    if (context.rank < 0)
      throw ConfigurationError("rank " + std::to_string(rank()) +
                               " is not a member of the communicator that it requests");
    if (members.size() == peers_.size()) context.sum_weights = sum_weights_;
    context.prefix = prefix + "#" + std::to_string(made_of_members_[prefix]++);
    return context;
  }

  std::chrono::milliseconds heard_within() const {
    return detection_time(std::chrono::milliseconds(options_.heartbeat_ms));
  }
  Guard next_guard() {
    return {watch_,
            recorder_,
            communicators_++,
            rank(),
            world_size(),
            heard_within(),
            std::chrono::milliseconds(options_.timeout_ms),
            [relay = relay_] { return relay_fault(relay.get()); }};
  }

  // While ranks connect, prints a notice about the wait, and cancels it if this process is asked to
  // stop.
  void watch_connecting(const std::stop_token& stop, const std::string& backend,
                        std::atomic<bool>& cancelled) {
    const std::chrono::milliseconds pause(options_.stall.after_ms);
    base::Deadline next = base::deadline_in(pause);
    while (base::sleep_unless_stopped(stop, kCancelInterval)) {
      if (options_.cancelled && options_.cancelled()) {
        cancelled = true;
        return watch_->interrupt(kCancelled);
      }
      if (pause.count() == 0 || !options_.notice || !base::has_passed(next)) continue;
      next = base::deadline_in(pause);
      options_.notice(
          "backend " + backend + ": rank " + std::to_string(rank()) +
          " is still waiting for connections with the other ranks, for at most " +
          (stages_.is_over()
               ? std::to_string(options_.timeout_ms / 1000) + " s (--timeout)"
               : std::to_string(stages_.time().count() / 1000) + " s (--rdzv-timeout)") +
          (relay_ == nullptr ? relay_advice(peers_) : ""));
    }
  }

  // Adds rank and backend to the errors of making a communicator.
  template <typename Make>
  auto connecting(const std::string& backend, const Make& make) -> decltype(make()) {
    std::atomic<bool> cancelled = false;
    try {
      std::jthread watch(
          [&](const std::stop_token& stop) { watch_connecting(stop, backend, cancelled); });
      auto made = stages_.run(SetupStage::kConnecting, make);
      watch = {};
      if (cancelled) throw CancelledError(kCancelled);
      stages_.enter(SetupStage::kConnected);
      return made;
    } catch (const ConfigurationError&) {
      throw;
    } catch (const MismatchError& error) {
      watch_->report_mismatch(error.what());
      throw;
    } catch (const std::exception& error) {
      if (cancelled) throw CancelledError(kCancelled);
      const std::string own = own_cause(error);
      raise_explained(*watch_, own.empty() ? heard_within() : std::chrono::milliseconds(0),
                      failure_context(backend, rank(), world_size(), "connecting the ranks"),
                      own.empty() ? error.what() + relay_fault(relay_.get()) : own);
    }
  }

  const GroupOptions options_;
  JoinedStore joined_;
  std::shared_ptr<ProcessWatch> watch_;
  std::shared_ptr<FlightRecorder> recorder_;
  const std::shared_ptr<Departures> departures_;
  std::vector<PeerInfo> peers_;
  const BackendPlan plan_;
  SetupStages stages_;
  const LinkEncryption encryption_;
  const std::shared_ptr<RelayRoute> relay_;  // nullptr: without one
  std::vector<std::uint32_t> sum_weights_;   // of divide_sums()
  int communicators_ = 0;
  // Counts per member list, which gives equal names on all its members.
  std::map<std::string, int> made_of_members_;
  std::optional<RelayWatch> relay_watch_;  // declared last: its thread uses the members above
};

class SingleGroup final : public Group {
 public:
  SingleGroup(std::string reason, int timeout_ms)
      : reason_(std::move(reason)),
        timeout_ms_(timeout_ms),
        peers_{{0, host_name(), getpid(), host_id()}} {}
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  const std::vector<PeerInfo>& peers() const override { return peers_; }
  std::string backend() const override { return "single"; }
  std::string backend_reason() const override { return reason_; }
  using Group::make_communicator;
  std::unique_ptr<Communicator> make_communicator(const CommunicatorRequest&) override {
    return make_single_communicator();
  }
  using Group::make_device_communicator;
  std::unique_ptr<DeviceCommunicator> make_device_communicator(
      const CommunicatorRequest&) override {
    return stage_for_device(make_single_communicator(), std::chrono::milliseconds(timeout_ms_),
                            {0});
  }
  std::string flight_record(const std::string& reason) const override {
    return FlightRecorder().to_json({0, 1, getpid(), host_name(), "single", reason, ""});
  }
  void set_activity(std::string_view activity) noexcept override {
    try {
      const std::lock_guard lock(mutex_);
      activity_.assign(activity);
    } catch (const std::exception&) {
      // Out of memory: keep the older activity.
    }
  }
  std::vector<RankStatus> statuses() const override {
    const std::lock_guard lock(mutex_);
    return {{.rank = 0, .activity = activity_, .progress = {}}};
  }
  void check() override {}
  using Group::leave;
  void leave(const std::function<bool()>&) override {}

 private:
  const std::string reason_;
  const int timeout_ms_;
  const std::vector<PeerInfo> peers_;
  mutable std::mutex mutex_;
  std::string activity_;  // guarded by it
};

void validate(const GroupOptions& o) {
  const auto bad = [](const std::string& what, int found, const std::string& expected) {
    throw ConfigurationError(what + " " + std::to_string(found) + ": expected " + expected);
  };
  // A broadcast names its root by a field of the control word.
  constexpr int kMaxRanks = std::numeric_limits<decltype(ControlWord::root)>::max() + 1;
  if (o.world_size < 1 || o.world_size > kMaxRanks)
    bad("world size", o.world_size, "1 to " + std::to_string(kMaxRanks));
  if (o.rank < 0 || o.rank >= o.world_size)
    bad("rank", o.rank, "0 to " + std::to_string(o.world_size - 1));
  if (o.heartbeat_ms < 10) bad("heartbeat_ms", o.heartbeat_ms, "10 or more");
  if (o.timeout_ms < 1) bad("timeout_ms", o.timeout_ms, "1 or more");
  if (o.rendezvous_timeout_ms < 1)
    bad("rendezvous_timeout_ms", o.rendezvous_timeout_ms, "1 or more");
  if (o.links.patience_ms < 0) bad("links.patience_ms", o.links.patience_ms, "0 or more");
  constexpr std::size_t kMost = 100;
  for (const auto& [text, what] : {std::pair{&o.job.id, "job's id (--job-id, ENGINE_JOB_ID)"},
                                   std::pair{&o.job.build, "build"}})
    if (text->size() > kMost)
      throw ConfigurationError("the " + std::string(what) + " \"" + text->substr(0, kMost) +
                               "...\" has " + std::to_string(text->size()) +
                               " characters: expected " + std::to_string(kMost) + " at most");
  if (const std::size_t bytes = settings_frame(o.job.settings).size(); bytes > kSettingsBytes)
    throw ConfigurationError("the settings of this rank take " + std::to_string(bytes) +
                             " bytes: expected " + std::to_string(kSettingsBytes) + " at most");
}

}  // namespace

std::unique_ptr<DeviceCommunicator> Group::make_device_communicator(const CommunicatorRequest&) {
  throw ConfigurationError("these ranks have no communicator for device memory");
}

std::unique_ptr<Group> join_group(const GroupOptions& options) {
  validate(options);
  check_backend(options.backend);
  if (options.world_size == 1)
    return std::make_unique<SingleGroup>(
        plan_backend(options.backend, options.local_stage,
                     {PeerInfo{0, host_name(), getpid(), host_id()}})
            .reason,
        options.timeout_ms);
  if (options.backend == "inproc")
    throw ConfigurationError("backend inproc connects threads of one process, not " +
                             std::to_string(options.world_size) + " processes");
  return std::make_unique<ProcessGroup>(options, join_store(options));
}

}  // namespace backends
