// Tries out the resources that libzmq will need, and reports its aborts.
#include "backends/transport/zmq/zmq_limits.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <latch>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "backends/backend_error.h"
#include "backends/transport/direct/links.h"

namespace backends {
namespace {

thread_local int inside_zmq = 0;

// The messages in flight to and from a peer, and the memory of a context itself.
constexpr std::size_t kMessagesPerPeer = 12, kContextBytes = 16 << 20;

std::string limit_text(decltype(RLIMIT_AS) which, const char* flag, rlim_t unit, const char* name) {
  rlimit limit{};
  if (getrlimit(which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return "; the limit of this process is " + std::to_string(limit.rlim_cur / unit) + name +
         " (ulimit " + flag + ")";
}

void require_memory(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error("backend zmq takes up to " + std::to_string(bytes >> 20) +
                " MiB of memory, which this process cannot get" +
                limit_text(RLIMIT_AS, "-v", 1 << 20, " MiB"));
  munmap(memory, bytes);
}

// Starts all threads at once, as libzmq does, with the memory beside their stacks.
void try_threads(int count, std::size_t bytes) {
  std::latch end(1);
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(count));
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([&end] { end.wait(); });
    require_memory(bytes);
  } catch (const std::system_error&) {
    end.count_down();
    throw Error("backend zmq takes " + std::to_string(count) + " threads, but only " +
                std::to_string(threads.size()) + " could be started" +
                limit_text(RLIMIT_NPROC, "-u", 1, " processes") +
                limit_text(RLIMIT_AS, "-v", 1 << 20, " MiB of memory"));
  } catch (...) {
    end.count_down();
    throw;
  }
  end.count_down();
}

// Uses only functions that a signal handler may call.
extern "C" void answer_abort(int) {
  char name[16] = "";
  prctl(PR_GET_NAME, name);
  if (inside_zmq > 0 || std::strncmp(name, "ZMQbg", 5) == 0) {
    constexpr std::string_view kLine =
        "engine: error: backend zmq: libzmq ended this process, which was refused memory, a thread "
        "or a file: raise its limits (ulimit -v, -u, -n)\n";
    [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, kLine.data(), kLine.size());
    _exit(EX_UNAVAILABLE);
  }
  std::signal(SIGABRT, SIG_DFL);
  std::raise(SIGABRT);
}

}  // namespace

void require_zmq_resources(int ranks) {
  const auto peers = static_cast<std::size_t>(ranks - 1);
  // libzmq's two kinds of threads, and the thread that authenticates connections.
  try_threads(zmq_io_threads(ranks) + 2,
              kContextBytes + peers * kMessagesPerPeer *
                                  std::max(Links::piece_bytes(ranks), Links::kHeadBytes));
}

void report_zmq_aborts() {
  struct sigaction current {};
  if (sigaction(SIGABRT, nullptr, &current) != 0 || current.sa_handler != SIG_DFL) return;
  current.sa_handler = &answer_abort;
  sigaction(SIGABRT, &current, nullptr);
}

InsideZmq::InsideZmq() { ++inside_zmq; }
InsideZmq::~InsideZmq() { --inside_zmq; }

}  // namespace backends
