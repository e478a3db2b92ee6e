// Reads and writes run.json, which describes a run for users, for plots and for the commands that
// continue it. docs/runs.md has the layout of a run's folder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/data/images/image_format.h"
#include "tools/options/table/option_table.h"

namespace tools {

struct RunData {
  std::string name, folder, digest;  // digest: of the training samples and labels
  std::int64_t train = 0, test = 0;  // samples
  std::int64_t classes = 0;
  std::vector<std::int64_t> shape;                 // shape of a sample
  std::optional<io::Normalization> normalization;  // none: unknown
  std::string vocabulary;                          // for text: the byte of each token id
};

// A machine of ranks: equal machines with equal threads and devices are merged.
struct RunMachine {
  std::vector<int> ranks;
  // "cpu", "threads", "memory", ..., for display; machine_facts.cc has the list.
  std::map<std::string, std::string> facts;
};

// One call of `engine train` on the run: the first, or one that resumed it.
struct RunStart {
  std::string time, program, command;     // UTC; version and commit; as typed
  std::vector<std::string> hosts;         // hosts of the ranks, in rank order
  std::string backend = {};               // e.g. "shm"; "" in records of earlier versions
  std::vector<RunMachine> machines = {};  // empty in records of earlier versions
  std::int64_t step = 0;                  // first step
  std::vector<std::string> changed;       // e.g. "lr 0.05 -> 0.01 (--lr)"
  std::string launch = {};                // the launcher's id; "" without one
};

struct RunRecord {
  std::string id;
  std::string model, definition;  // definition: the layer list of a model from a file; else ""
  RunData data;
  ConfigValues options;  // resolved, each with its source
  std::vector<RunStart> starts;
  std::vector<std::string> unknown = {};  // options of another version, which are not used
};

// Returns a new id: the time in UTC and eight random hex digits, "20260102-030405-89abcdef".
std::string new_run_id();

std::string run_record_path(const std::string& folder);  // FOLDER/run.json
bool has_run_record(const std::string& folder);
// Writes atomically. Throws as io::write_file_atomically does.
void write_run_record(const RunRecord& record, const std::string& folder);
// Throws io::MissingFileError and io::DataError (names the file and the member).
RunRecord read_run_record(const std::string& folder);
// Returns nothing if the folder has no record (`fault` is then "") or one that cannot be used:
// `fault` then names the file and what is wrong. Checkpoints contain what is needed to continue.
// Throws io::Error if the file cannot be opened or read: it may be usable later.
std::optional<RunRecord> find_run_record(const std::string& folder, std::string& fault);
// Returns true if a start of the run has this launcher's id. An unknown id ("") counts as one.
bool has_start_of(const RunRecord& record, const std::string& launch);
// Returns the record as the members of a JSON object, for run.json and the metrics' `start` event.
std::string run_record_json(const RunRecord& record, bool one_line);

}  // namespace tools
