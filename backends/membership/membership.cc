// Implements the agent: a thread that runs the MembershipMachine on sockets and the host's
// acceptor.
#include "backends/membership/membership.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "backends/backend_error.h"
#include "backends/identity/host_identity.h"
#include "backends/membership/acceptor_file.h"
#include "backends/membership/agent_sockets.h"
#include "backends/membership/join_endpoint.h"
#include "backends/membership/membership_machine.h"
#include "backends/store/store_session.h"
#include "io/base/files/io_error.h"
#include "io/base/files/wake_event.h"
#include "io/base/text/escape_text.h"

namespace backends {
namespace {

constexpr auto kCancelInterval = std::chrono::milliseconds(100);
constexpr auto kServeInterval = std::chrono::seconds(1);
constexpr auto kSeekingServeInterval = std::chrono::milliseconds(200);
constexpr auto kProblemInterval = std::chrono::seconds(5);
constexpr auto kLastWords = std::chrono::milliseconds(500);

Deadline now() { return std::chrono::steady_clock::now(); }

RandomId random_id() {
  const std::string bytes = random_bytes(16);
  RandomId id;
  std::memcpy(&id.high, bytes.data(), 8);
  std::memcpy(&id.low, bytes.data() + 8, 8);
  return id;
}

std::string host_id_of(const GroupOptions& group) {
  return group.host_id.empty() ? host_id() : group.host_id;
}

PeerInfo peer_info(const Member& member, std::size_t rank) {
  return {.rank = static_cast<int>(rank),
          .host = base::escape_text(member.host),
          .pid = member.pid,
          .host_id = member.host_id};
}

}  // namespace

std::string acceptor_job(const GroupOptions& group) {
  return group.job.id + '\n' + group.init_method + '\n' + host_id_of(group);
}

class Membership::Agent {
 public:
  explicit Agent(MembershipOptions options);
  ~Agent();

  View wait_for_view();
  void took_step(const View& view);
  bool join_wanted() const { return join_wanted_; }
  std::optional<std::string> broken() const;
  GroupOptions group_options(const View& view) const;
  void notice(const std::string& text) const;
  void leave();
  void withdraw();

 private:
  MembershipMachine::Options machine_options();
  AgentSockets::Events events();
  Hello hello() const;
  void received(const MembershipMessage& message);
  void no_agent(const Endpoint& at, bool answers);
  void turned_away(RefusalKind kind, const std::string& text);
  bool fail_unless_member(std::exception_ptr why);
  void run();
  bool take_commands();  // returns false to stop
  void serve_endpoint();
  void carry_out();
  void report_problems();
  void publish();
  View view_of(const Roster& roster);

  const MembershipOptions options_;
  JoinEndpoint join_endpoint_;
  AcceptorFile acceptor_;
  Socket store_listener_;
  const base::WakeEvent wake_;
  Member self_;
  Endpoint agent_;
  Socket listener_;

  // The following belong to the agent's thread once it runs.
  std::optional<AgentSockets> sockets_;
  std::optional<MembershipMachine> machine_;
  struct NextTimes {
    Deadline endpoint{}, problem{};
  };
  NextTimes next_;
  struct ThreadState {
    std::uint64_t shown = 0;  // the generation for which the endpoint's file names this process
    bool is_leaving = false, has_news = false;
    int unproved = 0;  // answers that did not prove the secret
  };
  ThreadState state_;

  std::atomic<bool> join_wanted_ = false, stopping_ = false;
  std::atomic<std::uint64_t> stepped_in_ = 0;  // the generation of the last step
  // The state that both threads read and write.
  struct Shared {
    std::condition_variable changed;
    bool wants_view = false, wants_to_leave = false, wants_to_withdraw = false, has_left = false;
    RosterPtr view;   // for the thread that waits
    RosterPtr taken;  // the view that it was given last
    MemberId own_id;  // in `view`
    std::exception_ptr failure;
    std::optional<std::string> broken;
  };
  mutable std::mutex mutex_;  // guards the following
  Shared shared_;

  std::thread thread_;
};

Membership::Agent::Agent(MembershipOptions options)
    : options_(std::move(options)),
      join_endpoint_(options_.group),
      acceptor_(acceptor_job(options_.group)),
      store_listener_(join_endpoint_.listen_beside()),
      listener_(join_endpoint_.listen_beside()) {
  if (!acceptor_.notice().empty()) notice(acceptor_.notice());
  if (options_.min_ranks < 1 || options_.max_ranks < options_.min_ranks)
    throw ConfigurationError("an elastic job of " + std::to_string(options_.min_ranks) + " to " +
                             std::to_string(options_.max_ranks) +
                             " ranks: expected 1 <= MIN <= MAX");
  agent_ = local_endpoint(listener_.fd());
  const GroupOptions& group = options_.group;
  self_.id = random_id();
  self_.host = host_name().substr(0, kIdentityTextBytes);
  self_.host_id = host_id_of(group).substr(0, kIdentityTextBytes);
  self_.address = agent_.host;
  self_.pid = getpid();
  self_.port = agent_.port;
  self_.store_port = local_endpoint(store_listener_.fd()).port;
  self_.acceptor = acceptor_.id();
  self_.hint = group.rank;
  const std::chrono::milliseconds silence(3 * group.heartbeat_ms);
  sockets_.emplace(join_endpoint_.secret(agent_), hello(), events(), silence);
  machine_.emplace(machine_options(), now());
  sockets_->listen(std::move(listener_));
  if (group.listen.fd >= 0) {
    Socket endpoint(group.listen.fd);
    fcntl(endpoint.fd(), F_SETFL, fcntl(endpoint.fd(), F_GETFL) | O_NONBLOCK);
    fcntl(endpoint.fd(), F_SETFD, FD_CLOEXEC);
    sockets_->listen(std::move(endpoint));
    machine_->set_endpoint_held(true, now());
  }
  thread_ = std::thread([this] { run(); });
}

Membership::Agent::~Agent() {
  stopping_ = true;
  wake_.wake();
  thread_.join();
}

MembershipMachine::Options Membership::Agent::machine_options() {
  return {.self = self_,
          .min_ranks = options_.min_ranks,
          .max_ranks = options_.max_ranks,
          .heartbeat_ms = options_.group.heartbeat_ms,
          .last_call_ms = options_.last_call_ms,
          .give_up_ms = options_.group.rendezvous_timeout_ms,
          .acceptor = &acceptor_,
          .random = random_id};
}

Hello Membership::Agent::hello() const {
  const GroupOptions& group = options_.group;
  Hello h;
  h.pid = self_.pid;
  h.job = ("elastic " + group.job.id).substr(0, kIdentityTextBytes);
  h.build = group.job.build.substr(0, kIdentityTextBytes);
  h.host = self_.host;
  h.host_id = self_.host_id;
  // MIN and MAX have to be the same as well: they decide who is taken.
  h.settings = group.job.settings;
  h.settings.emplace_back(
      "--elastic", std::to_string(options_.min_ranks) + ":" + std::to_string(options_.max_ranks));
  h.settings_digest = settings_digest(h.settings);
  return h;
}

AgentSockets::Events Membership::Agent::events() {
  return {.received = [this](const MembershipMessage& m) { received(m); },
          .refused =
              [this](const MemberId& id) {
                machine_->refused(id, now());
                state_.has_news = true;
              },
          .no_agent = [this](const Endpoint& at, bool answers) { no_agent(at, answers); },
          .turned_away =
              [this](const Endpoint& at, RefusalKind kind, const std::string& text) {
                const bool is_other_job =
                    kind == RefusalKind::kAuthentication || kind == RefusalKind::kOtherJob;
                if (!is_other_job || !join_endpoint_.pass_by(at)) turned_away(kind, text);
              },
          .notice = [this](const std::string& text) { notice(text); }};
}

void Membership::Agent::received(const MembershipMessage& message) {
  if (message.from != machine_->self().id) return machine_->received(message, now());
  if (const std::optional<Endpoint> endpoint = join_endpoint_.find()) sockets_->drop(*endpoint);
  machine_->on_self_connection(now());
}

void Membership::Agent::notice(const std::string& text) const {
  if (options_.group.notice) options_.group.notice(text);
}

// On the job's own host, serve() takes a free port instead.
void Membership::Agent::no_agent(const Endpoint& at, bool answers) {
  if (!answers && join_endpoint_.is_on_this_host()) return;
  const std::optional<Endpoint> endpoint = join_endpoint_.find();
  if (join_endpoint_.pass_by(at) || !answers || !endpoint || to_string(*endpoint) != to_string(at))
    return;
  if (!base::has_passed(next_.problem)) return;
  next_.problem = base::deadline_in(kProblemInterval);
  notice(to_string(at) +
         " is held by a process that is not of this job: choose another port, or give "
         "the job a name (--job-id), with which it takes the first free one of several");
}

// Fails a process that has had no view yet and does not fit this job. A member was already accepted
// by others.
void Membership::Agent::turned_away(RefusalKind kind, const std::string& text) {
  // Bytes that were changed on the way look like another secret, once.
  if (kind == RefusalKind::kAuthentication && ++state_.unproved < kMaxUnprovedAnswers) return;
  try {
    throw_refusal(kind, text);
  } catch (const Error&) {
    fail_unless_member(std::current_exception());
  }
}

// Returns false if this process has been in a view, and therefore is not ended.
bool Membership::Agent::fail_unless_member(std::exception_ptr why) {
  const std::lock_guard lock(mutex_);
  if (shared_.taken) return false;
  if (!shared_.failure) shared_.failure = std::move(why);
  shared_.changed.notify_all();
  return true;
}

// ---- The agent's thread.

void Membership::Agent::run() {
  std::exception_ptr failure;
  try {
    while (take_commands()) {
      serve_endpoint();
      machine_->tick(now());
      carry_out();
      report_problems();
      publish();
      // Look at what sending has shown before waiting for anything.
      const Deadline until = std::min(machine_->next_tick(), next_.endpoint);
      sockets_->poll_once(wake_, std::exchange(state_.has_news, false) ? now() : until);
    }
    if (state_.is_leaving) sockets_->flush(base::deadline_in(kLastWords));
  } catch (const Error&) {
    failure = std::current_exception();  // thrown by the file of the join endpoint
  }
  const std::lock_guard lock(mutex_);
  shared_.has_left = true;
  if (failure) {
    shared_.failure = failure;
    shared_.broken = "this process can no longer talk to the others";
  }
  shared_.changed.notify_all();
}

bool Membership::Agent::take_commands() {
  if (stopping_ || (state_.is_leaving && machine_->may_end())) return false;
  machine_->took_step(stepped_in_, now());
  const std::lock_guard lock(mutex_);
  if (std::exchange(shared_.wants_view, false)) machine_->want_view(now());
  if (std::exchange(shared_.wants_to_leave, false)) {
    machine_->leave(now());
    state_.is_leaving = true;
  }
  if (std::exchange(shared_.wants_to_withdraw, false)) {
    machine_->withdraw(now());
    state_.is_leaving = true;
  }
  return true;
}

void Membership::Agent::serve_endpoint() {
  if (join_endpoint_.is_file() && machine_->should_publish_endpoint() &&
      state_.shown != machine_->roster()->generation) {
    state_.shown = machine_->roster()->generation;
    join_endpoint_.show(agent_);
  }
  if (!base::has_passed(next_.endpoint)) return;
  const bool is_member = machine_->roster() && machine_->roster()->has(machine_->self().id);
  next_.endpoint = base::deadline_in(is_member ? kServeInterval : kSeekingServeInterval);
  if (!machine_->should_claim_endpoint()) return;
  if (join_endpoint_.is_file()) {
    if (!is_member && join_endpoint_.take(agent_)) machine_->set_endpoint_held(true, now());
  } else if (Socket endpoint = join_endpoint_.serve()) {
    sockets_->listen(std::move(endpoint));
    machine_->set_endpoint_held(true, now());
  } else if (is_member && join_endpoint_.is_on_this_host() && !machine_->is_endpoint_held()) {
    join_endpoint_.pass_by(*join_endpoint_.find());  // another program has the port
  }
}

void Membership::Agent::carry_out() {
  for (MembershipMachine::Output& out : machine_->take_output()) {
    switch (out.kind) {
      case MembershipMachine::Output::Kind::kNotice:
        notice(out.text);
        break;
      case MembershipMachine::Output::Kind::kSend:
        sockets_->send({out.to.address, out.to.port}, out.message);
        break;
      case MembershipMachine::Output::Kind::kSendToEndpoint:
        if (const std::optional<Endpoint> endpoint = join_endpoint_.find();
            endpoint && to_string(*endpoint) != to_string(agent_))
          sockets_->send(*endpoint, out.message);
        break;
    }
  }
}

// A member may find its host's acceptor usable again, or need it no more; a process that comes
// would wait in vain.
void Membership::Agent::report_problems() {
  const auto& [text, lasts] = acceptor_.problem();
  if (text.empty()) return;
  if (lasts && fail_unless_member(std::make_exception_ptr(io::CannotCreateError(text)))) return;
  if (!base::has_passed(next_.problem)) return;
  next_.problem = base::deadline_in(kProblemInterval);
  notice(text);
}

// Publishes the state for the other threads.
void Membership::Agent::publish() {
  join_wanted_ = machine_->join_wanted();
  const std::lock_guard lock(mutex_);
  shared_.broken = machine_->broken();
  if (RosterPtr view = machine_->take_view()) {
    shared_.view = std::move(view);
    shared_.own_id = machine_->self().id;
    shared_.broken.reset();
    shared_.changed.notify_all();
  } else if (machine_->failure() && !shared_.failure) {
    const std::string& problem = acceptor_.problem().text;
    const std::string why = *machine_->failure() + (problem.empty() ? "" : "; " + problem);
    const bool ended = machine_->job_has_ended();
    if (ended) join_endpoint_.remove();  // no process needs its file any more
    shared_.failure = ended ? std::make_exception_ptr(JobEnded(*machine_->failure()))
                            : std::make_exception_ptr(PeerError(why));
    shared_.changed.notify_all();
  }
}

// ---- Other threads.

View Membership::Agent::wait_for_view() {
  std::unique_lock lock(mutex_);
  shared_.wants_view = true;
  wake_.wake();
  while (!shared_.view && !shared_.failure) {
    shared_.changed.wait_for(lock, kCancelInterval);
    if (!options_.group.cancelled) continue;
    lock.unlock();
    const bool is_cancelled = options_.group.cancelled();
    lock.lock();
    if (is_cancelled) throw CancelledError("stopped while waiting for the other ranks");
  }
  if (!shared_.view) std::rethrow_exception(shared_.failure);
  return view_of(*std::exchange(shared_.view, nullptr));
}

void Membership::Agent::took_step(const View& view) {
  if (stepped_in_.exchange(view.generation) != view.generation) wake_.wake();
}

View Membership::Agent::view_of(const Roster& roster) {
  View view;
  const std::size_t rank = roster.place_of(shared_.own_id).value();
  view.generation = roster.generation;
  view.rank = static_cast<int>(rank);
  view.world_size = static_cast<int>(roster.members.size());
  view.is_new_member = roster.members[rank].since == roster.generation;
  for (std::size_t r = 0; r < roster.members.size(); ++r) {
    view.members.push_back(peer_info(roster.members[r], r));
    const bool is_new = roster.members[r].since == roster.generation;
    if (view.is_new_member ? r == rank : is_new) view.joined.push_back(view.members.back());
  }
  if (!view.is_new_member) {
    for (std::size_t r = 0; r < shared_.taken->members.size(); ++r) {
      if (!roster.has(shared_.taken->members[r].id))
        view.left.push_back(peer_info(shared_.taken->members[r], r));
    }
  }
  shared_.taken = std::make_shared<Roster>(roster);
  return view;
}

std::optional<std::string> Membership::Agent::broken() const {
  const std::lock_guard lock(mutex_);
  return shared_.broken;
}

GroupOptions Membership::Agent::group_options(const View& view) const {
  const std::lock_guard lock(mutex_);
  GroupOptions group = options_.group;
  const std::vector<Member>& members = shared_.taken->members;
  const auto rank = static_cast<std::size_t>(view.rank);
  group.init_method = "tcp://" + to_string(Endpoint{members[0].address, members[0].store_port});
  group.rank = view.rank;
  group.world_size = view.world_size;
  const auto is_here = [&](const Member& m) { return m.host_id == members[rank].host_id; };
  group.local_world_size = static_cast<int>(std::ranges::count_if(members, is_here));
  group.local_rank =
      static_cast<int>(std::count_if(members.begin(), members.begin() + view.rank, is_here));
  group.listen.port_window = 1;
  const std::string suffix =
      "/" + std::to_string(view.generation) + "/" + to_hex(shared_.taken->nonce).substr(0, 16);
  group.job.id = options_.group.job.id.substr(0, kIdentityTextBytes - suffix.size()) + suffix;
  group.listen.fd = view.rank == 0 ? fcntl(store_listener_.fd(), F_DUPFD_CLOEXEC, 0) : -1;
  // Another generation's server may still, or already, listen there: it is tried again.
  group.restarted = true;
  group.cancelled = [this, cancelled = options_.group.cancelled] {
    return (cancelled && cancelled()) || broken();
  };
  return group;
}

void Membership::Agent::leave() {
  std::unique_lock lock(mutex_);
  shared_.wants_to_leave = true;
  wake_.wake();
  shared_.changed.wait(lock, [this] { return shared_.has_left; });
  join_endpoint_.remove();
  acceptor_.remove_if_last();
}

// Keeps what other processes may still need: the file of the join endpoint, and the decisions of
// this host.
void Membership::Agent::withdraw() {
  std::unique_lock lock(mutex_);
  shared_.wants_to_withdraw = true;
  wake_.wake();
  shared_.changed.wait(lock, [this] { return shared_.has_left; });
}

// ---- The interface.

Membership::Membership(MembershipOptions options)
    : agent_(std::make_unique<Agent>(std::move(options))) {}
Membership::~Membership() = default;

View Membership::first_view() { return agent_->wait_for_view(); }

View Membership::next_view() { return agent_->wait_for_view(); }

void Membership::took_step(const View& view) { agent_->took_step(view); }

bool Membership::join_wanted() const { return agent_->join_wanted(); }
std::optional<std::string> Membership::broken() const { return agent_->broken(); }
GroupOptions Membership::group_options(const View& view) const {
  return agent_->group_options(view);
}
void Membership::leave() { agent_->leave(); }
void Membership::withdraw() { agent_->withdraw(); }

}  // namespace backends
