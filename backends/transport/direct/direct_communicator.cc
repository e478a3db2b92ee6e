// Implements collectives over links.
#include "backends/transport/direct/direct_communicator.h"

#include "backends/transport/direct/direct_exchange.h"

namespace backends {
namespace {

class DirectCommunicator final : public Communicator {
 public:
  DirectCommunicator(const char* name, const BackendContext& context, std::shared_ptr<Links> links)
      : name_(name),
        rank_(context.rank),
        size_(context.world_size),
        watch_(context.watch),
        links_(std::move(links)),
        exchange_(*links_, rank_, context.members, {size_, context.sum_weights}) {}
  ~DirectCommunicator() override { watch_.retain_until_group_ends(std::move(links_)); }

  std::string_view name() const override { return name_; }
  int rank() const override { return rank_; }
  int world_size() const override { return size_; }

  void run(const Call& call) override { exchange_.run(call); }
  void abort(std::string_view reason) noexcept override { links_->abort(reason); }
  CallWait current_wait() const override { return links_->current_wait(); }

 private:
  const char* const name_;
  const int rank_, size_;
  FailureDetector& watch_;
  std::shared_ptr<Links> links_;
  DirectExchange exchange_;
};

}  // namespace

std::unique_ptr<Communicator> make_direct_communicator(const char* name,
                                                       const BackendContext& context,
                                                       std::shared_ptr<Links> links) {
  return std::make_unique<DirectCommunicator>(name, context, std::move(links));
}

}  // namespace backends
