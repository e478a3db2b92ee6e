// Publishes, looks up, waits, and explains what is missing.
#include "backends/transport/socket/mesh_setup.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "backends/backend_error.h"
#include "backends/relay/relay_route.h"
#include "backends/store/awaited_value.h"
#include "io/base/files/system_error_text.h"
#include "io/base/machine/cpu_affinity.h"
#include "io/base/time/deadline.h"

namespace backends {
namespace {

using MeshStage = MeshAttempt::Stage;
constexpr int kRetryPollMs = 50;  // while a peer is to be tried again
constexpr int kMeshPollMs = 100;  // between checks for failures

std::string key(const BackendContext& context, int rank) {
  return context.prefix + "/socket/" + std::to_string(rank);
}

}  // namespace

MeshSetup::MeshSetup(MeshConnector& connector, MeshLink::Resuming resuming)
    : connector_(connector),
      context_(connector.context()),
      resuming_(std::move(resuming)),
      deadline_(context_.clock.deadline_in(context_.time_to_connect())),
      oversubscribed_(is_on_loopback(context_) && context_.world_size > base::count_of_cpus()),
      missing_((context_.world_size - 1) * context_.streams),
      links_(static_cast<std::size_t>(context_.world_size) *
             static_cast<std::size_t>(context_.streams)) {
  connector_.set_client(*this);
}

void MeshSetup::run() {
  publish();
  look_up_peers();
  while (missing_ > 0) {
    connector_.connect();
    wait();
    connector_.sweep();
  }
  if (context_.relay != nullptr) report_links();
  if (accepts()) context_.store.remove(key(context_, context_.rank));  // all peers have read it
}

void MeshSetup::publish() {
  if (!accepts() && !resumes(context_)) return;  // the last rank connects to all others
  connector_.listen();
  if (accepts())
    context_.store.set(key(context_, context_.rank),
                       to_string(local_endpoint(connector_.listener())));
}

void MeshSetup::look_up_peers() {
  std::vector<Endpoint> listeners;
  for (int peer = 0; peer < context_.rank; ++peer) {
    const std::string what = "the address of rank " + std::to_string(context_.group_rank(peer));
    listeners.push_back(parse_endpoint(
        awaited_value(context_, key(context_, peer), deadline_, what), "a rank's address"));
  }
  connector_.start(listeners);
}

void MeshSetup::wait() {
  std::vector<pollfd> polled = connector_.polled();
  const bool retrying = std::ranges::any_of(connector_.targets(), [](MeshTarget& t) {
    return t.connects && t.machine.needs_connection() &&
           !t.machine.schedule().is_under_way(ConnectWay::kDirect);
  });
  const int most = retrying ? kRetryPollMs : kMeshPollMs;
  const int ready =
      poll(polled.data(), polled.size(), std::min(most, context_.clock.poll_ms(deadline_)));
  if (const auto failure = context_.watch.known_failure(std::chrono::milliseconds(0)))
    failure->raise();
  if (context_.clock.has_passed(deadline_)) throw_timeout();
  if (const auto until = connector_.relay_until(); until && context_.clock.has_passed(*until))
    throw PeerError("no connection with rank " + missing_ranks() + "; the relay at " +
                    to_string(context_.relay->relay()) + " has not answered for " +
                    std::to_string(kRelayWait.count()) + " s");
  if (ready > 0) connector_.serve(polled);
}

void MeshSetup::on_no_files() {
  throw Error("accepting the connection of another rank: " + base::system_error_text(EMFILE));
}

bool MeshSetup::use(MeshAttempt& attempt, MeshTarget& target, const LinkKeys& keys) {
  std::unique_ptr<MeshLink>& place = links_[connector_.index_of(target)];
  if (!place) --missing_;
  // On a second connection of the same peer: the peer has abandoned the first.
  place = std::make_unique<MeshLink>(std::move(attempt.socket), keys, resuming_);
  if (attempt.outgoing) {
    if (target.peer == 0) oversubscribed_ = attempt.peer_oversubscribed;
  } else {
    target.machine.numbers().adopt(attempt.hello.epoch);
  }
  target.machine.on_established(context_.clock.now(), attempt.is_relayed());
  return true;
}

std::string MeshSetup::missing_ranks() const {
  std::set<int> ranks;
  for (const MeshTarget& target : connector_.targets()) {
    if (target.peer != context_.rank && target.machine.needs_connection())
      ranks.insert(context_.group_rank(target.peer));
  }
  std::string names;
  for (const int rank : ranks) names += (names.empty() ? "" : ", ") + std::to_string(rank);
  return names;
}

void MeshSetup::throw_timeout() const {
  throw PeerError("timeout after " + std::to_string(context_.time_to_connect().count()) +
                  " ms, no connection with rank " + missing_ranks() + timeout_hint());
}

std::string MeshSetup::timeout_hint() const {
  if (context_.relay != nullptr) {
    const std::string relay = "the relay at " + to_string(context_.relay->relay());
    if (connector_.attempt_at(MeshStage::kRelayWaiting) != nullptr)
      return "; " + relay + " has waited for the other end: do all ranks reach it?";
    if (relayed_peers().empty()) return "; no answer from " + relay;
    return "";
  }
  constexpr const char* kRule =
      ": a firewall must let ranks connect to all ports of each other, not only to rank 0's; "
      "where none can, give all ranks --relay rank0:PORT";
  if (const MeshAttempt* silent = connector_.attempt_at(MeshStage::kConnecting))
    return "; no answer from " + to_string(silent->target->to) + kRule;
  const auto failed = std::ranges::find_if(connector_.targets(), [](const MeshTarget& t) {
    return t.connects && t.error != 0 && t.machine.needs_connection();
  });
  if (failed != connector_.targets().end())
    return "; " + to_string(failed->to) + ": " + base::system_error_text(failed->error) + kRule;
  if (accepts() && !is_on_loopback(context_))
    return "; if they cannot connect to " + context_.address +
           ", give all ranks --relay rank0:PORT";
  return "";
}

std::set<int> MeshSetup::relayed_peers() const {
  std::set<int> peers;
  for (const MeshTarget& target : connector_.targets()) {
    if (target.machine.is_relayed()) peers.insert(target.peer);
  }
  return peers;
}

// Tells the user of rank 0 how the pairs are connected. Collective.
void MeshSetup::report_links() {
  const auto key_of = [&](int rank) { return key(context_, rank) + "/relayed"; };
  if (context_.rank != 0) {
    std::string lower;
    for (const int peer : relayed_peers()) {
      if (peer < context_.rank) lower += std::to_string(peer) + " ";
    }
    return context_.store.set(key_of(context_.rank), lower);
  }
  std::set<std::pair<int, int>> pairs;
  for (int rank = 1; rank < context_.world_size; ++rank) {
    std::istringstream in(awaited_value(
        context_, key_of(rank), context_.clock.deadline_in(context_.time_to_connect()),
        "the connections of rank " + std::to_string(context_.group_rank(rank))));
    context_.store.remove(key_of(rank));
    for (int peer = 0; in >> peer;)
      pairs.emplace(context_.group_rank(peer), context_.group_rank(rank));
  }
  const std::string text = links_text(context_.world_size, pairs, context_.relay->relay());
  if (context_.group_rank(0) == 0 && context_.notice &&
      context_.relay->is_new_report(context_.world_size, text))
    context_.notice(text);
}

}  // namespace backends
