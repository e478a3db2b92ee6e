// Failures of collectives on device memory: every surviving rank reports the cause within a short
// time, and none hangs.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "backends/backend_error.h"
#include "backends/transport/nccl/nccl_backend.h"
#include "io/gpu/cuda_runtime.h"
#include "tests/backends/device/device_harness.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"

namespace {

using namespace device_harness;
using namespace std::chrono_literals;
using backends::ControlWord;
using backends::DeviceCommunicator;
using backends::Group;
using backends::Operation;
using backends::ReduceOp;
using base::DType;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kCount = 3000;
const int kLongTimeout = test_support::deadline_ms(20'000);

void skip_without(int ranks) {
  if (const std::string why = lacking(ranks); !why.empty()) GTEST_SKIP() << why;
}
// "NCCL between GPUs, one per rank: NCCL 2.28.9 (/usr/lib/libnccl.so.2)", or what is missing.
std::string nccl_note() {
  return in_child([] {
    const auto list = backends::list_backends();
    return std::ranges::find(list, "nccl", &backends::BackendInfo::name)->note;
  });
}
std::string nccl_path() {
  const std::string path = backends::describe_nccl();
  return path.substr(path.find('(') + 1, path.find(')') - path.find('(') - 1);
}
bool nccl_is_emulated() { return nccl_note().find("nccl_on_cpu") != std::string::npos; }

void reduce_on(DeviceCommunicator& c, const Stream& stream, const DeviceBytes& data) {
  c.all_reduce_on(stream.get(), data.get(), kCount, DType::kF32, ReduceOp::kSum);
  c.wait(stream.get());
}

void expect_has(const std::string& text, const std::string& part) { EXPECT_VALUES(text, part); }

const std::vector<std::string> kTwoOk{"ok", "ok"};

// Collectives that this thread itself has put on a stream, of the emulated NCCL.
int launches_of_this_thread() {
  void* const library = dlopen(nccl_path().c_str(), RTLD_NOW | RTLD_NOLOAD);
  const auto count = library == nullptr
                         ? nullptr
                         : reinterpret_cast<int (*)()>(dlsym(library, "nccl_on_cpu_launches"));
  if (count == nullptr) throw std::runtime_error("the emulated NCCL is not loaded");
  return count();
}

// Two ranks sum memory that the communicator has allocated and registered. `line`: what rank 0 is
// to be told; "": nothing but the library's name.
std::vector<std::string> reduce_allocated_memory(const std::string& line) {
  std::string notices;
  const auto keep = [&](const std::string& text) { notices += text + "\n"; };
  return run_forked(2, {.notice = keep}, [&](Group& group) {
    const auto c = group.make_device_communicator({.backend = "nccl"});
    void* memory = c->allocate(kCount * 4);
    c->register_memory(memory, kCount * 4);
    c->all_reduce(memory, kCount, DType::kF32, ReduceOp::kMax);
    const auto lines = std::ranges::count(notices, '\n');
    const bool right = group.rank() != 0 ? lines == 0
                       : line.empty()    ? lines == 1
                                         : lines == 2 && notices.find(line) != std::string::npos;
    if (!right) throw std::runtime_error("lines: " + notices);
  });
}

// These tests run first, while this process has not loaded the library: each fork loads the one
// that its environment names.
class NcclLibraryFile : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!nccl_is_emulated()) GTEST_SKIP() << "needs the emulated NCCL";
  }
};

TEST_F(NcclLibraryFile, OfAnOlderVersionRegistersNothingAndSaysSo) {
  std::string path = nccl_note();
  path = path.substr(path.find('(') + 1);
  path.resize(path.find(')'));
  path.insert(path.find("libnccl_on_cpu") + 3, "old_");
  const Setting library("ENGINE_NCCL_LIBRARY", path);
  expect_has(nccl_note(), "NCCL 2.28.9 (" + path + ")");
  EXPECT_EQ(reduce_allocated_memory(
                "nccl: gradients are in memory of cudaMalloc, which NCCL 2.28.9 may have to copy: "
                "it has no ncclMemAlloc, which 2.19 brought"),
            kTwoOk);
}

TEST_F(NcclLibraryFile, MemoryToRegisterIsItsOwn) {
  {
    const Setting refusing("NCCL_ON_CPU_FAULT", "refuse_others");
    EXPECT_EQ(reduce_allocated_memory(""), kTwoOk);
    for (const std::string& text : run_forked(2, {}, [](Group& group) {
           const auto c = group.make_device_communicator({.backend = "nccl"});
           const DeviceBytes data(kCount * 4);
           c->register_memory(data.get(), kCount * 4);
         }))
      expect_has(text, "ncclCommRegister: ");
  }
  const Setting refusing("NCCL_ON_CPU_FAULT", "refuse_memory");
  EXPECT_EQ(reduce_allocated_memory("may have to copy: ncclMemAlloc: unhandled cuda error"),
            kTwoOk);
  const Setting off("ENGINE_NCCL_REGISTER", "0");
  EXPECT_EQ(reduce_allocated_memory(""), kTwoOk);
}

// ENGINE_NCCL_BLOCKING=1: the thread that calls launches, else one of NCCL's, also into a capture.
TEST_F(NcclLibraryFile, CallsMayBlock) {
  for (const char* blocking : {"0", "1"}) {
    const Setting mode("ENGINE_NCCL_BLOCKING", blocking);
    const auto outcomes = run_forked(2, {}, [&](Group& group) {
      const auto c = group.make_device_communicator({.backend = "nccl"});
      const Stream stream;
      Bytes one(4);
      const float value = group.rank() == 0 ? 1.f : 2.f;
      std::memcpy(one.data(), &value, 4);
      const DeviceBytes data(one);
      base::cuda::StepGraph::begin_capture(stream.get());
      for (int i = 0; i < 2; ++i)
        c->all_reduce_on(stream.get(), data.get(), 1, DType::kF32, ReduceOp::kSum);
      const auto graph = base::cuda::StepGraph::end_capture(stream.get());
      if (graph.nodes() != 2) throw std::runtime_error("not captured");
      const int own_thread = launches_of_this_thread();
      if ((own_thread > 0) != (*blocking == '1')) throw std::runtime_error("another thread");
      if (!c->first_failure("").empty()) throw std::runtime_error("failed");
      graph.launch(stream.get());
      c->wait(stream.get());
      float sum = 0;
      std::memcpy(&sum, data.read().data(), 4);
      if (sum != 6) throw std::runtime_error("a sum of " + std::to_string(sum));
    });
    EXPECT_EQ(outcomes, kTwoOk) << blocking;
  }
}

TEST_F(NcclLibraryFile, ACallThatDoesNotReturnFailsAtItsDeadline) {
  const int timeout_ms = test_support::deadline_ms(300);
  const Setting fault("NCCL_ON_CPU_FAULT", "keep_call:3@1");
  for (const char* blocking : {"0", "1"}) {
    const Setting mode("ENGINE_NCCL_BLOCKING", blocking);
    const auto start = Clock::now();
    const auto outcomes = run_forked(2, {.timeout_ms = timeout_ms}, [](Group& group) {
      const auto c = group.make_device_communicator({.backend = "nccl"});
      const Stream stream;
      const DeviceBytes data(kCount * 4);
      for (int i = 0; i < 5; ++i) reduce_on(*c, stream, data);
    });
    EXPECT_FALSE(test_support::is_past(start, 10s));
    for (const std::string& text : outcomes) expect_has(text, "peer: backend nccl, rank ");
    EXPECT_TRUE(std::ranges::any_of(outcomes,
                                    [&](const std::string& text) {
                                      return test_support::has_values(
                                          text, "timeout " + std::to_string(timeout_ms) +
                                                    " ms ncclAllReduce");
                                    }))
        << outcomes[0] << "\n"
        << outcomes[1];
  }
}

TEST_F(NcclLibraryFile, ARefusedStartIsToldToTheOthersWhereCallsBlock) {
  const Setting mode("ENGINE_NCCL_BLOCKING", "1"), fault("NCCL_ON_CPU_FAULT", "refuse_init@1");
  const auto outcomes =
      run_forked(2, {}, [](Group& group) { group.make_device_communicator({.backend = "nccl"}); });
  expect_has(outcomes[1], "connecting the ranks: ncclCommInitRankConfig: unhandled system error");
  expect_has(outcomes[0], "rank 1 ");
}

// Registering can be switched off, should a library or a network not take it.
TEST_F(NcclLibraryFile, RegistersMemoryUnlessThatIsSwitchedOff) {
  const Setting refusing("NCCL_ON_CPU_FAULT", "refuse_register");
  const auto outcomes = [] {
    return run_forked(2, {}, [](Group& group) {
      const auto c = group.make_device_communicator({.backend = "nccl"});
      void* memory = c->allocate(kCount * 4);
      c->register_memory(memory, kCount * 4);
      c->all_reduce(memory, kCount, DType::kF32, ReduceOp::kMax);
    });
  };
  for (const std::string& text : outcomes()) expect_has(text, "ncclCommRegister: ");
  const Setting off("ENGINE_NCCL_REGISTER", "0");
  EXPECT_EQ(outcomes(), (std::vector<std::string>{"ok", "ok"}));
}

TEST_F(NcclLibraryFile, ThatDoesNotFitOrIsNotThereIsNamedOnAllRanks) {
  const auto with_setting_on_rank_1 = [](const char* name, const std::string& value) {
    return run_forked(2, {}, [&](Group& group) {
      if (group.rank() == 1) setenv(name, value.c_str(), 1);
      group.make_device_communicator({.backend = "nccl"});
    });
  };
  for (const std::string& text : with_setting_on_rank_1("NCCL_ON_CPU_VERSION", "21903"))
    EXPECT_VALUES(text, "configuration: nccl rank 0 2.28.9, rank 1 2.19.3");
  for (const std::string& text :
       with_setting_on_rank_1("ENGINE_NCCL_LIBRARY", "/nowhere/libnccl.so.2"))
    EXPECT_VALUES(text, "configuration: nccl rank 1 ENGINE_NCCL_LIBRARY /nowhere/libnccl.so.2");
}

class DeviceFailure : public ::testing::Test {
 protected:
  void SetUp() override { skip_without(4); }
};
class DeviceDisagreement : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { skip_without(3); }
};
// Faults on demand, which only the emulated NCCL supports.
class NcclFault : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!nccl_is_emulated()) GTEST_SKIP() << "needs the emulated NCCL";
  }
  // Each of two ranks reduces `calls` times; returns what each threw. Fails if that takes long.
  std::vector<std::string> reduce(int timeout_ms, int calls) {
    const auto start = Clock::now();
    auto outcomes = run_threads(2, {.timeout_ms = timeout_ms}, [&](Group& group) {
      const auto c = group.make_device_communicator({.backend = "nccl"});
      const Stream stream;
      const DeviceBytes data(kCount * 4);
      try {
        for (int i = 0; i < calls; ++i) reduce_on(*c, stream, data);
      } catch (const backends::PeerError&) {
        EXPECT_THROW(c->check(), backends::PeerError) << "it must be broken for good";
        EXPECT_THROW(c->all_reduce(data.get(), kCount, DType::kF32, ReduceOp::kSum),
                     backends::PeerError);
        EXPECT_EQ(cudaStreamQuery(stream.get()), cudaSuccess)
            << "the stream still waits for a peer";
        throw;
      }
    });
    EXPECT_FALSE(test_support::is_past(start, 8s));
    return outcomes;
  }
};

// The first collective of all is the one that connects.
TEST_F(NcclFault, ACallThatNeverEndsFailsAtItsDeadline) {
  const Setting fault("NCCL_ON_CPU_FAULT", "never:3@1");
  const int timeout_ms = test_support::deadline_ms(1000);
  const auto outcomes = reduce(timeout_ms, 5);
  for (const std::string& outcome : outcomes) expect_has(outcome, "peer: backend nccl, rank ");
  EXPECT_TRUE(std::ranges::any_of(outcomes, [&](const std::string& text) {
    return test_support::has_values(text,
                                    "timeout " + std::to_string(timeout_ms) + " ms ncclAllReduce");
  })) << outcomes[0];
}

TEST_F(NcclFault, AnErrorBehindTheCallIsFound) {
  const Setting fault("NCCL_ON_CPU_FAULT", "async_error:2@0");
  const auto outcomes = reduce(kLongTimeout, 5);
  expect_has(
      outcomes[0],
      "ncclAllReduce: remote process exited or there was a network error (failed on demand)");
  expect_has(outcomes[1], "rank 0 ");
}

TEST_F(NcclFault, ARefusedStartIsToldToTheOthers) {
  const Setting fault("NCCL_ON_CPU_FAULT", "refuse_init@1");
  const auto outcomes = reduce(kLongTimeout, 1);
  expect_has(
      outcomes[1],
      "connecting the ranks: ncclCommInitRankConfig: unhandled system error (refused on demand)");
  expect_has(outcomes[0], "rank 1 ");
}

TEST_F(NcclFault, MemoryIsDeregisteredInOrder) {
  ::testing::internal::CaptureStderr();
  const auto outcomes = run_threads(2, {}, [](Group& group) {
    auto c = group.make_device_communicator({.backend = "nccl"});
    const DeviceBytes kept(4096);
    void* memory = c->allocate(4096);
    c->register_memory(memory, 4096);
    c->register_memory(kept.get(), 4096);
    c->release(memory);
    c.reset();
  });
  EXPECT_EQ(outcomes, (std::vector<std::string>{"", ""}));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(DeviceFailure, AKilledRankIsNamedByTheOthers) {
  for (const char* way : {"nccl", "staged:shm"}) {
    const auto start = Clock::now();
    const auto outcomes = run_forked(3, {}, [&](Group& group) {
      const auto c = group.make_device_communicator({.backend = way});
      const Stream stream;
      const DeviceBytes data(kCount * 4);
      reduce_on(*c, stream, data);
      if (group.rank() == 1) kill(getpid(), SIGKILL);
      for (;;) reduce_on(*c, stream, data);
    });
    EXPECT_FALSE(test_support::is_past(start, 8s));
    for (const std::size_t survivor : {0u, 2u}) {
      expect_has(outcomes[survivor], std::string("peer: backend ") + way);
      expect_has(outcomes[survivor], "rank 1 (host ");
      expect_has(outcomes[survivor], "died");
    }
  }
}

// ncclCommAbort() returns only once every graph with a call of the communicator is destroyed.
TEST_F(DeviceFailure, ACapturedStepDoesNotDelayTheError) {
  const auto start = Clock::now();
  const auto outcomes = run_forked(2, {}, [&](Group& group) {
    const auto c = group.make_device_communicator({.backend = "nccl"});
    const Stream stream;
    const DeviceBytes data(kCount * 4);
    reduce_on(*c, stream, data);
    struct Graph {
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t executable = nullptr;
      ~Graph() {
        if (executable != nullptr) cudaGraphExecDestroy(executable);
        if (graph != nullptr) cudaGraphDestroy(graph);
      }
    } step;
    cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal);
    c->all_reduce_on(stream.get(), data.get(), kCount, DType::kF32, ReduceOp::kSum);
    cudaStreamEndCapture(stream.get(), &step.graph);
    cudaGraphInstantiate(&step.executable, step.graph, 0);
    for (int i = 0;; ++i) {
      if (i == 3 && group.rank() == 1) kill(getpid(), SIGKILL);
      cudaGraphLaunch(step.executable, stream.get());
      c->wait(stream.get());
    }
  });
  EXPECT_FALSE(test_support::is_past(start, 8s));
  expect_has(outcomes[0], "peer: backend nccl");
  expect_has(outcomes[0], "died");
}

TEST_F(DeviceFailure, AbortWakesAWaitingCall) {
  for (const char* way : {"nccl", "staged:gloo"}) {
    std::atomic<bool> woken{false};
    const auto outcomes = run_threads(2, {}, [&](Group& group) {
      const auto c = group.make_device_communicator({.backend = way});
      const Stream stream;
      const DeviceBytes data(kCount * 4);
      if (group.rank() == 1) {
        EXPECT_TRUE(test_support::eventually([&] { return woken.load(); }));
        return;
      }
      std::thread aborter([&] {
        std::this_thread::sleep_for(200ms);
        c->abort("the user wants it");
      });
      std::string text;
      try {
        reduce_on(*c, stream, data);
      } catch (const backends::PeerError& error) {
        text = error.what();
      }
      aborter.join();
      woken = true;  // so it was not the other rank's leaving that woke it
      expect_has(text, "aborted: the user wants it");
    });
    for (const std::string& outcome : outcomes) EXPECT_EQ(outcome, "");
  }
}

// Freeing memory of the device waits for what is enqueued.
TEST_F(DeviceFailure, AfterCancelMemoryCanBeFreedThoughAPeerDoesNotCome) {
  std::atomic<bool> freed{false};
  const auto outcomes = run_threads(2, {}, [&](Group& group) {
    const auto c = group.make_device_communicator({.backend = "nccl"});
    if (group.rank() == 1) {
      EXPECT_TRUE(test_support::eventually([&] { return freed.load(); }));
      return;
    }
    const Stream stream;
    {
      const DeviceBytes data(kCount * 4);
      c->all_reduce_on(stream.get(), data.get(), kCount, DType::kF32, ReduceOp::kSum);
      cancel(*c);
    }
    freed = true;
  });
  for (const std::string& outcome : outcomes) EXPECT_EQ(outcome, "");
}

TEST_F(DeviceFailure, HostMemoryIsRefused) {
  for (const char* way : {"nccl", "staged:shm"}) {
    for (const std::string& outcome : run_threads(2, {}, [&](Group& group) {
           const auto c = group.make_device_communicator({.backend = way});
           std::vector<float> host(10);
           c->all_reduce(host.data(), host.size(), DType::kF32, ReduceOp::kSum);
         })) {
      EXPECT_VALUES(outcome, "configuration: host memory, CUDA device");
    }
  }
}

TEST_P(DeviceDisagreement, AFailureOfOneRankIsTheAnswerOfAll) {
  const auto outcomes = run_threads(3, {}, [](Group& group) {
    const auto c = group.make_device_communicator({.backend = GetParam()});
    EXPECT_EQ(c->first_failure(""), "");
    EXPECT_EQ(c->first_failure(group.rank() == 0 ? "" : "no " + std::to_string(group.rank())),
              "rank 1: no 1");
    EXPECT_EQ(c->first_failure(group.rank() == 0 ? "none" : ""), "rank 0: none");
    EXPECT_EQ(c->first_failure(""), "");
  });
  EXPECT_EQ(outcomes, (std::vector<std::string>(3)));
}

TEST_P(DeviceDisagreement, OfAPlanIsNamedOnBothSides) {
  const auto word = [](std::uint32_t at, std::size_t count) {
    return backends::reduction_word(Operation::kAllReduce, at, count, DType::kBF16, ReduceOp::kSum);
  };
  const auto run = [&](int odd_rank, const std::vector<ControlWord>& odd) {
    return run_threads(3, {}, [&](Group& group) {
      const auto c = group.make_device_communicator({.backend = GetParam()});
      const std::vector<ControlWord> plan = {word(1, 100), word(2, 200)};
      c->agree({});
      c->agree(plan);
      c->agree(group.rank() == odd_rank ? odd : plan);
    });
  };
  for (const std::string& text : run(2, {word(1, 100), word(2, 201)}))
    expect_has(text,
               "rank 0 called all_reduce sum of 200 bf16, rank 2 all_reduce sum of 201 bf16 "
               "(collective 2");
  for (const std::string& text : run(1, {word(1, 100)}))
    expect_has(text, "all_reduce sum of 200 bf16 (collective 2)");
  for (const std::string& text : run(0, {word(1, 100), word(2, 200), word(3, 7)})) {
    expect_has(text, "mismatch: ");
    expect_has(text, "only rank 0 plans all_reduce sum of 7 bf16");
  }
}

// Only the last of many pieces differs: no earlier piece may have been used.
TEST_P(DeviceDisagreement, OfABlockingCallIsNamedBeforeDataIsUsed) {
  constexpr std::size_t kMany = 700'000;
  const auto outcomes = run_threads(3, {}, [&](Group& group) {
    const auto c = group.make_device_communicator({.backend = GetParam()});
    const Bytes before((kMany + 1) * 4, 1);
    const DeviceBytes data(before);
    try {
      c->all_reduce(data.get(), group.rank() == 1 ? kMany + 1 : kMany, DType::kF32, ReduceOp::kMax);
    } catch (const backends::MismatchError&) {
      EXPECT_TRUE(data.read() == before);
      throw;
    }
  });
  for (const std::string& text : outcomes) {
    expect_has(text, "mismatch: backend ");
    expect_has(text, "all_reduce max of 700000 f32");
    expect_has(text, "rank 1 ");
    expect_has(text, "all_reduce max of 700001 f32");
  }
}

TEST_P(DeviceDisagreement, OfRegisteredMemoryIsNamed) {
  for (const std::string& text : run_threads(3, {}, [&](Group& group) {
         const auto c = group.make_device_communicator({.backend = GetParam()});
         const DeviceBytes data(8192);
         c->register_memory(data.get(), group.rank() == 2 ? 4096 : 8192);
       }))
    expect_has(text,
               "rank 0 called register_memory of 8192 bytes, rank 2 register_memory of 4096 bytes");
}
INSTANTIATE_TEST_SUITE_P(Ways, DeviceDisagreement, ::testing::Values("nccl", "staged:shm"),
                         [](const auto& which) {
                           return std::string(which.param) == "nccl" ? "nccl" : "staged";
                         });

TEST_F(DeviceFailure, MembersHaveCommunicatorsOfTheirOwn) {
  for (const char* way : {"nccl", "staged:shm"}) {
    const auto outcomes = run_threads(4, {}, [&](Group& group) {
      const int parity = group.rank() % 2;
      const auto all = group.make_device_communicator({.backend = way});
      const auto half =
          group.make_device_communicator({.backend = way, .members = {parity, parity + 2}});
      const auto pair = group.rank() < 2
                            ? group.make_device_communicator({.backend = way, .members = {0, 1}})
                            : nullptr;
      const auto alone =
          group.make_device_communicator({.backend = way, .members = {group.rank()}});
      Bytes one(4);
      const float value = static_cast<float>(1 << group.rank());
      std::memcpy(one.data(), &value, 4);
      for (const auto& [c, expected] : {std::pair{all.get(), 15.f},
                                        {half.get(), parity == 0 ? 5.f : 10.f},
                                        {pair.get(), 3.f},
                                        {alone.get(), value}}) {
        if (c == nullptr) continue;
        const DeviceBytes data(one);
        c->all_reduce(data.get(), 1, DType::kF32, ReduceOp::kSum);
        float sum = 0;
        std::memcpy(&sum, data.read().data(), 4);
        EXPECT_EQ(sum, expected) << c->name() << " of " << c->world_size();
      }
    });
    for (const std::string& outcome : outcomes) EXPECT_EQ(outcome, "");
  }
}

// A group of threads, one device each, has the same two communicators.
TEST_F(DeviceFailure, ThreadsOfOneProcessHaveBothWays) {
  std::mutex mutex;
  std::string notices;
  const auto keep = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    notices += text + "\n";
  };
  const std::string expected =
      nccl_note().find("NCCL 2.") != std::string::npos ? "nccl" : "staged:inproc";
  for (const bool one_device : {false, true}) {
    const auto outcomes = run_threads(
        3, {.one_device = one_device, .inproc = true, .notice = keep}, [&](Group& group) {
          const auto by_choice = group.make_device_communicator();
          EXPECT_EQ(by_choice->name(), one_device ? "staged:inproc" : expected);
          const auto staged = group.make_device_communicator({.backend = "staged"});
          EXPECT_EQ(staged->name(), "staged:inproc");
          for (DeviceCommunicator* c : {by_choice.get(), staged.get()}) {
            const Stream stream;
            const DeviceBytes data(Bytes(kCount * 4, 0));
            reduce_on(*c, stream, data);
            const ControlWord word = backends::transfer_word(Operation::kBroadcast, 1, 12);
            c->agree({&word, 1});
          }
        });
    for (const std::string& outcome : outcomes) EXPECT_EQ(outcome, "");
  }
  expect_has(notices, "no NCCL: rank 0 and rank 1 use one GPU");
  EXPECT_EQ(
      run_threads(2, {.one_device = true, .inproc = true},
                  [](Group& group) { group.make_device_communicator({.backend = "nccl"}); })[1]
          .rfind("configuration: backend nccl ", 0),
      0u);
}

TEST_F(DeviceFailure, AThreadThatEndsIsNamedByTheOthers) {
  for (const char* way : {"nccl", "staged"}) {
    const auto start = Clock::now();
    const auto outcomes = run_threads(3, {.inproc = true}, [&](Group& group) {
      const auto c = group.make_device_communicator({.backend = way});
      const Stream stream;
      const DeviceBytes data(kCount * 4);
      group.set_activity("step 7");
      reduce_on(*c, stream, data);
      if (group.rank() == 1) throw std::runtime_error("enough");
      for (;;) reduce_on(*c, stream, data);
    });
    EXPECT_FALSE(test_support::is_past(start, 8s));
    EXPECT_EQ(outcomes[1], "other: enough");
    for (const std::size_t survivor : {0u, 2u}) {
      expect_has(outcomes[survivor], std::string("peer: backend ") + way);
      expect_has(outcomes[survivor], "rank 1 ended before the others; last activity: step 7");
    }
  }
}

// Slices of a card have one bus address and a UUID each; NCCL goes by the address.
TEST(SharedGpu, SlicesOfOneCardAreToldApart) {
  skip_without(2);
  if (!nccl_is_emulated()) GTEST_SKIP() << "needs emulated slices";
  const Setting slices("ENGINE_EMULATED_SLICES", "1");
  const auto nccl = [](Group& group) { group.make_device_communicator({.backend = "nccl"}); };
  for (const std::string& text : run_threads(2, {}, nccl)) {
    expect_has(text, "configuration: nccl rank 0 rank 1 two MIG one GPU");
    expect_has(text, "NCCL_MULTI_RANK_GPU_ENABLE=1");
  }
  for (const std::string& text : run_threads(2, {.one_device = true}, nccl))
    expect_has(text, "rank 0 rank 1 one GPU (");
  for (const std::string& text : run_threads(2, {}, [](Group& group) {
         const auto c = group.make_device_communicator({.backend = "auto"});
         EXPECT_EQ(c->name(), "staged:shm");
         const DeviceBytes data(kCount * 4);
         c->all_reduce(data.get(), kCount, DType::kF32, ReduceOp::kSum);
       }))
    EXPECT_EQ(text, "");
  // What NCCL says where the user lets it decide: this one does not know the variable.
  const Setting allowed("NCCL_MULTI_RANK_GPU_ENABLE", "1");
  for (const std::string& text : run_threads(2, {}, nccl))
    expect_has(text, "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device");
}

// NCCL needs a GPU per rank: otherwise `auto` reports that and uses pinned memory. Tests may allow
// sharing.
TEST(SharedGpu, IsRefusedOrReported) {
  skip_without(1);
  if (!nccl_is_emulated()) GTEST_SKIP() << "needs NCCL on one GPU";
  for (const std::string& text : run_threads(3, {.one_device = true}, [](Group& group) {
         group.make_device_communicator({.backend = "nccl"});
       })) {
    expect_has(text, "rank 0 rank 1 GPU");
  }
  std::mutex mutex;
  std::string notices;
  const auto keep = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    notices += text + "\n";
  };
  const auto fallen_back = run_threads(2, {.one_device = true, .notice = keep}, [](Group& group) {
    EXPECT_EQ(group.make_device_communicator({.backend = "auto"})->name(), "staged:shm");
  });
  for (const std::string& outcome : fallen_back) EXPECT_EQ(outcome, "");
  expect_has(notices, "no NCCL: rank 0 and rank 1 use one GPU");

  const Setting allowed("ENGINE_ALLOW_SHARED_GPU", "1");
  const auto shared = run_forked(2, {.one_device = true}, [](Group& group) {
    const auto c = group.make_device_communicator({.backend = "auto"});
    if (c->name() != "nccl") throw std::runtime_error("not nccl");
    const DeviceBytes data(kCount * 4);
    c->all_reduce(data.get(), kCount, DType::kF32, ReduceOp::kSum);
  });
  EXPECT_EQ(shared, (std::vector<std::string>{"ok", "ok"}));
  // Threads have one NCCL_HOSTID: NCCL itself refuses. Other threads may be reading the list of
  // variables that this one is added to.
  char** const list = environ;
  std::vector<char*> before;
  for (char** variable = list; *variable != nullptr; ++variable) before.push_back(*variable);
  for (const std::string& text : run_threads(2, {.one_device = true}, [](Group& group) {
         group.make_device_communicator({.backend = "nccl"});
       }))
    expect_has(text,
               "invalid usage (Duplicate GPU detected : rank 0 and rank 1 both on CUDA device");
  EXPECT_NE(environ, list);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), list));
}

}  // namespace
