// Formats the start line of a session and the lines after it.
#pragma once

#include <string>
#include <vector>

#include "tools/report/observers/session_facts.h"

namespace tools {

// Returns the line with every resolved choice; "engine 0.2.0: mlp (... parameters, f32) on ...".
std::string start_line(const SessionFacts& facts, const std::string& version);
// Returns e.g. "resumed run/step-00000400.ckpt at step 400". REQUIRES: the state is loaded.
std::string state_text(const SessionFacts& facts);
// Returns the values that depend on the number of ranks if an elastic job's batch scales with it;
// else "".
std::string scale_text(const SessionFacts& facts);
// Returns warnings about the data, without "warning: ".
std::vector<std::string> data_warnings(const SessionFacts& facts);
// Return lines that do not fit the start line: "Columns of ...", "Frozen: ...", "Memory: ...",
// "Sampler: ...", "Averaging: ..."; empty if there is nothing to report.
std::string columns_line(const SessionFacts& facts);
std::string capture_line(const SessionFacts& facts);
std::string placement_line(const SessionFacts& facts);
std::string frozen_line(const SessionFacts& facts);
std::string memory_line(const SessionFacts& facts);
std::string sampler_line(const SessionFacts& facts);
std::vector<std::string> shard_lines(const SessionFacts& facts);
std::vector<std::string> averaging_lines(const SessionFacts& facts);
// Returns a line that the run is complete, and how to continue it. REQUIRES: facts.is_complete().
std::string completion_text(const SessionFacts& facts);

}  // namespace tools
