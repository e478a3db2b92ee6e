// Defines the server's doubt about a member whose connection is silent or has broken: what is
// known, and how long the member is waited for.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "backends/store/protocol/stop_check.h"
#include "io/base/time/deadline.h"

namespace backends {

// The ways in which a connection ends. Kernels finish the connections of a process that ends;
// routers and firewalls reset them, and so do kernels that have lost them.
enum class Ending { kFinished, kBroken };

// Whether a member has answered a probe, or could not be reached by the first.
enum class ProbeReach { kUnknown, kReached, kUnreachable };

struct MemberDoubt {
  base::Deadline since{};
  std::string broken = {};  // why its connection has ended; "": it is silent
  bool finished = false;    // its kernel has ended a connection that it used
  bool reported = false;
  base::Deadline next_probe{};
  StopCheck check;
  std::string verdict = {};                        // why it counts as failed, for its end
  std::map<int, std::optional<bool>> others = {};  // asked ranks: whether they reach it

  bool is_broken() const { return !broken.empty(); }
};

struct NamedPatience {
  base::Deadline::duration time;
  const char* name;  // the option, or else the rule, that set it
};

}  // namespace backends
