// Ranks send their records, one after the other, in pieces.
#include "tools/report/trace/run_trace.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <vector>

#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/lost_output.h"
#include "tools/report/output/run_log.h"
#include "tools/report/text/progress_line.h"
#include "tools/report/trace/nvtx_ranges.h"
#include "tools/report/trace/trace_file.h"

namespace tools {
namespace {

// 12 MB per rank, 100 MB per job, which is the limit of viewers.
constexpr std::size_t kMaxOfRank = std::size_t{1} << 18, kMaxOfJob = std::size_t{1} << 21,
                      kMinOfRank = std::size_t{1} << 12;

std::size_t max_spans(int ranks) {
  return std::clamp(kMaxOfJob / static_cast<std::size_t>(ranks), kMinOfRank, kMaxOfRank);
}

// Converts times to rank 0's clock, which may run faster or slower than this one, by linear
// interpolation between two measurements.
void move_to_root(const ClockOffset& before, const ClockOffset& after,
                  base::Tracer::Record& record) {
  const double drift = after.at_ns > before.at_ns
                           ? static_cast<double>(after.ns - before.ns) /
                                 static_cast<double>(after.at_ns - before.at_ns)
                           : 0;
  const auto moved = [&](std::int64_t ns) {
    return ns + before.ns + std::llround(drift * static_cast<double>(ns - before.at_ns));
  };
  for (base::Tracer::Event& event : record.events) {
    event.begin_ns = moved(event.begin_ns);
    event.end_ns = moved(event.end_ns);
  }
}

RankTrace own_trace(const backends::Group& group, const base::Tracer& tracer,
                    const ClockOffset& before, const ClockOffset& after) {
  RankTrace trace{.rank = group.rank(),
                  .pid = getpid(),
                  .host = group.peers().at(static_cast<std::size_t>(group.rank())).host,
                  .record = tracer.record(),
                  .clock_error_ns = std::max(before.error_ns, after.error_ns)};
  move_to_root(before, after, trace.record);
  return trace;
}

// Returns the bytes of rank `root` on rank 0; "" on the others.
std::string bring_to_rank_0(backends::Communicator& communicator, const std::string& own,
                            int root) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  const int rank = communicator.rank();
  std::uint64_t size = own.size();
  communicator.broadcast(&size, sizeof size, root);
  std::string bytes, piece;
  for (std::uint64_t at = 0; at < size; at += kPiece) {
    piece.resize(std::min<std::uint64_t>(kPiece, size - at));
    if (rank == root) piece.assign(own, at, piece.size());
    communicator.broadcast(piece.data(), piece.size(), root);
    if (rank == 0) bytes += piece;
  }
  return bytes;
}

class TraceObserver : public engine::TrainObserver {
 public:
  explicit TraceObserver(RunTrace& trace) : trace_(trace) {}
  void on_step(const engine::TrainProgress& progress) override {
    trace_.after_step(progress.global_step);
  }

 private:
  RunTrace& trace_;
};

}  // namespace

std::string own_trace_path(const std::string& path, int rank) {
  if (rank == 0) return path;
  const std::size_t name = path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1,
                    json = path.rfind(".json");
  const std::size_t end = json == std::string::npos || json < name ? path.size() : json;
  return path.substr(0, end) + ".rank" + std::to_string(rank) + path.substr(end);
}

RunTrace::RunTrace(const TraceOptions& options, backends::Group& group,
                   backends::Communicator& communicator)
    : options_(options),
      group_(group),
      communicator_(communicator),
      tracer_(max_spans(group.world_size()), nvtx_tool().ranges),
      before_(measure_clock_offset(communicator)),
      thread_(&tracer_, "training") {
  if (options.may_use_device) activity_.emplace();
}

RunTrace::~RunTrace() {
  if (!ended_) write_own();
}

std::unique_ptr<engine::TrainObserver> RunTrace::make_observer() {
  return std::make_unique<TraceObserver>(*this);
}

void RunTrace::after_step(std::int64_t done) {
  if (ended_) return;
  if (done >= options_.last_step) return collect(done);
  if (done + 1 < options_.first_step || tracer_.recording()) return;
  began_ = done;
  began_ns_ = base::Tracer::now_ns();
  tracer_.set_recording(true);
}

void RunTrace::follow_device(int device) {
  if (!activity_) return;
  if (activity_->missing().empty())
    device_ = device;
  else if (group_.rank() == 0)
    print_notice("--trace: without kernels of devices: " + activity_->missing());
}

// Adds a thread for each stream, on which activities are sequential.
void RunTrace::add_device_spans() {
  if (!device_ || began_ns_ == 0) return;
  std::map<std::uint32_t, std::uint32_t> threads;
  // All activity until now belongs to the last recorded step, because no work has been launched
  // since.
  for (const DeviceSpan& span :
       activity_->between(static_cast<std::uint32_t>(*device_), began_ns_, INT64_MAX)) {
    const auto [thread, is_new] = threads.try_emplace(span.stream, 0);
    if (is_new)
      thread->second = tracer_.add_thread("cuda:" + std::to_string(*device_) + " stream " +
                                          std::to_string(span.stream));
    tracer_.add(thread->second, tracer_.keep(span.name), span.begin_ns, span.end_ns,
                {span.bytes < 0 ? nullptr : "bytes", span.bytes});
  }
}

void RunTrace::finish(std::int64_t done) {
  if (!ended_) collect(done);
}

void RunTrace::collect(std::int64_t done) {
  const bool any = tracer_.recording() && done > began_;
  tracer_.set_recording(false);
  add_device_spans();
  const ClockOffset after = measure_clock_offset(communicator_);
  RankTrace own = own_trace(group_, tracer_, before_, after);
  const bool root = group_.rank() == 0;
  const std::string packed = root ? "" : pack_trace(own);
  std::vector<RankTrace> ranks;
  if (root) ranks.push_back(std::move(own));
  for (int r = 1; r < group_.world_size(); ++r)
    if (const std::string bytes = bring_to_rank_0(communicator_, packed, r); root)
      ranks.push_back(unpack_trace(bytes));
  ended_ = true;
  if (!root) return;
  std::int64_t spans = 0, dropped = 0, error_ns = 0;
  for (const RankTrace& trace : ranks) {
    spans += static_cast<std::int64_t>(trace.record.events.size());
    dropped = std::max(dropped, trace.record.dropped);
    error_ns = std::max(error_ns, trace.clock_error_ns);
  }
  if (!any)
    return print_notice("--trace: none of the steps from " + std::to_string(options_.first_step) +
                        " on were done; nothing was written to " + options_.path);
  try {
    write_trace({.path = options_.path,
                 .program = "engine " ENGINE_VERSION " " ENGINE_COMMIT,
                 .world_size = group_.world_size()},
                ranks);
  } catch (const std::exception& error) {
    const std::string fault = std::string("--trace: not written: ") + error.what();
    note_lost_output(fault, exit_code_of(error));
    return print_notice(fault);
  }
  log_info("Trace of steps " + std::to_string(began_ + 1) + " to " + std::to_string(done) + ", " +
           with_commas(spans) + " spans: " + base::escape_text(options_.path) +
           (ranks.size() > 1
                ? " (clocks within " + base::number_text("%.1f", error_ns / 1e3) + " us)"
                : ""));
  if (dropped > 0)
    print_notice("--trace: there was no room for the oldest " + with_commas(dropped) +
                 " spans of a rank, which keeps " +
                 with_commas(static_cast<std::int64_t>(max_spans(group_.world_size()))) +
                 "; choose steps with --trace-steps A:B");
}

void RunTrace::write_own() noexcept {
  try {
    tracer_.set_recording(false);
    add_device_spans();
    const RankTrace own = own_trace(group_, tracer_, before_, before_);
    if (own.record.events.empty()) return;
    const std::string path = own_trace_path(options_.path, group_.rank());
    write_trace({.path = path,
                 .program = "engine " ENGINE_VERSION " " ENGINE_COMMIT,
                 .world_size = group_.world_size()},
                {&own, 1});
    print_notice("trace of rank " + std::to_string(group_.rank()) + " alone: " + path);
  } catch (const std::exception& error) {
    try {
      print_notice(std::string("--trace: not written: ") + error.what());
    } catch (const std::exception&) {
      // Out of memory: the error that ends the training describes what happened.
    }
  }
}

}  // namespace tools
