// Implements the two-stage communicator.
//
// Ranks of one host share memory; the network between hosts is much slower. So a large reduction
// starts with a reduce-scatter within each host, which leaves every rank one slice of the host's
// sum. Rank i of each host then reduces its slice with rank i of the other hosts, all at the same
// time, and an all-gather within the host completes the result. Each byte leaves a host about once,
// regardless of the number of its ranks, and all of its ranks share the work of sending. One rank
// per host handles small calls, which depend on latency and not on bandwidth, and hosts with
// unequal numbers of ranks.
#include "backends/compose/hierarchical/hierarchical_communicator.h"

#include <algorithm>
#include <cstring>

#include "backends/reduction.h"

namespace backends {
namespace {

// From this size on, every rank sends its slice to other hosts.
constexpr std::size_t kRailBytes = 64 << 10;

class HierarchicalCommunicator final : public Communicator {
 public:
  HierarchicalCommunicator(std::string name, HostLayout layout,
                           std::unique_ptr<Communicator> within,
                           std::unique_ptr<Communicator> across)
      : name_(std::move(name)),
        layout_(std::move(layout)),
        within_(std::move(within)),
        across_(std::move(across)) {
    for (const auto& ranks : layout_.hosts) max_local_ = std::max(max_local_, ranks.size());
    for (const auto& ranks : layout_.hosts) world_size_ += static_cast<int>(ranks.size());
  }

  std::string_view name() const override { return name_; }
  int rank() const override {
    return layout_.local_ranks()[static_cast<std::size_t>(layout_.place)];
  }
  int world_size() const override { return world_size_; }

  void run(const Call& call) override {
    switch (call.word.operation) {
      case Operation::kAllReduce:
      case Operation::kReduceScatter:
        return reduce(call);
      case Operation::kBroadcast:
        return broadcast_by_hosts(call);
      case Operation::kAllGather:
        return gather_by_hosts(call);
      case Operation::kAllToAll:
        return exchange_by_hosts(call);
      case Operation::kBarrier:
      case Operation::kRegister:
        return wait_for_hosts(call);
    }
  }

  CallWait current_wait() const override {
    CallWait within = within_->current_wait();
    return !within.text.empty() || !across_ ? within : across_->current_wait();
  }
  void abort(std::string_view reason) noexcept override {
    within_->abort(reason);
    if (across_) across_->abort(reason);
  }

 private:
  bool is_leader() const { return layout_.place == 0; }

  void reduce(const Call& call) {
    const std::size_t count = call.word.count;
    const DType type = call.word.type();
    if (layout_.even && count * size_of(type) >= kRailBytes) {
      by_rails(call);
    } else {
      ControlWord word = call.word;  // with its purpose
      word.operation = Operation::kAllReduce;
      within_->run({word, call.data});
      if (is_leader()) across_->run({word, call.data});
      within_->broadcast(call.data, count * size_of(type), 0);
    }
  }

  void by_rails(const Call& call) {
    char* const data = static_cast<char*>(call.data);
    const std::size_t count = call.word.count;
    const DType type = call.word.type();
    const int local = static_cast<int>(layout_.local_ranks().size());
    const std::size_t width = size_of(type);
    ControlWord word = call.word;  // with its purpose
    word.operation = Operation::kReduceScatter;
    within_->run({word, data});
    const ElementRange own = slice_of(count, layout_.place, local);
    word.operation = Operation::kAllReduce;
    word.count = own.count();
    across_->run({word, data + own.begin * width});
    for (int place = 0; place < local; ++place) {
      const ElementRange slice = slice_of(count, place, local);
      within_->broadcast(data + slice.begin * width, slice.count() * width, place);
    }
  }

  void broadcast_by_hosts(const Call& call) {
    const int root = call.word.root;
    int root_host = 0, root_place = 0;
    for (std::size_t h = 0; h < layout_.hosts.size(); ++h) {
      const auto& ranks = layout_.hosts[h];
      const auto found = std::ranges::find(ranks, root);
      if (found == ranks.end()) continue;
      root_host = static_cast<int>(h);
      root_place = static_cast<int>(found - ranks.begin());
    }
    const auto part = [&](Communicator& communicator, int from) {
      ControlWord word = call.word;  // with its purpose
      word.root = static_cast<std::uint16_t>(from);
      communicator.run({word, call.data});
    };
    if (layout_.host == root_host) part(*within_, root_place);
    if (is_leader()) part(*across_, root_host);
    if (layout_.host != root_host) part(*within_, 0);
  }

  // Every host's part is padded to the size of the largest host's part.
  void gather_by_hosts(const Call& call) {
    const std::size_t bytes = call.word.count;
    void* const output = call.data;
    if (bytes == 0) return wait_for_hosts(call);
    host_part_.resize(max_local_ * bytes);
    all_parts_.resize(host_part_.size() * layout_.hosts.size());
    within_->run({call.word, host_part_.data(), call.input});
    if (is_leader()) {
      ControlWord word = call.word;  // with its purpose
      word.count = host_part_.size();
      across_->run({word, all_parts_.data(), host_part_.data()});
    }
    within_->broadcast(all_parts_.data(), all_parts_.size(), 0);
    for (std::size_t h = 0; h < layout_.hosts.size(); ++h) {
      for (std::size_t p = 0; p < layout_.hosts[h].size(); ++p)
        std::memcpy(
            static_cast<char*>(output) + static_cast<std::size_t>(layout_.hosts[h][p]) * bytes,
            all_parts_.data() + h * host_part_.size() + p * bytes, bytes);
    }
  }

  // The leader gets what the ranks of its host send, and exchanges the parts of hosts with the
  // other leaders: one block for each pair of places, padded to the size of the largest host. Each
  // rank then takes its own blocks of what has arrived.
  void exchange_by_hosts(const Call& call) {
    const std::size_t bytes = call.word.count;
    if (bytes == 0) return wait_for_hosts(call);
    const auto all = static_cast<std::size_t>(world_size_), local = layout_.local_ranks().size();
    const std::size_t part = max_local_ * max_local_ * bytes;
    const auto block = [&](std::size_t host, std::size_t from, std::size_t to) {
      return host * part + (from * max_local_ + to) * bytes;
    };
    host_part_.resize(local * all * bytes);
    host_parts_.resize(is_leader() ? part * layout_.hosts.size() : 0);
    all_parts_.resize(part * layout_.hosts.size());
    ControlWord word = call.word;  // with its purpose
    word.operation = Operation::kAllGather;
    word.count = all * bytes;
    within_->run({word, host_part_.data(), call.input});
    for (std::size_t h = 0; h < layout_.hosts.size() && is_leader(); ++h) {
      for (std::size_t from = 0; from < local; ++from) {
        for (std::size_t to = 0; to < layout_.hosts[h].size(); ++to)
          std::memcpy(host_parts_.data() + block(h, from, to),
                      host_part_.data() +
                          (from * all + static_cast<std::size_t>(layout_.hosts[h][to])) * bytes,
                      bytes);
      }
    }
    word = call.word;
    word.count = part;
    if (is_leader()) across_->run({word, all_parts_.data(), host_parts_.data()});
    within_->broadcast(all_parts_.data(), all_parts_.size(), 0);
    for (std::size_t h = 0; h < layout_.hosts.size(); ++h) {
      for (std::size_t from = 0; from < layout_.hosts[h].size(); ++from)
        std::memcpy(static_cast<char*>(call.data) +
                        static_cast<std::size_t>(layout_.hosts[h][from]) * bytes,
                    all_parts_.data() + block(h, from, static_cast<std::size_t>(layout_.place)),
                    bytes);
    }
  }

  // For calls without data: all stages compare the call, then no rank leaves before all have come.
  void wait_for_hosts(const Call& call) {
    within_->run(call);
    if (is_leader()) across_->run(call);
    within_->barrier();
  }

  const std::string name_;
  const HostLayout layout_;
  std::unique_ptr<Communicator> within_, across_;
  std::size_t max_local_ = 0;
  int world_size_ = 0;
  std::vector<char> host_part_, host_parts_, all_parts_;  // buffers of all_gather and all_to_all
};

}  // namespace

std::unique_ptr<Communicator> make_hierarchical_communicator(std::string name, HostLayout layout,
                                                             std::unique_ptr<Communicator> within,
                                                             std::unique_ptr<Communicator> across) {
  return std::make_unique<HierarchicalCommunicator>(std::move(name), std::move(layout),
                                                    std::move(within), std::move(across));
}

}  // namespace backends
