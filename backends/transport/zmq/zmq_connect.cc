// Makes the zmq backend: checks its requirements, and connects its links.
#include <malloc.h>

#include "backends/backend_error.h"
#include "backends/identity/name_lookup.h"
#include "backends/open_files.h"
#include "backends/transport/direct/direct_communicator.h"
#include "backends/transport/zmq/zmq_backend.h"
#include "backends/transport/zmq/zmq_limits.h"
#include "backends/transport/zmq/zmq_links.h"
#include "backends/transport/zmq/zmq_repair.h"
#include "backends/transport/zmq/zmq_set_up.h"

namespace backends {
namespace {

// libzmq allocates each large message that it receives. glibc returns such blocks to the kernel at
// once, so that the kernel clears the next one page by page, until a large block has been freed:
// after 32 MiB the thresholds have these values.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
}

}  // namespace

ZmqLinks::ZmqLinks(const BackendContext& context, ZmqEncryption encryption)
    : rank_(context.rank),
      size_(context.world_size),
      encrypted_(encryption == ZmqEncryption::kAlways || context.cipher != LinkCipher::kNone ||
                 (context.encryption == Encryption::kAuto && !is_loopback(context.address))),
      members_(context.members),
      timeout_(context.timeout),
      link_patience_(context.link_patience),
      clock_(context.clock),
      context_(zmq_io_threads(context.world_size)),
      zap_handler_(std::make_unique<ZapHandler>(context_)) {
  // The schedule has at most two messages of each kind under way, with their tags.
  const std::size_t most = 2 * kHeadBytes + 6 * max_message_bytes() + (64 << 10);
  for (int peer = 0; peer < size_; ++peer) {
    Link& l = links_.emplace_back();
    if (resumes() && peer != rank_) l.replay.emplace(most);
  }
}

ZmqLinks::~ZmqLinks() { close_all(); }

void ZmqLinks::connect(const BackendContext& context) {
  ends_ = std::make_unique<Ends>(*this, context);
  SetUp(*this, *ends_).run();
  if (!resumes()) return ends_.reset();
  repairs_ = std::jthread([this](const std::stop_token& stop) { Repair(*this, *ends_).run(stop); });
}

bool ZmqLinks::is_hello(int peer, const zmq::message_t& message) const {
  return ends_ && ends_->is_hello(message, peer);
}

void ZmqLinks::stop_repairs() noexcept {
  repairs_.request_stop();
  if (repairs_.joinable()) repairs_.join();
  ends_.reset();
}

extern const bool kZmqIsBuilt = true;
extern const char* const kZmqNote =
    "ZeroMQ over TCP, ranks are processes; encrypted between hosts unless --encrypt is off";

std::unique_ptr<Communicator> make_zmq_communicator(const BackendContext& context) {
  // Counts the library's own files, a queue and a connection for each peer, a listener and two
  // queues of ZmqGuard for each higher rank, and a repeated connection for each lower rank. libzmq
  // aborts the process if it cannot open one.
  const int peers = context.world_size - 1, higher = peers - context.rank;
  require_files(8 + 2 * peers + 3 * higher + 2 * context.rank, "backend zmq");
  require_zmq_resources(context.world_size);
  report_zmq_aborts();
  const InsideZmq inside;
  keep_freed_memory();
  auto links = std::make_shared<ZmqLinks>(context);
  auto communicator = make_direct_communicator("zmq", context, links);
  const AbortOnFailure scope(context.watch, *communicator);  // in case a peer dies while connecting
  links->connect(context);
  return communicator;
}

}  // namespace backends
