// Implements the pipeline through pinned buffers.
//
// Device memory is divided into pieces that use two buffers alternately: while the host backend
// reduces one piece, the previous result is copied back and the next piece is copied from the
// device. Only copies from and to pinned (page-locked) memory run asynchronously to the host.
#include "backends/compose/staged/staged_communicator.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "backends/device_calls.h"
#include "backends/interruptible_wait.h"
#include "io/base/numbers/part_bounds.h"

namespace backends {
namespace {

namespace cuda = base::cuda;

class StagedCommunicator final : public DeviceCommunicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, const StagedOptions& options)
      : host_(std::move(host)),
        name_("staged:" + std::string(host_->name())),
        size_(static_cast<std::size_t>(host_->world_size())),
        piece_(std::max(options.piece_bytes, 16 * size_) / 16 * 16),
        members_(options.members),
        words_(size_),
        progress_(options.timeout),
        device_(cuda::current_device()),
        buffers_{Buffer(size_ > 1 ? 2 * piece_ : 16), Buffer(size_ > 1 ? 2 * piece_ : 16)} {
    for (int r = static_cast<int>(members_.size()); r < world_size(); ++r) members_.push_back(r);
  }
  ~StagedCommunicator() override {
    for (void* memory : allocated_) cuda::release(memory);
  }

  std::string_view name() const override { return name_; }
  int rank() const override { return host_->rank(); }
  int world_size() const override { return host_->world_size(); }

  void run(const Call& call) override {
    if (call.word.operation == Operation::kBarrier) return host_->barrier();
    run_on(stream_.handle(), call);
    wait(stream_.handle());
  }

  void run_on(void* stream, const Call& call) override {
    if (size_ == 1) return run_alone(stream, call);
    if (!begin(stream, call)) return;
    auto* data = static_cast<std::byte*>(call.data);
    switch (call.word.operation) {
      case Operation::kAllReduce:
        return reduce(stream, data, call.word);
      case Operation::kBroadcast:
        return broadcast_from(call.word.root, stream, data, call.word.count);
      case Operation::kAllGather:
        return gather(stream, call.input, data, call.word.count);
      case Operation::kAllToAll:
        return exchange_parts(stream, call.input, data, call.word.count);
      case Operation::kReduceScatter:
        return scatter(stream, data, call.word);
      case Operation::kBarrier:
      case Operation::kRegister:
        break;
    }
  }

  bool capturable() const override { return size_ == 1; }

  void agree(std::span<const ControlWord> plan) override {
    std::vector<std::uint64_t> lengths(size_);
    const std::uint64_t own = plan.size();
    host_->all_gather(&own, sizeof own, lengths.data());
    const std::size_t longest = *std::ranges::max_element(lengths);
    std::vector<ControlWord> mine(plan.begin(), plan.end()), all(longest * size_);
    mine.resize(longest);
    host_->all_gather(mine.data(), longest * sizeof(ControlWord), all.data());
    const auto plan_of = [&](std::size_t r) {
      return std::span<const ControlWord>(all).subspan(r * longest,
                                                       static_cast<std::size_t>(lengths[r]));
    };
    // Every rank compares all plans with the first, so that all ranks report the same difference.
    for (std::size_t r = 1; r < size_; ++r)
      expect_equal_plans(plan_of(0), members_[0], plan_of(r), members_[r]);
  }

  std::string first_failure(const std::string& own) override {
    std::vector<std::uint64_t> lengths(size_);
    const std::uint64_t length = own.size();
    host_->all_gather(&length, sizeof length, lengths.data());
    const auto first = static_cast<std::size_t>(
        std::ranges::find_if(lengths, [](std::uint64_t n) { return n > 0; }) - lengths.begin());
    if (first == size_) return "";
    std::string text = own;
    text.resize(lengths[first]);
    host_->broadcast(text.data(), text.size(), static_cast<int>(first));
    return "rank " + std::to_string(members_[first]) + ": " + text;
  }

  void check() override { progress_.throw_if_aborted(); }

  void wait(void* stream) override {
    progress_.until([] { return std::string("a wait for the device"); },
                    [&] { return cuda::is_idle(stream); });
  }

  void register_memory(void*, std::size_t bytes) override {
    const ControlWord word = transfer_word(Operation::kRegister, ++registrations_, bytes);
    agree({&word, 1});
  }
  void deregister_memory(void*) noexcept override {}
  void* allocate(std::size_t bytes) override {
    void* memory = cuda::allocate(bytes);
    allocated_.insert(memory);
    return memory;
  }
  void release(void* memory) noexcept override {
    if (allocated_.erase(memory) > 0) cuda::release(memory);
  }

  void abort(std::string_view reason) noexcept override {
    progress_.abort(reason);
    host_->abort(reason);
  }

 private:
  struct Buffer {
    explicit Buffer(std::size_t bytes) : memory(bytes) {}
    std::byte* data() const { return memory.data(); }
    cuda::PinnedMemory memory;
    cuda::Event filled, emptied;  // its piece was copied from the device; was copied back
  };

  void run_alone(void* stream, const Call& call) {
    if (call.input == nullptr) return progress_.throw_if_aborted();
    if (call.word.count > 0 && call.input != call.data)
      cuda::copy_async(call.data, call.input, call.word.count, stream);
  }

  // Returns true if there is data to move. All ranks compare the call first: a comparison per piece
  // would detect a difference late.
  bool begin(void* stream, const Call& call) {
    progress_.throw_if_aborted();
    if (cuda::is_capturing(stream))
      throw ConfigurationError(
          "backend " + name_ +
          " passes through host memory: its calls cannot be captured into a graph");
    const ControlWord& word = call.word;
    host_->all_gather(&word, sizeof word, words_.data());
    for (std::size_t r = 0; r < size_; ++r)
      expect_equal(word, members_[static_cast<std::size_t>(rank())], words_[r], members_[r]);
    if (word.count > 0) require_device_memory(call.data, device_, name_);
    return word.count > 0;
  }

  void reduce(void* stream, std::byte* bytes, const ControlWord& word) {
    const std::size_t count = word.count;
    const DType type = word.type();
    const ReduceOp op = word.op();
    const std::size_t element = size_of(type), most = piece_ / element;
    const auto at = [&](std::size_t k) { return k * most; };
    const auto part = [&](std::size_t k) { return std::min(most, count - at(k)); };
    pipeline(
        stream, (count + most - 1) / most,
        [&](std::size_t k, const Buffer& b) {
          cuda::copy_async(b.data(), bytes + at(k) * element, part(k) * element, out_.handle());
        },
        [&](std::size_t k, const Buffer& b) { host_->all_reduce(b.data(), part(k), type, op); },
        [&](std::size_t k, const Buffer& b) {
          cuda::copy_async(bytes + at(k) * element, b.data(), part(k) * element, in_.handle());
        });
  }

  void broadcast_from(int root, void* stream, std::byte* bytes, std::size_t count) {
    const bool is_root = root == rank();
    const auto part = [&](std::size_t k) { return std::min(piece_, count - k * piece_); };
    pipeline(
        stream, (count + piece_ - 1) / piece_,
        [&](std::size_t k, const Buffer& b) {
          if (is_root) cuda::copy_async(b.data(), bytes + k * piece_, part(k), out_.handle());
        },
        [&](std::size_t k, const Buffer& b) { host_->broadcast(b.data(), part(k), root); },
        [&](std::size_t k, const Buffer& b) {
          if (!is_root) cuda::copy_async(bytes + k * piece_, b.data(), part(k), in_.handle());
        });
  }

  // The own part in the buffer's first half, all parts in the second.
  void gather(void* stream, const void* input, std::byte* to, std::size_t count) {
    require_device_memory(input, device_, name_);
    const auto* from = static_cast<const std::byte*>(input);
    collect_parts(
        stream, to, count,
        [&](std::size_t at, std::size_t part, const Buffer& b) {
          cuda::copy_async(b.data(), from + at, part, out_.handle());
        },
        [&](std::size_t part, const Buffer& b) {
          host_->all_gather(b.data(), part, b.data() + piece_);
        });
  }

  // The parts for all ranks in the buffer's first half, those of all ranks in the second.
  void exchange_parts(void* stream, const void* input, std::byte* to, std::size_t count) {
    require_device_memory(input, device_, name_);
    const auto* from = static_cast<const std::byte*>(input);
    collect_parts(
        stream, to, count,
        [&](std::size_t at, std::size_t part, const Buffer& b) {
          for (std::size_t r = 0; r < size_; ++r)
            cuda::copy_async(b.data() + r * part, from + r * count + at, part, out_.handle());
        },
        [&](std::size_t part, const Buffer& b) {
          host_->all_to_all(b.data(), part, b.data() + piece_);
        });
  }

  // For each part of `count` bytes: `copy_out` fills a buffer, `call` leaves the parts of all ranks
  // in its second half, and these are copied to `to`, `count` bytes apart.
  template <class CopyOut, class HostCall>
  void collect_parts(void* stream, std::byte* to, std::size_t count, const CopyOut& copy_out,
                     const HostCall& call) {
    const std::size_t most = piece_ / size_;
    const auto part = [&](std::size_t k) { return std::min(most, count - k * most); };
    pipeline(
        stream, (count + most - 1) / most,
        [&](std::size_t k, const Buffer& b) { copy_out(k * most, part(k), b); },
        [&](std::size_t k, const Buffer& b) { call(part(k), b); },
        [&](std::size_t k, const Buffer& b) {
          for (std::size_t r = 0; r < size_; ++r)
            cuda::copy_async(to + r * count + k * most, b.data() + piece_ + r * part(k), part(k),
                             in_.handle());
        });
  }

  // A piece has one part of every rank's share, each as long as the part of the longest share, so
  // that the host's reduce-scatter of the piece yields those parts.
  void scatter(void* stream, std::byte* bytes, const ControlWord& word) {
    const std::size_t count = word.count;
    const DType type = word.type();
    const ReduceOp op = word.op();
    const std::size_t element = size_of(type), most = piece_ / element / size_,
                      longest = (count + size_ - 1) / size_;
    const auto share = [&](std::size_t r) { return base::part_begin(count, r, size_); };
    const auto width = [&](std::size_t k) {
      return std::min(most, longest - k * most);
    };  // the length of each rank's part in the piece
    // Returns the number of elements of rank r's share that lie in piece k.
    const auto part = [&](std::size_t k, std::size_t r) {
      const std::size_t length = share(r + 1) - share(r);
      return length > k * most ? std::min(width(k), length - k * most) : 0;
    };
    const auto own = static_cast<std::size_t>(rank());
    pipeline(
        stream, (longest + most - 1) / most,
        [&](std::size_t k, const Buffer& b) {
          for (std::size_t r = 0; r < size_; ++r)
            cuda::copy_async(b.data() + r * width(k) * element,
                             bytes + (share(r) + k * most) * element, part(k, r) * element,
                             out_.handle());
        },
        [&](std::size_t k, const Buffer& b) {
          host_->reduce_scatter(b.data(), size_ * width(k), type, op);
        },
        [&](std::size_t k, const Buffer& b) {
          cuda::copy_async(bytes + (share(own) + k * most) * element,
                           b.data() + own * width(k) * element, part(k, own) * element,
                           in_.handle());
        });
  }

  template <typename CopyOut, typename Exchange, typename CopyIn>
  void pipeline(void* stream, std::size_t pieces, const CopyOut& copy_out, const Exchange& exchange,
                const CopyIn& copy_in) {
    fence_.record(stream);  // after the kernels that write the data
    fence_.make_wait(out_.handle());
    fence_.make_wait(in_.handle());
    const auto fetch = [&](std::size_t k) {
      Buffer& b = buffers_[k % 2];
      b.emptied.make_wait(out_.handle());
      copy_out(k, b);
      b.filled.record(out_.handle());
    };
    fetch(0);
    for (std::size_t k = 0; k < pieces; ++k) {
      if (k + 1 < pieces) fetch(k + 1);
      Buffer& b = buffers_[k % 2];
      progress_.until([] { return std::string("a copy from the device"); },
                      [&] { return b.filled.done(); });
      exchange(k, b);
      copy_in(k, b);
      b.emptied.record(in_.handle());
    }
    fence_.record(in_.handle());
    fence_.make_wait(stream);
  }

  std::unique_ptr<Communicator> host_;
  const std::string name_;
  const std::size_t size_, piece_;
  std::vector<int> members_;
  std::vector<ControlWord> words_;  // of all ranks in begin()
  InterruptibleWait progress_;
  int device_;
  cuda::Stream stream_, out_, in_;  // stream_ for the blocking calls, the others for the copies
  cuda::Event fence_;
  Buffer buffers_[2];
  std::uint32_t registrations_ = 0;
  std::set<void*> allocated_;
};

}  // namespace

std::unique_ptr<DeviceCommunicator> make_staged_communicator(std::unique_ptr<Communicator> host,
                                                             const StagedOptions& options) {
  return with_peer_errors(
      [&] { return std::make_unique<StagedCommunicator>(std::move(host), options); });
}

}  // namespace backends
