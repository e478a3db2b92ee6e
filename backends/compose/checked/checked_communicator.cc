// Implements the communicator that compares two backends.
#include "backends/compose/checked/checked_communicator.h"

#include <algorithm>
#include <vector>

#include "backends/backend_error.h"
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

  void run(const Call& call) override {
    const Memory memory = memory_of(call.word);
    const auto* from = static_cast<const char*>(call.data);
    if (memory.is_input) {
      copy_.assign(from, from + memory.bytes);
    } else {
      copy_.resize(memory.bytes);
    }
    first_->run(call);
    second_->run({call.word, copy_.data(), call.input});
    compare(from, memory.result, call.word);
  }
  CallWait current_wait() const override {
    CallWait first = first_->current_wait();
    return first.text.empty() ? second_->current_wait() : first;
  }
  void abort(std::string_view reason) noexcept override {
    first_->abort(reason);
    second_->abort(reason);
  }

 private:
  // The use that a call makes of the memory at `data`.
  struct Memory {
    std::size_t bytes = 0;
    ElementRange result{};  // of bytes that the call defines on this rank
    bool is_input = true;
  };

  Memory memory_of(const ControlWord& word) const {
    switch (word.operation) {
      case Operation::kAllReduce: {
        const std::size_t bytes = word.count * size_of(word.type());
        return {bytes, {0, bytes}};
      }
      case Operation::kReduceScatter: {
        const std::size_t width = size_of(word.type());
        const ElementRange own = slice_of(word.count, rank(), world_size());
        return {word.count * width, {own.begin * width, own.end * width}};
      }
      case Operation::kBroadcast:
        return {word.count, {0, word.count}};
      case Operation::kAllGather:
      case Operation::kAllToAll: {
        const std::size_t bytes = word.count * static_cast<std::size_t>(world_size());
        return {bytes, {0, bytes}, false};
      }
      case Operation::kBarrier:
      case Operation::kRegister:
        break;
    }
    return {};
  }

  void compare(const char* data, const ElementRange& result, const ControlWord& call) const {
    const char *begin = data + result.begin, *end = data + result.end;
    const auto different = std::mismatch(begin, end, copy_.data() + result.begin).first;
    if (different == end) return;
    throw MismatchError("backends " + std::string(first_->name()) + " and " +
                        std::string(second_->name()) + " disagree on " + to_string(call) +
                        ": first at byte " + std::to_string(different - begin) + " of " +
                        std::to_string(result.count()));
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
