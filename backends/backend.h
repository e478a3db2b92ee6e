// The interface between a backend and the group: one row of the table in backend_table.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend_error.h"
#include "backends/communicator.h"
#include "backends/secret.h"
#include "backends/store.h"
#include "io/base/time/clock.h"

namespace backends {

class RelayRoute;  // relay/relay_route.h

// Failure detection, as a communicator uses it. Thread-safe.
class FailureDetector {
 public:
  virtual ~FailureDetector() = default;
  // Returns the first failure of a member; waits at most `wait` for one.
  virtual std::optional<GroupFailure> known_failure(std::chrono::milliseconds wait) = 0;
  // Reports that this rank has seen different calls. Ranks that could not detect the mismatch
  // themselves receive `text`.
  virtual void report_mismatch(const std::string& /*text*/) {}
  // Returns true if this rank was asked to stop waiting; known_failure() has the reason.
  virtual bool interrupted() const { return false; }
  // Asks the others about a member to which this rank has lost its link. Returns "the link between
  // rank 1 and rank 2 is cut: rank 0 still reaches both", or "rank 2 is dead, ..."; "" if unknown.
  virtual std::string reach_text(int /*rank*/) { return {}; }
  // From now until forget(), aborts the communicator as soon as a member fails.
  virtual void abort_on_failure(Communicator& communicator) = 0;
  virtual void forget(Communicator& communicator) noexcept = 0;
  // Keeps a resource that peers may still need after the communicator is destroyed, until all
  // members have left.
  virtual void retain_until_group_ends(std::shared_ptr<void> resource) noexcept = 0;
};

// Calls abort_on_failure() and forget() for a scope.
class AbortOnFailure {
 public:
  AbortOnFailure(FailureDetector& watch, Communicator& communicator)
      : watch_(watch), communicator_(communicator) {
    watch_.abort_on_failure(communicator_);
  }
  ~AbortOnFailure() { watch_.forget(communicator_); }
  AbortOnFailure(const AbortOnFailure&) = delete;
  AbortOnFailure& operator=(const AbortOnFailure&) = delete;

 private:
  FailureDetector& watch_;
  Communicator& communicator_;
};

// The arguments for making one communicator between processes, either all ranks of the group or
// some.
struct BackendContext {
  int rank = 0, world_size = 1;  // within this communicator
  int group_size = 1;            // ranks of the whole group
  std::vector<int> members;      // indexed by rank here: the rank in the group, for messages
  Store& store;
  FailureDetector& watch;  // outlives the communicator
  // The prefix of this communicator's keys in the store: unique, and equal on all its ranks.
  std::string prefix;
  std::string address;  // to listen on; reachable from all ranks
  Secret secret;        // the group's secret; it authenticates connections between ranks
  int streams = 1;      // connections per peer, if the backend stripes
  // The user's choice, and the cipher that follows from it; both are equal on all ranks.
  Encryption encryption = Encryption::kAuto;
  LinkCipher cipher = LinkCipher::kNone;
  std::chrono::milliseconds timeout{};
  // The time in which a broken connection between ranks is restored; 0: a break is an error.
  std::chrono::milliseconds link_patience{};
  std::function<void(const std::string&)> notice = {};  // lines for the user; may be empty
  const base::Clock& clock = base::kSteadyClock;        // of `timeout`; outlives the communicator
  // For pairs without a direct connection; outlives the communicator. nullptr: all are direct.
  RelayRoute* relay = nullptr;
  // By rank here: the weights of slices in all-reduces that ranks sum for each other (SumSlices);
  // empty: equal slices. A backend that sums in another way leaves them out.
  std::vector<std::uint32_t> sum_weights = {};
  // The time limit of waits before all ranks are connected; 0: as `timeout`.
  std::chrono::milliseconds setup_timeout{};

  std::chrono::milliseconds time_to_connect() const {
    return setup_timeout.count() > 0 ? setup_timeout : timeout;
  }
  int group_rank(int rank_here) const { return members[static_cast<std::size_t>(rank_here)]; }
};

enum class Reach {
  kThreads,  // ranks are threads of one process
  kHost,     // processes of one host
  kHosts,    // processes anywhere
};

// The ways to encrypt connections.
enum class Encrypts {
  kNever,
  kInRecords,  // with BackendContext::cipher, by a RecordStream
  kWithCurve,  // by ZeroMQ's CURVE
};

struct Backend {
  const char* name;
  Reach reach;
  bool usable;       // built in
  const char* note;  // why it is not usable and what to install, or else what it is
  // Collective over the context's ranks. May throw any std::exception: the group adds rank and
  // operation to the message. Every payload is preceded by the call's ControlWord; if a peer's word
  // differs, the call throws MismatchError before it uses the payload.
  std::unique_ptr<Communicator> (*create)(const BackendContext& context);
  // Returns why a built-in backend cannot run on this machine; "" if it can. nullptr: it always
  // can. Any thread.
  const std::string& (*missing)() = nullptr;
  std::string (*describe)() = nullptr;  // returns what was found, e.g. a library version
  // True if its calls take GPU memory only, so that `auto` and host stages do not use it.
  bool device_memory = false;
  Encrypts encrypts = Encrypts::kNever;
  bool relays = false;  // its connections can go through a relay
};

}  // namespace backends
