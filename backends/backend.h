// The interface between a backend and the group: one row of the table in backend_table.cc.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend_error.h"
#include "backends/communicator.h"
#include "backends/secret.h"
#include "backends/store.h"

namespace backends {

// Failure detection, as a communicator sees it. Thread-safe.
class FailureDetector {
 public:
  virtual ~FailureDetector() = default;
  // The first failure of a member; waits for one at most `wait`.
  virtual std::optional<GroupFailure> known_failure(std::chrono::milliseconds wait) = 0;
  // This rank has seen that calls differ: where the others could not see it by themselves, they are
  // told what `text` says.
  virtual void report_mismatch(const std::string& /*text*/) {}
  // Whether this rank was asked to wait no longer; known_failure() says why.
  virtual bool interrupted() const { return false; }
  // From now until forget(), aborts the communicator as soon as a member fails.
  virtual void abort_on_failure(Communicator& communicator) = 0;
  virtual void forget(Communicator& communicator) noexcept = 0;
  // Keeps a resource that peers may still need after the communicator is destroyed, until all
  // members have left.
  virtual void retain_until_group_ends(std::shared_ptr<void> resource) noexcept = 0;
};

// abort_on_failure() for a scope.
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

// The arguments for making one communicator between processes: all ranks of the group, or some.
struct BackendContext {
  int rank = 0, world_size = 1;  // within this communicator
  std::vector<int> members;      // [rank here] rank in the group; for messages
  Store& store;
  FailureDetector& watch;  // outlives the communicator
  std::string
      prefix;  // of this communicator's keys in the store; equal on all its ranks, and unique
  std::string address;  // to listen on; all ranks can reach it
  Secret secret;        // the group's; connections between ranks authenticate with it
  int streams = 1;      // connections per peer, where a backend stripes
  std::chrono::milliseconds timeout{};
  std::function<void(const std::string&)> notice = {};  // lines for the user; may be empty

  int group_rank(int rank_here) const { return members[static_cast<std::size_t>(rank_here)]; }
};

enum class Reach {
  kThreads,  // ranks are threads of one process
  kHost,     // processes of one host
  kHosts,    // processes anywhere
};

struct Backend {
  const char* name;
  Reach reach;
  bool usable;       // built in
  const char* note;  // why not, and what to install; or what it is
  // Collective over the context's ranks. May throw any std::exception: the group adds rank and
  // operation to the message. Every payload is preceded by the call's ControlWord; if a peer's word
  // differs, the call throws MismatchError before it uses the payload.
  std::unique_ptr<Communicator> (*create)(const BackendContext& context);
  // Why a backend that is built in cannot run on this machine; "" if it can. nullptr: it always
  // can. Any thread.
  const std::string& (*missing)() = nullptr;
  std::string (*describe)() = nullptr;  // what was found, e.g. a library version
  bool device_memory = false;  // its calls take GPU memory only, so `auto` and host stages do not
                               // use it
};

}  // namespace backends
