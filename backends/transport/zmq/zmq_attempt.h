// Calls of libzmq that a signal may interrupt.
#pragma once

#include <cerrno>
#include <zmq.hpp>

#include "backends/transport/zmq/zmq_limits.h"

namespace backends {

// Returns what the call returns, or {} if a signal interrupted it before it did anything: libzmq
// reports that as an error, even where the handler is installed with SA_RESTART. The caller tries
// again.
template <typename Call>
auto attempt_zmq(const Call& call) -> decltype(call()) {
  const InsideZmq inside;
  try {
    return call();
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) throw;
    return {};
  }
}

}  // namespace backends
