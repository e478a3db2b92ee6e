// Where the time of a rank goes: what its threads did, from when to when, kept in memory until
// somebody asks for it.
//
// A thread that belongs to a traced rank has a TraceThread; each TraceSpan on it is recorded when
// it ends. On all other threads a span costs the look at one variable of the thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace base {

// A number that a span is about; the key is a literal.
struct TraceDetail {
  const char* key = nullptr;  // null: none
  std::int64_t value = 0;
};

// One rank's. Thread-safe.
class Tracer {
 public:
  // Keeps the latest `most` spans; allocates them at once.
  explicit Tracer(std::size_t most);
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  static std::int64_t now_ns() noexcept;  // of the clock of spans
  // That of the calling thread, recording or not; null: it has none.
  static Tracer* of_this_thread() noexcept;

  // Spans that begin while this is off are not recorded. Off at first.
  void set_recording(bool on) noexcept { recording_.store(on, std::memory_order_relaxed); }
  bool recording() const noexcept { return recording_.load(std::memory_order_relaxed); }

  // The same text where it lives as long as the tracer, for names that are no literals.
  const char* keep(std::string_view text);

  // Spans that something else than a thread did, such as a device: its number, and one that has
  // ended. `name` is as in TraceSpan. Recorded whether or not recording() is on.
  std::uint32_t add_thread(std::string_view name);
  void add(std::uint32_t thread, const char* name, std::int64_t begin_ns, std::int64_t end_ns,
           TraceDetail detail = {}) noexcept;

  struct Event {
    std::int64_t begin_ns = 0, end_ns = 0;  // of the steady clock
    std::uint64_t call = 0;    // > 0: a collective, the same number on all ranks that take part
    std::int64_t value = 0;    // of the detail
    std::uint32_t name = 0;    // Record::names
    std::uint32_t key = 0;     // of the detail, likewise; 0, the name "": none
    std::uint32_t thread = 0;  // Record::threads
    std::uint32_t unused = 0;
  };
  static_assert(sizeof(Event) == 48);  // without gaps: it travels as it is
  struct Record {
    std::vector<std::string> names{""}, threads;
    std::vector<Event> events;  // in the order in which they ended
    std::int64_t dropped = 0;   // older ones that there was no room for
  };
  // What was recorded so far.
  Record record() const;

 private:
  friend class TraceThread;
  friend class TraceSpan;
  struct Place {  // what a thread knows
    Tracer* tracer = nullptr;
    std::uint32_t thread = 0;
  };
  struct Span {
    const char *name, *key;
    std::int64_t begin_ns, end_ns, value;
    std::uint64_t call;
    std::uint32_t thread;
  };
  void add(const Span& span) noexcept;

  std::atomic<bool> recording_{false};
  mutable std::mutex mutex_;  // guards the rest
  std::vector<Span> spans_;   // a ring
  std::uint64_t added_ = 0;
  std::vector<std::string> threads_;
  std::set<std::string, std::less<>> texts_;  // whose elements stay where they are
};

// Until it ends, the spans of the calling thread are recorded by `tracer` (null: by nobody) as
// those of a thread of this name.
class TraceThread {
 public:
  TraceThread(Tracer* tracer, std::string_view name);
  ~TraceThread();
  TraceThread(const TraceThread&) = delete;
  TraceThread& operator=(const TraceThread&) = delete;

 private:
  friend class Tracer;
  friend class TraceSpan;
  static inline thread_local constinit Tracer::Place place_{};
  const Tracer::Place before_;
};

// From its construction to its end. Spans of a thread nest.
class TraceSpan {
 public:
  // `name` is a literal or was kept by the tracer; `call` is as Event has it.
  explicit TraceSpan(const char* name, TraceDetail detail = {}, std::uint64_t call = 0) noexcept {
    if (TraceThread::place_.tracer != nullptr) [[unlikely]]
      begin(name, detail, call);
  }
  ~TraceSpan() {
    if (tracer_ != nullptr) [[unlikely]]
      end();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  void begin(const char* name, TraceDetail detail, std::uint64_t call) noexcept;
  void end() noexcept;

  Tracer* tracer_ = nullptr;
  Tracer::Span span_;  // set where there is a tracer
};

}  // namespace base
