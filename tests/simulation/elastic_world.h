// What the processes of a simulated elastic job share: hosts with their acceptors, the endpoint,
// and the record of what must never be contradicted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/membership/paxos.h"
#include "tests/simulation/virtual_network.h"

namespace simulation {

class ElasticProcess;

// What a training has come to: for each step the generation that took it. It begins again with each
// founding (`epoch`: its generation) and where nobody is left that has it.
struct Steps {
  struct Step {
    std::uint64_t generation;
    bool last;
    auto operator<=>(const Step&) const = default;
  };
  std::uint64_t epoch = 0;
  std::vector<Step> taken;

  bool finished() const { return !taken.empty() && taken.back().last; }
  auto operator<=>(const Steps&) const = default;
};

struct ElasticWorld {
  struct Host {
    backends::AcceptorId acceptor;
    backends::AcceptorState state;
    bool gone = false;
    int held_by = -1;      // a process that was stopped in the acceptor
    bool is_full = false;  // nothing can be written into the acceptor
    int dies_in = -1;      // updates until the process that makes it dies in it
    bool is_torn = false;  // what that process was writing is lost
  };

  explicit ElasticWorld(VirtualNetwork& net) : network(net) {}

  VirtualNetwork& network;
  std::vector<Host> hosts;
  std::vector<ElasticProcess*> processes;  // by their numbers in the network, which owns them
  int min_ranks = 1, max_ranks = 8;
  int heartbeat_ms = 1000, give_up_ms = 40'000;
  int patience = 2;       // MembershipMachine::Options
  Time last_step_from{};  // the first step that ends behind it is the last
  std::vector<std::string> wrong;

  // Where a process may die: behind each message, each connection, each use of the acceptor, and
  // when it has claimed the endpoint.
  int points = 0;                 // that were passed
  int dies_at = 0;                // who passes this one dies; 0: nobody
  std::function<void(int)> died;  // of such a death

  // The join endpoint is on the first host.
  bool is_shared_endpoint = false;
  std::set<int> endpoint_holders;
  int endpoint_holder();  // one that lives; -1: none
  bool claim_endpoint(int process);

  // Records what a process believes to be decided.
  void believe(const backends::RosterPtr& roster);
  // A step that a later one shows to have been taken by all its generation.
  void hold_firm(const Steps& steps, std::size_t step);
  std::uint64_t epoch_of(std::uint64_t generation) const { return epochs_.at(generation); }
  backends::RosterPtr roster_of(std::uint64_t generation) const {
    const auto known = rosters_.find(generation);
    return known == rosters_.end() ? nullptr : known->second;
  }
  int lost_states = 0;
  int expulsions = 0;        // of members that live
  int needless_changes = 0;  // generations of the same members as the one before

 private:
  std::map<std::uint64_t, backends::RosterPtr> rosters_;
  std::map<std::uint64_t, std::uint64_t> epochs_;
  std::map<std::pair<std::uint64_t, std::size_t>, Steps::Step> firm_;
};

}  // namespace simulation
