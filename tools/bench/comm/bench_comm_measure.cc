// Implements the measuring loop of `engine bench comm`.
#include <algorithm>
#include <chrono>
#include <memory>

#include "io/base/numbers/part_bounds.h"
#include "io/base/time/deadline.h"
#include "tools/bench/comm/bench_comm.h"
#include "tools/bench/comm/bench_comm_device.h"
#include "tools/bench/comm/bench_comm_pattern.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBlocks = 5, kFewestInBlock = 4;  // numbers of blocks, and of iterations in a block
// The time that a lane runs unmeasured after another one: until the scheduler has moved the ranks
// to separate cores, so that waits spin. A number of calls would be too short at 8 bytes, where 40
// calls take 20 us.
constexpr double kWarmUpSeconds = 5e-3;
constexpr int kMinWarmedUpIterations = 20;  // with fewer, only means over all are useful

// The communicators of one backend. If they take device memory, `device_all` and `device_pair`
// refer to the same ones.
struct Lane {
  std::unique_ptr<backends::Communicator> all;
  // With the partner of sendrecv; empty for an idle rank.
  std::unique_ptr<backends::Communicator> pair;
  backends::DeviceCommunicator *device_all = nullptr, *device_pair = nullptr;
  std::unique_ptr<engine::cuda::Stream> stream;  // for a lane on a device
  std::vector<double> times;
  double wrong = 0;
};

// One operation of one size: its buffers, its call, and the check of its result.
class Job {
 public:
  // on_device: true if some lane has its buffers in device memory.
  Job(CommOp op, std::int64_t bytes, const CommBench& bench, int rank, int ranks, bool on_device)
      : op_(op),
        type_(bench.type),
        element_(base::size_of(bench.type)),
        rank_(rank),
        ranks_(ranks),
        all_(bench.check_all),
        pattern_(bench.type, ranks) {
    count_ = std::max<std::size_t>(1, static_cast<std::size_t>(bytes) / element_);
    const bool in_parts = op == CommOp::kAllGather || op == CommOp::kAllToAll;
    if (in_parts) count_ = std::max<std::size_t>(1, count_ / n()) * n();
    if (op == CommOp::kBarrier) count_ = 0;
    part_ = in_parts ? count_ / n() : count_;
    data_.resize(op == CommOp::kSendRecv ? 2 * count_ * element_ : count_ * element_);
    if (op == CommOp::kAllGather || op == CommOp::kSendRecv) input_.resize(part_ * element_);
    if (op == CommOp::kAllToAll) input_.resize(count_ * element_);
    if (on_device) {
      device_data_ = std::make_unique<DeviceMirror>(data_);
      device_input_ = std::make_unique<DeviceMirror>(input_);
    }
  }

  std::size_t count() const { return count_; }

  void prepare(std::size_t round) {
    if (!input_.empty()) {
      pattern_.fill(input_.data(), input_.size() / element_, rank_, round, false);
    } else {
      pattern_.fill(data_.data(), count_, rank_, round, op_ != CommOp::kBroadcast);
    }
  }

  // Copies the input to the buffers of a lane on a device; this is not timed.
  void upload(const Lane& lane) {
    if (!lane.stream) return;
    device_data_->upload(*lane.stream);
    device_input_->upload(*lane.stream);
  }
  void download(const Lane& lane) {
    if (lane.stream) device_data_->download(*lane.stream);
  }

  void call(Lane& lane) {
    if (lane.stream) return call_on_device(lane);
    switch (op_) {
      case CommOp::kAllReduce:
        return lane.all->all_reduce(data_.data(), count_, type_, backends::ReduceOp::kSum);
      case CommOp::kBroadcast:
        return lane.all->broadcast(data_.data(), data_.size(), 0);
      case CommOp::kAllGather:
        return lane.all->all_gather(input_.data(), input_.size(), data_.data());
      case CommOp::kReduceScatter:
        return lane.all->reduce_scatter(data_.data(), count_, type_, backends::ReduceOp::kSum);
      case CommOp::kAllToAll:
        return lane.all->all_to_all(input_.data(), part_ * element_, data_.data());
      case CommOp::kBarrier:
        return lane.all->barrier();
      case CommOp::kSendRecv:
        if (lane.pair) lane.pair->all_gather(input_.data(), input_.size(), data_.data());
    }
  }

  bool right(std::size_t round) const {
    switch (op_) {
      case CommOp::kAllReduce:
        return pattern_.matches(data_.data(), 0, count_, CommPattern::kSum, round, all_);
      case CommOp::kBroadcast:
        return pattern_.matches(data_.data(), 0, count_, 0, round, all_);
      case CommOp::kAllGather:
        return parts_match(0, ranks_, round);
      case CommOp::kReduceScatter: {
        const std::size_t begin = static_cast<std::size_t>(rank_) * count_ / n(),
                          end = (static_cast<std::size_t>(rank_) + 1) * count_ / n();
        return pattern_.matches(&data_[begin * element_], begin, end - begin, CommPattern::kSum,
                                round, all_);
      }
      case CommOp::kAllToAll: {
        const std::size_t own = static_cast<std::size_t>(rank_) * part_;
        for (int r = 0; r < ranks_; ++r)
          if (!pattern_.matches(&data_[static_cast<std::size_t>(r) * part_ * element_], own, part_,
                                r, round, all_))
            return false;
        return true;
      }
      case CommOp::kBarrier:
        return true;
      case CommOp::kSendRecv:
        return (rank_ | 1) >= ranks_ || parts_match(rank_ & ~1, 2, round);
    }
    return false;
  }

 private:
  // Enqueues the call on the stream and waits for it, as nccl-tests does.
  void call_on_device(Lane& lane) {
    void *const stream = lane.stream->handle(), *const data = device_data_->get(),
                *const input = device_input_->get();
    switch (op_) {
      case CommOp::kAllReduce:
        lane.device_all->all_reduce_on(stream, data, count_, type_, backends::ReduceOp::kSum);
        break;
      case CommOp::kBroadcast:
        lane.device_all->broadcast_on(stream, data, data_.size(), 0);
        break;
      case CommOp::kAllGather:
        lane.device_all->all_gather_on(stream, input, input_.size(), data);
        break;
      case CommOp::kReduceScatter:
        lane.device_all->reduce_scatter_on(stream, data, count_, type_, backends::ReduceOp::kSum);
        break;
      case CommOp::kAllToAll:
        lane.device_all->all_to_all_on(stream, input, part_ * element_, data);
        break;
      case CommOp::kBarrier:
        return lane.all->barrier();
      case CommOp::kSendRecv:
        if (lane.device_pair == nullptr) return;
        lane.device_pair->all_gather_on(stream, input, input_.size(), data);
        return lane.device_pair->wait(stream);
    }
    lane.device_all->wait(stream);
  }

  std::size_t n() const { return static_cast<std::size_t>(ranks_); }
  bool parts_match(int first_rank, int parts, std::size_t round) const {
    for (int p = 0; p < parts; ++p)
      if (!pattern_.matches(&data_[static_cast<std::size_t>(p) * part_ * element_], 0, part_,
                            first_rank + p, round, all_))
        return false;
    return true;
  }

  const CommOp op_;
  const base::DType type_;
  const std::size_t element_;
  const int rank_, ranks_;
  const bool all_;
  const CommPattern pattern_;
  std::size_t count_ = 0, part_ = 0;
  std::vector<std::byte> data_, input_;
  std::unique_ptr<DeviceMirror> device_data_, device_input_;
};

void run_once(Job& job, Lane& lane, std::size_t round) {
  job.prepare(round);
  job.upload(lane);
  lane.all->barrier();
  const auto start = Clock::now();
  job.call(lane);
  lane.times.push_back(base::seconds_since(start));
  job.download(lane);
  if (!job.right(round)) lane.wrong += 1;
}

// Makes unmeasured calls until rank 0's clock shows that they have taken kWarmUpSeconds.
void warm_up(Job& job, Lane& lane, backends::Communicator& control, std::size_t& round) {
  const auto start = Clock::now();
  for (int calls = 1, done = 0; done == 0; calls *= 2) {
    for (int i = 0; i < calls; ++i) run_once(job, lane, round++);
    done = base::seconds_since(start) >= kWarmUpSeconds ? 1 : 0;
    control.broadcast(&done, sizeof done, 0);
  }
}

// Rank 0's clock decides for all ranks how many iterations fit.
int agreed_iterations(backends::Communicator& control, const CommBench& bench, double round_seconds,
                      std::size_t lanes) {
  const double budget = bench.seconds * static_cast<double>(lanes);
  double fit = std::clamp(budget / std::max(round_seconds, 1e-9), 3.0, 1e9);
  control.broadcast(&fit, sizeof fit, 0);
  return static_cast<int>(std::min<double>(bench.iterations, fit));
}

// Interleaves the backends in blocks: a backend that follows another finds its threads on other
// cores, so each block begins with iterations that are not counted.
void run_lanes(Job& job, std::vector<Lane>& lanes, int iterations, backends::Communicator& control,
               std::size_t& round) {
  const int blocks = std::clamp(iterations / kFewestInBlock, 1, kBlocks);
  for (int b = 0; b < blocks; ++b) {
    const int counted = base::part_bounds(iterations, b, blocks).size();
    const bool switched = lanes.size() > 1;
    const int uncounted = switched && iterations > 1 ? std::max(2, counted / 4) : 0;
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      // A different one first each time.
      Lane& lane = lanes[(l + static_cast<std::size_t>(b)) % lanes.size()];
      const std::size_t before = lane.times.size();
      if (switched && iterations >= kMinWarmedUpIterations) warm_up(job, lane, control, round);
      for (int i = 0; i < uncounted; ++i) run_once(job, lane, round++);
      lane.times.resize(before);
      for (int i = 0; i < counted; ++i) run_once(job, lane, round++);
    }
  }
}

CommRow finish(Lane& lane, CommOp op, CommRow row, backends::Communicator& control) {
  const auto ranks = static_cast<std::size_t>(control.world_size());
  std::vector<double> own = lane.times;
  own.push_back(lane.wrong);
  std::vector<double> all(own.size() * ranks);
  control.all_gather(own.data(), own.size() * sizeof(double), all.data());
  std::vector<std::vector<double>> times;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(r * own.size());
    times.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(own.size() - 1));
    row.wrong += static_cast<int>(all[(r + 1) * own.size() - 1]);
  }
  row.backend = lane.all->name();
  row.iterations = static_cast<int>(lane.times.size());
  return summarize(std::move(row), op, times);
}

// Returns false, and prints why, if these machines cannot run the backend.
bool fill_device_lane(Lane& lane, const std::string& backend, const std::vector<int>& pair,
                      backends::Group& group, backends::Communicator& control) {
  std::string why;
  auto all = make_device_lane(group, control, backend, {}, why);
  if (!all) {
    if (group.rank() == 0) print_notice("backend " + backend + " is skipped: " + why);
    return false;
  }
  lane.device_all = all.get();
  lane.all = std::move(all);
  if (!pair.empty()) {
    auto of_pair = group.make_device_communicator({.backend = backend, .members = pair});
    lane.device_pair = of_pair.get();
    lane.pair = std::move(of_pair);
  }
  lane.stream = std::make_unique<engine::cuda::Stream>();
  return true;
}

std::vector<Lane> make_lanes(const CommBench& bench, backends::Group& group,
                             backends::Communicator& control) {
  const bool pairs =
      std::find(bench.ops.begin(), bench.ops.end(), CommOp::kSendRecv) != bench.ops.end();
  const int partner = group.rank() ^ 1;
  std::vector<int> pair;
  if (pairs && partner < group.world_size())
    pair = {std::min(group.rank(), partner), std::max(group.rank(), partner)};
  std::vector<Lane> lanes;
  for (const std::string& backend : bench.backends) {
    Lane lane;
    if (is_device_backend(backend)) {
      if (!fill_device_lane(lane, backend, pair, group, control)) continue;
    } else {
      lane.all = group.make_communicator({.backend = backend});
      if (!pair.empty()) lane.pair = group.make_communicator({.backend = backend, .members = pair});
    }
    lanes.push_back(std::move(lane));
  }
  return lanes;
}

}  // namespace

std::vector<CommRow> measure_collectives(const CommBench& bench, backends::Group& group) {
  const auto control =
      group.make_communicator({.backend = group.backend() == "nccl" ? "auto" : ""});  // on the host
  std::vector<Lane> lanes = make_lanes(bench, group, *control);
  std::vector<CommRow> rows;
  if (lanes.empty()) return rows;
  const bool on_device = std::any_of(lanes.begin(), lanes.end(),
                                     [](const Lane& lane) { return lane.stream != nullptr; });
  for (const CommOp op : bench.ops) {
    const std::vector<std::int64_t> sizes =
        op == CommOp::kBarrier ? std::vector<std::int64_t>{0} : bench.sizes;
    for (const std::int64_t bytes : sizes) {
      group.set_activity("bench comm " + to_string(op) + " of " + bytes_text(bytes));
      Job job(op, bytes, bench, group.rank(), group.world_size(), on_device);
      std::size_t round = 0;
      // The first iteration pays for buffers and connections; the second predicts the time of the
      // others.
      run_lanes(job, lanes, 1, *control, round);
      const auto start = Clock::now();
      run_lanes(job, lanes, 1, *control, round);
      const int iterations =
          agreed_iterations(*control, bench, base::seconds_since(start), lanes.size());
      run_lanes(job, lanes, std::clamp(bench.warmup - 2, 0, iterations), *control, round);
      for (Lane& lane : lanes) lane.times.clear();
      run_lanes(job, lanes, iterations, *control, round);
      CommRow row;
      row.op = to_string(op);
      row.dtype = op == CommOp::kBarrier ? "-" : std::string(base::to_string(bench.type));
      row.ranks = group.world_size();
      row.count = static_cast<std::int64_t>(job.count());
      row.bytes = row.count * static_cast<std::int64_t>(base::size_of(bench.type));
      for (Lane& lane : lanes) {
        rows.push_back(finish(lane, op, row, *control));
        lane.times.clear();
        lane.wrong = 0;
      }
    }
  }
  return rows;
}

}  // namespace tools
