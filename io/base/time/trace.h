// Records the activities of a rank's threads with their start and end, and keeps them in memory
// until they are requested.
//
// A thread that belongs to a traced rank has a TraceThread; each TraceSpan on it is recorded when
// it ends. On all other threads a span costs the read of one thread-local variable.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace base {

// A number that belongs to a span; the key must be a string literal.
struct TraceDetail {
  const char* key = nullptr;  // null: none
  std::int64_t value = 0;
};

// Functions of a tool that follows all spans, on the threads of the spans.
struct SpanListener {
  void (*begin)(const char* name) noexcept;
  void (*end)() noexcept;  // of the latest span of this thread that has not ended
  void (*name_thread)(const char* name) noexcept;
};

// The tracer of one rank. Thread-safe.
class Tracer {
 public:
  // Keeps the latest `most` spans; allocates them immediately. `listener` (null: none) is called
  // for every span, recorded or not, and outlives the tracer.
  explicit Tracer(std::size_t most, const SpanListener* listener = nullptr);
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  static std::int64_t now_ns() noexcept;  // on the clock of spans
  // Returns the tracer of the calling thread, recording or not; null: it has none.
  static Tracer* of_this_thread() noexcept;

  // Spans that start while recording is off are not recorded. Off by default.
  void set_recording(bool on) noexcept { recording_.store(on, std::memory_order_relaxed); }
  bool recording() const noexcept { return recording_.load(std::memory_order_relaxed); }

  // Returns a copy of the text that lives as long as the tracer, for names that are not literals.
  const char* keep(std::string_view text);

  // For spans of something other than a thread, such as a device: returns its number, and adds a
  // completed span. `name` is as in TraceSpan. Recorded even if recording() is off.
  std::uint32_t add_thread(std::string_view name);
  void add(std::uint32_t thread, const char* name, std::int64_t begin_ns, std::int64_t end_ns,
           TraceDetail detail = {}) noexcept;

  struct Event {
    std::int64_t begin_ns = 0, end_ns = 0;  // on the steady clock
    std::uint64_t call = 0;    // > 0: a collective, with the same number on all participating ranks
    std::int64_t value = 0;    // value of the detail
    std::uint32_t name = 0;    // index in Record::names
    std::uint32_t key = 0;     // key of the detail, also an index; 0, the name "": none
    std::uint32_t thread = 0;  // index in Record::threads
    std::uint32_t unused = 0;
  };
  static_assert(sizeof(Event) == 48);  // without padding: it is sent as raw memory
  struct Record {
    std::vector<std::string> names{""}, threads;
    std::vector<Event> events;  // in the order of their ends
    std::int64_t dropped = 0;   // number of older ones that did not fit
  };
  // Returns everything recorded so far.
  Record record() const;

 private:
  friend class TraceThread;
  friend class TraceSpan;
  struct Place {  // the calling thread's tracer and number
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

  const SpanListener* const listener_;
  std::atomic<bool> recording_{false};
  mutable std::mutex mutex_;  // guards the rest
  std::vector<Span> spans_;   // a ring buffer
  std::uint64_t added_ = 0;
  std::vector<std::string> threads_;
  std::set<std::string, std::less<>> texts_;  // its elements do not move
};

// During its lifetime, `tracer` records the spans of the calling thread (null: they are not
// recorded) under this thread name.
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

// A span from construction to destruction. Spans of a thread nest.
class TraceSpan {
 public:
  // `name` must be a literal or kept by the tracer; `call` is as in Event.
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

  Tracer* tracer_ = nullptr;  // null: the span is neither recorded nor followed
  bool recorded_ = false;
  Tracer::Span span_;  // set if it is recorded
};

}  // namespace base
