// Reads the ranks' flight records. They come from a run that failed, so they may be damaged in any
// way.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <map>

#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "tools/commands/flight/flight_report.h"
#include "tools/report/output/json_file.h"

namespace tools {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kLargestFile = 16 << 20;  // 4096 calls are about 1 MB
constexpr std::size_t kMaxCalls = 1 << 16;
constexpr int kMaxRanks = 1 << 20;

// Returns the rank in "flight_rank_R.json"; -1: another file.
int rank_in_name(const std::string& name) {
  constexpr std::string_view kStart = "flight_rank_", kEnd = ".json";
  if (!name.starts_with(kStart) || !name.ends_with(kEnd) ||
      name.size() <= kStart.size() + kEnd.size())
    return -1;
  int rank = -1;
  const char* end = name.data() + name.size() - kEnd.size();
  const auto [stop, error] = std::from_chars(name.data() + kStart.size(), end, rank);
  return error == std::errc{} && stop == end && rank >= 0 ? rank : -1;
}

FlightCall::State read_state(const Json& item, const std::string& where) {
  const std::string text = text_member(item, "state", where);
  using enum FlightCall::State;
  for (const FlightCall::State state : {kDone, kRunning, kFailed})
    if (text == state_name(state)) return state;
  throw io::DataError(where + ": \"state\" is \"" + text + "\"; expected done, running or failed");
}

FlightCall read_call(const Json& item, const std::string& where) {
  FlightCall call;
  call.communicator = static_cast<int>(whole_member(item, "communicator", 0, 1 << 30, where));
  call.sequence =
      whole_member(item, "sequence", 1, std::numeric_limits<std::uint32_t>::max(), where);
  call.operation = base::escape_text(text_member(item, "operation", where));
  call.count = whole_member(item, "count", 0, kUnlimited, where);
  call.type = base::escape_text(text_member(item, "type", where));
  if (item.contains("op")) call.op = base::escape_text(text_member(item, "op", where));
  if (item.contains("root"))
    call.root = static_cast<int>(whole_member(item, "root", 0, kMaxRanks, where));
  call.begin_us = whole_member(item, "begin_us", 0, kUnlimited, where);
  if (!member(item, "end_us", where).is_null())
    call.end_us = whole_member(item, "end_us", 0, kUnlimited, where);
  call.state = read_state(item, where);
  return call;
}

void check_order(const FlightRecord& record) {
  std::map<int, std::int64_t> last;
  for (const FlightCall& call : record.calls) {
    std::int64_t& before = last[call.communicator];
    if (call.sequence <= before)
      throw io::DataError(record.path + ": collective " + std::to_string(call.sequence) +
                          " of communicator " + std::to_string(call.communicator) +
                          " comes after collective " + std::to_string(before));
    before = call.sequence;
  }
}

FlightRecord read_record(const std::string& path, int rank) {
  const Json json = read_json_file(path, kLargestFile);
  whole_member(json, "schema", 1, 1, path);
  FlightRecord record;
  record.path = path;
  record.rank = static_cast<int>(whole_member(json, "rank", rank, rank, path));
  record.world_size = static_cast<int>(whole_member(json, "world_size", rank + 1, kMaxRanks, path));
  record.pid = whole_member(json, "pid", 0, kUnlimited, path);
  record.written_us = whole_member(json, "written_us", 0, kUnlimited, path);
  record.host = base::escape_text(text_member(json, "host", path));
  record.backend = base::escape_text(text_member(json, "backend", path));
  record.reason = base::escape_text(text_member(json, "reason", path));
  record.activity = base::escape_text(text_member(json, "activity", path));
  if (json.contains("membership"))
    for (const Json& line : list_member(json, "membership", path)) {
      if (!line.is_string()) throw io::DataError(path + ": membership: expected lines of text");
      record.membership.push_back(base::escape_text(line.get<std::string>()));
    }
  const Json& calls = list_member(json, "collectives", path);
  if (calls.size() > kMaxCalls)
    throw io::DataError(path + ": " + std::to_string(calls.size()) + " collectives; at most " +
                        std::to_string(kMaxCalls));
  for (std::size_t i = 0; i < calls.size(); ++i)
    record.calls.push_back(read_call(calls[i], path + ": collective " + std::to_string(i)));
  check_order(record);
  return record;
}

}  // namespace

std::vector<FlightRecord> read_flight_records(const std::string& folder) {
  std::error_code error;
  std::vector<std::pair<int, std::string>> files;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (const int rank = rank_in_name(it->path().filename().string()); rank >= 0)
      files.emplace_back(rank, it->path().string());
  if (error) throw io::MissingFileError(folder + ": cannot be listed: " + error.message());
  if (files.empty())
    throw io::MissingFileError(folder +
                               ": no flight_rank_*.json here; a failing rank writes it to "
                               "--flight-dir, else --save-dir, " +
                               "and names the file in its error message");
  std::sort(files.begin(), files.end());
  std::vector<FlightRecord> records;
  for (const auto& [rank, path] : files) {
    FlightRecord record = read_record(path, rank);
    if (!records.empty() && records.front().world_size != record.world_size)
      throw io::DataError(path + ": of a world of " + std::to_string(record.world_size) +
                          " ranks, but " + records.front().path + " of " +
                          std::to_string(records.front().world_size) +
                          ": remove the records of the older run");
    if (!records.empty() && records.back().rank == record.rank)
      throw io::DataError(path + ": rank " + std::to_string(rank) + " has a second record, " +
                          records.back().path);
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace tools
