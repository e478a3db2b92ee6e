// Recognizes lines, and progress bars among them.
#include "tools/launch/workers/line_splitter.h"

namespace tools {
namespace {

constexpr std::size_t kLongestLine = 1 << 20;
constexpr std::chrono::seconds kBarEvery{5};

}  // namespace

void LineSplitter::feed(std::string_view bytes, Clock::time_point now, const Sink& sink) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find_first_of("\r\n");
    if (carriage_ && end != 0) {  // overwritten: \r was not the first half of \r\n
      if (!line_.empty() && now - shown_ >= kBarEvery) {
        sink(line_);
        shown_ = now;
      }
      line_.clear();
      carriage_ = false;
    }
    add(bytes.substr(0, end), sink);
    if (end == std::string_view::npos) return;
    if (bytes[end] == '\n') {
      sink(line_);
      line_.clear();
      shown_ = now;
    }
    carriage_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
  }
}

void LineSplitter::finish(const Sink& sink) {
  if (!line_.empty()) sink(line_);
  line_.clear();
  carriage_ = false;
}

void LineSplitter::add(std::string_view bytes, const Sink& sink) {
  while (line_.size() + bytes.size() > kLongestLine) {
    const std::size_t part = kLongestLine - line_.size();
    line_.append(bytes.substr(0, part));
    bytes.remove_prefix(part);
    sink(line_);
    line_.clear();
  }
  line_.append(bytes);
}

}  // namespace tools
