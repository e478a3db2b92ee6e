// Formats the start line of a session and the lines after it.
#pragma once

#include <string>
#include <vector>

#include "tools/report/text/session_facts.h"

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
// Returns "Frozen: ...", "" if all parameters are trained.
std::string frozen_line(const SessionFacts& facts);
// Returns the lines that do not fit the start line, in this order, each if there is something to
// report: "Columns of ...", "Steps on the device: ...", "Samples on the device: ...", "Memory:
// ...", "Frozen: ...", "Sampler: ...", and a "shard id: ..." for each rank.
std::vector<std::string> detail_lines(const SessionFacts& facts);
// Returns the lines "Averaging: ...".
std::vector<std::string> averaging_lines(const SessionFacts& facts);
// Returns a line that the run is complete, and how to continue it. REQUIRES: facts.is_complete().
std::string completion_text(const SessionFacts& facts);

}  // namespace tools
