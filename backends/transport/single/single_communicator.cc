// Implements the communicator of one rank.
#include "backends/transport/single/single_communicator.h"

#include <atomic>
#include <cstring>

#include "backends/backend_error.h"

namespace backends {
namespace {

class SingleCommunicator final : public Communicator {
 public:
  std::string_view name() const override { return "single"; }
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  void all_reduce(void*, std::size_t, DType, ReduceOp) override { check(); }
  void broadcast(void*, std::size_t, int root) override {
    check();
    if (root != 0)
      throw MismatchError("broadcast from rank " + std::to_string(root) +
                          ": no such rank in a world of 1");
  }
  void all_gather(const void* input, std::size_t bytes, void* output) override {
    check();
    if (bytes > 0 && input != output) std::memmove(output, input, bytes);
  }
  void reduce_scatter(void*, std::size_t, DType, ReduceOp) override { check(); }
  void barrier() override { check(); }
  void abort(std::string_view) noexcept override { aborted_ = true; }

 private:
  void check() const {
    if (aborted_) throw PeerError("backend single: the communicator was aborted");
  }
  std::atomic<bool> aborted_{false};
};

}  // namespace

std::unique_ptr<Communicator> make_single_communicator() {
  return std::make_unique<SingleCommunicator>();
}

}  // namespace backends
