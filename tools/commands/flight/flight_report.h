// The report of `engine inspect --flight`: merges the last collectives of each rank of a failed run
// (backends/flight_recorder.h), and shows which ranks wait for which.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tools {

struct FlightCall {
  int communicator = 0;  // in the order in which the group made them
  std::int64_t sequence = 0, count = 0, begin_us = 0;
  std::optional<std::int64_t> end_us;  // none: it was running when the record was written
  std::string operation, type, op;     // op: of reductions
  enum class State { kRunning, kDone, kFailed };
  State state = State::kRunning;
  std::optional<int> root;  // of broadcast

  bool same_call(const FlightCall& other) const {
    return operation == other.operation && type == other.type && op == other.op &&
           root == other.root && count == other.count;
  }
};
const char* state_name(FlightCall::State state);  // "done"
std::string to_string(
    const FlightCall& call);  // "all_reduce sum of 7 f32", "broadcast of 12 bytes from rank 0"

struct FlightRecord {
  std::string path, host, backend, reason, activity;
  int rank = 0, world_size = 1;
  std::int64_t pid = 0, written_us = 0;
  std::vector<std::string> membership;  // for an elastic job: changes of its ranks
  std::vector<FlightCall> calls;        // oldest first
};

// Reads flight_rank_*.json of a folder, by rank. Throws io::DataError that names the file if one is
// damaged, from another run, or has no rank.
std::vector<FlightRecord> read_flight_records(const std::string& folder);

struct FlightMismatch {
  std::int64_t sequence = 0;
  std::vector<std::pair<int, FlightCall>> calls;  // for each rank that has it
};

struct FlightCommunicator {
  int id = 0;
  std::optional<FlightCall> common;              // the last call that all its members have finished
  std::vector<std::pair<int, FlightCall>> last;  // each rank's last call
  std::vector<int> behind;  // ranks that never reached the call in which the others are
  // Ranks with a record but without a call: not members, or not there yet.
  std::vector<int> absent;
  std::optional<FlightMismatch> mismatch;  // the first
};

struct FlightReport {
  int world_size = 1;
  std::vector<FlightRecord> records;
  std::vector<int> missing;  // ranks without a file
  std::vector<FlightCommunicator> communicators;
  std::vector<std::string> verdict;  // the most important findings, one line each
};
// REQUIRES: records of one world, by rank; at least one.
FlightReport merge_flight_records(std::vector<FlightRecord> records);

std::string to_text(const FlightReport& report);
std::string to_json(const FlightReport& report);

}  // namespace tools
