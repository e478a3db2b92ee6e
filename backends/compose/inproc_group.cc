// Implements the group whose ranks are threads of this process.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "backends/backend_error.h"
#include "backends/compose/guard/guarded_communicator.h"
#include "backends/compose/table/device_factory.h"
#include "backends/group.h"
#include "backends/identity/host_identity.h"
#include "backends/transport/inproc/inproc_exchange.h"
#include "backends/transport/inproc/inproc_store.h"
#include "backends/transport/nccl/nccl_backend.h"

namespace backends {
namespace {

// The state that the ranks of one group share.
class InprocJob final : public FailureDetector {
 public:
  InprocJob(int world_size, int timeout_ms, std::function<void(const std::string&)> notice)
      : timeout_ms_(timeout_ms),
        notice_(std::move(notice)),
        left_(static_cast<std::size_t>(world_size), false),
        activities_(left_.size()) {
    for (std::size_t r = 0; r < left_.size(); ++r)
      departures_.push_back(std::make_shared<Departures>());
  }

  // Returns the exchange of the `index`-th communicator of these ranks.
  std::shared_ptr<InprocExchange> exchange(const std::vector<int>& members, std::size_t index) {
    const std::lock_guard lock(mutex_);
    if (failure_) failure_->raise();
    std::shared_ptr<InprocExchange>& found = exchanges_[{members, index}];
    if (!found)
      found = std::make_shared<InprocExchange>(static_cast<int>(members.size()), timeout_ms_);
    return found;
  }
  int timeout_ms() const { return timeout_ms_; }
  const std::function<void(const std::string&)>& notice() const { return notice_; }
  Store& store() { return store_; }
  void set_activity(int rank, std::string_view activity) {
    const std::lock_guard lock(mutex_);
    activities_[static_cast<std::size_t>(rank)].assign(activity);
  }
  std::string activity(int rank) const {
    const std::lock_guard lock(mutex_);
    return activities_[static_cast<std::size_t>(rank)];
  }
  // Ends calls of the other ranks that this one no longer makes.
  void leave(int rank) {
    {
      const std::lock_guard lock(mutex_);
      left_[static_cast<std::size_t>(rank)] = true;
    }
    const CallCounts counts = departures(rank)->counts();
    for (std::size_t r = 0; r < departures_.size(); ++r)
      if (static_cast<int>(r) != rank)
        departures_[r]->left(rank, "rank " + std::to_string(rank), counts);
  }
  const std::shared_ptr<Departures>& departures(int rank) const {
    return departures_[static_cast<std::size_t>(rank)];
  }
  // Called when a rank ends; this is a failure for the others unless the rank has left before.
  void end(int rank, const std::string& why = "") noexcept {
    const std::lock_guard lock(mutex_);
    if (left_[static_cast<std::size_t>(rank)] || failure_) return;
    failure_ = GroupFailure{member_failure_text("rank " + std::to_string(rank), early_end_text(why),
                                                activities_[static_cast<std::size_t>(rank)])};
    for (const auto& [made, exchange] : exchanges_) exchange->abort(failure_->text);
    for (Communicator* c : abort_on_failure_) c->abort(failure_->text);
    store_.fail(failure_->text);
  }
  // Does not wait, because end() aborts all exchanges at once.
  std::optional<GroupFailure> known_failure(std::chrono::milliseconds) override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  void abort_on_failure(Communicator& communicator) override {
    const std::lock_guard lock(mutex_);
    abort_on_failure_.push_back(&communicator);
    if (failure_) communicator.abort(failure_->text);
  }
  void forget(Communicator& communicator) noexcept override {
    const std::lock_guard lock(mutex_);
    std::erase(abort_on_failure_, &communicator);
  }
  void retain_until_group_ends(std::shared_ptr<void>) noexcept override {}
  void check() const {
    const std::lock_guard lock(mutex_);
    if (failure_) failure_->raise();
  }

 private:
  const int timeout_ms_;
  const std::function<void(const std::string&)> notice_;
  InprocStore store_;  // for NCCL's bootstrap
  mutable std::mutex mutex_;
  std::vector<Communicator*> abort_on_failure_;
  std::vector<std::shared_ptr<Departures>> departures_;  // by rank
  std::vector<bool> left_;
  std::vector<std::string> activities_;
  std::map<std::pair<std::vector<int>, std::size_t>, std::shared_ptr<InprocExchange>> exchanges_;
  std::optional<GroupFailure> failure_;
};

class InprocGroup final : public Group {
 public:
  InprocGroup(std::shared_ptr<InprocJob> job, int rank, int world_size)
      : job_(std::move(job)), rank_(rank) {
    for (int r = 0; r < world_size; ++r) peers_.push_back({r, host_name(), getpid(), host_id()});
  }
  ~InprocGroup() override { job_->end(rank_); }
  void abandon(const std::string& why) noexcept override { job_->end(rank_, why); }

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(peers_.size()); }
  const std::vector<PeerInfo>& peers() const override { return peers_; }
  std::string backend() const override { return "inproc"; }
  std::string backend_reason() const override { return "the ranks are threads of one process"; }
  using Group::make_communicator;
  std::unique_ptr<Communicator> make_communicator(const CommunicatorRequest& request) override {
    const std::vector<int> members = members_of(request);
    const std::size_t index = made_of_members_[members];
    Guard by = next_guard();
    by.departures = job_->departures(rank_);
    for (const int r : members) by.name += std::to_string(r) + "/";
    by.name += "#" + std::to_string(index);
    by.members = members;
    return guard(exchange_of(request, members), std::move(by));
  }
  using Group::make_device_communicator;
  std::unique_ptr<DeviceCommunicator> make_device_communicator(
      const CommunicatorRequest& request) override {
    const std::vector<int> members = members_of(request);
    const DeviceChoice choice = choose_for_device(request.backend, "auto");
    CommunicatorRequest host = request;
    host.backend = choice.host;
    if (choice.nccl && members.size() > 1) {
      std::string refusal;
      if (auto communicator = try_nccl(members, refusal))
        return guard_device(std::move(communicator), next_guard());
      if (choice.host.empty()) throw ConfigurationError("backend nccl cannot be used: " + refusal);
      if (rank_ == members.front() && job_->notice())
        job_->notice()("no NCCL: " + refusal +
                       "; device memory is staged through pinned host memory instead");
    }
    return guard_device(stage_for_device(exchange_of(host, members),
                                         std::chrono::milliseconds(job_->timeout_ms()), members),
                        next_guard());
  }
  std::string flight_record(const std::string& reason) const override {
    return recorder_->to_json(
        {rank_, world_size(), getpid(), host_name(), "inproc", reason, job_->activity(rank_)});
  }
  std::vector<RankStatus> statuses() const override {
    std::vector<RankStatus> all;
    for (const PeerInfo& peer : peers_)
      all.push_back({.rank = peer.rank, .activity = job_->activity(peer.rank), .progress = {}});
    return rank_ == 0 ? all : std::vector<RankStatus>{};
  }
  void set_activity(std::string_view activity) noexcept override {
    job_->set_activity(rank_, activity.substr(0, 200));
  }
  void check() override { job_->check(); }
  using Group::leave;
  void leave(const std::function<bool()>&) override { job_->leave(rank_); }

 private:
  std::vector<int> members_of(const CommunicatorRequest& request) const {
    std::vector<int> members = request.members;
    if (members.empty()) {
      for (const PeerInfo& p : peers_) members.push_back(p.rank);
    }
    return members;
  }
  std::unique_ptr<Communicator> exchange_of(const CommunicatorRequest& request,
                                            const std::vector<int>& members) {
    const std::string& backend = request.backend;
    if (!backend.empty() && backend != "inproc" && backend != "auto")
      throw ConfigurationError("backend " + backend +
                               " connects processes, but these ranks are threads (inproc)");
    const auto self = std::ranges::find(members, rank_);
    if (self == members.end())
      throw ConfigurationError("rank " + std::to_string(rank_) +
                               " is not a member of the communicator that it requests");
    auto exchange = job_->exchange(members, made_of_members_[members]++);
    return make_inproc_communicator(std::move(exchange), static_cast<int>(self - members.begin()));
  }
  std::unique_ptr<DeviceCommunicator> try_nccl(const std::vector<int>& members,
                                               std::string& refusal) {
    std::string prefix = "nccl of";
    for (const int r : members) prefix += " " + std::to_string(r);
    const auto self = std::ranges::find(members, rank_);
    if (self == members.end())
      throw ConfigurationError("rank " + std::to_string(rank_) +
                               " is not a member of the communicator that it requests");
    const BackendContext context{
        .rank = static_cast<int>(self - members.begin()),
        .world_size = static_cast<int>(members.size()),
        .members = members,
        .store = job_->store(),
        .watch = *job_,
        .prefix = prefix + "#" + std::to_string(nccl_of_members_[members]++),
        .address = {},
        .secret = {},
        .timeout = std::chrono::milliseconds(job_->timeout_ms()),
        .notice = job_->notice()};
    return try_nccl_communicator(context, refusal);
  }
  Guard next_guard() { return {job_, recorder_, communicators_++, rank_, world_size()}; }

  std::shared_ptr<InprocJob> job_;
  const int rank_;
  const std::shared_ptr<FlightRecorder> recorder_ = std::make_shared<FlightRecorder>();
  int communicators_ = 0;
  std::map<std::vector<int>, std::size_t> made_of_members_, nccl_of_members_;
  std::vector<PeerInfo> peers_;
};

}  // namespace

std::vector<std::unique_ptr<Group>> make_inproc_groups(
    int world_size, int timeout_ms, std::function<void(const std::string&)> notice) {
  if (world_size < 1)
    throw ConfigurationError("world size " + std::to_string(world_size) + ": expected 1 or more");
  const auto job = std::make_shared<InprocJob>(world_size, timeout_ms, std::move(notice));
  std::vector<std::unique_ptr<Group>> groups;
  groups.reserve(static_cast<std::size_t>(world_size));
  for (int r = 0; r < world_size; ++r)
    groups.push_back(std::make_unique<InprocGroup>(job, r, world_size));
  return groups;
}

}  // namespace backends
