// Wraps calls of libzmq that a signal may interrupt.
#pragma once

#include <cerrno>
#include <zmq.hpp>

#include "backends/transport/zmq/zmq_limits.h"

namespace backends {

// Returns the result of the call, or {} if a signal interrupted it before it did anything: libzmq
// reports that as an error, even if the handler is installed with SA_RESTART. The caller retries.
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
