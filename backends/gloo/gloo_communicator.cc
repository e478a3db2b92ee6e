// The gloo backend: our exchange over Gloo's connections.
#include <gloo/common/error.h>
#include <signal.h>

#include <cstring>
#include <optional>

#include "backends/backend_error.h"
#include "backends/gloo/direct_exchange.h"
#include "backends/gloo/gloo_backend.h"
#include "backends/gloo/gloo_mesh.h"

namespace backends {
namespace {

// Gloo writes to sockets without MSG_NOSIGNAL: a dead peer must be an error here, not the end of this process.
void ignore_broken_pipes() {
  struct sigaction current {};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
    current.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &current, nullptr);
  }
}

// Gloo's texts start with "[path/of/its/source:line] ".
std::string plain(const char* text) {
  const char* end = text[0] == '[' ? std::strstr(text, "] ") : nullptr;
  return end != nullptr ? end + 2 : text;
}

// The connections and what is bound to them.
struct Wiring {
  explicit Wiring(const BackendContext& context) : mesh(std::make_shared<GlooMesh>(context)) {}
  ~Wiring() {
    mesh->break_off();
    exchange.reset();
  }
  std::shared_ptr<GlooMesh> mesh;
  std::optional<DirectExchange> exchange;
};

class GlooCommunicator final : public Communicator {
 public:
  explicit GlooCommunicator(const BackendContext& context)
      : watch_(context.watch), wiring_(std::make_shared<Wiring>(context)), mesh_(wiring_->mesh) {}
  // Gloo forgets a message that has come but was not waited for yet when its connection closes: the others may still be
  // busy with the last collective, so the connections stay until all have said goodbye.
  ~GlooCommunicator() override { watch_.keep_until_goodbye(std::move(wiring_)); }

  void connect(const BackendContext& context) {
    translate([&] {
      mesh_->connect(context);
      wiring_->exchange.emplace(*mesh_);
    });
  }

  std::string_view name() const override { return "gloo"; }
  int rank() const override { return mesh_->rank; }
  int world_size() const override { return mesh_->size; }

  void all_reduce(void* data, std::size_t count, DataType type, ReduceOp op) override {
    translate([&] { wiring_->exchange->all_reduce(static_cast<char*>(data), count, type, op); });
  }

  // Broadcast and all-gather are reductions to which each rank gives what it has, and zeros. Gloo's own calls are not used: they
  // wait on buffers that belong to no connection, and when connections break off such a buffer may be gone while a message for it
  // comes in. Gloo then never reads on, never sees the end of that connection, and whoever waits for it sleeps until the timeout.
  void broadcast(void* data, std::size_t bytes, int root) override {
    if (rank() != root && bytes > 0) std::memset(data, 0, bytes);
    all_reduce(data, bytes, DataType::kU8, ReduceOp::kMax);
  }

  void all_gather(const void* input, std::size_t bytes, void* output) override {
    if (bytes == 0) return;
    char* const all = static_cast<char*>(output);
    const std::size_t own = bytes * static_cast<std::size_t>(rank()), end = bytes * static_cast<std::size_t>(world_size());
    if (all + own != input) std::memmove(all + own, input, bytes);
    std::memset(all, 0, own);
    std::memset(all + own + bytes, 0, end - own - bytes);
    all_reduce(all, end, DataType::kU8, ReduceOp::kMax);
  }

  void reduce_scatter(void* data, std::size_t count, DataType type, ReduceOp op) override {
    all_reduce(data, count, type, op);
  }

  void barrier() override {
    char nothing = 0;
    all_reduce(&nothing, 1, DataType::kU8, ReduceOp::kMax);  // one hop; Gloo's takes two rounds of notices a step
  }

  void abort(std::string_view) noexcept override { mesh_->break_off(); }

 private:
  template <typename Call>
  void translate(const Call& call) {
    try {
      call();
    } catch (const gloo::Exception& error) {
      throw PeerError(plain(error.what()));
    }
  }

  FailureWatch& watch_;
  std::shared_ptr<Wiring> wiring_;
  const std::shared_ptr<GlooMesh> mesh_;
};

}  // namespace

extern const bool kGlooIsBuilt = true;
extern const char* const kGlooNote = "Gloo over TCP, ranks are processes";

std::unique_ptr<Communicator> make_gloo_communicator(const BackendContext& context) {
  ignore_broken_pipes();
  auto communicator = std::make_unique<GlooCommunicator>(context);
  const Enlistment breakable(context.watch, *communicator);  // a peer that dies now must not be waited for
  communicator->connect(context);
  return communicator;
}

}  // namespace backends
