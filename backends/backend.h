// What a backend is to the group: one row of the table in backend_table.cc.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "backends/store/secret.h"
#include "backends/store/store.h"

namespace backends {

// What a group knows of its members' deaths. Thread-safe.
class FailureWatch {
 public:
  virtual ~FailureWatch() = default;
  // The first failure, waiting for one at most `wait`.
  virtual std::optional<std::string> known_failure(std::chrono::milliseconds wait) = 0;
  // While enlisted, a communicator is aborted as soon as a member fails.
  virtual void enlist(Communicator& communicator) = 0;
  virtual void dismiss(Communicator& communicator) noexcept = 0;
  // Holds what the others may still need although its communicator is destroyed, until all have
  // said goodbye.
  virtual void keep_until_goodbye(std::shared_ptr<void> resource) noexcept = 0;
};

class Enlistment {
 public:
  Enlistment(FailureWatch& watch, Communicator& communicator)
      : watch_(watch), communicator_(communicator) {
    watch_.enlist(communicator_);
  }
  ~Enlistment() { watch_.dismiss(communicator_); }
  Enlistment(const Enlistment&) = delete;
  Enlistment& operator=(const Enlistment&) = delete;

 private:
  FailureWatch& watch_;
  Communicator& communicator_;
};

// What a backend gets to make one communicator of ranks that are processes: of all ranks of the
// group, or of some.
struct BackendContext {
  int rank = 0, world_size = 1;  // within this communicator
  std::vector<int> members;      // the group's rank of each of its ranks; for messages
  Store& store;
  FailureWatch& watch;  // outlives the communicator
  std::string
      prefix;  // of this communicator's keys in the store; equal on all its ranks, used once
  std::string address;  // of this rank, the one to listen on; all ranks can reach it
  Secret secret;        // the job's; every connection of our own proves it
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
  // Collective over the context's ranks. May throw any std::exception: the group adds who and
  // where. Every payload is preceded by the call's ControlWord, and a peer's word that differs is a
  // MismatchError before its payload is used.
  std::unique_ptr<Communicator> (*create)(const BackendContext& context);
  // What this machine lacks for a backend that is built in: "" nothing. nullptr: nothing can be
  // missing. Any thread.
  const std::string& (*missing)() = nullptr;
  std::string (*describe)() = nullptr;  // what was found, where nothing is missing
  bool device_memory = false;  // its calls take memory of a GPU, never of the host: `auto` and host
                               // stages leave it out
};

}  // namespace backends
