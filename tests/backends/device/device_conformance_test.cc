// What each collective on device memory must give, through NCCL and through pinned buffers, for
// ranks that are threads and ranks that are processes. Data are whole numbers, so that every order
// of sums gives the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "backends/backend_error.h"
#include "io/base/numbers/half.h"
#include "tests/backends/device/device_harness.h"
#include "tests/backends/group_harness.h"

namespace {

using namespace device_harness;
using backends::DeviceCommunicator;
using backends::Group;
using backends::ReduceOp;
using base::DType;

constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kI64,
                            DType::kU8,  DType::kF16, DType::kBF16};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};

// Errors of bodies that run in other threads and processes are thrown.
void require(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

double value_of(int rank, std::size_t i, DType type) {
  const auto value =
      static_cast<double>((i * 7 + static_cast<std::size_t>(rank) * 3 + i / 13) % 11);
  return type == DType::kU8 ? value : value - 5;
}

template <typename T>
void put(Bytes& bytes, std::size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}
void put(Bytes& bytes, std::size_t i, double value, DType type) {
  switch (type) {
    case DType::kF32:
      return put(bytes, i, static_cast<float>(value));
    case DType::kF64:
      return put(bytes, i, value);
    case DType::kI64:
      return put(bytes, i, static_cast<std::int64_t>(value));
    case DType::kU8:
      return put(bytes, i, static_cast<std::uint8_t>(value));
    case DType::kF16:
      return put(bytes, i, base::from_float<base::f16>(static_cast<float>(value)));
    case DType::kBF16:
      return put(bytes, i, base::from_float<base::bf16>(static_cast<float>(value)));
    case DType::kI32:
      break;
  }
}

Bytes input_of(int rank, std::size_t count, DType type) {
  Bytes bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) put(bytes, i, value_of(rank, i, type), type);
  return bytes;
}
Bytes reduced(int ranks, std::size_t count, DType type, ReduceOp op) {
  Bytes bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    double all = value_of(0, i, type);
    for (int r = 1; r < ranks; ++r) {
      const double next = value_of(r, i, type);
      all = op == ReduceOp::kSum   ? all + next
            : op == ReduceOp::kMax ? std::max(all, next)
                                   : std::min(all, next);
    }
    put(bytes, i, all, type);
  }
  return bytes;
}
Bytes part(const Bytes& bytes, std::size_t begin, std::size_t end) {
  return Bytes(bytes.begin() + static_cast<std::ptrdiff_t>(begin),
               bytes.begin() + static_cast<std::ptrdiff_t>(end));
}

struct Case {
  std::string way;  // of make_device_communicator
  int world_size;
  bool processes;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.way << " x " << c.world_size << (c.processes ? " processes" : " threads");
}

class DeviceConformance : public ::testing::TestWithParam<Case> {
 protected:
  int world() const { return GetParam().world_size; }
  std::size_t n() const { return static_cast<std::size_t>(world()); }
  void SetUp() override {
    const std::string& way = GetParam().way;
    if (std::ranges::none_of(backends::list_backends(), [&](const backends::BackendInfo& b) {
          return way.find(b.name) != std::string::npos && (b.usable || b.device_memory);
        }))
      GTEST_SKIP() << way << " is not built";
    if (const std::string why = lacking(world()); !why.empty()) GTEST_SKIP() << why;
  }
  // Ranks that are threads run in a process of their own: after CUDA has started in this one, it
  // could not fork ranks.
  void each_rank(const std::function<void(DeviceCommunicator&)>& body) {
    const auto run = [&](Group& group) {
      const auto communicator = group.make_device_communicator({.backend = GetParam().way});
      require(communicator->name() == (world() == 1 ? "staged:single" : GetParam().way),
              std::string(communicator->name()));
      require(communicator->world_size() == world(), "world size");
      body(*communicator);
    };
    const auto threads = [&] {
      std::string all;
      for (const std::string& outcome : run_threads(world(), {}, run)) all += outcome;
      return all.empty() ? "ok" : all;
    };
    const auto outcomes =
        GetParam().processes ? run_forked(world(), {}, run) : std::vector{in_child(threads)};
    for (const std::string& outcome : outcomes) EXPECT_EQ(outcome, "ok");
  }
  std::vector<std::size_t> counts() const { return {0, 1, n() + 1, 20'003}; }
};

// On a stream: the copy before it and the copy after it are ordered by the stream alone.
Bytes on_stream(DeviceCommunicator& c, const Bytes& input,
                const std::function<void(void*, void*)>& call) {
  const Stream stream;
  const DeviceBytes data(input.size());
  void* pinned = nullptr;
  require(cudaHostAlloc(&pinned, std::max<std::size_t>(input.size(), 1), cudaHostAllocDefault) ==
              cudaSuccess,
          "cudaHostAlloc");
  std::memcpy(pinned, input.data(), input.size());
  cudaMemcpyAsync(data.get(), pinned, input.size(), cudaMemcpyHostToDevice, stream.get());
  call(stream.get(), data.get());
  cudaMemcpyAsync(pinned, data.get(), input.size(), cudaMemcpyDeviceToHost, stream.get());
  c.wait(stream.get());
  c.check();
  Bytes result(input.size());
  std::memcpy(result.data(), pinned, result.size());
  cudaFreeHost(pinned);
  return result;
}

TEST_P(DeviceConformance, Reductions) {
  each_rank([&](DeviceCommunicator& c) {
    for (const std::size_t count : counts()) {
      for (const DType type : kTypes) {
        for (const ReduceOp op : kOps) {
          const std::string what = std::to_string(count) + " " + std::string(to_string(type)) +
                                   " " + std::string(to_string(op));
          const Bytes input = input_of(c.rank(), count, type),
                      expected = reduced(world(), count, type, op);
          const DeviceBytes blocking(input);
          c.all_reduce(blocking.get(), count, type, op);
          require(blocking.read() == expected, "all_reduce of " + what);
          require(on_stream(c, input,
                            [&](void* s, void* d) { c.all_reduce_on(s, d, count, type, op); }) ==
                      expected,
                  "all_reduce_on of " + what);
        }
      }
    }
  });
}

TEST_P(DeviceConformance, ReduceScatter) {
  each_rank([&](DeviceCommunicator& c) {
    for (const std::size_t count : counts()) {
      for (const DType type : {DType::kF32, DType::kBF16, DType::kU8}) {
        const auto r = static_cast<std::size_t>(c.rank());
        const std::size_t begin = r * count / n() * size_of(type),
                          end = (r + 1) * count / n() * size_of(type);
        const Bytes input = input_of(c.rank(), count, type);
        const Bytes expected = part(reduced(world(), count, type, ReduceOp::kSum), begin, end);
        const DeviceBytes blocking(input);
        c.reduce_scatter(blocking.get(), count, type, ReduceOp::kSum);
        require(part(blocking.read(), begin, end) == expected,
                "reduce_scatter of " + std::to_string(count));
        const Bytes result = on_stream(c, input, [&](void* s, void* d) {
          c.reduce_scatter_on(s, d, count, type, ReduceOp::kSum);
        });
        require(part(result, begin, end) == expected,
                "reduce_scatter_on of " + std::to_string(count));
      }
    }
  });
}

TEST_P(DeviceConformance, BroadcastAndGather) {
  each_rank([&](DeviceCommunicator& c) {
    for (const std::size_t bytes : counts()) {
      const Bytes input = input_of(c.rank(), bytes, DType::kU8);
      Bytes all;
      for (int root = 0; root < world(); ++root) {
        const Bytes expected = input_of(root, bytes, DType::kU8);
        all.insert(all.end(), expected.begin(), expected.end());
        const DeviceBytes blocking(input);
        c.broadcast(blocking.get(), bytes, root);
        require(blocking.read() == expected, "broadcast");
        require(on_stream(c, input, [&](void* s, void* d) { c.broadcast_on(s, d, bytes, root); }) ==
                    expected,
                "broadcast_on");
      }
      const DeviceBytes own(input), gathered(bytes * n());
      c.all_gather(own.get(), bytes, gathered.get());
      require(gathered.read() == all, "all_gather");
      // In place: a rank's own bytes lie where they belong already.
      Bytes places(bytes * n());
      std::copy(input.begin(), input.end(),
                places.begin() + static_cast<std::ptrdiff_t>(bytes) * c.rank());
      const auto in_place = [&](void* s, void* d) {
        c.all_gather_on(s, static_cast<char*>(d) + bytes * static_cast<std::size_t>(c.rank()),
                        bytes, d);
      };
      require(on_stream(c, places, in_place) == all, "all_gather_on");
      Bytes for_all, from_all;
      for (std::size_t r = 0; r < n(); ++r) {
        const Bytes theirs = input_of(static_cast<int>(r), bytes * n(), DType::kU8);
        const std::size_t at = bytes * static_cast<std::size_t>(c.rank());
        const Bytes to_this = part(theirs, at, at + bytes);
        from_all.insert(from_all.end(), to_this.begin(), to_this.end());
        if (static_cast<int>(r) == c.rank()) for_all = theirs;
      }
      const DeviceBytes outgoing(for_all), incoming(bytes * n());
      c.all_to_all(outgoing.get(), bytes, incoming.get());
      require(incoming.read() == from_all, "all_to_all");
      const auto exchange = [&](void* s, void* d) { c.all_to_all_on(s, outgoing.get(), bytes, d); };
      require(on_stream(c, Bytes(bytes * n()), exchange) == from_all, "all_to_all_on");
    }
    c.barrier();
  });
}

// Three passes of a captured step: what it leaves is read by the next.
TEST_P(DeviceConformance, CapturedStep) {
  each_rank([&](DeviceCommunicator& c) {
    constexpr std::size_t kCount = 20'011;
    const Stream stream;
    const DeviceBytes data(input_of(c.rank(), kCount, DType::kF32)), copy(kCount * 4);
    cudaGraph_t graph = nullptr;
    require(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal) == cudaSuccess,
            "begin capture");
    if (!c.capturable()) {
      bool refused = false;
      try {
        c.all_reduce_on(stream.get(), data.get(), kCount, DType::kF32, ReduceOp::kSum);
      } catch (const backends::ConfigurationError&) {
        refused = true;
      }
      require(refused, "captured");
      cudaStreamEndCapture(stream.get(), &graph);
      cudaGraphDestroy(graph);
      return;
    }
    c.all_reduce_on(stream.get(), data.get(), kCount, DType::kF32, ReduceOp::kSum);
    cudaMemcpyAsync(copy.get(), data.get(), kCount * 4, cudaMemcpyDeviceToDevice, stream.get());
    c.all_reduce_on(stream.get(), copy.get(), kCount, DType::kF32, ReduceOp::kMax);
    require(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess, "end capture");
    cudaGraphExec_t step = nullptr;
    require(cudaGraphInstantiate(&step, graph, 0) == cudaSuccess, "instantiate");
    c.agree({});  // nobody starts a graph before all are made
    for (int pass = 0; pass < 3; ++pass)
      require(cudaGraphLaunch(step, stream.get()) == cudaSuccess, "launch");
    c.wait(stream.get());
    Bytes expected(kCount * 4);
    for (std::size_t i = 0; i < kCount; ++i) {
      double sum = 0;
      for (int r = 0; r < world(); ++r) sum += value_of(r, i, DType::kF32);
      put(expected, i, static_cast<float>(sum * world() * world()));
    }
    require(data.read() == expected && copy.read() == expected, "three passes");
    cudaGraphExecDestroy(step);
    cudaGraphDestroy(graph);
  });
}

// Sums whose order shows: all ranks have the same bits.
TEST_P(DeviceConformance, RoundedSumsAreEqualEverywhere) {
  each_rank([&](DeviceCommunicator& c) {
    constexpr std::size_t kCount = 30'000;
    Bytes input(kCount * 4);
    for (std::size_t i = 0; i < kCount; ++i)
      put(input, i, 1.f / static_cast<float>(3 + i * static_cast<std::size_t>(c.rank() + 1)));
    const DeviceBytes data(input), all(kCount * 4 * n());
    c.all_reduce(data.get(), kCount, DType::kF32, ReduceOp::kSum);
    c.all_gather(data.get(), kCount * 4, all.get());
    const Bytes mine = data.read(), theirs = all.read();
    for (std::size_t r = 0; r < n(); ++r)
      require(part(theirs, r * kCount * 4, (r + 1) * kCount * 4) == mine, "other bits");
  });
}

TEST_P(DeviceConformance, MemoryThatIsRegistered) {
  each_rank([&](DeviceCommunicator& c) {
    constexpr std::size_t kCount = 5000;
    void* memory = c.allocate(kCount * 4);
    c.register_memory(memory, kCount * 4);
    const DeviceBytes other(kCount * 8);
    c.register_memory(other.get(), kCount * 8);
    const Bytes input = input_of(c.rank(), kCount, DType::kF32);
    copy_to_device(memory, input);
    c.all_reduce(memory, kCount, DType::kF32, ReduceOp::kSum);
    Bytes result(input.size());
    cudaMemcpy(result.data(), memory, result.size(), cudaMemcpyDeviceToHost);
    require(result == reduced(world(), kCount, DType::kF32, ReduceOp::kSum),
            "in registered memory");
    c.release(memory);
    c.barrier();
  });
}

// Says nothing of what is there: asking loads libraries, before the tests that choose them.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* way : {"nccl", "staged:shm", "staged:gloo"}) {
    for (const int world : {1, 2, 3, 4}) {
      for (const bool processes : {false, true}) {
        all.push_back({way, world, processes});
      }
    }
  }
  return all;
}
std::string case_name(const ::testing::TestParamInfo<Case>& which) {
  std::string name = which.param.way + "_" + std::to_string(which.param.world_size) +
                     (which.param.processes ? "_processes" : "");
  std::ranges::replace(name, ':', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Ways, DeviceConformance, ::testing::ValuesIn(cases()), case_name);

}  // namespace
