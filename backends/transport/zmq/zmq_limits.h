// Checks the limits on threads and memory, at which libzmq calls abort() instead of reporting an
// error.
#pragma once

namespace backends {

// Returns the number of threads of one context that serve connections. A second one serves other
// peers meanwhile.
constexpr int zmq_io_threads(int ranks) { return ranks > 2 ? 2 : 1; }

// Throws Error unless this process may now start the threads and allocate the memory that libzmq
// needs to connect `ranks` ranks.
void require_zmq_resources(int ranks);

// From now on, if libzmq calls abort(), the process writes one line and ends with 69
// (EX_UNAVAILABLE). Other calls of abort() end it as before. Does nothing if the program handles
// SIGABRT itself.
void report_zmq_aborts();

// While one exists, the calling thread is in libzmq, for report_zmq_aborts(). libzmq's own threads
// are recognized by name.
class InsideZmq {
 public:
  InsideZmq();
  ~InsideZmq();
  InsideZmq(const InsideZmq&) = delete;
  InsideZmq& operator=(const InsideZmq&) = delete;
};

}  // namespace backends
