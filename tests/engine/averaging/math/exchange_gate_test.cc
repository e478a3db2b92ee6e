// One exchange of some devices takes place at a time, and not while graphs are created.
#include "engine/averaging/math/exchange_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace engine {
namespace {

// Expects that an Entered on another thread waits until an Open is destroyed. Work of this thread
// in between gives the other one time to fail.
template <class Open, class Entered>
void expect_waits(ExchangeGate& gate) {
  std::atomic<bool> has_entered = false;
  auto open = std::make_unique<Open>(gate);
  std::jthread other([&] {
    const Entered entered(gate);
    has_entered = true;
  });
  for (int i = 0; i < 100; ++i) {
    std::this_thread::yield();
    EXPECT_FALSE(has_entered);
  }
  open.reset();
  other.join();
  EXPECT_TRUE(has_entered);
}

TEST(ExchangeGate, ExchangesAndCreationsWaitForEachOther) {
  ExchangeGate gate;
  expect_waits<ExchangeGate::Exchange, ExchangeGate::Exchange>(gate);
  expect_waits<ExchangeGate::Exchange, ExchangeGate::Creation>(gate);
  expect_waits<ExchangeGate::Creation, ExchangeGate::Exchange>(gate);
}

TEST(ExchangeGate, GraphsAreCreatedAtTheSameTime) {
  ExchangeGate gate;
  const ExchangeGate::Creation first(gate);
  std::jthread([&gate] { const ExchangeGate::Creation second(gate); }).join();
}

}  // namespace
}  // namespace engine
