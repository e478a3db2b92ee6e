// Converts the record to JSON and back.
#include "tools/folder/run_record.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <random>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/formats/json_writer.h"
#include "io/base/time/utc_time.h"
#include "io/checkpoint/atomic_file.h"
#include "tools/report/output/json_file.h"

namespace tools {
namespace {

constexpr int kSchema = 1;
constexpr std::int64_t kLargestRecord = 16 << 20;  // many times a definition and a vocabulary

void line(base::JsonWriter& json, bool one_line) {
  if (!one_line) json.new_line();
}

void write(base::JsonWriter& json, const RunData& data) {
  json.begin_object().member("name", data.name).member("folder", data.folder);
  json.member("train", data.train).member("test", data.test).member("classes", data.classes);
  json.member("shape", data.shape).member("normalization", data.normalization);
  if (!data.vocabulary.empty()) {
    json.key("vocabulary").begin_array();
    for (const char byte : data.vocabulary) json.value(int{static_cast<unsigned char>(byte)});
    json.end_array();
  }
  json.member("digest", data.digest).end_object();
}

void write(base::JsonWriter& json, const RunStart& start) {
  json.begin_object().member("time", start.time).member("program", start.program);
  json.member("command", start.command).member("ranks", start.hosts.size());
  json.member("hosts", start.hosts).member("backend", start.backend);
  json.key("machines").begin_array();
  for (const RunMachine& machine : start.machines) {
    json.begin_object().member("ranks", machine.ranks);
    for (const auto& [name, text] : machine.facts) json.member(name, text);
    json.end_object();
  }
  json.end_array().member("step", start.step);
  json.member("changed", start.changed);
  if (!start.launch.empty()) json.member("launch", start.launch);
  json.end_object();
}

std::vector<std::string> texts(const Json& list, const std::string& where) {
  std::vector<std::string> found;
  for (const Json& item : list) {
    if (!item.is_string()) throw io::DataError(where + ": expected a list of texts");
    found.push_back(item.get<std::string>());
  }
  return found;
}

std::int64_t count_member(const Json& object, const char* key, const std::string& where) {
  return whole_member(object, key, 0, std::int64_t{1} << 60, where);
}

RunData read_data(const Json& object, const std::string& where) {
  RunData data{.name = text_member(object, "name", where),
               .folder = text_member(object, "folder", where),
               .digest = text_member(object, "digest", where),
               .train = count_member(object, "train", where),
               .test = count_member(object, "test", where),
               .classes = count_member(object, "classes", where),
               .shape = {},
               .normalization = text_member(object, "normalization", where),
               .vocabulary = {}};
  for (const Json& size : list_member(object, "shape", where))
    data.shape.push_back(size.is_number_integer() ? size.get<std::int64_t>() : 0);
  if (object.contains("vocabulary"))
    for (const Json& byte : list_member(object, "vocabulary", where))
      if (byte.is_number_integer())
        data.vocabulary += static_cast<char>(byte.get<std::int64_t>() & 0xFF);
  return data;
}

RunMachine read_machine(const Json& object, const std::string& where) {
  RunMachine machine;
  for (const Json& rank : list_member(object, "ranks", where))
    machine.ranks.push_back(rank.is_number_integer() ? rank.get<int>() : -1);
  for (const auto& [name, value] : object.items())
    if (name != "ranks") machine.facts[name] = text_member(object, name.c_str(), where);
  return machine;
}

RunStart read_start(const Json& object, const std::string& where) {
  RunStart start{.time = text_member(object, "time", where),
                 .program = text_member(object, "program", where),
                 .command = text_member(object, "command", where),
                 .hosts = texts(list_member(object, "hosts", where), where + ": hosts"),
                 .step = count_member(object, "step", where),
                 .changed = texts(list_member(object, "changed", where), where + ": changed")};
  if (object.contains("launch")) start.launch = text_member(object, "launch", where);
  // Earlier versions wrote neither.
  if (object.contains("backend")) start.backend = text_member(object, "backend", where);
  if (object.contains("machines"))
    for (const Json& machine : list_member(object, "machines", where))
      start.machines.push_back(read_machine(machine, where + ": machines"));
  return start;
}

}  // namespace

std::string new_run_id() {
  std::random_device random;
  char suffix[16];
  std::snprintf(suffix, sizeof suffix, "-%08x", static_cast<unsigned>(random()));
  return base::utc_seconds_text(std::time(nullptr), "%Y%m%d-%H%M%S") + suffix;
}

std::string run_record_path(const std::string& folder) {
  return (std::filesystem::path(folder) / "run.json").string();
}

bool has_run_record(const std::string& folder) {
  return io::is_regular_file(run_record_path(folder));
}

std::string run_record_json(const RunRecord& record, bool one_line) {
  base::JsonWriter json;
  const auto next = [&] { line(json, one_line); };
  json.begin_object();
  next();
  json.member("schema", kSchema);
  next();
  json.member("run", record.id);
  next();
  json.member("model", record.model);
  next();
  json.member("definition", record.definition);
  next();
  json.key("data");
  write(json, record.data);
  next();
  json.key("options").begin_object();
  for (const auto& [name, entry] : record.options) {
    next();
    json.key(name).begin_object().member("value", entry.value);
    json.member("source", entry.source).end_object();
  }
  json.end_object();
  next();
  json.key("starts").begin_array();
  for (const RunStart& start : record.starts) {
    next();
    write(json, start);
  }
  json.end_array();
  next();
  return json.end_object().text();
}

void write_run_record(const RunRecord& record, const std::string& folder) {
  io::write_file_atomically(run_record_path(folder), run_record_json(record, false) + "\n");
}

RunRecord read_run_record(const std::string& folder) {
  const std::string path = run_record_path(folder);
  const Json json = read_json_file(path, kLargestRecord);
  if (!json.is_object()) throw io::DataError(path + ": expected a JSON object");
  whole_member(json, "schema", kSchema, kSchema, path);
  RunRecord record{.id = text_member(json, "run", path),
                   .model = text_member(json, "model", path),
                   .definition = text_member(json, "definition", path),
                   .data = read_data(member(json, "data", path), path + ": data"),
                   .options = {},
                   .starts = {}};
  if (record.id.empty()) throw io::DataError(path + ": \"run\" is empty; expected the run's id");
  const Json& options = member(json, "options", path);
  if (!options.is_object()) throw io::DataError(path + ": \"options\" is not an object");
  for (const auto& [name, entry] : options.items()) {
    const std::string where = path + ": option " + name;
    const OptionSpec* option = find_option(name);
    if (option == nullptr) {
      record.unknown.push_back(name);
      continue;
    }
    record.options[option->name] = {text_member(entry, "value", where),
                                    text_member(entry, "source", where)};
  }
  for (const Json& start : list_member(json, "starts", path))
    record.starts.push_back(read_start(start, path + ": starts"));
  return record;
}

std::optional<RunRecord> find_run_record(const std::string& folder, std::string& fault) {
  fault.clear();
  std::error_code unknown;
  if (!std::filesystem::exists(std::filesystem::symlink_status(run_record_path(folder), unknown)))
    return std::nullopt;
  try {
    return read_run_record(folder);
  } catch (const io::MissingFileError&) {
    throw;
  } catch (const io::DataError& error) {
    fault = error.what();
    return std::nullopt;
  }
}

bool has_start_of(const RunRecord& record, const std::string& launch) {
  return launch.empty() || std::ranges::any_of(record.starts, [&](const RunStart& start) {
           return start.launch == launch;
         });
}

}  // namespace tools
