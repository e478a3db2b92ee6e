// The emulator of the GPU does what it is there for: it shows mistakes that a real device may hide.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/cuda_host.h"
#include "engine/ops/device/async_copy.h"
#include "io/gpu/device_memory.h"
#include "tests/emulator/runtime/fake_machine.h"

namespace engine::ops::cuda {
namespace {

// Tests launch kernels within captures at once. Before the first call, which reads it.
[[maybe_unused]] const int kLoading = setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);

constexpr int kThreads = 64;

// Device memory for ints, and ways for the host to look at it that wait for one stream only.
class DeviceInts {
 public:
  explicit DeviceInts(int count)
      : bytes_(static_cast<std::size_t>(count) * sizeof(int)),
        device_(static_cast<int*>(engine::cuda::allocate(bytes_))) {}
  ~DeviceInts() { engine::cuda::release(device_); }
  DeviceInts(const DeviceInts&) = delete;
  DeviceInts& operator=(const DeviceInts&) = delete;
  int* data() const { return device_; }
  std::vector<int> values(const engine::cuda::Stream& stream) const {
    std::vector<int> host(bytes_ / sizeof(int));
    engine::cuda::copy_async(host.data(), device_, bytes_, stream.handle());
    stream.synchronize();
    return host;
  }

 private:
  std::size_t bytes_;
  int* device_;
};

// Pinned host memory.
struct PinnedInts {
  explicit PinnedInts(int count)
      : data(static_cast<int*>(engine::cuda::allocate_pinned(sizeof(int) * count))) {}
  ~PinnedInts() { engine::cuda::release_pinned(data); }
  PinnedInts(const PinnedInts&) = delete;
  PinnedInts& operator=(const PinnedInts&) = delete;
  int* data;
};

// Sets ENGINE_EMULATED_ORDER while it lives.
struct Order {
  explicit Order(const char* order) { setenv("ENGINE_EMULATED_ORDER", order, 1); }
  ~Order() { unsetenv("ENGINE_EMULATED_ORDER"); }
};

__global__ void write_index(int* to) {
  to[blockIdx.x * kThreads + threadIdx.x] = static_cast<int>(threadIdx.x);
}
__global__ void add_one(int* to) { to[threadIdx.x] += 1; }
__global__ void reverse_in_shared(int* to) {
  int* shared = &block_shared<int>();
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  to[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}
// Reads what the thread before it wrote, without a barrier: right as long as threads happen to run
// in their order.
__global__ void racy_shift(int* to) {
  int* shared = &block_shared<int>();
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  to[threadIdx.x] = threadIdx.x == 0 ? 0 : shared[threadIdx.x - 1];
}

template <class... Parameters, class... Arguments>
void run(void (*kernel)(Parameters...), const engine::cuda::Stream& stream,
         Arguments... arguments) {
  launch("a_kernel", kernel, {1}, kThreads, kThreads * sizeof(int), stream.handle(), arguments...);
}

TEST(Emulator, WorkWaitsUntilSomeoneWaitsForIt) {
  const engine::cuda::Stream stream;
  const DeviceInts device(kThreads);
  const PinnedInts host(kThreads);
  host.data[5] = -7;
  run(write_index, stream, device.data());
  engine::cuda::copy_async(host.data, device.data(), kThreads * sizeof(int), stream.handle());
  EXPECT_EQ(host.data[5], -7);
  stream.synchronize();
  EXPECT_EQ(host.data[5], 5);
}

TEST(Emulator, StreamsAreOrderedByEventsOnly) {
  const engine::cuda::Stream first, second;
  const DeviceInts device(kThreads);
  run(write_index, first, device.data());
  EXPECT_EQ(device.values(second)[5], -1)
      << "the second stream saw work of the first without waiting for it";
  engine::cuda::Event written;
  run(add_one, first, device.data());
  written.record(first.handle());
  run(add_one, first, device.data());
  EXPECT_FALSE(written.done());
  written.make_wait(second.handle());
  EXPECT_EQ(device.values(second)[5], 6) << "an event covers what was before it, and no more";
  EXPECT_TRUE(written.done());
  EXPECT_EQ(device.values(first)[5], 7);
}

TEST(Emulator, AFreshAllocationIsNobodys) {
  const engine::cuda::Stream stream;
  const DeviceInts device(kThreads);
  for (const int value : device.values(stream)) EXPECT_EQ(value, -1);  // as a float: NaN
}

TEST(Emulator, CapturedWorkRunsAtEachReplay) {
  const engine::cuda::Stream stream, side;
  const DeviceInts device(kThreads);
  engine::cuda::set_bytes_async(device.data(), 0, kThreads * sizeof(int), stream.handle());
  engine::cuda::StepGraph::begin_capture(stream.handle());
  run(add_one, stream, device.data());
  engine::cuda::Event fork, join;
  fork.record(stream.handle());
  fork.make_wait(side.handle());
  run(add_one, side, device.data());  // belongs to the capture by the event
  join.record(side.handle());
  join.make_wait(stream.handle());
  void* memory = nullptr;
  EXPECT_THROW(memory = engine::cuda::allocate(16), engine::cuda::CudaError)
      << "memory in a capture";
  EXPECT_THROW(stream.synchronize(), engine::cuda::CudaError);
  EXPECT_EQ(memory, nullptr);
  const engine::cuda::StepGraph graph = engine::cuda::StepGraph::end_capture(stream.handle());
  EXPECT_EQ(graph.nodes(), 2u);
  EXPECT_EQ(device.values(stream)[3], 0) << "a capture ran";
  for (int i = 0; i < 3; ++i) graph.launch(stream.handle());
  EXPECT_EQ(device.values(stream)[3], 6);
}

// A record within a graph is read outside of it, after each launch.
TEST(Emulator, ARecordWithinAGraphMeasuresEachReplay) {
  const engine::cuda::Stream stream;
  engine::cuda::Event begin(/*timing=*/true), end(/*timing=*/true);
  engine::cuda::record_in_graph(begin, stream.handle());  // not in a capture: as record()
  engine::cuda::StepGraph::begin_capture(stream.handle());
  engine::cuda::record_in_graph(begin, stream.handle());
  simt::enqueue(stream.handle(),
                [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  engine::cuda::record_in_graph(end, stream.handle());
  const engine::cuda::StepGraph graph = engine::cuda::StepGraph::end_capture(stream.handle());
  EXPECT_EQ(graph.nodes(), 3u);
  for (int i = 0; i < 2; ++i) {
    graph.launch(stream.handle());
    stream.synchronize();
    EXPECT_GE(end.seconds_since(begin), 0.02);
    begin.record(stream.handle());  // else the second replay might show the times of the first
    stream.synchronize();
  }
}

// A stream that waits, e.g. for another rank, does not hold up another one that nothing waits for.
TEST(Emulator, OtherStreamsRunBesideOneThatWaits) {
  const engine::cuda::Stream stream, side;
  bool other = false;
  simt::enqueue_until_done(stream.handle(), [&other] { return other; });
  simt::enqueue(side.handle(), [&other] { other = true; });
  stream.synchronize();
  EXPECT_TRUE(other);
}

// A branch of a graph that waits, e.g. for another rank, does not hold up another branch.
TEST(Emulator, BranchesOfAGraphRunBesideEachOther) {
  const engine::cuda::Stream stream, side;
  bool other = false;
  engine::cuda::Event fork, join;
  engine::cuda::StepGraph::begin_capture(stream.handle());
  fork.record(stream.handle());
  fork.make_wait(side.handle());
  simt::enqueue_until_done(side.handle(), [&other] { return other; });
  join.record(side.handle());
  simt::enqueue(stream.handle(), [&other] { other = true; });
  join.make_wait(stream.handle());
  const engine::cuda::StepGraph graph = engine::cuda::StepGraph::end_capture(stream.handle());
  graph.launch(stream.handle());
  stream.synchronize();
  EXPECT_TRUE(other);
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const engine::cuda::CudaError& refused) {
    return refused.what();
  }
  return "";
}

TEST(Emulator, AForkThatIsNotJoinedEndsACapture) {
  const engine::cuda::Stream stream, side;
  const DeviceInts device(kThreads);
  engine::cuda::Event fork, join;
  const auto capture = [&](bool works, bool joins, bool works_after) {
    return refusal_of([&] {
      engine::cuda::StepGraph::begin_capture(stream.handle());
      run(add_one, stream, device.data());
      fork.record(stream.handle());
      fork.make_wait(side.handle());
      if (works) run(add_one, side, device.data());
      join.record(side.handle());
      if (joins) join.make_wait(stream.handle());
      if (works_after) run(add_one, side, device.data());
      engine::cuda::StepGraph::end_capture(stream.handle());
    });
  };
  EXPECT_EQ(capture(true, true, false), "");
  EXPECT_EQ(capture(false, false, false), "") << "nothing of the other stream is captured";
  for (const std::string& refused : {capture(true, false, false), capture(true, true, true)})
    EXPECT_NE(refused.find("cudaErrorStreamCaptureUnjoined"), std::string::npos) << refused;
  const std::string late = refusal_of([&] { join.make_wait(side.handle()); });
  EXPECT_NE(late.find("cudaErrorCapturedEvent"), std::string::npos) << late;
}

// What is at [0] after a replay of two fills, the second of which waits for the first or does not.
std::set<int> ends_of_replays(bool ordered) {
  const engine::cuda::Stream stream, side;
  const DeviceInts device(1);
  engine::cuda::Event fork, first, join;
  engine::cuda::StepGraph::begin_capture(stream.handle());
  fork.record(stream.handle());
  fork.make_wait(side.handle());
  engine::cuda::set_bytes_async(device.data(), 0, sizeof(int), stream.handle());
  first.record(stream.handle());
  if (ordered) first.make_wait(side.handle());
  engine::cuda::set_bytes_async(device.data(), 1, sizeof(int), side.handle());
  join.record(side.handle());
  join.make_wait(stream.handle());
  const engine::cuda::StepGraph graph = engine::cuda::StepGraph::end_capture(stream.handle());
  std::set<int> found;
  for (int i = 0; i < 32; ++i) {
    graph.launch(stream.handle());
    found.insert(device.values(stream).front());
  }
  return found;
}

TEST(Emulator, AReplayMayTakeAnyOrderThatItsEdgesAllow) {
  constexpr int kSecond = 0x01010101;
  EXPECT_EQ(ends_of_replays(false), std::set<int>{kSecond}) << "as issued";
  setenv("ENGINE_EMULATED_GRAPH_SEED", "1", 1);
  EXPECT_EQ(ends_of_replays(false), (std::set<int>{0, kSecond}));
  EXPECT_EQ(ends_of_replays(true), std::set<int>{kSecond});
  unsetenv("ENGINE_EMULATED_GRAPH_SEED");
}

TEST(EmulatorDeathTest, DevicesHaveAsManyProcessorsAsAskedFor) {
  const char* const before = std::getenv("ENGINE_EMULATED_PROCESSORS");
  const std::string kept = before == nullptr ? "" : before;
  const auto processors = [](const char* text) {
    setenv("ENGINE_EMULATED_PROCESSORS", text, 1);
    return engine::cuda::device_info(0).processors;
  };
  EXPECT_EQ(processors(""), 4);
  EXPECT_EQ(processors("132"), 132);
  for (const char* wrong : {"0", "1001", "-4", "132 ", "0x84", "many"})
    EXPECT_DEATH(processors(wrong),
                 std::string("ENGINE_EMULATED_PROCESSORS is '") + wrong + "', expected 1 to 1000");
  setenv("ENGINE_EMULATED_PROCESSORS", kept.c_str(), 1);
}

// In processes of their own, for the variables are read once.
TEST(EmulatorDeathTest, ACallFailsOnDemand) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto text_with = [](const char* fail, const char* for_good) {
    setenv("ENGINE_EMULATED_FAIL", fail, 1);
    setenv("ENGINE_EMULATED_FAIL_FOR_GOOD", for_good, 1);
    std::string text;
    for (int i = 0; i < 2; ++i)
      text += refusal_of([] {
                const engine::cuda::Stream stream;
                const DeviceInts device(kThreads);
                run(write_index, stream, device.data());
                stream.synchronize();
              }) +
              "|";
    std::fprintf(stderr, "%s\n", text.c_str());
    std::exit(0);
  };
  const auto exits = testing::ExitedWithCode(0);
  EXPECT_EXIT(text_with("cudaMalloc:1", ""), exits, "^out of memory on cuda:0: [^|]*[|][|]\n$");
  EXPECT_EXIT(text_with("1", ""), exits, "^cudaStreamCreateWithFlags: [^|]*[|][|]\n$");
  EXPECT_EXIT(text_with("cudaMalloc:3", ""), exits, "^[|][|]\n$");
  EXPECT_EXIT(text_with("1", "1"), exits,
              "^cudaStreamCreateWithFlags: [^|]*[|]cudaStreamCreateWithFlags: [^|]*[|]\n$");
  EXPECT_EXIT(text_with("launch:1", ""), exits,
              "^[^|]*cudaErrorLaunchFailure[^|]*[|]cudaStreamCreateWithFlags: [^|]*[|]\n$");
}

// In a process of its own, for the variable is read once.
TEST(EmulatorDeathTest, WithCudaSyncALaunchWaitsForItsKernel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto waits = [](const char* value) {
    setenv("ENGINE_CUDA_SYNC", value, 1);
    const engine::cuda::Stream stream;
    const DeviceInts device(kThreads);
    // The emulator goes on by one piece of work when it is asked whether a stream is idle.
    for (int i = 0; i < 3; ++i) run(write_index, stream, device.data());
    const bool waited = stream.idle();
    engine::cuda::StepGraph::begin_capture(stream.handle());
    run(add_one, stream, device.data());  // a wait would end the capture
    const bool captured = engine::cuda::StepGraph::end_capture(stream.handle()).nodes() == 1;
    std::exit(!captured ? 2 : waited ? 1 : 0);
  };
  EXPECT_EXIT(waits("1"), testing::ExitedWithCode(1), "");
  EXPECT_EXIT(waits("0"), testing::ExitedWithCode(0), "");
}

// In processes of their own, which load each kernel at its first launch.
class LazyLoadingDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    setenv("CUDA_MODULE_LOADING", "LAZY", 1);
    setenv("ENGINE_EMULATED_GPUS", "2", 1);
  }
  void TearDown() override {
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    unsetenv("ENGINE_EMULATED_GPUS");
  }
  [[noreturn]] static void end(const std::string& text) {
    std::fprintf(stderr, "|%s|", text.c_str());
    std::exit(0);
  }
};

TEST_F(LazyLoadingDeathTest, AKernelIsNotLoadedWithinACapture) {
  const auto capture = [](bool run_before) {
    const engine::cuda::Stream stream;
    const DeviceInts device(kThreads);
    if (run_before) run(add_one, stream, device.data());
    engine::cuda::StepGraph::begin_capture(stream.handle());
    std::string text = refusal_of([&] { run(add_one, stream, device.data()); });
    text += "|" + refusal_of([&] { engine::cuda::StepGraph::end_capture(stream.handle()); });
    end(text);
  };
  const auto exits = testing::ExitedWithCode(0);
  EXPECT_EXIT(capture(true), exits, "^[|][|][|]$");
  EXPECT_EXIT(capture(false), exits,
              "a_kernel is loaded within a capture\n[|]launch of a_kernel: [^|]*"
              "[|]cudaStreamEndCapture: [^|]*Invalidated[^|]*[|]$");
}

TEST_F(LazyLoadingDeathTest, AKernelIsNotLoadedWhileAnotherDeviceWaitsForARank) {
  const auto launch_beside = [](int waiting_device) {
    bool has_come = false;
    engine::cuda::use_device(waiting_device);
    const engine::cuda::Stream waiting;
    simt::enqueue_until_done(waiting.handle(), [&] { return has_come; });
    engine::cuda::use_device(0);
    const engine::cuda::Stream stream;
    const DeviceInts device(kThreads);
    std::string text = refusal_of([&] { run(add_one, stream, device.data()); });
    has_come = true;
    waiting.synchronize();
    text += "|" + refusal_of([&] { run(add_one, stream, device.data()); });
    end(text);
  };
  const auto exits = testing::ExitedWithCode(0);
  EXPECT_EXIT(launch_beside(1), exits,
              "a_kernel is loaded while device 1 waits for another rank\n[|]launch of a_kernel: "
              "[^|]*[|][|]$");
  EXPECT_EXIT(launch_beside(0), exits, "^[|][|][|]$") << "its own process's rank waits for others";
}

TEST_F(LazyLoadingDeathTest, UnlessAllAreLoadedAtTheStart) {
  const auto capture = [](const char* set) {
    set == nullptr ? unsetenv("CUDA_MODULE_LOADING") : setenv("CUDA_MODULE_LOADING", set, 1);
    engine::cuda::load_kernels_at_start();
    const engine::cuda::Stream stream;
    const DeviceInts device(kThreads);
    engine::cuda::StepGraph::begin_capture(stream.handle());
    end(refusal_of([&] { run(add_one, stream, device.data()); }));
  };
  const auto exits = testing::ExitedWithCode(0);
  EXPECT_EXIT(capture(nullptr), exits, "^[|][|]$");
  EXPECT_EXIT(capture("LAZY"), exits, "launch of a_kernel: ") << "what the user has set stays";
}

TEST(Emulator, AStreamMayHaveTheHighestPriority) {
  const engine::cuda::Stream usual, urgent(engine::cuda::Priority::kHighest);
  int lowest = 0, highest = 0, found = -1;
  cudaDeviceGetStreamPriorityRange(&lowest, &highest);
  EXPECT_LT(highest, lowest);
  cudaStreamGetPriority(static_cast<cudaStream_t>(usual.handle()), &found);
  EXPECT_EQ(found, 0);
  cudaStreamGetPriority(static_cast<cudaStream_t>(urgent.handle()), &found);
  EXPECT_EQ(found, highest);
}

TEST(Emulator, WaitsBlockIfThatIsWanted) {
  const auto flags_of = [](const engine::cuda::Event& event) {
    return static_cast<cudaEvent_t>(event.handle())->flags;
  };
  const engine::cuda::Event polling;
  EXPECT_EQ(flags_of(polling) & cudaEventBlockingSync, 0u);
  engine::cuda::block_in_waits(true);
  const engine::cuda::Event blocking, timed(true);
  EXPECT_EQ(flags_of(blocking), cudaEventBlockingSync | cudaEventDisableTiming);
  EXPECT_EQ(flags_of(timed), cudaEventBlockingSync);
  const engine::cuda::Stream stream;
  const DeviceInts device(kThreads);
  run(write_index, stream, device.data());
  const auto before = fake::machine().polling_waits.load();
  stream.synchronize();
  EXPECT_TRUE(stream.idle());
  EXPECT_EQ(fake::machine().polling_waits, before) << "a stream was waited for by polling";
  engine::cuda::block_in_waits(false);
  stream.synchronize();
  EXPECT_EQ(fake::machine().polling_waits, before + 1);
}

TEST(Emulator, AFailedLaunchNamesTheKernel) {
  const engine::cuda::Stream stream;
  try {
    engine::cuda::check_launch(1, "a_kernel", stream.handle());
    FAIL() << "no error";
  } catch (const engine::cuda::CudaError& failed) {
    EXPECT_NE(std::string(failed.what()).find("launch of a_kernel: "), std::string::npos);
  }
}

TEST(Emulator, BarriersAreBarriersInEveryOrder) {
  for (const char* order : {"forward", "reverse", "shuffled"}) {
    const Order chosen(order);
    const engine::cuda::Stream stream;
    const DeviceInts device(kThreads);
    run(reverse_in_shared, stream, device.data());
    const std::vector<int> found = device.values(stream);
    for (int i = 0; i < kThreads; ++i)
      EXPECT_EQ(found[static_cast<std::size_t>(i)], kThreads - 1 - i) << order;
  }
}

TEST(Emulator, TheReverseOrderShowsARace) {
  const auto right = [] {
    const engine::cuda::Stream stream;
    const DeviceInts device(kThreads);
    run(racy_shift, stream, device.data());
    const std::vector<int> found = device.values(stream);
    int count = 0;
    for (int i = 1; i < kThreads; ++i) count += found[static_cast<std::size_t>(i)] == i - 1 ? 1 : 0;
    return count;
  };
  const Order forward("forward");
  EXPECT_EQ(right(), kThreads - 1);
  const Order reverse("reverse");
  EXPECT_EQ(right(), 0);
}

__global__ void copy_later(const int* from, int* before, int* after) {
  int* shared = &block_shared<int>();
  if (threadIdx.x < kThreads / 4)
    copy_async_16(shared + 4 * threadIdx.x, from + 4 * threadIdx.x, threadIdx.x == 1 ? 8 : 16);
  commit_copies();
  before[threadIdx.x] = shared[threadIdx.x];
  __syncthreads();
  wait_copies<0>();
  __syncthreads();
  after[threadIdx.x] = shared[threadIdx.x];
}

TEST(Emulator, AsynchronousCopiesArriveAtTheWait) {
  const engine::cuda::Stream stream;
  const DeviceInts from(kThreads), before(kThreads), after(kThreads);
  run(write_index, stream, from.data());
  run(copy_later, stream, from.data(), before.data(), after.data());
  for (const int value : before.values(stream)) EXPECT_EQ(value, -1);
  const std::vector<int> found = after.values(stream);
  for (int i = 0; i < kThreads; ++i)
    EXPECT_EQ(found[static_cast<std::size_t>(i)],
              i == 6 || i == 7 ? 0 : i);  // 8 of the second copy's 16 bytes are valid
}

__global__ void block_waits_for_some(int*) {
  if (threadIdx.x % 2 == 0) return __syncthreads();
  __syncwarp();
}
__global__ void half_a_warp_leaves(int* to) {
  if (lane_index() < 16) return;
  to[threadIdx.x] = warp_sum(1);
}
__global__ void forgets_to_wait(int* to) {
  copy_async_16(&block_shared<int>() + 4 * (threadIdx.x % 16), to);
  commit_copies();
}
__global__ void misaligned(int* to) {
  copy_async_16(&block_shared<int>() + 1, to);
  commit_copies();
  wait_copies<0>();
}
__global__ void writes_past_the_end(int* to) { to[kThreads + threadIdx.x] = 1; }
__global__ void writes_past_shared(int* to) {
  to[threadIdx.x] = (&block_shared<int>())[kThreads + threadIdx.x] = 1;
}

void run_to_the_end(void (*kernel)(int*)) {
  const engine::cuda::Stream stream;
  const DeviceInts device(kThreads);
  run(kernel, stream, device.data());
  stream.synchronize();
}

TEST(EmulatorDeathTest, BarriersThatSomeThreadsMiss) {
  EXPECT_DEATH(run_to_the_end(block_waits_for_some), "a_kernel: .*never reach the barrier");
  EXPECT_DEATH(run_to_the_end(half_a_warp_leaves),
               "a_kernel: .*of its warp|a_kernel: .*some have ended");
}

TEST(EmulatorDeathTest, CopiesThatNobodyWaitsFor) {
  EXPECT_DEATH(run_to_the_end(forgets_to_wait), "without waiting for its asynchronous copies");
  EXPECT_DEATH(run_to_the_end(misaligned), "not aligned");
}

TEST(EmulatorDeathTest, TheHostCannotReadDeviceMemory) {
  const engine::cuda::Stream stream;
  const DeviceInts device(kThreads);
  run(write_index, stream, device.data());
  stream.synchronize();
  EXPECT_DEATH(static_cast<void>(std::printf("%d", *static_cast<volatile int*>(device.data()))),
               "");
}

TEST(EmulatorDeathTest, MemoryEndsWhereItEnds) {
  EXPECT_DEATH(run_to_the_end(writes_past_the_end), "");
  EXPECT_DEATH(run_to_the_end(writes_past_shared), "");
  EXPECT_EXIT(
      {
        run_to_the_end(write_index);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(EmulatorDeathTest, LaunchesThatNoDeviceTakes) {
  const engine::cuda::Stream stream;
  const DeviceInts device(kThreads);
  const auto start = [&](Grid grid, int threads, std::size_t shared) {
    launch("a_kernel", add_one, grid, threads, shared, stream.handle(), device.data());
    stream.synchronize();
  };
  EXPECT_DEATH(start({0}, kThreads, 0), "a grid that no device takes");
  EXPECT_DEATH(start({1, 70'000}, kThreads, 0), "a grid that no device takes");
  EXPECT_DEATH(start({1}, 2048, 0), "2048 threads");
  setenv("ENGINE_EMULATED_COMPUTE", "8.0", 1);
  EXPECT_THROW(start({1}, kThreads, 200 * 1024), engine::cuda::CudaError) << "more than 8.0 has";
  setenv("ENGINE_EMULATED_COMPUTE", "9.0", 1);
  EXPECT_DEATH(start({1}, kThreads, 200 * 1024), "shared memory a block");
  unsetenv("ENGINE_EMULATED_COMPUTE");
}

// Where the driver decides how much shared memory a processor has, it may be enough for one block.
TEST(Emulator, ProcessorsHoldWhatTheirSharedMemoryAllows) {
  void (*const kernel)(int*) = add_one;
  const auto* const address = reinterpret_cast<const void*>(kernel);
  const auto held = [&](std::size_t shared_bytes) {
    int blocks = -1;
    EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, address, 128, shared_bytes),
              cudaSuccess);
    return blocks;
  };
  EXPECT_EQ(held(40 * 1024), 1);
  EXPECT_EQ(held(60 * 1024), 0) << "not allowed yet";
  struct Case {
    const char* capability;
    int max_kib, kib, blocks, empty_blocks;  // of a block; that fit, with so much and with none
  };
  for (const Case& each : std::initializer_list<Case>{{"6.0", 48, 40, 1, 16},
                                                      {"7.0", 96, 60, 1, 16},
                                                      {"7.5", 64, 60, 1, 8},
                                                      {"8.0", 163, 60, 2, 16},
                                                      {"8.6", 99, 60, 1, 12},
                                                      {"8.9", 99, 60, 1, 12},
                                                      {"9.0", 227, 60, 3, 16},
                                                      {"12.0", 99, 60, 1, 12}}) {
    SCOPED_TRACE(each.capability);
    setenv("ENGINE_EMULATED_COMPUTE", each.capability, 1);
    // A thread asks a device once for its limits.
    std::thread([&] {
      const auto fit = [&](int kib) {
        return engine::cuda::resident_blocks(
            {address, "add_one", 128, static_cast<std::size_t>(kib) * 1024});
      };
      EXPECT_EQ(fit(each.max_kib + 1), 0);
      EXPECT_EQ(fit(each.kib), each.blocks);
      EXPECT_EQ(fit(0), each.empty_blocks);
      EXPECT_EQ(cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (each.max_kib + 1) * 1024),
                cudaErrorInvalidValue);
      cudaGetLastError();
    }).join();
  }
  unsetenv("ENGINE_EMULATED_COMPUTE");
  try {
    engine::cuda::resident_blocks({nullptr, "a_kernel", 128, 0});
    FAIL() << "no error";
  } catch (const engine::cuda::CudaError& failed) {
    EXPECT_NE(std::string(failed.what()).find("of a_kernel"), std::string::npos) << failed.what();
  }
}

TEST(Emulator, MemoryThatIsRefusedSaysWhatItWasFor) {
  const auto [left, total] = engine::cuda::free_and_total_memory();
  const DeviceInts held(1 << 20);
  const engine::cuda::MemoryPurpose outer("evaluation");
  const engine::cuda::MemoryPurpose purpose("activations");
  try {
    engine::cuda::allocate(std::size_t{5} << 30);
    FAIL() << "5 of 4 GiB";
  } catch (const engine::cuda::DeviceMemoryError& refused) {
    EXPECT_STREQ(refused.what(),
                 "out of memory on cuda:0: 5 GiB wanted for activations of evaluation, 4 GiB of "
                 "4 GiB are free");
    EXPECT_EQ(refused.shortage().free + (sizeof(int) << 20), left);
    EXPECT_GE(refused.shortage().held, sizeof(int) << 20);
    EXPECT_EQ(refused.shortage().total, total);
  }
}

TEST(Emulator, MemoryIsLimited) {
  const auto [left, total] = engine::cuda::free_and_total_memory();
  EXPECT_THROW(engine::cuda::allocate(total + 1), engine::cuda::CudaError);
  {
    const DeviceInts device(1024);
    EXPECT_EQ(engine::cuda::free_and_total_memory().first, left - 4096);
  }
  EXPECT_EQ(engine::cuda::free_and_total_memory().first, left);
}

}  // namespace
}  // namespace engine::ops::cuda
