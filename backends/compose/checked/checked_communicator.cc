// Implements the communicator that compares two backends.
#include "backends/compose/checked/checked_communicator.h"

#include <algorithm>
#include <vector>

#include "backends/backend_error.h"
#include "backends/control_word.h"
#include "backends/reduction.h"

namespace backends {
namespace {

class CheckedCommunicator final : public Communicator {
 public:
  CheckedCommunicator(std::string name, std::unique_ptr<Communicator> first,
                      std::unique_ptr<Communicator> second)
      : name_(std::move(name)), first_(std::move(first)), second_(std::move(second)) {}

  std::string_view name() const override { return name_; }
  int rank() const override { return first_->rank(); }
  int world_size() const override { return first_->world_size(); }

  void all_reduce(void* data, std::size_t count, DType type, ReduceOp op) override {
    const std::size_t bytes = count * size_of(type);
    copy(data, bytes);
    first_->all_reduce(data, count, type, op);
    second_->all_reduce(copy_.data(), count, type, op);
    compare(data, copy_.data(), bytes, reduction_word(Operation::kAllReduce, 0, count, type, op));
  }
  void broadcast(void* data, std::size_t bytes, int root) override {
    copy(data, bytes);
    first_->broadcast(data, bytes, root);
    second_->broadcast(copy_.data(), bytes, root);
    compare(data, copy_.data(), bytes, transfer_word(Operation::kBroadcast, 0, bytes, root));
  }
  void all_gather(const void* input, std::size_t bytes, void* output) override {
    copy_.resize(bytes * static_cast<std::size_t>(world_size()));
    first_->all_gather(input, bytes, output);
    second_->all_gather(input, bytes, copy_.data());
    compare(output, copy_.data(), copy_.size(), transfer_word(Operation::kAllGather, 0, bytes));
  }
  void reduce_scatter(void* data, std::size_t count, DType type, ReduceOp op) override {
    copy(data, count * size_of(type));
    first_->reduce_scatter(data, count, type, op);
    second_->reduce_scatter(copy_.data(), count, type, op);
    const ElementRange own = slice_of(count, rank(), world_size());
    const std::size_t begin = own.begin * size_of(type);
    compare(static_cast<char*>(data) + begin, copy_.data() + begin, own.count() * size_of(type),
            reduction_word(Operation::kReduceScatter, 0, count, type, op));
  }
  void barrier() override {
    first_->barrier();
    second_->barrier();
  }
  std::string waiting_text() const override {
    const std::string first = first_->waiting_text();
    return first.empty() ? second_->waiting_text() : first;
  }
  void abort(std::string_view reason) noexcept override {
    first_->abort(reason);
    second_->abort(reason);
  }

 private:
  void copy(const void* data, std::size_t bytes) {
    const auto* from = static_cast<const char*>(data);
    copy_.assign(from, from + bytes);
  }
  void compare(const void* a, const void* b, std::size_t bytes, const ControlWord& call) const {
    const auto *x = static_cast<const char*>(a), *y = static_cast<const char*>(b);
    const auto at = static_cast<std::size_t>(std::mismatch(x, x + bytes, y).first - x);
    if (at == bytes) return;
    throw MismatchError("backends " + std::string(first_->name()) + " and " +
                        std::string(second_->name()) + " disagree on " + to_string(call) +
                        ": first at byte " + std::to_string(at) + " of " + std::to_string(bytes));
  }

  const std::string name_;
  std::unique_ptr<Communicator> first_, second_;
  std::vector<char> copy_;
};

}  // namespace

std::unique_ptr<Communicator> make_checked_communicator(std::string name,
                                                        std::unique_ptr<Communicator> first,
                                                        std::unique_ptr<Communicator> second) {
  return std::make_unique<CheckedCommunicator>(std::move(name), std::move(first),
                                               std::move(second));
}

}  // namespace backends
