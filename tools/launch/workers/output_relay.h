// Relays the workers' output in whole lines, each prefixed with its origin.
#pragma once

#include <list>
#include <optional>
#include <string>

#include "tools/launch/workers/line_splitter.h"
#include "tools/launch/workers/worker_group.h"

namespace tools {

// One stream of one worker.
struct RelayedStream {
  backends::Socket source;  // read end of the pipe, non-blocking; open until its end was read
  backends::Socket log;     // gets the same bytes; may be empty
  std::string log_path;     // for messages
  std::string prefix;       // before each line
  int target = 1;           // descriptor of this process: 1 or 2
  bool shown = true;
  LineSplitter lines = {};
  std::string last_line = {};  // the last that was not empty
};

class OutputRelay : public EventSource {
 public:
  OutputRelay() = default;
  RelayedStream& add(RelayedStream stream);  // the reference stays valid
  void add_to(std::vector<pollfd>& polls) override;
  void handle(std::span<const pollfd> polls) override;
  // After the workers have ended: takes what is still in the pipes and prints it; gives a reader
  // that does not read 10 s.
  void drain();

 private:
  struct Output {
    int fd;
    std::string pending;
    bool broken = false;
  };
  bool read_from(RelayedStream& stream);  // false at the end of what there is
  void take_line(RelayedStream& stream, std::string_view line);
  void write_log(RelayedStream& stream, std::string_view bytes);
  void write_some(Output& output);
  bool flush(backends::Deadline deadline);  // false: the reader did not read
  bool congested() const;

  std::list<RelayedStream> streams_;
  Output outputs_[2] = {{1, {}}, {2, {}}};
  std::vector<RelayedStream*> polled_;
};

// "node7:3: ", colored by rank where `color` is set.
std::string line_prefix(const std::string& host, int rank, bool color);
// The last line of a file that is not empty, at most 4 KiB of it; "" when there is none.
std::string last_line_of_file(const std::string& path);

}  // namespace tools
