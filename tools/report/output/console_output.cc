// Uses one queue and one thread per stream; stdout and stderr share them if they are the same file,
// which preserves the order of lines.
#include "tools/report/output/console_output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/base/files/retry_on_eintr.h"

namespace tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxQueuedBytes = std::size_t{1} << 20;

std::atomic<int> first_fault{0}, flush_fault{0};  // errnos, of writes and of stdio

int descriptor_of(ConsoleStream stream) {
  return stream == ConsoleStream::kOut ? STDOUT_FILENO : STDERR_FILENO;
}

// Writes what the system accepts at once; returns the number of bytes, and stores a failure.
std::size_t write_some(int fd, std::string_view text) {
  const ssize_t n = base::retry_on_eintr([&] { return ::write(fd, text.data(), text.size()); });
  if (n >= 0) return static_cast<std::size_t>(n);
  int none = 0;
  if (fd == STDOUT_FILENO) first_fault.compare_exchange_strong(none, errno);
  return text.size();  // lost
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) text.remove_prefix(write_some(fd, text));
}

// The text to be written, in order. Its thread may outlive the ConsoleThreads: a write that has no
// reader cannot be canceled.
class Queue {
 public:
  void add(int fd, std::string_view text) {
    const std::lock_guard guard(mutex_);
    if (bytes_ + text.size() > kMaxQueuedBytes) {
      dropped_ += std::count(text.begin(), text.end(), '\n');
      return;
    }
    append(fd, text);
    wake_.notify_one();
  }
  void wait(double seconds) {
    std::unique_lock lock(mutex_);
    written_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return bytes_ == 0; });
  }
  bool is_idle() {
    const std::lock_guard guard(mutex_);
    return bytes_ == 0;
  }
  // Waits for the end of all writes, as described at ~ConsoleThreads(); returns false if text
  // remains.
  bool finish(const std::atomic<int>& stop_signal) {
    std::unique_lock lock(mutex_);
    is_ending_ = true;
    wake_.notify_one();
    std::size_t before = bytes_;
    auto since = Clock::now();
    while (bytes_ > 0) {
      written_.wait_for(lock, std::chrono::milliseconds(20));
      if (bytes_ != before) since = Clock::now();
      before = bytes_;
      const double patience = stop_signal != 0 ? 0.25 : kConsolePatienceSeconds;
      if (Clock::now() - since > std::chrono::duration<double>(patience)) return false;
    }
    return true;
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return bytes_ > 0 || is_ending_; });
      if (bytes_ == 0) return;
      const auto [fd, text] = take();
      lock.unlock();
      for (std::string_view rest = text; !rest.empty();) {
        const std::size_t n = write_some(fd, rest);
        rest.remove_prefix(n);
        lock.lock();
        bytes_ -= n;
        written_.notify_all();
        lock.unlock();
      }
      lock.lock();
      if (dropped_ > 0 && bytes_ == 0) report_dropped(fd);
    }
  }

 private:
  struct Piece {
    int fd = -1;
    std::string text;
  };
  void append(int fd, std::string_view text) {
    if (pieces_.empty() || pieces_.back().fd != fd) pieces_.push_back({fd, {}});
    pieces_.back().text += text;
    bytes_ += text.size();
  }
  Piece take() {
    Piece piece = std::move(pieces_.front());
    pieces_.erase(pieces_.begin());
    return piece;
  }
  void report_dropped(int fd) {
    append(fd, "engine: " + std::to_string(dropped_) +
                   " lines are missing here: nobody read this stream, and 1 MiB of text waited\n");
    dropped_ = 0;
  }

  std::mutex mutex_;
  std::condition_variable wake_, written_;
  std::vector<Piece> pieces_;
  std::size_t bytes_ = 0;  // not written yet, including the piece that is being written
  std::int64_t dropped_ = 0;
  bool is_ending_ = false;
};

std::mutex queues_mutex;                       // guards the next two
std::array<std::shared_ptr<Queue>, 2> queues;  // by stream; null: written directly
int users = 0;                                 // number of existing ConsoleThreads

std::shared_ptr<Queue> queue_of(ConsoleStream stream) {
  const std::lock_guard guard(queues_mutex);
  return queues[static_cast<std::size_t>(stream)];
}

bool are_same_file() {
  struct stat out {
  }, error{};
  return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &error) == 0 &&
         out.st_dev == error.st_dev && out.st_ino == error.st_ino;
}

std::shared_ptr<Queue> started_queue() {
  auto queue = std::make_shared<Queue>();
  std::thread([queue] { queue->run(); }).detach();
  return queue;
}

}  // namespace

void flush_standard_output() noexcept {
  errno = 0;
  if (std::fflush(stdout) != 0 && errno != 0) flush_fault.store(errno);
}

void write_console(ConsoleStream stream, std::string_view text) noexcept {
  if (const auto queue = queue_of(stream)) return queue->add(descriptor_of(stream), text);
  if (stream == ConsoleStream::kOut) flush_standard_output();  // text in stdio's buffer comes first
  write_all(descriptor_of(stream), text);
}

bool console_is_idle(ConsoleStream stream) noexcept {
  const auto queue = queue_of(stream);
  return !queue || queue->is_idle();
}

void wait_for_console(double seconds) noexcept {
  if (const auto queue = queue_of(ConsoleStream::kOut)) queue->wait(seconds);
}

ConsoleThreads::ConsoleThreads(const std::atomic<int>& stop_signal) : stop_signal_(stop_signal) {
  const std::lock_guard guard(queues_mutex);
  if (users++ > 0) return;
  flush_standard_output();
  const auto out = started_queue();
  queues = {out, are_same_file() ? out : started_queue()};
}

ConsoleThreads::~ConsoleThreads() {
  std::array<std::shared_ptr<Queue>, 2> last;
  {
    const std::lock_guard guard(queues_mutex);
    if (--users > 0) return;
    last = std::exchange(queues, {});
  }
  const auto& [out, error] = last;
  int none = 0;
  if (!out->finish(stop_signal_)) first_fault.compare_exchange_strong(none, ETIMEDOUT);
  if (error != out) error->finish(stop_signal_);
}

int console_fault() noexcept {
  const int fault = flush_fault.load();
  return fault != 0 ? fault : first_fault.load();
}

}  // namespace tools
