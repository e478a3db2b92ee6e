// Converts the status to JSON and back.
#include "tools/report/observers/run_status.h"

#include <filesystem>
#include <limits>

#include "backends/identity/host_identity.h"
#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/formats/json_writer.h"
#include "tools/report/output/json_file.h"

namespace tools {
namespace {

constexpr int kStatusSchema = 1;
constexpr std::int64_t kLargestStatus = 64 << 20;
constexpr int kMaxRanks = 1'000'000;

void write(base::JsonWriter& json, const RunStatus::Rank& rank) {
  json.begin_object()
      .member("rank", rank.now.rank)
      .member("host", rank.host)
      .member("pid", rank.pid)
      .member("activity", rank.now.activity)
      .member("waiting_ms", rank.now.progress.waiting_ms)
      .member("call", rank.now.progress.call)
      .member("links", rank.now.progress.links)
      .member("connected", rank.now.connected)
      .end_object();
}

std::optional<double> maybe_real(const Json& json, const char* key, const std::string& path) {
  if (member(json, key, path).is_null()) return std::nullopt;
  return real_member(json, key, path);
}

int small_member(const Json& json, const char* key, const std::string& path) {
  return static_cast<int>(whole_member(json, key, 0, std::numeric_limits<int>::max(), path));
}

RunStatus::Rank read_rank(const Json& json, const std::string& path) {
  const Json& connected = member(json, "connected", path);
  if (!connected.is_boolean()) throw io::DataError(path + ": \"connected\" is not true or false");
  return {.now = {.rank = small_member(json, "rank", path),
                  .activity = text_member(json, "activity", path),
                  .progress = {.waiting_ms = whole_member(json, "waiting_ms", 0, kUnlimited, path),
                               .call = text_member(json, "call", path),
                               .links = text_member(json, "links", path)},
                  .connected = connected.get<bool>()},
          .host = text_member(json, "host", path),
          .pid = small_member(json, "pid", path)};
}

bool is_gone(const RunStatus& status) {
  const RunStatus::Process& process = status.process;
  return !status.end && process.space == backends::process_space() &&
         static_cast<std::int64_t>(backends::process_start_time(process.pid)) != process.start_time;
}

constexpr const char* kTraining = "training";

}  // namespace

std::string state_text(const RunStatus& status) { return status.end.value_or(kTraining); }

std::string run_status_path(const std::string& folder) {
  return (std::filesystem::path(folder) / "status.json").string();
}

std::string run_status_json(const RunStatus& status) {
  base::JsonWriter json;
  json.begin_object()
      .member("schema", kStatusSchema)
      .member("run", status.run)
      .member("model", status.model)
      .member("dataset", status.dataset)
      .member("host", status.process.host)
      .member("pid", status.process.pid)
      .member("process_space", status.process.space)
      .member("start_time", status.process.start_time)
      .member("written_us", status.written_us)
      .member("state", state_text(status))
      .member("cause", status.cause)
      .member("step", status.progress.step)
      .member("steps", status.progress.steps)
      .member("epoch", status.progress.epoch)
      .member("epochs", status.progress.epochs)
      .member("loss", status.loss)
      .member("accuracy", status.accuracy)
      .member("rate", status.rate)
      .member("seconds_left", status.seconds_left)
      .member("bytes_sent", status.bytes_sent)
      .member("evaluation", status.evaluation)
      .member("newest_snapshot", status.newest_checkpoint)
      .key("ranks")
      .begin_array();
  for (const RunStatus::Rank& rank : status.ranks) {
    json.new_line();
    write(json, rank);
  }
  json.new_line();
  return json.end_array().end_object().text();
}

RunStatus parse_run_status(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  if (!json.is_object()) throw io::DataError(source + ": expected a JSON object");
  whole_member(json, "schema", kStatusSchema, kStatusSchema, source);
  const auto count = [&](const char* key) {
    return whole_member(json, key, 0, kUnlimited, source);
  };
  RunStatus status{.run = text_member(json, "run", source),
                   .model = text_member(json, "model", source),
                   .dataset = text_member(json, "dataset", source),
                   .process = {.host = text_member(json, "host", source),
                               .pid = small_member(json, "pid", source),
                               .space = text_member(json, "process_space", source),
                               .start_time = count("start_time")},
                   .written_us = count("written_us"),
                   .end = text_member(json, "state", source),
                   .cause = text_member(json, "cause", source),
                   .progress = {.step = count("step"),
                                .steps = count("steps"),
                                .epoch = count("epoch"),
                                .epochs = count("epochs")},
                   .loss = maybe_real(json, "loss", source),
                   .accuracy = maybe_real(json, "accuracy", source),
                   .rate = text_member(json, "rate", source),
                   .seconds_left = maybe_real(json, "seconds_left", source),
                   .bytes_sent = count("bytes_sent"),
                   .evaluation = text_member(json, "evaluation", source),
                   .newest_checkpoint = text_member(json, "newest_snapshot", source),
                   .ranks = {}};
  if (status.end == kTraining) status.end.reset();
  const Json& ranks = list_member(json, "ranks", source);
  if (ranks.size() > kMaxRanks)
    throw io::DataError(source + ": " + std::to_string(ranks.size()) + " ranks");
  for (const Json& rank : ranks) status.ranks.push_back(read_rank(rank, source + ": ranks"));
  return status;
}

RunStatus read_run_status(const std::string& folder) {
  const std::string path = run_status_path(folder);
  const auto read = [&] { return parse_run_status(io::read_run_file(path, kLargestStatus), path); };
  RunStatus status = read();
  if (!is_gone(status)) return status;
  status = read();  // it may have been updated since
  if (!is_gone(status)) return status;
  status.end = "ended without saying so";
  status.cause =
      "process " + std::to_string(status.process.pid) + " on " + status.process.host + " is gone";
  status.seconds_left.reset();
  return status;
}

}  // namespace tools
