// Merges flight records, and reports the result.
//
// All ranks make the same collectives of a communicator in the same order, numbered by a sequence.
// So the records can be compared without synchronized clocks: the last number that all ranks
// finished is the common point, and the others wait for the ranks that did not begin the next one.
// Two ranks whose calls of the same number differ have run different programs.
#include "tools/commands/flight/flight_report.h"

#include <algorithm>
#include <map>
#include <set>

#include "io/base/formats/json_writer.h"
#include "io/base/text/text_parts.h"
#include "io/base/time/utc_time.h"
#include "tools/launch/machine/machine_info.h"

namespace tools {
namespace {

// Records of one failure are written within this time.
constexpr std::int64_t kSameFailure = std::int64_t{600} * 1'000'000;

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == 16) return text + ", ... (" + std::to_string(ranks.size()) + " in all)";
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

std::string seconds_text(std::int64_t us) {
  return base::number_text("%.1f s", static_cast<double>(us) / 1e6);
}

// A record's calls on each communicator, in order, because sequence numbers increase.
using CallsOf = std::map<int, std::vector<const FlightCall*>>;

CallsOf by_communicator(const FlightRecord& record) {
  CallsOf calls;
  for (const FlightCall& call : record.calls) calls[call.communicator].push_back(&call);
  return calls;
}

const FlightCall* find(const std::vector<const FlightCall*>& calls, std::int64_t sequence) {
  const auto found =
      std::lower_bound(calls.begin(), calls.end(), sequence,
                       [](const FlightCall* call, std::int64_t s) { return call->sequence < s; });
  return found != calls.end() && (*found)->sequence == sequence ? *found : nullptr;
}

// Calls of one communicator, by rank.
using RankCalls = std::vector<std::pair<int, std::vector<const FlightCall*>>>;

std::int64_t last_done(const std::vector<const FlightCall*>& calls) {
  const auto found = std::find_if(calls.rbegin(), calls.rend(), [](const FlightCall* call) {
    return call->state == FlightCall::State::kDone;
  });
  return found == calls.rend() ? 0 : (*found)->sequence;
}

std::optional<FlightMismatch> first_mismatch(const RankCalls& ranks) {
  // Compare from the first call that all records still contain: calls that one rank's ring has lost
  // cannot be compared.
  std::int64_t from = 1;
  std::set<std::int64_t> sequences;
  for (const auto& [rank, calls] : ranks) {
    from = std::max(from, calls.front()->sequence);
    for (const FlightCall* call : calls) sequences.insert(call->sequence);
  }
  sequences.erase(sequences.begin(), sequences.lower_bound(from));
  for (const std::int64_t sequence : sequences) {
    FlightMismatch mismatch{.sequence = sequence, .calls = {}};
    for (const auto& [rank, calls] : ranks)
      if (const FlightCall* call = find(calls, sequence)) mismatch.calls.emplace_back(rank, *call);
    for (const auto& [rank, call] : mismatch.calls)
      if (!call.same_call(mismatch.calls.front().second)) return mismatch;
  }
  return std::nullopt;
}

FlightCommunicator merge_communicator(int id, const RankCalls& ranks) {
  FlightCommunicator merged;
  merged.id = id;
  std::int64_t common = INT64_MAX, furthest = 0;
  for (const auto& [rank, calls] : ranks) {
    common = std::min(common, last_done(calls));
    furthest = std::max(furthest, calls.back()->sequence);
    merged.last.emplace_back(rank, *calls.back());
  }
  for (const auto& [rank, calls] : ranks) {
    if (const FlightCall* call = find(calls, common); call != nullptr && !merged.common)
      merged.common = *call;
    if (calls.back()->sequence < furthest) merged.behind.push_back(rank);
  }
  merged.mismatch = first_mismatch(ranks);
  return merged;
}

std::vector<std::string> make_verdict(const FlightReport& r) {
  std::vector<std::string> lines;
  for (const FlightCommunicator& c : r.communicators) {
    if (!c.mismatch) continue;
    std::string line = "The ranks disagree on collective " + std::to_string(c.mismatch->sequence) +
                       " of communicator " + std::to_string(c.id) + ": ";
    const std::size_t shown = std::min<std::size_t>(c.mismatch->calls.size(), 8);
    for (std::size_t i = 0; i < shown; ++i)
      line += (i ? ", rank " : "rank ") + std::to_string(c.mismatch->calls[i].first) + " called " +
              to_string(c.mismatch->calls[i].second);
    lines.push_back(line + (shown < c.mismatch->calls.size() ? ", ..." : "") + ".");
  }
  if (!r.missing.empty())
    lines.push_back("No record of " + ranks_text(r.missing) +
                    ": killed, frozen or lost with its host (or it failed by itself: see its own "
                    "error; or it wrote elsewhere).");
  for (const FlightCommunicator& c : r.communicators)
    if (!c.behind.empty())
      lines.push_back("Communicator " + std::to_string(c.id) + ": " + ranks_text(c.behind) +
                      " never came to the collective in which " + "the others are.");
  if (lines.empty())
    lines.emplace_back(
        "All ranks left a record and were in the same collectives: look at the network and at the "
        "reasons above.");
  const auto [first, last] = std::minmax_element(
      r.records.begin(), r.records.end(),
      [](const FlightRecord& a, const FlightRecord& b) { return a.written_us < b.written_us; });
  if (last->written_us - first->written_us > kSameFailure)
    lines.push_back("Careful: " + first->path + " was written " +
                    seconds_text(last->written_us - first->written_us) + " before " + last->path +
                    ": of an earlier failure, or the hosts' clocks differ.");
  return lines;
}

std::string last_call_text(const FlightCall& call, std::int64_t written_us) {
  const std::string what = "collective " + std::to_string(call.sequence) + ", " + to_string(call);
  if (call.state == FlightCall::State::kDone)
    return "finished " + what + " at " + base::utc_text(call.end_us.value_or(0)) +
           " and began no other";
  const std::int64_t until = call.end_us.value_or(written_us);
  return (call.state == FlightCall::State::kRunning ? "in " : "failed in ") + what + ", since " +
         base::utc_text(call.begin_us) + " (" + seconds_text(until - call.begin_us) + ")";
}

void add_call(base::JsonWriter& json, const FlightCall& c) {
  json.begin_object().member("sequence", c.sequence).member("call", to_string(c));
  json.member("operation", c.operation).member("count", c.count).member("type", c.type);
  json.member("begin_us", c.begin_us);
  json.member("end_us", c.end_us).member("state", state_name(c.state)).end_object();
}

void add_calls(base::JsonWriter& json, const std::vector<std::pair<int, FlightCall>>& calls) {
  json.begin_array();
  for (const auto& [rank, call] : calls) {
    json.begin_object().member("rank", rank).key("last");
    add_call(json, call);
    json.end_object();
  }
  json.end_array();
}

void add_communicator(base::JsonWriter& json, const FlightCommunicator& c) {
  json.begin_object().member("id", c.id).key("common");
  if (c.common)
    add_call(json, *c.common);
  else
    json.null();
  json.key("ranks");
  add_calls(json, c.last);
  json.member("behind", c.behind).member("absent", c.absent).key("mismatch");
  if (c.mismatch)
    add_calls(json, c.mismatch->calls);
  else
    json.null();
  json.end_object();
}

}  // namespace

const char* state_name(FlightCall::State state) {
  constexpr const char* kNames[] = {"running", "done", "failed"};
  return kNames[static_cast<int>(state)];
}

std::string to_string(const FlightCall& c) {
  if (c.operation == "barrier") return "barrier";
  if (!c.op.empty())
    return c.operation + " " + c.op + " of " + std::to_string(c.count) + " " + c.type;
  return c.operation + " of " + std::to_string(c.count) + " bytes" +
         (c.root ? " from rank " + std::to_string(*c.root) : "");
}

FlightReport merge_flight_records(std::vector<FlightRecord> records) {
  FlightReport report;
  report.records = std::move(records);
  report.world_size = report.records.front().world_size;
  std::map<int, RankCalls> communicators;
  std::size_t next = 0;
  for (int rank = 0; rank < report.world_size; ++rank) {
    if (next == report.records.size() || report.records[next].rank != rank) {
      report.missing.push_back(rank);
      continue;
    }
    for (auto& [id, calls] : by_communicator(report.records[next]))
      communicators[id].emplace_back(rank, std::move(calls));
    ++next;
  }
  for (const auto& [id, ranks] : communicators) {
    FlightCommunicator merged = merge_communicator(id, ranks);
    for (const FlightRecord& record : report.records)
      if (std::none_of(ranks.begin(), ranks.end(),
                       [&](const auto& r) { return r.first == record.rank; }))
        merged.absent.push_back(record.rank);
    report.communicators.push_back(std::move(merged));
  }
  report.verdict = make_verdict(report);
  return report;
}

std::string to_text(const FlightReport& r) {
  std::string out = std::to_string(r.records.size()) + " of " + std::to_string(r.world_size) +
                    " ranks left a record" +
                    (r.missing.empty() ? "" : "; missing: " + ranks_text(r.missing)) + "\n";
  std::map<int, std::int64_t> written;
  for (const FlightRecord& record : r.records) {
    written[record.rank] = record.written_us;
    out += "rank " + std::to_string(record.rank) + " (" + record.host + ", pid " +
           std::to_string(record.pid) + ", backend " + record.backend + ") at " +
           base::utc_text(record.written_us) +
           (record.activity.empty() ? "" : ", doing: " + record.activity) + "\n  " + record.reason +
           "\n";
    for (const std::string& line : record.membership) out += "  " + line + "\n";
  }
  for (const FlightCommunicator& c : r.communicators) {
    out += "communicator " + std::to_string(c.id) + ": ";
    out += c.common ? "last collective finished by all: " + std::to_string(c.common->sequence) +
                          ", " + to_string(*c.common) + "\n"
                    : "no recorded collective was finished by all\n";
    for (const auto& [rank, call] : c.last) {
      const bool behind = std::find(c.behind.begin(), c.behind.end(), rank) != c.behind.end();
      out += "  rank " + std::to_string(rank) + (behind ? " is BEHIND: " : " ") +
             last_call_text(call, written[rank]) + "\n";
    }
    if (!c.absent.empty())
      out += "  " + ranks_text(c.absent) + ": no call recorded (no member, or never came)\n";
  }
  for (const std::string& line : r.verdict) out += "=> " + line + "\n";
  return out;
}

std::string to_json(const FlightReport& r) {
  base::JsonWriter json;
  json.begin_object().member("schema", 1).member("world_size", r.world_size);
  json.member("missing", r.missing).key("ranks").begin_array();
  for (const FlightRecord& f : r.records) {
    json.new_line().begin_object().member("rank", f.rank).member("host", f.host);
    json.member("pid", f.pid).member("backend", f.backend).member("written_us", f.written_us);
    json.member("reason", f.reason).member("activity", f.activity);
    if (!f.membership.empty()) json.member("membership", f.membership);
    json.end_object();
  }
  json.end_array().key("communicators").begin_array();
  for (const FlightCommunicator& c : r.communicators) add_communicator(json.new_line(), c);
  json.end_array().member("verdict", r.verdict);
  return json.end_object().text() + "\n";
}

}  // namespace tools
