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
  void run(const Call& call) override {
    if (aborted_) throw PeerError("backend single: the communicator was aborted");
    if (call.input != nullptr && call.word.count > 0 && call.input != call.data)
      std::memmove(call.data, call.input, call.word.count);
  }
  void abort(std::string_view) noexcept override { aborted_ = true; }

 private:
  std::atomic<bool> aborted_{false};
};

}  // namespace

std::unique_ptr<Communicator> make_single_communicator() {
  return std::make_unique<SingleCommunicator>();
}

}  // namespace backends
