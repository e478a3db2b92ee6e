// Counts what is in progress.
#include "engine/averaging/math/exchange_gate.h"

namespace engine {

ExchangeGate& ExchangeGate::of_process() {
  static ExchangeGate gate;
  return gate;
}

ExchangeGate::Exchange::Exchange(ExchangeGate& gate) : gate_(gate) {
  std::unique_lock lock(gate_.mutex_);
  gate_.changed_.wait(lock, [&] { return gate_.creations_ == 0 && !gate_.exchange_; });
  gate_.exchange_ = true;
}
ExchangeGate::Exchange::~Exchange() {
  const std::lock_guard lock(gate_.mutex_);
  gate_.exchange_ = false;
  gate_.changed_.notify_all();
}

ExchangeGate::Creation::Creation(ExchangeGate& gate) : gate_(gate) {
  std::unique_lock lock(gate_.mutex_);
  gate_.changed_.wait(lock, [&] { return !gate_.exchange_; });
  ++gate_.creations_;
}
ExchangeGate::Creation::~Creation() {
  const std::lock_guard lock(gate_.mutex_);
  --gate_.creations_;
  gate_.changed_.notify_all();
}

}  // namespace engine
