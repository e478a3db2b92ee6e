// Keeps exchanges of some of a process's devices apart from each other and from created graphs.
#pragma once

#include <condition_variable>
#include <mutex>

namespace engine {

// Creating a graph allocates device memory, as does the first exchange of two devices, which
// connects them. For that a driver may wait until all devices of the process are idle, and
// meanwhile starts no kernel: forever, if one device already waits for a kernel of another one.
// Sums of all ranks need no gate: all of them synchronize before. Any thread.
class ExchangeGate {
 public:
  ExchangeGate() = default;
  ExchangeGate(const ExchangeGate&) = delete;
  ExchangeGate& operator=(const ExchangeGate&) = delete;
  static ExchangeGate& of_process();

  // Waits for other exchanges and for graphs that are being created. One rank holds it for all
  // ranks of the exchange, after all of them have synchronized: none of them creates a graph then.
  class [[nodiscard]] Exchange {
   public:
    explicit Exchange(ExchangeGate& gate);
    ~Exchange();
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

   private:
    ExchangeGate& gate_;
  };
  // Waits for the exchange in progress, which ends within its deadline.
  class [[nodiscard]] Creation {
   public:
    explicit Creation(ExchangeGate& gate);
    ~Creation();
    Creation(const Creation&) = delete;
    Creation& operator=(const Creation&) = delete;

   private:
    ExchangeGate& gate_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool exchange_ = false;  // in progress
  int creations_ = 0;      // in progress
};

}  // namespace engine
