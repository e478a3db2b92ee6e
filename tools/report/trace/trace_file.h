// Writes traces of ranks to one file that https://ui.perfetto.dev and chrome://tracing show.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/base/time/trace.h"

namespace tools {

struct RankTrace {
  int rank = 0, pid = 0;
  std::string host;
  base::Tracer::Record record;  // times on rank 0's clock
  std::int64_t clock_error_ns = 0;
};

struct TraceFile {
  std::string path;  // with ".gz" at its end: compressed
  std::string program;
  int world_size = 1;  // ranks of the job, some of which may be missing
};

// Writes JSON in the "Trace Event Format": complete events ("X") with ranks as processes and named
// threads, and arrows ("s", "f") from the collective of the rank that came last to those of the
// others. Times are in microseconds from the first event on. The file appears complete or not at
// all. Throws io::Error and io::CannotCreateError.
void write_trace(const TraceFile& file, std::span<const RankTrace> ranks);

// Returns a record as bytes, to be sent between ranks of one build.
std::string pack_trace(const RankTrace& trace);
RankTrace unpack_trace(const std::string& bytes);  // throws io::DataError

}  // namespace tools
