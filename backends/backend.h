// What a backend is to the group: one row of the table in backend_table.cc.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "backends/communicator.h"
#include "backends/rendezvous/store.h"

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
  // Holds what the others may still need although its communicator is destroyed, until all have said goodbye.
  virtual void keep_until_goodbye(std::shared_ptr<void> resource) noexcept = 0;
};

class Enlistment {
 public:
  Enlistment(FailureWatch& watch, Communicator& communicator) : watch_(watch), communicator_(communicator) {
    watch_.enlist(communicator_);
  }
  ~Enlistment() { watch_.dismiss(communicator_); }
  Enlistment(const Enlistment&) = delete;
  Enlistment& operator=(const Enlistment&) = delete;

 private:
  FailureWatch& watch_;
  Communicator& communicator_;
};

// What a backend gets to make one communicator of ranks that are processes.
struct BackendContext {
  int rank = 0, world_size = 1;
  Store& store;
  FailureWatch& watch;  // outlives the communicator
  std::string prefix;   // of this communicator's keys in the store; equal on all ranks, used once
  std::string address;  // of this rank, the one to listen on; all ranks can reach it
  std::chrono::milliseconds timeout{};
};

struct Backend {
  const char* name;
  bool joins_processes;  // else its ranks are threads of one process
  bool usable;           // built in
  const char* note;      // why not, and what to install; or what it is
  // Collective. May throw any std::exception: the group adds who and where.
  std::unique_ptr<Communicator> (*create)(const BackendContext& context);
};

}  // namespace backends
