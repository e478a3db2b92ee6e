// Converts events to text one by one, and writes the text to the file in pieces.
#include "tools/report/trace/trace_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>

#include "io/base/files/io_error.h"
#include "io/base/formats/json_writer.h"
#include "io/base/text/escape_text.h"
#include "io/checkpoint/atomic_file.h"
#include "tools/report/output/json_file.h"

namespace tools {
namespace {

using Event = base::Tracer::Event;

// The file, compressed with zlib if its name requires it.
class TraceOutput {
 public:
  explicit TraceOutput(const std::string& path)
      : file_(path, 0), compressed_(path.ends_with(".gz")) {
    constexpr int kGzip = 15 + 16;  // the largest window, and a gzip header
    if (compressed_ && deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8,
                                    Z_DEFAULT_STRATEGY) != Z_OK)
      throw io::Error(path + ": zlib has no memory");
  }
  ~TraceOutput() {
    if (compressed_) deflateEnd(&stream_);
  }
  TraceOutput(const TraceOutput&) = delete;
  TraceOutput& operator=(const TraceOutput&) = delete;

  void add(const std::string& line) {
    text_ += line;
    if (text_.size() >= kPiece) flush(Z_NO_FLUSH);
  }
  void commit() {
    flush(Z_FINISH);
    file_.commit();
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 20;

  void flush(int how) {
    if (compressed_)
      deflate_text(how);
    else
      file_.write(std::as_bytes(std::span(text_)));
    text_.clear();
  }

  void deflate_text(int how) {
    std::array<unsigned char, 1 << 16> piece;
    stream_.next_in = reinterpret_cast<unsigned char*>(text_.data());
    stream_.avail_in = static_cast<unsigned>(text_.size());
    do {
      stream_.next_out = piece.data();
      stream_.avail_out = piece.size();
      deflate(&stream_, how);
      file_.write(std::as_bytes(std::span(piece.data(), piece.size() - stream_.avail_out)));
    } while (stream_.avail_out == 0);
  }

  io::AtomicFile file_;
  const bool compressed_;
  z_stream stream_{};
  std::string text_;
};

std::string microseconds(std::int64_t ns) {
  std::array<char, 40> text;
  std::snprintf(text.data(), text.size(), "%lld.%03lld", static_cast<long long>(ns / 1000),
                static_cast<long long>(ns % 1000));
  return text.data();
}

// Threads are numbered from 1 on, because 0 represents the process.
std::string place(int rank, std::uint32_t thread) {
  return ",\"pid\":" + std::to_string(rank) + ",\"tid\":" + std::to_string(thread + 1);
}

std::string name_line(const char* what, const std::string& at, const std::string& key,
                      const std::string& value) {
  return std::string(",\n{\"ph\":\"M\",\"name\":\"") + what + "\"" + at + ",\"args\":{\"" + key +
         "\":" + value + "}}";
}

void add_names(const RankTrace& trace, TraceOutput& out) {
  const std::string process = ",\"pid\":" + std::to_string(trace.rank) + ",\"tid\":0";
  out.add(name_line("process_name", process, "name",
                    base::json_string("rank " + std::to_string(trace.rank) + " (" + trace.host +
                                      ", pid " + std::to_string(trace.pid) + ")")));
  out.add(name_line("process_sort_index", process, "sort_index", std::to_string(trace.rank)));
  for (std::uint32_t t = 0; t < trace.record.threads.size(); ++t) {
    const std::string at = place(trace.rank, t);
    out.add(name_line("thread_name", at, "name", base::json_string(trace.record.threads[t])));
    out.add(name_line("thread_sort_index", at, "sort_index", std::to_string(t)));
  }
}

void add_events(const RankTrace& trace, std::int64_t origin, TraceOutput& out) {
  std::vector<std::string> names;
  for (const std::string& name : trace.record.names) names.push_back(base::json_string(name));
  for (const Event& e : trace.record.events) {
    std::string line = ",\n{\"ph\":\"X\",\"cat\":\"" +
                       std::string(e.call == 0 ? "span" : "collective") +
                       "\",\"name\":" + names[e.name] + place(trace.rank, e.thread) +
                       ",\"ts\":" + microseconds(e.begin_ns - origin) +
                       ",\"dur\":" + microseconds(e.end_ns - e.begin_ns);
    if (e.key != 0 || e.call != 0) line += ",\"args\":{";
    if (e.key != 0) line += names[e.key] + ":" + std::to_string(e.value);
    if (e.call != 0)
      line += std::string(e.key != 0 ? "," : "") +
              "\"communicator\":" + std::to_string((e.call >> 32) - 1) +
              ",\"sequence\":" + std::to_string(e.call & 0xffffffff);
    out.add(line + (e.key != 0 || e.call != 0 ? "}}" : "}"));
  }
}

struct CallPart {
  int rank;
  const Event* event;
};

// Adds one arrow per rank that waited, from the rank that came last.
void add_arrows(std::span<const RankTrace> ranks, std::int64_t origin, TraceOutput& out) {
  std::map<std::uint64_t, std::vector<CallPart>> calls;
  for (const RankTrace& trace : ranks)
    for (const Event& e : trace.record.events)
      if (e.call != 0) calls[e.call].push_back({trace.rank, &e});
  std::int64_t arrows = 0;
  for (const auto& [call, parts] : calls) {
    const auto last = std::ranges::max_element(
        parts, {}, [](const CallPart& part) { return part.event->begin_ns; });
    for (const CallPart& part : parts) {
      if (part.rank == last->rank) continue;
      const auto line = [&](const char* phase, const CallPart& at, std::int64_t ns) {
        return std::string(",\n{\"ph\":\"") + phase +
               "\",\"cat\":\"collective\",\"name\":\"waits for\",\"id\":" + std::to_string(arrows) +
               place(at.rank, at.event->thread) + ",\"ts\":" + microseconds(ns - origin);
      };
      const std::int64_t from = last->event->begin_ns;
      out.add(line("s", *last, from) + "}");
      out.add(line("f", part, std::clamp(from, part.event->begin_ns, part.event->end_ns)) +
              ",\"bp\":\"e\"}");
      ++arrows;
    }
  }
}

// Checks that names and threads have valid numbers, whatever the bytes.
void check_numbers(const base::Tracer::Record& record) {
  for (const Event& e : record.events)
    if (e.name >= record.names.size() || e.key >= record.names.size() ||
        e.thread >= record.threads.size())
      throw io::DataError("a rank's trace has an event without a name or a thread");
}

}  // namespace

void write_trace(const TraceFile& file, std::span<const RankTrace> ranks) {
  std::int64_t origin = INT64_MAX;
  for (const RankTrace& trace : ranks)
    for (const Event& e : trace.record.events) origin = std::min(origin, e.begin_ns);
  base::JsonWriter about;
  about.begin_object().member("program", file.program).member("ranks", file.world_size);
  about.key("clock_error_us").begin_object();
  for (const RankTrace& trace : ranks)
    about.member(std::to_string(trace.rank), static_cast<double>(trace.clock_error_ns) / 1e3);
  about.end_object().key("dropped_spans").begin_object();
  for (const RankTrace& trace : ranks)
    about.member(std::to_string(trace.rank), trace.record.dropped);
  about.end_object().end_object();

  TraceOutput out(file.path);
  // The first event is one that every viewer ignores, so that all others begin with a comma.
  out.add("{\"displayTimeUnit\":\"ms\",\"otherData\":" + about.text() +
          ",\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"trace\",\"pid\":0,\"tid\":0,\"args\":{}}");
  for (const RankTrace& trace : ranks) add_names(trace, out);
  for (const RankTrace& trace : ranks) add_events(trace, origin, out);
  add_arrows(ranks, origin, out);
  out.add("\n]}\n");
  out.commit();
}

std::string pack_trace(const RankTrace& trace) {
  base::JsonWriter head;
  head.begin_object().member("rank", trace.rank).member("pid", trace.pid);
  head.member("host", trace.host).member("names", trace.record.names);
  head.member("threads", trace.record.threads).member("dropped", trace.record.dropped);
  head.member("clock_error_ns", trace.clock_error_ns).end_object();
  const std::vector<Event>& events = trace.record.events;
  std::string bytes = head.text() + "\n";
  const std::size_t begin = bytes.size();
  bytes.resize(begin + events.size() * sizeof(Event));
  if (!events.empty())
    std::memcpy(bytes.data() + begin, events.data(), events.size() * sizeof(Event));
  return bytes;
}

RankTrace unpack_trace(const std::string& bytes) {
  const std::string where = "a rank's trace";
  const std::size_t begin = std::min(bytes.find('\n'), bytes.size() - 1) + 1;
  if (bytes.empty() || (bytes.size() - begin) % sizeof(Event) != 0)
    throw io::DataError(where + " is incomplete: " + std::to_string(bytes.size()) + " bytes");
  const Json head = parse_json(std::string_view(bytes).substr(0, begin), where);
  RankTrace trace;
  trace.rank = static_cast<int>(whole_member(head, "rank", 0, INT32_MAX, where));
  trace.pid = static_cast<int>(whole_member(head, "pid", 0, INT32_MAX, where));
  trace.host = text_member(head, "host", where);
  trace.clock_error_ns = whole_member(head, "clock_error_ns", 0, kUnlimited, where);
  trace.record.dropped = whole_member(head, "dropped", 0, kUnlimited, where);
  trace.record.names.clear();
  for (const Json& name : list_member(head, "names", where))
    trace.record.names.push_back(name.get<std::string>());
  for (const Json& thread : list_member(head, "threads", where))
    trace.record.threads.push_back(thread.get<std::string>());
  trace.record.events.resize((bytes.size() - begin) / sizeof(Event));
  if (!trace.record.events.empty())
    std::memcpy(trace.record.events.data(), bytes.data() + begin, bytes.size() - begin);
  check_numbers(trace.record);
  return trace;
}

}  // namespace tools
