// Fibers of Boost.Context, one for each thread of a block; a barrier gives the CPU to the next
// fiber.
#include "tests/emulator/simt/simt.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1  // as GCC says it
#endif
#endif
#if defined(ENGINE_SANITIZES_THREADS)  // this file itself is not instrumented (CMakeLists.txt)
#include <sanitizer/tsan_interface.h>
// What instrumented code calls before it copies a structure.
extern "C" void __tsan_read_range(void* start, unsigned long bytes);
extern "C" void __tsan_write_range(void* start, unsigned long bytes);
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, bytes) (static_cast<void>(start), static_cast<void>(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(start, bytes) \
  (static_cast<void>(start), static_cast<void>(bytes))
#endif

namespace simt {
namespace {

namespace context = boost::context::detail;
#if defined(ENGINE_SANITIZES_THREADS)
constexpr std::size_t kStackBytes = std::size_t{512} * 1024;  // it writes its reports there
#else
constexpr std::size_t kStackBytes = std::size_t{128} * 1024;
#endif
constexpr unsigned kWarp = 32;

// What the thread sanitizer is told of a block's threads: each is a fiber of its own to it, and
// what orders two of them are barriers alone, not that they take turns on one CPU thread. Without
// it these do nothing.
#if defined(ENGINE_SANITIZES_THREADS)
void* create_race_fiber() { return __tsan_create_fiber(0); }
void destroy_race_fiber(void* fiber) { __tsan_destroy_fiber(fiber); }
void* current_race_fiber() { return __tsan_get_current_fiber(); }
void switch_race_fiber(void* fiber) {
  __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
}
// Whatever was done before gives() comes before what is done after a later takes() of the address.
void gives(void* order) { __tsan_release(order); }
void takes(void* order) { __tsan_acquire(order); }
void will_copy(void* to, const void* from, std::size_t bytes, std::size_t valid) {
  __tsan_write_range(to, bytes);
  if (valid > 0) __tsan_read_range(const_cast<void*>(from), valid);
}
#else
void* create_race_fiber() { return nullptr; }
void destroy_race_fiber(void*) {}
void* current_race_fiber() { return nullptr; }
void switch_race_fiber(void*) {}
void gives(void*) {}
void takes(void*) {}
void will_copy(void*, const void*, std::size_t, std::size_t) {}
#endif

// A barrier's order. Two in turn: whoever is fast may already be at the next one when the last
// leaves this one, and has not given that what it did in between.
struct BarrierOrder {
  char phase[2];
};

enum class State { kReady, kAtBlockBarrier, kAtWarpBarrier, kDone };

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes, valid;
};

struct Fiber {
  context::fcontext_t where = nullptr;
  void* fake_stack = nullptr;  // the address sanitizer's
  State state = State::kDone;
  Index thread;
  unsigned number = 0, gathers = 0;
  unsigned block_barriers = 0, warp_barriers = 0;  // how many it has come to
  std::vector<std::vector<Copy>> groups;           // committed, oldest first
  std::vector<Copy> open;
};

struct Warp {
  alignas(64) std::byte lanes[2][kWarp][kLaneBytes];
  unsigned size = 0, alive = 0, arrived = 0;
  BarrierOrder barriers;
};

// A block's shared memory. It ends, but for less than 128 bytes, at a page that is never mapped.
class SharedMemory {
 public:
  static constexpr std::size_t kMost = std::size_t{163} * 1024;  // what a block of sm_80 may have

  SharedMemory()
      : page_(static_cast<std::size_t>(getpagesize())), room_((kMost + page_ - 1) / page_ * page_) {
    void* mapping =
        mmap(nullptr, room_ + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<std::byte*>(mapping);
    mprotect(mapping_ + room_, page_, PROT_NONE);
  }
  ~SharedMemory() {
    ASAN_UNPOISON_MEMORY_REGION(mapping_, room_);
    munmap(mapping_, room_ + page_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  void resize(std::size_t bytes) {
    ASAN_UNPOISON_MEMORY_REGION(mapping_, room_);
    bytes_ = bytes;
    start_ = mapping_ + room_ - (bytes + 127) / 128 * 128;
    ASAN_POISON_MEMORY_REGION(start_ + bytes,
                              static_cast<std::size_t>(mapping_ + room_ - (start_ + bytes)));
  }
  // What a block finds there is nobody's: all ones is NaN in every floating type.
  void forget() { std::memset(start_, 0xff, bytes_); }
  std::byte* start() const { return start_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t page_, room_, bytes_ = 0;
  std::byte* mapping_ = nullptr;
  std::byte* start_ = nullptr;
};

struct Executor {
  std::vector<Fiber> fibers;
  std::vector<std::unique_ptr<std::byte[]>> stacks;
  std::vector<void*> race_fibers;  // the thread sanitizer's, of each
  std::vector<Warp> warps;
  std::vector<unsigned> order;
  SharedMemory shared;
  Index grid, block, here;
  unsigned alive = 0, arrived = 0;
  BarrierOrder barriers;
  char begin = 0, end = 0;     // orders of the block's first and last instructions
  void* race_fiber = nullptr;  // the scheduler's
  const std::function<void()>* body = nullptr;
  context::fcontext_t scheduler = nullptr;
  const void* scheduler_stack = nullptr;
  std::size_t scheduler_stack_bytes = 0;
  std::exception_ptr failure;
  Fiber* current = nullptr;

  ~Executor() { forget_race_fibers(); }
  void forget_race_fibers() {
    for (void*& fiber : race_fibers) {
      if (fiber != nullptr) destroy_race_fiber(std::exchange(fiber, nullptr));
    }
  }
};

thread_local Executor* executor = nullptr;

Executor& running() {
  if (executor == nullptr) throw std::logic_error("a device function was called outside a kernel");
  return *executor;
}

void before_switch([[maybe_unused]] void** save, [[maybe_unused]] const void* stack,
                   [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(save, stack, bytes);
#endif
}
void after_switch([[maybe_unused]] void* saved, [[maybe_unused]] const void** stack,
                  [[maybe_unused]] std::size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(saved, stack, bytes);
#endif
}

// From a fiber to the scheduler.
void yield(Executor& e) {
  Fiber& self = *e.current;
  before_switch(self.state == State::kDone ? nullptr : &self.fake_stack, e.scheduler_stack,
                e.scheduler_stack_bytes);
  switch_race_fiber(e.race_fiber);
  const context::transfer_t from = context::jump_fcontext(e.scheduler, nullptr);
  e.scheduler = from.fctx;
  after_switch(self.fake_stack, &e.scheduler_stack, &e.scheduler_stack_bytes);
}

void release_block(Executor& e) {
  e.arrived = 0;
  for (Fiber& f : e.fibers)
    if (f.state == State::kAtBlockBarrier) f.state = State::kReady;
}

void release_warp(Executor& e, unsigned warp) {
  e.warps[warp].arrived = 0;
  const unsigned first = warp * kWarp;
  for (unsigned i = first; i < first + e.warps[warp].size; ++i)
    if (e.fibers[i].state == State::kAtWarpBarrier) e.fibers[i].state = State::kReady;
}

void leave(Executor& e, Fiber& f) {
  f.state = State::kDone;
  Warp& warp = e.warps[f.number / kWarp];
  --e.alive;
  --warp.alive;
  if (e.alive > 0 && e.arrived == e.alive) release_block(e);
  if (warp.arrived > 0) {
    e.failure = std::make_exception_ptr(
        std::logic_error("a thread ended while others of its warp wait for it"));
  }
}

void fiber_main(context::transfer_t from) {
  Executor& e = *executor;
  e.scheduler = from.fctx;
  after_switch(nullptr, &e.scheduler_stack, &e.scheduler_stack_bytes);
  takes(&e.begin);
  try {
    (*e.body)();
    if (!e.current->open.empty() || !e.current->groups.empty()) {
      for (const auto& group : e.current->groups)
        if (!group.empty())
          throw std::logic_error("a thread ended without waiting for its asynchronous copies");
      if (!e.current->open.empty())
        throw std::logic_error("a thread ended without committing its asynchronous copies");
    }
  } catch (...) {
    if (!e.failure) e.failure = std::current_exception();
  }
  gives(&e.end);
  leave(e, *e.current);
  yield(e);
}

void start(Executor& e, unsigned number) {
  Fiber& f = e.fibers[number];
  ASAN_UNPOISON_MEMORY_REGION(e.stacks[number].get(),
                              kStackBytes);  // frames that never returned were on it
  f.where = context::make_fcontext(e.stacks[number].get() + kStackBytes, kStackBytes, fiber_main);
  f.state = State::kReady;
  f.fake_stack = nullptr;
  if (e.race_fibers[number] == nullptr) e.race_fibers[number] = create_race_fiber();
  f.gathers = f.block_barriers = f.warp_barriers = 0;
  f.groups.clear();
  f.open.clear();
}

void resume(Executor& e, Fiber& f) {
  e.current = &f;
  void* fake_stack = nullptr;
  before_switch(&fake_stack, e.stacks[f.number].get(), kStackBytes);
  switch_race_fiber(e.race_fibers[f.number]);
  f.where = context::jump_fcontext(f.where, nullptr).fctx;
  after_switch(fake_stack, nullptr, nullptr);
}

void run_block(Executor& e, const char* name) {
  const auto count = static_cast<unsigned>(e.fibers.size());
  e.alive = count;
  e.arrived = 0;
  for (unsigned w = 0; w < e.warps.size(); ++w) {
    e.warps[w].size = e.warps[w].alive = std::min(kWarp, count - w * kWarp);
    e.warps[w].arrived = 0;
  }
  e.shared.forget();
  for (unsigned i = 0; i < count; ++i) start(e, i);
  e.race_fiber = current_race_fiber();
  gives(&e.begin);
  while (e.alive > 0) {
    bool progress = false;
    for (const unsigned i : e.order) {
      Fiber& f = e.fibers[i];
      if (f.state != State::kReady) continue;
      progress = true;
      resume(e, f);
      if (e.failure) return;
    }
    if (!progress)
      throw std::logic_error(std::string(name) +
                             ": some threads of a block never reach the barrier of the others");
  }
  takes(&e.end);
}

std::vector<unsigned> thread_order(unsigned count) {
  std::vector<unsigned> order(count);
  std::iota(order.begin(), order.end(), 0u);
  const char* wanted = std::getenv("ENGINE_EMULATED_ORDER");
  const std::string how = wanted == nullptr ? "forward" : wanted;
  if (how == "reverse") std::reverse(order.begin(), order.end());
  if (how == "shuffled") std::shuffle(order.begin(), order.end(), std::mt19937(count));
  return order;
}

}  // namespace

const Index& thread_index() { return running().current->thread; }
const Index& block_index() { return running().here; }
const Index& block_dim() { return running().block; }
const Index& grid_dim() { return running().grid; }
unsigned lane() { return running().current->number % kWarp; }
void* shared_memory() {
  Executor& e = running();
  if (e.shared.bytes() == 0)
    throw std::logic_error("a kernel uses shared memory, but was launched without");
  return e.shared.start();
}
std::size_t shared_bytes() { return running().shared.bytes(); }

void sync_threads() {
  Executor& e = running();
  void* order = &e.barriers.phase[e.current->block_barriers++ % 2];
  gives(order);
  if (++e.arrived == e.alive) {
    release_block(e);
  } else {
    e.current->state = State::kAtBlockBarrier;
    yield(e);
  }
  takes(order);
}

void sync_warp() {
  Executor& e = running();
  const unsigned number = e.current->number / kWarp;
  Warp& warp = e.warps[number];
  if (warp.alive != warp.size)
    throw std::logic_error("a thread waits for its warp, of which some have ended");
  void* order = &warp.barriers.phase[e.current->warp_barriers++ % 2];
  gives(order);
  if (++warp.arrived == warp.alive) {
    release_warp(e, number);
  } else {
    e.current->state = State::kAtWarpBarrier;
    yield(e);
  }
  takes(order);
}

const std::byte* warp_gather(const void* mine, std::size_t bytes) {
  Executor& e = running();
  Fiber& self = *e.current;
  Warp& warp = e.warps[self.number / kWarp];
  auto& lanes = warp.lanes[self.gathers++ % 2];
  if (bytes > kLaneBytes) throw std::logic_error("a lane gives too many bytes");
  std::memcpy(lanes[self.number % kWarp], mine, bytes);
  sync_warp();
  return &lanes[0][0];
}

void copy_async(void* to, const void* from, std::size_t bytes, std::size_t valid) {
  if (reinterpret_cast<std::uintptr_t>(to) % bytes != 0 ||
      (valid > 0 && reinterpret_cast<std::uintptr_t>(from) % bytes != 0))
    throw std::logic_error("an asynchronous copy that is not aligned to its size");
  will_copy(to, from, bytes, valid);  // a device may do so at once
  running().current->open.push_back({to, from, bytes, valid});
}

void commit_copies() {
  Fiber& self = *running().current;
  self.groups.push_back(std::move(self.open));
  self.open.clear();
}

void wait_copies(int pending_groups) {
  Fiber& self = *running().current;
  while (self.groups.size() > static_cast<std::size_t>(pending_groups)) {
    for (const Copy& copy : self.groups.front()) {
      if (copy.valid > 0) std::memcpy(copy.to, copy.from, copy.valid);
      std::memset(static_cast<std::byte*>(copy.to) + copy.valid, 0, copy.bytes - copy.valid);
    }
    self.groups.erase(self.groups.begin());
  }
}

void run_grid(Index grid, Index block, std::size_t shared_bytes, const char* name,
              const std::function<void()>& thread) {
  static thread_local Executor own;  // stacks are kept from launch to launch
  if (executor != nullptr) throw std::logic_error("a kernel launches a kernel");
  Executor& e = own;
  const unsigned count = block.x * block.y * block.z;
  if (count == 0 || count > 1024)
    throw std::logic_error(std::string(name) + ": a block of " + std::to_string(count) +
                           " threads");
  if (grid.y > 65535 || grid.z > 65535 || grid.x == 0 || grid.y == 0 || grid.z == 0)
    throw std::logic_error(std::string(name) + ": a grid that no device takes");
  if (shared_bytes > SharedMemory::kMost)
    throw std::logic_error(std::string(name) + ": " + std::to_string(shared_bytes) +
                           " bytes of shared memory a block");
  while (e.stacks.size() < count)
    e.stacks.push_back(std::make_unique_for_overwrite<std::byte[]>(kStackBytes));
  e.race_fibers.resize(e.stacks.size());
  e.fibers.resize(count);
  e.warps.resize((count + kWarp - 1) / kWarp);
  e.order = thread_order(count);
  e.shared.resize(shared_bytes);
  e.grid = grid;
  e.block = block;
  e.body = &thread;
  e.failure = nullptr;
  for (unsigned i = 0; i < count; ++i) {
    e.fibers[i].number = i;
    e.fibers[i].thread = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
  }
  executor = &e;
  try {
    for (e.here.z = 0; e.here.z < grid.z; ++e.here.z)
      for (e.here.y = 0; e.here.y < grid.y; ++e.here.y)
        for (e.here.x = 0; e.here.x < grid.x; ++e.here.x) {
          run_block(e, name);
          if (e.failure) std::rethrow_exception(e.failure);
        }
  } catch (const std::exception& failed) {
    executor = nullptr;
    e.forget_race_fibers();  // some are in the middle of the kernel
    throw std::logic_error(std::string(name) + ": " + failed.what());
  }
  executor = nullptr;
}

}  // namespace simt
