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
  backends::Socket source;  // read end of the pipe, non-blocking; open until its end of file
  backends::Socket log;     // receives the same bytes; may be empty
  std::string log_path;     // for messages
  std::string prefix;       // printed before each line
  int target = 1;           // descriptor of this process: 1 or 2
  bool shown = true;
  LineSplitter lines = {};
  std::string last_line = {};  // the last one that was not empty
};

class OutputRelay : public EventSource {
 public:
  OutputRelay() = default;
  RelayedStream& add(RelayedStream stream);  // the reference stays valid
  void add_to(std::vector<pollfd>& polls) override;
  void handle(std::span<const pollfd> polls) override;
  // Called after the workers have ended: reads the rest of the pipes and prints it; waits at most
  // 10 s for a reader that does not read.
  void drain();

 private:
  struct Output {
    int fd;
    std::string pending;
    bool broken = false;
  };
  bool read_from(RelayedStream& stream);  // returns false if no more data is available
  void take_line(RelayedStream& stream, std::string_view line);
  void write_log(RelayedStream& stream, std::string_view bytes);
  void write_some(Output& output);
  bool flush(backends::Deadline deadline);  // returns false if the reader did not read
  bool congested() const;

  std::list<RelayedStream> streams_;
  Output outputs_[2] = {{1, {}}, {2, {}}};
  std::vector<RelayedStream*> polled_;
};

// Returns "node7:3: ", colored by rank if `color` is set.
std::string line_prefix(const std::string& host, int rank, bool color);
// Returns the last nonempty line of a file, at most 4 KiB of it; "" if there is none.
std::string last_line_of_file(const std::string& path);

}  // namespace tools
