// Splits a stream of bytes into whole lines.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace tools {

// A line ends at \n. Text that ends only at \r is a progress bar that overwrites itself: it is
// shown at most every five seconds, and when the line ends. A line longer than 1 MiB is split.
class LineSplitter {
 public:
  using Clock = std::chrono::steady_clock;
  using Sink = std::function<void(std::string_view line)>;  // without its end

  void feed(std::string_view bytes, Clock::time_point now, const Sink& sink);
  void finish(const Sink& sink);  // the last line may lack its end

 private:
  void add(std::string_view bytes, const Sink& sink);

  std::string line_;
  bool carriage_ = false;  // true if line_ ended with \r, and nothing has followed yet
  Clock::time_point shown_{};
};

}  // namespace tools
